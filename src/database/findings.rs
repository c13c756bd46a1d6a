//! Findings: merged as a set, promoted when due, deferred with a reason.
use super::{Database, Result};
use crate::model::Millis;
use crate::model::finding::{Deferral, Exception, Finding, Lane};
use crate::model::goal::SubjectKind;
use crate::model::id::{EvaluationId, FindingId, RepositoryId};

/// What the merge needs to know of a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeInto {
    /// The goal.
    pub goal: String,
    /// What its rows are about.
    pub subject: SubjectKind,
    /// Its repair; none: listed only (observe mode too).
    pub repair: Option<String>,
    /// Whether its findings go to the lane of last copies.
    pub last_copies: bool,
    /// When the evaluation began, by the database's clock.
    pub began_at: Millis,
    /// Backoff after an ineffective attempt, by their number from 1: milliseconds.
    pub backoff_ms: Vec<Millis>,
    /// Ineffective attempts after which a finding is stuck.
    pub stuck_after: i32,
}

/// What a merge changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merged {
    /// The evaluation's number.
    pub evaluation: EvaluationId,
    /// Rows returned.
    pub returned: i64,
    /// Findings opened.
    pub opened: i64,
    /// Findings closed into history.
    pub closed: i64,
    /// Findings whose priority, reason, hints or evidence changed.
    pub changed: i64,
}

/// Collects an evaluation's rows outside of any transaction, then merges them as a set in one.
#[derive(Debug)]
pub struct Merge {}

impl Merge {
    /// Begins to collect rows for a goal.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn begin(_db: &Database, _into: MergeInto) -> Result<Self> {
        todo!()
    }

    /// Adds a batch of rows (the caller's batches bound the memory; 1,000 is good).
    ///
    /// # Errors
    /// When a subject came twice (`Refused`, naming it), or the engine fails.
    pub async fn add(&mut self, _rows: &[Exception]) -> Result<()> {
        todo!()
    }

    /// One transaction: new subjects open, subjects not returned close into history, changed ones change, the
    /// rest is not written at all; findings whose succeeded attempt ended before the evaluation began and that
    /// were returned again count one ineffective attempt and back off (or become stuck); the goal's state and
    /// the evaluation are written.
    ///
    /// # Errors
    /// When the engine fails; then nothing has changed.
    pub async fn finish(self, _took_ms: Millis) -> Result<Merged> {
        todo!()
    }
}

/// Findings that wait and are due become ready; at most `limit`. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn promote_due(_db: &Database, _limit: i64) -> Result<u64> {
    todo!()
}

/// Lanes that have ready findings.
///
/// # Errors
/// When the engine fails.
pub async fn ready_lanes(_db: &Database) -> Result<Vec<Lane>> {
    todo!()
}

/// The head of one lane: the first by priority, and the oldest, up to these numbers, each once.
///
/// # Errors
/// When the engine fails.
pub async fn lane_head(_db: &Database, _lane: Lane, _by_priority: i64, _oldest: i64) -> Result<Vec<Finding>> {
    todo!()
}

/// Writes why findings wait; those whose reason is the same are not written. With a moment they wait until then
/// (state waiting), without they stay ready.
///
/// # Errors
/// When the engine fails.
pub async fn defer(_db: &Database, _deferred: &[(FindingId, Deferral, Option<Millis>)]) -> Result<u64> {
    todo!()
}

/// Open findings about a repository.
///
/// # Errors
/// When the engine fails.
pub async fn of_repository(_db: &Database, _id: RepositoryId) -> Result<Vec<Finding>> {
    todo!()
}
