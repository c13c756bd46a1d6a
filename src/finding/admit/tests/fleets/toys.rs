//! What the simulated fleets are made of: chance from a seed, repositories, and what a step does to one.

use super::*;
use crate::repair::testing::{definitive, replica};

/// A small generator: the same seed, the same fleet, for ever.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, n: u64) -> i64 {
        i64::try_from(self.next() % n.max(1)).unwrap()
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a step does to a repository, in a word.
pub(super) fn effect(
    step: Step,
    view: &mut RepositoryView,
    here: FileserverId,
    subject: Option<FileserverId>,
) {
    match step {
        Step::Resync => {
            if let Some(one) = view.replicas.iter_mut().find(|one| one.fileserver_id == here) {
                (one.in_sync, one.checksum) = (true, Some(definitive()));
            }
        }
        Step::Replicate => view.replicas.push(replica(view.repository.id.0, here.0)),
        Step::Move => {
            view.replicas.push(replica(view.repository.id.0, here.0));
            if let Some(one) = view.replicas.iter_mut().find(|one| Some(one.fileserver_id) == subject) {
                one.state = ReplicaState::Leaving;
            }
        }
        Step::Remove => view.replicas.retain(|one| one.fileserver_id != here),
        Step::Verify => {
            if let Some(one) = view.replicas.iter_mut().find(|one| one.fileserver_id == here) {
                one.verified_at = Some(1);
            }
        }
        _ => {}
    }
}

pub(super) fn any_repository(dice: &mut Dice, id: i64, servers: i64) -> RepositoryView {
    let mut on: Vec<i64> = (1..=servers).filter(|_| dice.one_in(2)).collect();
    if on.is_empty() {
        on.push(1 + dice.below(u64::try_from(servers).unwrap()));
    }
    let mut view = repository(id, &on);
    view.repository.wanted = u32::try_from(1 + dice.below(4)).unwrap();
    view.repository.bytes = 1 + dice.below(150);
    for one in view.replicas.iter_mut().skip(1) {
        if dice.one_in(4) {
            (one.in_sync, one.checksum) = (false, None);
        }
        one.verified_at = if dice.one_in(3) { None } else { Some(0) };
    }
    view
}
