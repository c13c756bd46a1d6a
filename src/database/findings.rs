//! Findings: merged as a set, promoted when due, deferred with a reason.
//!
//! Nothing here reads the whole backlog: a round of dispatch looks at the head of each
//! lane by index, and what did not change is not written.
use super::rows::{self, FindingRow};
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, Doing, Result, on};
use crate::model::Millis;
use crate::model::finding::{Deferral, Finding, Lane};
use crate::model::id::{FindingId, RepositoryId};
use sqlx::types::Json;

mod merge;
mod paused;
mod undone;
mod verbs;

pub use merge::{BrakeAt, Merge, MergeInto, Merged};
pub use paused::{hold_goal, release_but};
pub use undone::{hold_undone, moves, undone};
pub(in crate::database) use verbs::finish;
pub use verbs::{By, bump, retry};

/// Findings that wait and are due become ready, last copies before all others; at most `limit` of each. Returns how
/// many.
///
/// # Errors
/// When the engine fails.
pub async fn promote_due(db: &Database, limit: i64) -> Result<u64> {
    // Mostly nothing is due: looking costs no write lock. The first one is asked for, not whether there is one: a planner
    // that believes many to be due reads the whole table to find that none is.
    let due: Option<i64> = on!(db, p => sqlx::query_scalar(
        "/* findings::first_due */ SELECT first.next_at FROM (SELECT next_at FROM findings WHERE state = 'waiting' \
            AND repair IS NOT NULL AND repaired_at IS NULL ORDER BY next_at LIMIT 1) AS first \
          WHERE first.next_at <= (SELECT now FROM clock)",
    )
    .fetch_optional(p).await)
    .doing("looking for findings that are due")?;
    if due.is_some() { retrying!(try_promote(db, limit).await) } else { Ok(0) }
}

async fn try_promote(db: &Database, limit: i64) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let last = promote_last(&mut tx, limit).await?;
    let text = tx.engine().text(
        "/* findings::promote_due, sqlite */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id IN (SELECT id FROM findings WHERE state = 'waiting' AND repair IS NOT NULL \
                          AND repaired_at IS NULL AND next_at <= (SELECT now FROM clock) \
                        ORDER BY next_at LIMIT $1)",
        "/* findings::promote_due, postgres */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id = ANY (ARRAY(SELECT id FROM findings WHERE state = 'waiting' AND repair IS NOT NULL \
                          AND repaired_at IS NULL AND next_at <= (SELECT now FROM clock) \
                        ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
    );
    let promoted = within!(&mut tx, c => sqlx::query(text).bind(limit)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("making due findings ready")?;
    tx.commit().await?;
    Ok(last + promoted)
}

/// Last copies wait behind nobody, however many others are due at the same second.
async fn promote_last(tx: &mut Tx, limit: i64) -> Result<u64> {
    let text = tx.engine().text(
        "/* findings::promote_last, sqlite */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id IN (SELECT id FROM findings WHERE state = 'waiting' AND repair IS NOT NULL \
                          AND repaired_at IS NULL AND lane = -1 AND next_at <= (SELECT now FROM clock) \
                        ORDER BY next_at LIMIT $1)",
        "/* findings::promote_last, postgres */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id = ANY (ARRAY(SELECT id FROM findings WHERE state = 'waiting' AND repair IS NOT NULL \
                          AND repaired_at IS NULL AND lane = -1 AND next_at <= (SELECT now FROM clock) \
                        ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
    );
    within!(tx, c => sqlx::query(text).bind(limit).execute(c).await.map(|done| done.rows_affected()))
        .doing("making last copies that are due ready")
}

