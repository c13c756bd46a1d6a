//! Findings that a pause holds: held in batches while there are ready ones, let go in batches when it is over.
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Words;
use crate::database::{Database, Doing, Result};
use crate::model::finding::Deferral;
use sqlx::types::Json;

/// Holds ready findings of a goal, with the reason, and tells those that a pause holds already when it is another one;
/// at most `limit`. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn hold_goal(db: &Database, goal: &str, deferral: &Deferral, limit: i64) -> Result<u64> {
    retrying!(try_hold(db, goal, deferral, limit).await)
}

async fn try_hold(db: &Database, goal: &str, deferral: &Deferral, limit: i64) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* paused::hold_goal, sqlite */ UPDATE findings SET state = 'held', deferral = $2 \
          WHERE id IN (SELECT id FROM findings WHERE goal = $1 AND (state = 'ready' OR (state = 'held' \
                          AND deferral->>'why' = 'paused' AND deferral <> $2)) LIMIT $3)",
        "/* paused::hold_goal, postgres */ UPDATE findings SET state = 'held', deferral = $2 \
          WHERE id = ANY (ARRAY(SELECT id FROM findings WHERE goal = $1 AND (state = 'ready' OR (state = 'held' \
                          AND deferral->>'why' = 'paused' AND deferral <> $2)) LIMIT $3 \
                                   FOR UPDATE SKIP LOCKED))",
    );
    let held = within!(&mut tx, c => sqlx::query(text).bind(goal).bind(Json(deferral)).bind(limit)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("holding the findings of a paused goal")?;
    tx.commit().await?;
    Ok(held)
}

/// Lets findings go that a pause held, but for those of these goals; at most `limit`. Returns how many. Their repairs
/// may start at once.
///
/// # Errors
/// When the engine fails.
pub async fn release_but(db: &Database, goals: &[String], limit: i64) -> Result<u64> {
    retrying!(try_release(db, goals, limit).await)
}

async fn try_release(db: &Database, goals: &[String], limit: i64) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* paused::release_but, sqlite */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id IN (SELECT id FROM findings WHERE state = 'held' AND deferral->>'why' = 'paused' \
                          AND goal NOT IN (SELECT value FROM json_each($1)) LIMIT $2)",
        "/* paused::release_but, postgres */ UPDATE findings SET state = 'ready', deferral = NULL \
          WHERE id = ANY (ARRAY(SELECT id FROM findings WHERE state = 'held' AND deferral->>'why' = 'paused' \
                          AND goal <> ALL($1) LIMIT $2 FOR UPDATE SKIP LOCKED))",
    );
    let let_go = within!(&mut tx, c => sqlx::query(text).bind(Words(goals.to_vec())).bind(limit)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("letting go what a pause held")?;
    tx.commit().await?;
    Ok(let_go)
}
