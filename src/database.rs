//! Every SQL text but the goals': one function a statement, on SQLite and PostgreSQL alike.
//!
//! Each text begins with a comment that names its function, so that the database's
//! activity view reads like code. Transactions are short and never span a call to an
//! agent. Everybody locks the repository's row first, then its replicas.

use crate::model::Millis;

pub mod attempts;
pub mod audit;
pub mod fileservers;
pub mod findings;
pub mod fleet;
pub mod goals;
pub mod inventory;
pub mod leases;
pub mod parts;
pub mod replicas;
pub mod report;
pub mod repositories;
pub mod suspects;

/// A database of trued: a pool on one of the two engines.
#[derive(Debug, Clone)]
pub struct Database {}

/// Which engine a database runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Embedded, one file.
    Sqlite,
    /// A server.
    Postgres,
}

/// Why a statement did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The engine's own error.
    #[error("{doing}")]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// The engine's words.
        #[source]
        source: sqlx::Error,
    },
    /// The tables are of another version than this program's.
    #[error("{0}")]
    Version(String),
    /// What is asked cannot be, as things stand: a name is taken, a row is missing, a bound is broken.
    #[error("{0}")]
    Refused(String),
    /// A row holds what this program cannot read.
    #[error("{0}")]
    Unreadable(String),
}

/// Shorthand for this module's results.
pub type Result<T> = std::result::Result<T, DatabaseError>;

/// How the tables stand to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// Up to date.
    Current,
    /// So many migrations are missing.
    Behind(usize),
    /// Made by a newer program.
    Newer {
        /// The highest migration in the database.
        found: i64,
        /// The highest that this program knows.
        known: i64,
    },
}

impl Database {
    /// Opens `sqlite:PATH` (or `sqlite://PATH`; the file is made) or `postgres://…`. Applies no migration.
    ///
    /// # Errors
    /// When the URL is of neither kind, or the engine cannot be reached within ten seconds.
    pub async fn open(_url: &str) -> Result<Self> {
        todo!()
    }

    /// The engine it runs on.
    #[must_use]
    pub fn engine(&self) -> Engine {
        todo!()
    }

    /// The URL it was opened with, for goal sessions.
    #[must_use]
    pub fn url(&self) -> &str {
        todo!()
    }

    /// How its tables stand to this program.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn schema(&self) -> Result<SchemaState> {
        todo!()
    }

    /// Applies what is missing; refuses tables that are newer than this program. Returns how many it applied.
    ///
    /// # Errors
    /// When the tables are newer, or the engine fails.
    pub async fn migrate(&self) -> Result<usize> {
        todo!()
    }

    /// Now, by the database's clock.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn now(&self) -> Result<Millis> {
        todo!()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        todo!()
    }
}
