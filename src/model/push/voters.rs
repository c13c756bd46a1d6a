//! Who votes on a push: chosen once, in the transaction that opens it, and recorded in its row.

use super::super::fleet::{Intent, ReplicaState, quorum};
use super::super::id::{FileserverId, RackId};
use std::collections::BTreeSet;

/// One replica, as the transaction that opens a push sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub fileserver: FileserverId,
    /// The rack of that fileserver.
    pub rack: RackId,
    /// What it may do.
    pub state: ReplicaState,
    /// What the operator wants of its fileserver.
    pub intent: Intent,
    /// Whether live replicas there count.
    pub counts: bool,
    /// Whether it is in sync at the base version.
    pub in_sync: bool,
    /// Whether the push's objects are there, whole and connected.
    pub ready: bool,
}

impl Candidate {
    /// Whether it takes this push at all.
    fn takes_part(&self) -> bool {
        self.ready && self.in_sync && matches!(self.state, ReplicaState::Live | ReplicaState::Leaving)
    }

    fn is_countable(&self) -> bool {
        let stays = matches!(self.intent, Intent::Serve | Intent::Quiesce);
        self.state == ReplicaState::Live && self.counts && stays
    }
}

/// Who takes part in a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Those whose votes count, in the order in which they were chosen.
    pub voters: Vec<FileserverId>,
    /// Those that get the commands after the verdict.
    pub followers: Vec<FileserverId>,
}

/// Why a push cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{able} of {seats} copies can take a push now, {needed} must agree")]
pub struct TooFew {
    /// How many could vote.
    pub able: u32,
    /// How many share in a verdict.
    pub seats: u32,
    /// How many must agree.
    pub needed: u32,
}

/// Chooses voters: at most `seats`, countable ones first, of those one in each rack first, then what is leaving.
/// Everybody else who is ready and in sync follows.
///
/// # Errors
/// When they are fewer than a quorum.
pub fn choose(candidates: &[Candidate], seats: u32) -> Result<Chosen, TooFew> {
    let takers: Vec<&Candidate> = candidates.iter().filter(|one| one.takes_part()).collect();
    let able: Vec<&Candidate> = takers.iter().copied().filter(|one| one.intent != Intent::Retire).collect();
    let order = in_order(&able);
    let voters: Vec<FileserverId> = order.into_iter().take(seats as usize).collect();
    let needed = quorum(seats);
    let count = u32::try_from(voters.len()).unwrap_or(u32::MAX);
    if count < needed {
        return Err(TooFew { able: count, seats, needed });
    }
    let ids = takers.iter().map(|one| one.fileserver);
    let followers = ids.filter(|id| !voters.contains(id)).collect();
    Ok(Chosen { voters, followers })
}

fn in_order(able: &[&Candidate]) -> Vec<FileserverId> {
    let mut racks = BTreeSet::new();
    let mut order = Vec::with_capacity(able.len());
    for countable in [true, false] {
        let mut again = Vec::new();
        for one in able.iter().filter(|one| one.is_countable() == countable) {
            if racks.insert(one.rack) { &mut order } else { &mut again }.push(one.fileserver);
        }
        order.append(&mut again);
    }
    order
}
