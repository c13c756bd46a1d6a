//! The goals of a directory: loaded whole, watched, the last good version of each kept.
use super::file::Goal;
use std::sync::Arc;

/// One goal's file as it stands: what runs, and what is wrong with the newest text.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The goal's name.
    pub name: String,
    /// The version that runs; none: no good one was ever loaded.
    pub running: Option<Arc<Goal>>,
    /// Why the text on disk is not what runs: `goals/x.sql:7:12: …`.
    pub error: Option<String>,
}
