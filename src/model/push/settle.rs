//! Deciding a push whose router is gone, from what its fenced voters have.
//!
//! Behind a fence nothing of the push can happen any more, so what a voter tells is final. If any voter has the new
//! references, somebody may have read `ok`, so the others are brought there; if none of a quorum has them, nobody
//! can have. What fits neither is for a resync, and where too few fit, for a person.

use super::super::checksum::Checksum;
use super::super::fleet::quorum;
use super::super::id::FileserverId;

/// An open push, as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The version that it builds on, which is SQL's.
    pub base_version: i64,
    /// The definitive checksum at that version.
    pub base: Checksum,
    /// What it becomes if the push stands.
    pub new: Checksum,
    /// How many replicas share in its verdict.
    pub seats: u32,
}

/// What one voter told behind the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// Whose it is.
    pub voter: FileserverId,
    /// What its references are; none: its copy is gone or damaged.
    pub checksum: Option<Checksum>,
    /// The highest version that was committed there.
    pub journal_version: i64,
}

/// How an open push is to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It stands: version + 1 with the new checksum, once a quorum is equal.
    Committed {
        /// These have the base: they are brought to what `equal` have, first.
        bring: Vec<FileserverId>,
        /// These have the new references.
        equal: Vec<FileserverId>,
        /// These are not in sync: not reached, or neither base nor new.
        out: Vec<FileserverId>,
    },
    /// It does not stand: version + 1 with the old checksum.
    Aborted {
        /// These have the base.
        equal: Vec<FileserverId>,
        /// These are not in sync.
        out: Vec<FileserverId>,
    },
    /// Fewer than a quorum were reached: the row stays, again later.
    Wait,
    /// No rule decides it: a person does.
    Person(Unsettled),
}

/// Why a person must decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsettled {
    /// Too few voters have either the base or the new references.
    FewFit {
        /// How many do.
        fit: u32,
        /// How many must.
        needed: u32,
    },
    /// These committed a version that SQL does not know: SQL went back.
    HistoryLost(Vec<FileserverId>),
}

/// Decides an open push from what its voters told behind the fence. Bringing may fail: then fence and ask again.
#[must_use]
pub fn settle(voters: &[FileserverId], answers: &[Fenced], push: &Open) -> Settled {
    let reached: Vec<&Fenced> = answers.iter().filter(|answer| voters.contains(&answer.voter)).collect();
    let needed = quorum(push.seats);
    if count(&reached) < needed {
        return Settled::Wait;
    }
    let ahead = reached.iter().filter(|answer| answer.journal_version > push.base_version + 1);
    let ahead: Vec<FileserverId> = ahead.map(|answer| answer.voter).collect();
    if !ahead.is_empty() {
        return Settled::Person(Unsettled::HistoryLost(ahead));
    }
    let with = |checksum: &Checksum| -> Vec<FileserverId> {
        let fitting = reached.iter().filter(|answer| answer.checksum.as_ref() == Some(checksum));
        fitting.map(|answer| answer.voter).collect()
    };
    let (new, base) = (with(&push.new), with(&push.base));
    let fit = if new.is_empty() { count(&base) } else { count(&new) + count(&base) };
    let out = voters.iter().copied().filter(|voter| !new.contains(voter) && !base.contains(voter)).collect();
    if fit < needed {
        Settled::Person(Unsettled::FewFit { fit, needed })
    } else if new.is_empty() {
        Settled::Aborted { equal: base, out }
    } else {
        Settled::Committed { bring: base, equal: new, out }
    }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