/// Lanes that have ready findings, in the order of their numbers.
///
/// # Errors
/// When the engine fails.
pub async fn ready_lanes(db: &Database) -> Result<Vec<Lane>> {
    // One step of the index a lane, however many findings wait in each.
    let lanes: Vec<i64> = on!(db, p => sqlx::query_scalar(
        "/* findings::ready_lanes */ WITH RECURSIVE lanes (lane) AS ( \
           SELECT min(lane) FROM findings WHERE state = 'ready' \
           UNION ALL \
           SELECT (SELECT min(f.lane) FROM findings f WHERE f.state = 'ready' AND f.lane > l.lane) \
             FROM lanes l WHERE l.lane IS NOT NULL) \
         SELECT lane FROM lanes WHERE lane IS NOT NULL",
    )
    .fetch_all(p).await)
    .doing("reading which lanes have ready findings")?;
    Ok(lanes.into_iter().map(Lane::from_sql).collect())
}

/// The head of one lane: the first by priority, and the oldest, up to these numbers, each once.
///
/// # Errors
/// When the engine fails.
pub async fn lane_head(db: &Database, lane: Lane, by_priority: i64, oldest: i64) -> Result<Vec<Finding>> {
    let rows: Vec<FindingRow> = on!(db, p => sqlx::query_as(
        "/* findings::lane_head */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE id IN ( \
             SELECT id FROM (SELECT id FROM findings WHERE state = 'ready' AND lane = $1 \
                              ORDER BY priority DESC, id LIMIT $2) AS urgent \
             UNION \
             SELECT id FROM (SELECT id FROM findings WHERE state = 'ready' AND lane = $1 \
                              ORDER BY id LIMIT $3) AS old) \
          ORDER BY priority DESC, id",
    )
    .bind(lane.to_sql()).bind(by_priority).bind(oldest).fetch_all(p).await)
    .doing("reading the head of a lane")?;
    rows::all(rows)
}

/// The heads of several lanes at once, in no order: of each the first by priority, and the oldest, up to these numbers.
/// One statement, for with three hundred fileservers there are three hundred lanes.
///
/// # Errors
/// When the engine fails.
pub async fn heads(db: &Database, lanes: &[Lane], by_priority: i64, oldest: i64) -> Result<Vec<Finding>> {
    // CROSS keeps the order: for each lane, as many steps of an index as its head has findings.
    let text = db.engine().text(
        "/* findings::heads, sqlite */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE id IN ( \
             SELECT f.id FROM json_each($1) l CROSS JOIN findings f \
              WHERE f.id IN (SELECT u.id FROM findings u WHERE u.state = 'ready' AND u.lane = l.value \
                              ORDER BY u.priority DESC, u.id LIMIT $2) \
             UNION \
             SELECT f.id FROM json_each($1) l CROSS JOIN findings f \
              WHERE f.id IN (SELECT o.id FROM findings o WHERE o.state = 'ready' AND o.lane = l.value \
                              ORDER BY o.id LIMIT $3))",
        "/* findings::heads, postgres */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE id = ANY (ARRAY( \
             SELECT f.id FROM unnest($1::BIGINT[]) AS l (lane) CROSS JOIN LATERAL \
                    (SELECT u.id FROM findings u WHERE u.state = 'ready' AND u.lane = l.lane \
                      ORDER BY u.priority DESC, u.id LIMIT $2) f \
             UNION \
             SELECT f.id FROM unnest($1::BIGINT[]) AS l (lane) CROSS JOIN LATERAL \
                    (SELECT o.id FROM findings o WHERE o.state = 'ready' AND o.lane = l.lane \
                      ORDER BY o.id LIMIT $3) f))",
    );
    let lanes = Ids(lanes.iter().map(|lane| lane.to_sql()).collect());
    let rows: Vec<FindingRow> = on!(db, p => sqlx::query_as(text)
        .bind(&lanes).bind(by_priority).bind(oldest).fetch_all(p).await)
    .doing("reading the heads of lanes")?;
    rows::all(rows)
}

#[derive(serde::Serialize)]
struct DeferredRow<'a> {
    id: i64,
    deferral: &'a Deferral,
    until: Option<Millis>,
}

