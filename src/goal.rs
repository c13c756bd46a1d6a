//! Goals: parse a goal file, evaluate it read-only, rows to exceptions.
//!
//! A goal is a statement about the fleet, kept as a SQL query that returns the
//! exceptions. This module knows nothing of repairs, findings' states, or the
//! database's own statements: it turns text into [`Goal`]s, and a [`Goal`] and a
//! moment into [`Exception`](crate::model::finding::Exception)s, within bounds.

pub mod constant;
pub mod contract;
pub mod file;
pub mod fixture;
pub mod functions;
pub mod header;
pub mod library;
pub mod lint;
pub mod session;
pub mod setting;
pub mod shipped;
pub mod sql;
pub mod text;
pub mod token;
pub mod trial;
pub mod value;

pub use file::Goal;

/// The engine that a goal's text is for: it decides how quotes and comments are read, and which variant of a
/// file is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Embedded, one file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Engine {
    /// The word in a variant's file name: `<name>.postgres.sql`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}
