//! What a failed call means for whoever made it: try elsewhere, try again, or give up; and whether it speaks against
//! the fileserver itself or only against what was asked of it.

use super::CallError;
use crate::model::wire::RefusalCode;

/// What may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Another fileserver may well do it.
    Elsewhere,
    /// The same one may do it in a while, and so may another.
    Again,
    /// Nobody will.
    GiveUp,
}

impl CallError {
    /// What may help.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => Class::Again,
            Self::Unreadable { .. } => Class::Elsewhere,
            Self::Cancelled => Class::GiveUp,
            Self::Refused(refusal) => match refusal.code {
                RefusalCode::Busy | RefusalCode::Cancelled | RefusalCode::Failed => Class::Again,
                RefusalCode::BadRequest | RefusalCode::Rejected | RefusalCode::Expired => Class::GiveUp,
                _ => Class::Elsewhere,
            },
        }
    }

    /// Whether it speaks against the fileserver, whatever was asked: no answer, or one that no agent gives, or an
    /// agent that cannot run git at all. A copy that is missing or damaged there does not.
    #[must_use]
    pub const fn is_the_fileservers(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Unreadable { .. } => true,
            Self::Refused(refusal) => matches!(refusal.code, RefusalCode::Failed),
            Self::Cancelled => false,
        }
    }

    /// A word for metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::TimedOut { .. } => "timed-out",
            Self::Unreadable { .. } => "unreadable",
            Self::Cancelled => "cancelled",
            Self::Refused(refusal) => refusal.code.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wire::Refusal;

    fn refused(code: RefusalCode) -> CallError {
        Refusal::new(code, "no").into()
    }

    #[test]
    fn a_copy_that_is_missing_or_damaged_says_nothing_against_its_fileserver() {
        for code in [RefusalCode::NotFound, RefusalCode::Damaged, RefusalCode::Busy, RefusalCode::Forbidden] {
            assert!(!refused(code).is_the_fileservers(), "{code}");
            assert_ne!(refused(code).class(), Class::GiveUp, "{code}");
        }
        let silent = CallError::TimedOut { fileserver: "fs".into(), after: std::time::Duration::ZERO };
        assert!(silent.is_the_fileservers() && silent.class() == Class::Again);
        assert!(refused(RefusalCode::Failed).is_the_fileservers(), "git fails, whatever status says");
    }

    #[test]
    fn what_the_client_did_wrong_is_wrong_everywhere() {
        assert_eq!(refused(RefusalCode::BadRequest).class(), Class::GiveUp);
    }
}
