//! The history of evaluations: when, how long, how many, what changed.
use super::{Database, Doing, Result, on};
use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// One evaluation that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, sqlx::FromRow)]
pub struct EvaluationRow {
    /// Its number.
    pub id: i64,
    /// When it began.
    pub began_at: Millis,
    /// How long it took.
    pub took_ms: Millis,
    /// Rows that it returned.
    pub findings: i64,
    /// New subjects.
    pub opened: i64,
    /// Subjects that it no longer returned.
    pub closed: i64,
    /// Subjects returned with other values.
    pub changed: i64,
    /// Why it did not finish; then it changed nothing.
    pub error: Option<String>,
}

/// The last evaluations of a goal, latest first, at most `limit`.
///
/// # Errors
/// When the engine fails.
pub async fn history(db: &Database, goal: &str, limit: i64) -> Result<Vec<EvaluationRow>> {
    on!(db, p => sqlx::query_as(
        "/* evaluations::history */ SELECT id, began_at, took_ms, findings, opened, closed, changed, error \
           FROM evaluations WHERE goal = $1 ORDER BY id DESC LIMIT $2",
    )
    .bind(goal).bind(limit).fetch_all(p).await)
    .doing("reading the evaluations of a goal")
}
