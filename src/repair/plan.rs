//! A repair made exact for one finding: step, source, destination, size, deadline.
//!
//! Nothing is left to choose when a plan is carried out. Where no plan can be made the
//! reason is said, in words a person reads. Whether the finding still holds is not
//! asked here: its worker asks the goal again before it touches an agent.

use super::file::Repair;
use super::placement;
use super::pressure::{Calm, Pressure};
use super::view::{FleetView, RepositoryView, answers};
use crate::model::attempt::{Plan, Step};
use crate::model::finding::{Deferral, Finding};
use crate::model::fleet::{Fileserver, Health, Intent, ReplicaState};
use crate::model::id::FileserverId;

mod away;
mod exec;

/// The shipped goal whose findings nothing but a copy in another rack can end: one more copy in a rack that
/// has one would leave it as it is, and be made again and again.
const WANTS_NEW_RACK: &str = "racks-differ";

/// The plan for a finding, with no choice left open.
///
/// # Errors
/// With the reason, when there is none.
pub fn plan(finding: &Finding, repair: &Repair, fleet: &FleetView, seed: u64) -> Result<Plan, Deferral> {
    plan_under(finding, repair, fleet, &Calm, seed)
}

/// Like [`plan`], beside other work: a source or a destination that could take part now is preferred to one that is
/// at its limit.
///
/// # Errors
/// With the reason, when there is none.
pub fn plan_under(
    finding: &Finding,
    repair: &Repair,
    fleet: &FleetView,
    pressure: &dyn Pressure,
    seed: u64,
) -> Result<Plan, Deferral> {
    if repair.step == Step::Purge {
        return away::purge(finding, repair, fleet, pressure);
    }
    if repair.step == Step::Settle {
        return settle(finding, repair, fleet);
    }
    if repair.step == Step::Exec {
        return exec::plan(finding, repair, fleet, pressure);
    }
    let repository =
        finding.subject.repository().and_then(|id| fleet.repositories.get(&id)).ok_or_else(gone)?;
    let planner = Planner { finding, repair, fleet, repository, pressure };
    let destination = match repair.step {
        Step::Replicate => planner.new_place(seed)?,
        Step::Move => planner.moved_place(seed)?,
        Step::Resync | Step::Verify | Step::Scrub | Step::Repack => planner.subject_place()?,
        Step::Resume => planner.changing_place()?,
        // Planned above, without a place of the planner's.
        Step::Remove | Step::Purge | Step::Settle | Step::Exec => planner.spare_place()?,
    };
    let source = match repair.step {
        Step::Verify
        | Step::Scrub
        | Step::Repack
        | Step::Resume
        | Step::Remove
        | Step::Purge
        | Step::Settle
        | Step::Exec => None,
        Step::Resync | Step::Replicate | Step::Move => Some(planner.source(destination)?),
    };
    Ok(planner.exact(source, destination))
}

/// The plan to settle a push: of the whole repository, at all its fileservers, so that none is named.
fn settle(finding: &Finding, repair: &Repair, fleet: &FleetView) -> Result<Plan, Deferral> {
    let view = finding.subject.repository().and_then(|id| fleet.repositories.get(&id)).ok_or_else(gone)?;
    let bytes = view.repository.bytes.max(0);
    Ok(Plan {
        step: Step::Settle,
        repository_id: Some(view.repository.id),
        source_id: None,
        destination_id: None,
        bytes: 0,
        deadline_ms: repair.deadline.for_bytes(bytes),
        bytes_per_second: repair.throttle.bytes_per_second,
        write_lock: false,
        path: None,
    })
}

mod moving;

struct Planner<'a> {
    finding: &'a Finding,
    repair: &'a Repair,
    fleet: &'a FleetView,
    repository: &'a RepositoryView,
    pressure: &'a dyn Pressure,
}

