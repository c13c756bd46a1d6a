//! Which brake holds one finding. A brake on copying holds only what it is about: findings
//! that would be none if the fileservers that are away came back.

use super::beyond_grace;
use crate::model::attempt::Step;
use crate::model::brake::{self, BLIND, Brake, OFFLINE, START};
use crate::model::finding::{Finding, Lane};
use crate::model::fleet::{Fileserver, ReplicaState};
use crate::model::id::{FileserverId, RackId};
use crate::repair::view::FleetView;
use std::collections::BTreeSet;

/// The brake that holds a finding whose goal's own brake does not; `step`: what its repair does.
#[must_use]
pub fn keeper(finding: &Finding, step: Option<Step>, view: &FleetView, brakes: &[Brake]) -> Option<String> {
    let holds = |name: &str| brakes.iter().any(|brake| brake.holds && brake.name == name);
    if let Some(name) = [START, BLIND].into_iter().find(|name| holds(name)) {
        return Some(name.to_owned());
    }
    if finding.lane == Lane::Last {
        return None;
    }
    let own = [brake::of_goal(&finding.goal), brake::of_removals(&finding.goal)];
    if let Some(name) = own.into_iter().find(|name| holds(name)) {
        return Some(name);
    }
    if step != Some(Step::Replicate) {
        return None;
    }
    let of_rack = |id: &RackId| {
        let rack = view.fileservers.values().find(|one| one.rack_id == *id)?;
        Some(brake::of_rack(&rack.rack)).filter(|name| holds(name))
    };
    let racks: BTreeSet<RackId> = away(finding, view).map(|one| one.rack_id).collect();
    let name = racks
        .iter()
        .find_map(of_rack)
        .or_else(|| (holds(OFFLINE) && away(finding, view).next().is_some()).then(|| OFFLINE.to_owned()))?;
    enough_with_those_away(finding, view).then_some(name)
}

/// Fileservers beyond their grace that have a copy of the finding's repository.
fn away<'a>(finding: &Finding, view: &'a FleetView) -> impl Iterator<Item = &'a Fileserver> {
    let repository = finding.subject.repository().and_then(|id| view.repositories.get(&id));
    let live =
        repository.into_iter().flat_map(|one| &one.replicas).filter(|one| one.state == ReplicaState::Live);
    live.filter_map(|replica| view.fileservers.get(&replica.fileserver_id)).filter(|one| beyond_grace(one))
}

/// Whether nothing would be missing if those that are away came back: what else is missing is not held.
fn enough_with_those_away(finding: &Finding, view: &FleetView) -> bool {
    let Some(one) = finding.subject.repository().and_then(|id| view.repositories.get(&id)) else {
        return true;
    };
    let counts = |id: &FileserverId| view.fileservers.get(id).is_some_and(|one| one.counts);
    let live = one.replicas.iter().filter(|replica| replica.state == ReplicaState::Live);
    let here = live.filter(|replica| counts(&replica.fileserver_id)).count();
    here + away(finding, view).count() >= usize::try_from(one.repository.wanted).unwrap_or(usize::MAX)
}
