//! Where a copy goes.
use super::view::{FleetView, RepositoryView};
use crate::model::finding::Deferral;
use crate::model::id::FileserverId;

/// The fileserver for one more copy: serving, online, below the fill limit after the reservation, in a rack without
/// a copy while there is one; the least full of several candidates drawn by `seed`, weighted by capacity.
///
/// # Errors
/// With the reason, when there is none.
pub fn destination(
    _fleet: &FleetView,
    _repository: &RepositoryView,
    _bytes: i64,
    _seed: u64,
) -> Result<FileserverId, Deferral> {
    todo!()
}

/// Fileservers for all copies of a new repository, at most one in each rack while racks suffice; fewer than `wanted`
/// where there are no more, best first.
#[must_use]
pub fn new_repository(_fleet: &FleetView, _wanted: u32, _bytes: i64, _seed: u64) -> Vec<FileserverId> {
    todo!()
}
