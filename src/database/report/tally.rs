//! What ended since the last look: counters for metrics, rates for status. Read by index, from the end.

use super::super::{Database, DatabaseError, Result, on};
use crate::model::Millis;

/// Evaluations of one goal that ended.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct EvaluationTally {
    /// The goal.
    pub goal: String,
    /// Those that found rows.
    pub unmet: i64,
    /// Those that did not finish.
    pub unknown: i64,
    /// All.
    pub total: i64,
    /// The highest number among them.
    pub last: i64,
}

/// Attempts of one repair that ended in one way.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Ended {
    /// The repair.
    pub repair: String,
    /// How they ended.
    pub outcome: String,
    /// How many.
    pub count: i64,
}

/// The highest number given to an evaluation; 0: none.
///
/// # Errors
/// When the engine fails.
pub async fn last_evaluation(db: &Database) -> Result<i64> {
    let (last,): (i64,) = on!(db, p => sqlx::query_as(
        "/* report::tally::last_evaluation */ SELECT COALESCE(max(id), 0) FROM evaluations",
    )
    .fetch_one(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading the last evaluation", source })?;
    Ok(last)
}

/// Evaluations after a number, by goal.
///
/// # Errors
/// When the engine fails.
pub async fn evaluations_after(db: &Database, id: i64) -> Result<Vec<EvaluationTally>> {
    on!(db, p => sqlx::query_as(
        "/* report::tally::evaluations_after */
         SELECT goal, count(CASE WHEN error IS NULL AND findings > 0 THEN 1 END) AS unmet,
                count(CASE WHEN error IS NOT NULL THEN 1 END) AS unknown, count(*) AS total, max(id) AS last
           FROM evaluations WHERE id > $1 GROUP BY goal",
    )
    .bind(id)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "counting evaluations", source })
}

/// Repairs of which an attempt was done or failed since a moment: those that go on.
///
/// # Errors
/// When the engine fails.
pub async fn going_on(db: &Database, since: Millis) -> Result<Vec<String>> {
    on!(db, p => sqlx::query_scalar(
        "/* report::tally::going_on */
         SELECT DISTINCT repair FROM attempt_history
          WHERE finished_at >= $1 AND outcome IN ('succeeded', 'failed') ORDER BY repair",
    )
    .bind(since)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading which repairs go on", source })
}

/// Attempts that ended from one moment up to before another, by repair and outcome.
///
/// # Errors
/// When the engine fails.
pub async fn ended_between(db: &Database, from: Millis, before: Millis) -> Result<Vec<Ended>> {
    on!(db, p => sqlx::query_as(
        "/* report::tally::ended_between */
         SELECT repair, outcome, count(*) AS count FROM attempt_history
          WHERE finished_at >= $1 AND finished_at < $2 GROUP BY repair, outcome",
    )
    .bind(from)
    .bind(before)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "counting ended attempts", source })
}