/// Writes why findings wait; those whose reason is the same are not written. With a moment they wait until then
/// (state waiting), without they stay ready. Findings that are not ready any more are left alone.
///
/// # Errors
/// When the engine fails.
pub async fn defer(db: &Database, deferred: &[(FindingId, Deferral, Option<Millis>)]) -> Result<u64> {
    if deferred.is_empty() {
        return Ok(0);
    }
    let rows: Vec<DeferredRow<'_>> = deferred
        .iter()
        .map(|(id, deferral, until)| DeferredRow { id: id.0, deferral, until: *until })
        .collect();
    retrying!(try_defer(db, &rows).await)
}

async fn try_defer(db: &Database, rows: &[DeferredRow<'_>]) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* findings::defer, sqlite */ UPDATE findings SET deferral = d.deferral, \
           state = CASE WHEN d.until IS NULL THEN findings.state ELSE 'waiting' END, \
           next_at = COALESCE(d.until, findings.next_at) \
          FROM (SELECT value->>'id' AS id, value->'deferral' AS deferral, value->>'until' AS until \
                  FROM json_each($1)) AS d \
         WHERE findings.id = d.id AND findings.state = 'ready' \
           AND (findings.deferral IS DISTINCT FROM d.deferral OR d.until IS NOT NULL)",
        "/* findings::defer, postgres */ UPDATE findings SET deferral = d.deferral, \
           state = CASE WHEN d.until IS NULL THEN findings.state ELSE 'waiting' END, \
           next_at = COALESCE(d.until, findings.next_at) \
          FROM jsonb_to_recordset($1) AS d (id BIGINT, deferral JSONB, until BIGINT) \
         WHERE findings.id = d.id AND findings.state = 'ready' \
           AND (findings.deferral IS DISTINCT FROM d.deferral OR d.until IS NOT NULL)",
    );
    let written = within!(&mut tx, c => sqlx::query(text).bind(Json(rows))
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("writing why findings wait")?;
    tx.commit().await?;
    Ok(written)
}

/// Ready findings about these repositories, at most `limit`: those that may go before one that was tried in vain.
///
/// # Errors
/// When the engine fails.
pub async fn ready_about(db: &Database, ids: &[RepositoryId], limit: i64) -> Result<Vec<Finding>> {
    let text = db.engine().text(
        "/* findings::ready_about, sqlite */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE repository_id IN (SELECT value FROM json_each($1)) AND state = 'ready' \
          ORDER BY id LIMIT $2",
        "/* findings::ready_about, postgres */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE repository_id = ANY($1) AND state = 'ready' ORDER BY id LIMIT $2",
    );
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    let rows: Vec<FindingRow> = on!(db, p => sqlx::query_as(text).bind(&ids).bind(limit).fetch_all(p).await)
        .doing("reading the other findings about repositories")?;
    rows::all(rows)
}

/// One open finding.
///
/// # Errors
/// When the engine fails.
pub async fn one(db: &Database, id: FindingId) -> Result<Option<Finding>> {
    let row: Option<FindingRow> = on!(db, p => sqlx::query_as(
        "/* findings::one */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE id = $1",
    )
    .bind(id).fetch_optional(p).await)
    .doing("reading a finding")?;
    row.map(Finding::try_from).transpose()
}

/// Open findings about a repository, or about one of its replicas.
///
/// # Errors
/// When the engine fails.
pub async fn of_repository(db: &Database, id: RepositoryId) -> Result<Vec<Finding>> {
    let rows: Vec<FindingRow> = on!(db, p => sqlx::query_as(
        "/* findings::of_repository */ SELECT id, goal, subject, repair, lane, priority, reason, hints, evidence, \
                opened_at, opened_evaluation, state, deferral, tries, ineffective, next_at \
           FROM findings WHERE repository_id = $1 ORDER BY id",
    )
    .bind(id).fetch_all(p).await)
    .doing("reading the findings about a repository")?;
    rows::all(rows)
}
