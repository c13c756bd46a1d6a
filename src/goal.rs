//! Goals: parse a goal file, evaluate it read-only, rows to exceptions.
//!
//! A goal is a statement about the fleet, kept as a SQL query that returns the
//! exceptions. This module knows nothing of repairs, findings' states, or the
//! database's own statements: it turns text into [`Goal`]s, and a [`Goal`] and a
//! moment into [`Exception`](crate::model::finding::Exception)s, within bounds.

pub mod file;
pub mod library;
pub mod session;

pub use file::Goal;
