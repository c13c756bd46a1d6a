//! Attempts: one numbered try of one plan, and the one function that moves it between states.
//!
//! ```text
//! queued ─▶ running ─▶ succeeded     the step was done; not: the goal is met
//!    │         ├─────▶ failed        may be tried again, after backoff
//!    │         ├─────▶ cancelled     by a person, or its destination went silent
//!    │         └─────▶ lost          the lease ran out; nobody knows
//!    └───────────────▶ stale         the finding no longer held, or the plan was no longer true
//! ```

use super::Millis;
use super::finding::{Lane, Subject};
use super::id::{AttemptId, FileserverId, FindingId, RepositoryId};
use crate::words;
use serde::{Deserialize, Serialize};

words!(
    /// Where an attempt stands.
    AttemptState, "attempt state" {
        /// Admitted, nobody has it.
        Queued = "queued",
        /// A worker has it under a lease.
        Running = "running",
        /// The step was done.
        Succeeded = "succeeded",
        /// The step was not done; it may be tried again.
        Failed = "failed",
        /// Ended by a person, or for a more urgent one.
        Cancelled = "cancelled",
        /// Its lease ran out.
        Lost = "lost",
        /// There was nothing to do any more.
        Stale = "stale",
    }
);

words!(
    /// What happens to an attempt.
    AttemptEvent, "attempt event" {
        /// A worker took it.
        Claim = "claim",
        /// Its worker gives it back unfinished (shutdown).
        HandBack = "hand-back",
        /// Its step was done.
        Succeed = "succeed",
        /// Its step was not done.
        Fail = "fail",
        /// Somebody ended it.
        Cancel = "cancel",
        /// Its lease ran out.
        Lose = "lose",
        /// Its finding no longer holds, or its plan is no longer true.
        GoStale = "go-stale",
    }
);

impl AttemptState {
    /// Whether nothing can happen to it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// The state after an event, or `None` where the event cannot happen in this state.
    #[must_use]
    pub const fn after(self, event: AttemptEvent) -> Option<Self> {
        Some(match (self, event) {
            (Self::Queued, AttemptEvent::Claim) => Self::Running,
            (Self::Running, AttemptEvent::HandBack) => Self::Queued,
            (Self::Running, AttemptEvent::Succeed) => Self::Succeeded,
            (Self::Running, AttemptEvent::Fail) => Self::Failed,
            (Self::Queued | Self::Running, AttemptEvent::Cancel) => Self::Cancelled,
            (Self::Running, AttemptEvent::Lose) => Self::Lost,
            (Self::Queued | Self::Running, AttemptEvent::GoStale) => Self::Stale,
            _ => return None,
        })
    }
}

words!(
    /// The one safe action that a repair does. Later versions know more: a worker leaves
    /// an attempt whose step it does not know in the queue.
    Step, "step" {
        /// Bring an existing replica to the definitive references, objects included.
        Resync = "resync",
        /// Make one more replica.
        Replicate = "replicate",
        /// Make one more replica, and mark the one that the finding is about leaving once it is there.
        Move = "move",
        /// Compare a replica with its disk.
        Verify = "verify",
        /// Check every object of a replica.
        Scrub = "scrub",
        /// Pack a replica anew, with what makes reading it cheap.
        Repack = "repack",
        /// Finish or undo a copy or a removal that nobody works on any more.
        Resume = "resume",
        /// Take a replica away that is provably spare: set aside at its agent, never unlinked.
        Remove = "remove",
        /// Unlink what was set aside, or what stands where nothing may.
        Purge = "purge",
        /// Decide a push whose router is gone.
        Settle = "settle",
        /// Run an operator's own program.
        Exec = "exec",
    }
);

impl Step {
    /// Whether it takes something away: then its finding must be known to hold, not only not known to be over.
    #[must_use]
    pub const fn takes_away(self) -> bool {
        matches!(self, Self::Remove | Self::Purge)
    }

    /// Whether it brings a copy's bytes to its destination: they count there before they have arrived.
    #[must_use]
    pub const fn brings_bytes(self) -> bool {
        match self {
            Self::Resync | Self::Replicate | Self::Move => true,
            Self::Verify
            | Self::Scrub
            | Self::Repack
            | Self::Resume
            | Self::Remove
            | Self::Purge
            | Self::Settle
            | Self::Exec => false,
        }
    }

    /// Whether it begins a copy where none was: a row in state creating, to be forgotten where it fails.
    #[must_use]
    pub const fn begins_copy(self) -> bool {
        matches!(self, Self::Replicate | Self::Move)
    }
}

/// A repair made exact for one finding: no choice is left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is done.
    pub step: Step,
    /// The repository it is done to; only a program of an operator's own may have none.
    pub repository_id: Option<RepositoryId>,
    /// The fileserver that is copied from.
    pub source_id: Option<FileserverId>,
    /// The fileserver that is changed or looked at; only a program of an operator's own may have none.
    pub destination_id: Option<FileserverId>,
    /// Bytes that are expected to move.
    pub bytes: i64,
    /// Longest time without progress, and the base of the whole, in milliseconds.
    pub deadline_ms: Millis,
    /// Bytes per second of one copy; 0: unlimited.
    pub bytes_per_second: i64,
    /// Whether the repository's write lock is taken for it.
    pub write_lock: bool,
    /// Which copy in quarantine is meant, by its path below the agent's root; none: the copy at its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// One attempt that is queued or running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number.
    pub id: AttemptId,
    /// The finding it is for.
    pub finding_id: FindingId,
    /// That finding's goal.
    pub goal: String,
    /// That finding's subject.
    pub subject: Subject,
    /// The repair.
    pub repair: String,
    /// Which try of this finding it is, from 1.
    pub number: i32,
    /// Queued or running.
    pub state: AttemptState,
    /// The lane it came from.
    pub lane: Lane,
    /// Higher is sooner.
    pub priority: i32,
    /// What is to be done.
    pub plan: Plan,
    /// The repair epoch that its claim was given; 0 while queued.
    pub epoch: i64,
    /// The worker that has it.
    pub worker: Option<String>,
    /// Until when, by the database's clock.
    pub lease_until: Option<Millis>,
    /// When it was admitted.
    pub queued_at: Millis,
    /// When it was claimed.
    pub started_at: Option<Millis>,
    /// What its worker last said about it, for people.
    pub progress: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// The event that ended it.
    pub event: AttemptEvent,
    /// What was seen, for people: git's own words where git spoke.
    pub message: String,
    /// Bytes that were moved.
    pub bytes: i64,
    /// Who is to blame, if known: a failure at the source makes the source be verified.
    pub blame: Option<FileserverId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_have_no_way_out() {
        for state in AttemptState::ALL.iter().filter(|state| state.is_final()) {
            for event in AttemptEvent::ALL {
                assert_eq!(state.after(*event), None, "{state} must not move on {event}");
            }
        }
    }

    #[test]
    fn only_queued_attempts_are_claimed_and_only_running_ones_are_lost() {
        assert_eq!(AttemptState::Queued.after(AttemptEvent::Claim), Some(AttemptState::Running));
        assert_eq!(AttemptState::Running.after(AttemptEvent::Claim), None);
        assert_eq!(AttemptState::Queued.after(AttemptEvent::Lose), None);
    }
}
