//! What is remembered of goals and evaluations.
use super::{Database, Result};
use crate::model::Millis;
use crate::model::goal::GoalStatus;
use crate::model::id::EvaluationId;

/// The last word of each goal, by name.
///
/// # Errors
/// When the engine fails.
pub async fn states(_db: &Database) -> Result<Vec<GoalStatus>> {
    todo!()
}

/// Says which goals exist, with their texts' digests and the errors of files that do not load; the state of a
/// new one is unknown. Rows of goals that are gone are removed and their findings closed into history.
///
/// # Errors
/// When the engine fails.
pub async fn declare(_db: &Database, _goals: &[Declared]) -> Result<()> {
    todo!()
}

/// One goal as its file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub goal: String,
    /// Digest of the text that runs; none: no good version was ever loaded.
    pub digest: Option<String>,
    /// Why the file on disk is not what runs.
    pub file_error: Option<String>,
}

/// An evaluation that did not finish: the goal is unknown, nothing else changes.
///
/// # Errors
/// When the engine fails.
pub async fn record_failure(
    _db: &Database,
    _goal: &str,
    _began_at: Millis,
    _took_ms: Millis,
    _error: &str,
) -> Result<EvaluationId> {
    todo!()
}
