//! Live attempts as a list, and one finding with its story.

use super::super::{Database, DatabaseError, Result, on};
use super::backlog::{BacklogRow, Selected};
use super::story::{AttemptRow, ClosedRow};
use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// One live attempt, by names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct LiveRow {
    /// Its number.
    pub id: i64,
    /// The finding it is for.
    pub finding_id: i64,
    /// That finding's goal.
    pub goal: String,
    /// What it is about.
    pub subject: String,
    /// The repository's name.
    pub repository: Option<String>,
    /// The repair.
    pub repair: String,
    /// The step.
    pub step: String,
    /// Which try of its finding.
    pub number: i32,
    /// `queued` or `running`.
    pub state: String,
    /// Higher is sooner.
    pub priority: i32,
    /// Name of the fileserver that is copied from.
    pub source: Option<String>,
    /// Name of the fileserver that is changed.
    pub destination: Option<String>,
    /// Who has it.
    pub worker: Option<String>,
    /// Until when, unless it is renewed.
    pub lease_until: Option<Millis>,
    /// Bytes that are expected to move.
    pub bytes: i64,
    /// When it was admitted.
    pub queued_at: Millis,
    /// When it was claimed.
    pub started_at: Option<Millis>,
    /// What its worker last said.
    pub progress: Option<String>,
}

/// Live attempts by number, at most `limit`.
///
/// # Errors
/// When the engine fails.
pub async fn live(db: &Database, limit: i64) -> Result<Vec<LiveRow>> {
    on!(db, p => sqlx::query_as(
        "/* report::work::live */
         SELECT a.id, a.finding_id, a.goal, a.subject, p.name AS repository, a.repair, a.step, a.number, a.state,
                a.priority, s.name AS source, d.name AS destination, a.worker, a.lease_until, a.bytes, a.queued_at,
                a.started_at, a.progress
           FROM attempts a
           LEFT JOIN repositories p ON p.id = a.repository_id
           LEFT JOIN fileservers s ON s.id = a.source_id
           LEFT JOIN fileservers d ON d.id = a.destination_id
          ORDER BY a.id LIMIT $1",
    )
    .bind(limit)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "listing live attempts", source })
}

/// Live attempts by repair.
///
/// # Errors
/// When the engine fails.
pub async fn in_flight(db: &Database) -> Result<Vec<(String, i64)>> {
    on!(db, p => sqlx::query_as(
        "/* report::work::in_flight */ SELECT repair, count(*) FROM attempts GROUP BY repair ORDER BY repair",
    )
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "counting live attempts", source })
}

/// One finding, open or closed, with its evidence; none: it never was, or its history was pruned.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Where it is open.
    pub open: Option<BacklogRow>,
    /// Where it is closed.
    pub closed: Option<ClosedRow>,
    /// What its goal's row said.
    pub evidence: serde_json::Value,
}

/// Looks for a finding among the open ones, then in history.
///
/// # Errors
/// When the engine fails, or a row cannot be read.
pub async fn finding(db: &Database, id: i64) -> Result<Option<Found>> {
    let doing = "reading a finding";
    let open: Option<Selected> = on!(db, p => sqlx::query_as(
        "/* report::work::open */
         SELECT n.id, n.goal, n.subject, r.name AS repository, f.name AS fileserver, n.repair, n.state, n.priority,
                n.reason, CAST(n.deferral AS TEXT) AS deferral, n.opened_at, n.tries, n.ineffective, n.next_at,
                a.progress
           FROM findings n
           LEFT JOIN repositories r ON r.id = n.repository_id
           LEFT JOIN fileservers f ON f.id = n.fileserver_id
           LEFT JOIN attempts a ON a.finding_id = n.id
          WHERE n.id = $1",
    )
    .bind(id)
    .fetch_optional(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing, source })?;
    let closed: Option<ClosedRow> = on!(db, p => sqlx::query_as(
        "/* report::work::closed */
         SELECT h.id, h.goal, h.subject, f.name AS fileserver, h.repair, h.reason, h.opened_at, h.closed_at, h.tries
           FROM finding_history h LEFT JOIN fileservers f ON f.id = h.fileserver_id WHERE h.id = $1",
    )
    .bind(id)
    .fetch_optional(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing, source })?;
    if open.is_none() && closed.is_none() {
        return Ok(None);
    }
    let evidence: Option<String> = on!(db, p => sqlx::query_scalar(
        "/* report::work::evidence */ SELECT CAST(evidence AS TEXT) FROM findings WHERE id = $1
         UNION ALL SELECT CAST(evidence AS TEXT) FROM finding_history WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing, source })?;
    let evidence = evidence.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Some(Found { open: open.map(Selected::read).transpose()?, closed, evidence }))
}

/// What was tried for a finding: the live attempt, then those that ended, latest first.
///
/// # Errors
/// When the engine fails.
pub async fn tried(db: &Database, finding: i64, limit: i64) -> Result<Vec<AttemptRow>> {
    on!(db, p => sqlx::query_as(
        "/* report::work::tried */
         SELECT a.id, a.goal, a.subject, a.repair, a.step, a.number, a.state, s.name AS source,
                d.name AS destination, a.worker, a.bytes, a.queued_at, a.started_at, a.finished_at, a.message
           FROM (SELECT id, goal, subject, repair, step, number, state, source_id, destination_id, worker, bytes,
                        queued_at, started_at, CAST(NULL AS BIGINT) AS finished_at, progress AS message
                   FROM attempts WHERE finding_id = $1
                 UNION ALL
                 SELECT id, goal, subject, repair, step, number, outcome, source_id, destination_id, worker, bytes,
                        queued_at, started_at, finished_at, message
                   FROM attempt_history WHERE finding_id = $1) a
           LEFT JOIN fileservers s ON s.id = a.source_id
           LEFT JOIN fileservers d ON d.id = a.destination_id
          ORDER BY a.id DESC LIMIT $2",
    )
    .bind(finding)
    .bind(limit)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading what was tried", source })
}