impl Planner<'_> {
    fn exact(&self, source_id: Option<FileserverId>, destination_id: FileserverId) -> Plan {
        let bytes = self.repository.repository.bytes.max(0);
        Plan {
            step: self.repair.step,
            repository_id: Some(self.repository.repository.id),
            source_id,
            destination_id: Some(destination_id),
            bytes,
            deadline_ms: self.repair.deadline.for_bytes(bytes),
            bytes_per_second: self.repair.throttle.bytes_per_second,
            // Reading never stops a push.
            write_lock: !self.repair.yields() && self.finding.ineffective >= self.repair.retry.lock_after,
            path: None,
        }
    }

    /// The fileserver of the replica that the finding is about.
    fn subject_place(&self) -> Result<FileserverId, Deferral> {
        let id = self.finding.subject.fileserver().ok_or_else(gone)?;
        let replica = self.repository.on(id).ok_or_else(gone)?;
        if !matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving) {
            return Err(gone());
        }
        self.there(id)
    }

    /// The fileserver of a copy or a removal that was begun and not finished.
    fn changing_place(&self) -> Result<FileserverId, Deferral> {
        let id = self.finding.subject.fileserver().ok_or_else(gone)?;
        let replica = self.repository.on(id).ok_or_else(gone)?;
        if !matches!(replica.state, ReplicaState::Creating | ReplicaState::Removing) {
            return Err(gone());
        }
        self.there(id)
    }

    /// A fileserver that answers, holds what SQL believes it to hold, and may take part now.
    fn there(&self, id: FileserverId) -> Result<FileserverId, Deferral> {
        answering(self.fleet, id)?;
        self.pressure.barred(id).map_or(Ok(id), Err)
    }

    /// The fileserver of a copy that is yet to be made: where one was begun and never finished, if that is still as
    /// good as any; where the goal says; else where placement says.
    fn new_place(&self, seed: u64) -> Result<FileserverId, Deferral> {
        let bytes = self.finding.hints.bytes.unwrap_or(0).max(self.repository.repository.bytes);
        let new_rack = self.finding.goal == WANTS_NEW_RACK;
        let (fleet, repository, pressure) = (self.fleet, self.repository, self.pressure);
        let free = |id| placement::may_take(fleet, repository, bytes, new_rack, pressure, id);
        if let Some(id) = self.finding.hints.destination_id {
            if repository.on(id).is_some_and(|replica| replica.state != ReplicaState::Creating) {
                return Err(Deferral::NoDestination {
                    causes: vec![("with the repository on it".to_owned(), 1)],
                });
            }
            return free(id).and_then(|()| pressure.barred(id).map_or(Ok(id), Err));
        }
        let begun = repository.replicas.iter().filter(|replica| replica.state == ReplicaState::Creating);
        let mut begun = begun.map(|replica| replica.fileserver_id);
        let again = begun
            .find(|id| free(*id).is_ok() && placement::is_best_rack(fleet, repository, bytes, pressure, *id));
        match again {
            Some(id) => pressure.barred(id).map_or(Ok(id), Err),
            None => placement::destination_under(fleet, repository, bytes, new_rack, pressure, seed),
        }
    }

    /// The replica to copy from: definitive, on a fileserver that answers, least loaded; one that the goal names
    /// comes first, one that should get no new long reads comes last.
    fn source(&self, destination: FileserverId) -> Result<FileserverId, Deferral> {
        let mut able: Vec<&Fileserver> = self
            .repository
            .replicas
            .iter()
            .filter(|replica| self.repository.is_definitive(replica) && replica.fileserver_id != destination)
            .filter_map(|replica| self.fleet.fileservers.get(&replica.fileserver_id))
            .filter(|fileserver| answers(fileserver))
            .collect();
        if able.is_empty() {
            return Err(self.no_source());
        }
        let barred = able.iter().find_map(|one| self.pressure.barred(one.id));
        able.retain(|one| self.pressure.barred(one.id).is_none());
        // A copy that was begun goes on from what arrived: files of another source are other files.
        let begun = self.repository.on(destination).and_then(|replica| replica.copied_from);
        let hint = self.finding.hints.source_id.or(begun);
        able.into_iter()
            .min_by_key(|one| {
                let unasked = hint != Some(one.id);
                (unasked, one.intent == Intent::Quiesce, self.pressure.busy(one.id), one.load, one.id)
            })
            .map(|one| one.id)
            .ok_or_else(|| barred.unwrap_or(Deferral::NoSource))
    }
}

impl Planner<'_> {
    /// Why there is no source: those that are good do not answer, or there is none, and only a person can help.
    fn no_source(&self) -> Deferral {
        let good = |replica| self.repository.is_definitive(replica);
        if self.repository.repository.checksum.is_none() || self.repository.replicas.iter().any(good) {
            return Deferral::NoSource;
        }
        let reason = "unrecoverable here: no copy anywhere has the definitive checksum; nothing is removed";
        Deferral::Stuck { reason: reason.to_owned() }
    }
}

/// Whether what stands on a fileserver can be worked on now.
fn answering(fleet: &FleetView, id: FileserverId) -> Result<(), Deferral> {
    let fileserver = fleet.fileservers.get(&id).ok_or_else(gone)?;
    if fileserver.health != Health::Online {
        return Err(Deferral::FileserverAway { fileserver: fileserver.name.clone() });
    }
    if fileserver.empty_since.is_some() {
        // An unmounted disk looks like this: filling the directory beneath it would hide what is there.
        return Err(Deferral::NoDestination { causes: vec![("with an empty root".to_owned(), 1)] });
    }
    Ok(())
}

/// What the finding was about is not in the view: the goal's next evaluation will not return it.
fn gone() -> Deferral {
    Deferral::NoDestination { causes: vec![("on which this replica no longer stands".to_owned(), 1)] }
}

#[cfg(test)]
mod tests;
