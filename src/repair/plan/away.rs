//! Plans of what takes copies away: where, which copy, and what forbids it.
//!
//! Here only what is plainly unsafe is refused, from what SQL remembers. The removal itself
//! asks the other copies' agents afresh before it touches anything.

use super::{Planner, answering, gone};
use crate::model::attempt::Plan;
use crate::model::finding::{Deferral, Finding};
use crate::model::fleet::ReplicaState;
use crate::model::id::FileserverId;
use crate::repair::file::Repair;
use crate::repair::pressure::Pressure;
use crate::repair::safety::may_remove;
use crate::repair::view::FleetView;

impl Planner<'_> {
    /// The fileserver of the replica that the finding is about, if the others suffice without it. One whose removal
    /// was begun is gone on with: what could forbid it was asked then.
    pub(super) fn spare_place(&self) -> Result<FileserverId, Deferral> {
        let id = self.finding.subject.fileserver().ok_or_else(gone)?;
        match self.repository.on(id).ok_or_else(gone)?.state {
            ReplicaState::Creating => return Err(gone()),
            ReplicaState::Removing => {}
            ReplicaState::Live | ReplicaState::Leaving => may_remove(self.fleet, self.repository, id)?,
        }
        answering(self.fleet, id)?;
        self.pressure.barred(id).map_or(Ok(id), Err)
    }
}

/// The plan of a purge: of the copy in quarantine that the goal names, else of what stands at the copy's place.
/// Its repository may be gone, and known by its tombstone alone.
pub(super) fn purge(
    finding: &Finding,
    repair: &Repair,
    fleet: &FleetView,
    pressure: &dyn Pressure,
) -> Result<Plan, Deferral> {
    let (Some(repository_id), Some(destination_id)) =
        (finding.subject.repository(), finding.subject.fileserver())
    else {
        return Err(gone());
    };
    answering(fleet, destination_id)?;
    if let Some(barred) = pressure.barred(destination_id) {
        return Err(barred);
    }
    let bytes = finding.hints.bytes.unwrap_or(0).max(0);
    Ok(Plan {
        step: repair.step,
        repository_id: Some(repository_id),
        source_id: None,
        destination_id: Some(destination_id),
        bytes,
        deadline_ms: repair.deadline.for_bytes(bytes),
        bytes_per_second: 0,
        write_lock: false,
        path: finding.hints.path.clone(),
    })
}
