//! Counting votes. A vote counts only if the copy had what SQL holds definitive, and will have what SQL expects.
//!
//! So two copies that came back from a snapshot cannot outvote the good one: their `before` is another, and they
//! are marked not in sync at once.

use super::super::checksum::Checksum;
use super::super::fleet::quorum;
use super::super::id::FileserverId;
use super::super::wire::push::Vote;

/// What is known of one voter's vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ballot {
    /// It may still come.
    Awaited,
    /// It came.
    Cast(Vote),
    /// It will not come: refused, unreachable, or too late.
    Lost,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A quorum agrees: these commit, all others abort. Votes that are still awaited may be given a moment, as a
    /// voter that is not told to commit will not be in sync.
    Commit {
        /// Whose votes count.
        to: Vec<FileserverId>,
    },
    /// No quorum can come about any more: all abort.
    Abort,
    /// Neither yet.
    Wait,
}

/// The votes, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// What is to be done.
    pub verdict: Verdict,
    /// Whose votes do not count: their copies are not what SQL holds, and not in sync from now on.
    pub strayed: Vec<FileserverId>,
    /// How many votes are still awaited.
    pub awaited: u32,
}

/// Counts the votes of all voters of a push. `seats` is the repository's, also where voters were fewer.
#[must_use]
pub fn tally(ballots: &[(FileserverId, Ballot)], seats: u32, definitive: &Checksum, new: &Checksum) -> Tally {
    let (mut to, mut strayed, mut awaited) = (Vec::new(), Vec::new(), 0_u32);
    for (voter, ballot) in ballots {
        match ballot {
            Ballot::Awaited => awaited += 1,
            Ballot::Lost => {}
            Ballot::Cast(vote) if vote.before == *definitive && vote.after == *new => to.push(*voter),
            Ballot::Cast(_) => strayed.push(*voter),
        }
    }
    let counting = u32::try_from(to.len()).unwrap_or(u32::MAX);
    let needed = quorum(seats);
    let verdict = if counting >= needed {
        Verdict::Commit { to }
    } else if counting.saturating_add(awaited) < needed {
        Verdict::Abort
    } else {
        Verdict::Wait
    };
    Tally { verdict, strayed, awaited }
}
