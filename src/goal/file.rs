//! One goal file: its header and its query.
use crate::model::Millis;
use crate::model::goal::{Mode, Severity, SubjectKind};
use std::path::PathBuf;

/// A goal as its file says, checked as far as text alone can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Its name, the file's stem.
    pub name: String,
    /// The statement in a sentence.
    pub summary: String,
    /// What its rows are about.
    pub subject: SubjectKind,
    /// The remedy; none: findings are only listed.
    pub repair: Option<String>,
    /// Cron with seconds, UTC; none: the configured default.
    pub schedule: Option<cron::Schedule>,
    /// Longest evaluation, milliseconds.
    pub timeout: Millis,
    /// Rows kept as findings.
    pub max_rows: u64,
    /// Repair, or observe.
    pub mode: Mode,
    /// Evaluations in a row before a repair may start.
    pub in_a_row: u32,
    /// Whether its findings wait in the lane of last copies.
    pub last_copies: bool,
    /// For people and alerts.
    pub severity: Severity,
    /// Whether its exceptions are always among the suspects.
    pub suspects: bool,
    /// Where the text was read.
    pub path: PathBuf,
    /// The query, as written.
    pub sql: String,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub digest: String,
}
