//! How an attempt ends, and what errors mean: away, not ours, or failed.

use crate::database::DatabaseError;
use crate::fleet::CallError;
use crate::model::id::FileserverId;
use crate::model::wire::RefusalCode;

/// What became of one attempt's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The step was done; the next evaluation says whether the goal is met.
    Succeeded {
        /// What was seen, for people.
        message: String,
        /// Bytes that were moved.
        bytes: i64,
    },
    /// It was not; a try is used up.
    Failed {
        /// What was seen, for people.
        message: String,
        /// The source, where the failure was its own: it is to be verified.
        blame: Option<FileserverId>,
    },
    /// There was nothing to do, or the plan was no longer true.
    Stale(String),
    /// Somebody did not answer, or is busy: no try is used up.
    Away(String),
    /// An agent saw a higher epoch. If SQL agrees, nothing is written.
    OldEpoch(String),
    /// The attempt is not this worker's any more: nothing is written.
    NotOurs(String),
    /// The worker stops: the attempt goes back to the queue.
    HandBack,
}

impl Outcome {
    /// A failure that nobody is to blame for.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), blame: None }
    }

    /// What an error of a call means. `source` is the fileserver that was copied from.
    pub(super) fn of_call(error: CallError, source: Option<FileserverId>) -> Self {
        match error {
            CallError::Unreachable { .. } | CallError::TimedOut { .. } | CallError::Cancelled => {
                Self::Away(error.to_string())
            }
            CallError::Unreadable { .. } => Self::failed(error.to_string()),
            CallError::Refused(refusal) => match refusal.code {
                RefusalCode::OldEpoch => Self::OldEpoch(refusal.message),
                RefusalCode::Busy | RefusalCode::Cancelled => Self::Away(refusal.message),
                RefusalCode::SourceFailed => Self::Failed { message: refusal.message, blame: source },
                _ => Self::failed(refusal.to_string()),
            },
        }
    }
}

impl From<DatabaseError> for Outcome {
    /// A database that is away is nobody's failure; one that refuses is a plan that is no longer true.
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Refused(why) => Self::Stale(why),
            DatabaseError::Sql { doing, source } => Self::Away(format!("{doing}: {source}")),
            other => Self::failed(other.to_string()),
        }
    }
}

/// A short word for a refusal's code, where a step branches on it.
pub(super) fn refused(error: &CallError) -> Option<RefusalCode> {
    match error {
        CallError::Refused(refusal) => Some(refusal.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wire::Refusal;

    fn refusal(code: RefusalCode) -> Outcome {
        Outcome::of_call(CallError::Refused(Refusal::new(code, "x")), Some(FileserverId(7)))
    }

    #[test]
    fn silence_and_being_busy_use_up_no_try() {
        let silent = CallError::Unreachable { fileserver: "fs-1".into(), why: "refused".into() };
        assert!(matches!(Outcome::of_call(silent, None), Outcome::Away(_)));
        assert!(matches!(refusal(RefusalCode::Busy), Outcome::Away(_)));
    }

    #[test]
    fn a_failure_at_the_source_is_the_sources() {
        let expected = Outcome::Failed { message: "x".into(), blame: Some(FileserverId(7)) };
        assert_eq!(refusal(RefusalCode::SourceFailed), expected);
        assert!(matches!(refusal(RefusalCode::DiskFull), Outcome::Failed { blame: None, .. }));
    }

    #[test]
    fn a_higher_epoch_at_the_agent_is_told_apart_from_failure() {
        assert!(matches!(refusal(RefusalCode::OldEpoch), Outcome::OldEpoch(_)));
    }
}
