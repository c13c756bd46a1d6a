//! The plan of a repair that is an operator's own program.
//!
//! There is nothing to choose: the finding says what it is about, and the program is what the
//! repair's file names on the machine of its worker. A fileserver takes part whether or not it
//! answers: that it does not may be just what the program is for.

use super::gone;
use crate::model::attempt::{Plan, Step};
use crate::model::finding::{Deferral, Finding};
use crate::repair::Repair;
use crate::repair::pressure::Pressure;
use crate::repair::view::FleetView;

pub(super) fn plan(
    finding: &Finding,
    repair: &Repair,
    fleet: &FleetView,
    pressure: &dyn Pressure,
) -> Result<Plan, Deferral> {
    let (repository_id, destination_id) = (finding.subject.repository(), finding.subject.fileserver());
    let repository = repository_id.map(|id| fleet.repositories.get(&id).ok_or_else(gone)).transpose()?;
    if let Some(id) = destination_id {
        fleet.fileservers.get(&id).ok_or_else(gone)?;
        pressure.barred(id).map_or(Ok(()), Err)?;
    }
    let size = repository.map_or(0, |view| view.repository.bytes.max(0));
    Ok(Plan {
        step: Step::Exec,
        repository_id,
        source_id: None,
        destination_id,
        bytes: 0,
        deadline_ms: repair.deadline.for_bytes(size),
        bytes_per_second: 0,
        write_lock: repository_id.is_some() && finding.ineffective >= repair.retry.lock_after,
        path: None,
    })
}
