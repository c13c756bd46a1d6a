//! Exit codes, and errors that carry one.

use crate::config::ConfigError;
use crate::database::{DatabaseError, words};
use crate::http::ListenError;
use sqlx::error::DatabaseError as _;
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// It went wrong.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// Findings are open.
    Open = 3,
    /// Refused as unsafe.
    Unsafe = 4,
    /// Nobody answers.
    Unreachable = 5,
    /// It took too long and still goes on.
    TimedOut = 6,
    /// A goal is unknown.
    Unknown = 7,
}

/// An error with its exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// One sentence.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

impl Failure {
    /// An error with a code and a sentence.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// With something to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The exit code of an error: that of the first in its chain that has one.
#[must_use]
pub fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.exit;
        }
        if cause.is::<ConfigError>() || cause.is::<ListenError>() {
            return Exit::Usage;
        }
        match cause.downcast_ref::<DatabaseError>() {
            Some(DatabaseError::Version(_)) => return Exit::Usage,
            Some(DatabaseError::Sql { source, .. }) if is_away(source) => return Exit::Unreachable,
            Some(DatabaseError::Sql { source, .. }) if is_no_database(source) => return Exit::Usage,
            _ => {}
        }
    }
    Exit::Failed
}

/// Whether the server is not to be had: it does not answer, or does not let this program in.
fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => {
            error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| keeps_out(error.code()))
        }
        _ => false,
    }
}

/// Codes of PostgreSQL: a connection failed; wrong user or password; no such database; too many connections; the
/// server starts, stops or is down.
fn keeps_out(code: &str) -> bool {
    code.starts_with("08")
        || code.starts_with("28")
        || code.starts_with("57P")
        || matches!(code, "3D000" | "53300")
}

/// Whether the path of an SQLite database leads to none: it cannot be opened, is read-only, or is another kind of file.
fn is_no_database(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    let Some(error) = error.try_downcast_ref::<SqliteError>() else { return false };
    // The low byte is the kind; what is above it says more.
    let code = error.code().and_then(|code| code.parse::<i32>().ok()).map(|code| code & 0xff);
    matches!(code, Some(8 | 14 | 26))
}

/// Prints an error: its chain in one line, and its hint.
pub fn print(error: &anyhow::Error) {
    eprintln!("trued: {}", sentence(error));
    let hint = error.chain().find_map(|cause| cause.downcast_ref::<Failure>()?.hint.as_ref());
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
}

/// The chain in one line.
#[must_use]
pub fn sentence(error: &anyhow::Error) -> String {
    words::sentence(error.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_code_is_found_however_deep_it_lies() {
        let error =
            Err::<(), _>(Failure::new(Exit::Unreachable, "nobody answers")).context("asking").unwrap_err();
        assert_eq!(exit_of(&error), Exit::Unreachable);
        assert_eq!(sentence(&error), "asking: nobody answers");
        assert_eq!(exit_of(&anyhow::anyhow!("something")), Exit::Failed);
        let newer = anyhow::Error::from(DatabaseError::Version("newer".into()));
        assert_eq!(exit_of(&newer), Exit::Usage);
    }

    #[test]
    fn a_server_that_lets_nobody_in_is_away_and_one_that_refuses_a_statement_is_not() {
        for code in ["08006", "28P01", "28000", "3D000", "53300", "57P03"] {
            assert!(keeps_out(code), "{code}");
        }
        for code in ["40001", "42P01", "57014", "53100"] {
            assert!(!keeps_out(code), "{code}");
        }
    }
}
