//! What was done to repositories lately, and findings held because two goals undo each other.
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result, on};
use crate::model::Millis;
use crate::model::finding::Deferral;
use crate::model::id::RepositoryId;
use sqlx::types::Json;

/// Attempts that succeeded on these repositories since a moment, and since a person gave their findings another
/// chance: repository, goal, step; oldest first.
///
/// # Errors
/// When the engine fails.
pub async fn moves(
    db: &Database,
    repositories: &[RepositoryId],
    since: Millis,
) -> Result<Vec<(RepositoryId, String, String)>> {
    let ids = Ids(repositories.iter().map(|id| id.0).collect());
    let text = db.engine().text(
        "/* findings::moves, sqlite */ SELECT h.repository_id, h.goal, h.step FROM attempt_history h \
          WHERE h.repository_id IN (SELECT value FROM json_each($1)) AND h.finished_at > $2 \
            AND h.outcome = 'succeeded' AND (h.step = 'replicate' OR (h.step = 'remove' AND h.repair <> 'evacuate')) \
            AND NOT EXISTS (SELECT 1 FROM findings f \
                  WHERE f.repository_id = h.repository_id AND f.retried_at >= h.finished_at) \
          ORDER BY h.finished_at, h.id",
        "/* findings::moves, postgres */ SELECT h.repository_id, h.goal, h.step FROM attempt_history h \
          WHERE h.repository_id = ANY($1) AND h.finished_at > $2 \
            AND h.outcome = 'succeeded' AND (h.step = 'replicate' OR (h.step = 'remove' AND h.repair <> 'evacuate')) \
            AND NOT EXISTS (SELECT 1 FROM findings f \
                  WHERE f.repository_id = h.repository_id AND f.retried_at >= h.finished_at) \
          ORDER BY h.finished_at, h.id",
    );
    on!(db, p => sqlx::query_as(text).bind(&ids).bind(since).fetch_all(p).await)
        .doing("reading what was done to repositories lately")
}

/// Of these repositories, those with a finding that is held because another goal undoes it: repository, its goal,
/// the other.
///
/// # Errors
/// When the engine fails.
pub async fn undone(
    db: &Database,
    repositories: &[RepositoryId],
) -> Result<Vec<(RepositoryId, String, String)>> {
    let ids = Ids(repositories.iter().map(|id| id.0).collect());
    let text = db.engine().text(
        "/* findings::undone, sqlite */ SELECT repository_id, goal, deferral->>'by' FROM findings \
          WHERE repository_id IN (SELECT value FROM json_each($1)) AND state = 'stuck' \
            AND deferral->>'why' = 'undone'",
        "/* findings::undone, postgres */ SELECT repository_id, goal, deferral->>'by' FROM findings \
          WHERE repository_id = ANY($1) AND state = 'stuck' AND deferral->>'why' = 'undone'",
    );
    on!(db, p => sqlx::query_as(text).bind(&ids).fetch_all(p).await)
        .doing("reading which goals undo each other")
}

/// Holds what two goals found about a repository, each naming the other; what is running goes on.
///
/// # Errors
/// When the engine fails.
pub async fn hold_undone(db: &Database, repository: RepositoryId, goals: [&str; 2]) -> Result<u64> {
    retrying!(try_hold(db, repository, goals).await)
}

async fn try_hold(db: &Database, repository: RepositoryId, goals: [&str; 2]) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let mut held = 0;
    for (goal, by) in [(goals[0], goals[1]), (goals[1], goals[0])] {
        let deferral = Deferral::Undone { by: by.to_owned() };
        held += within!(&mut tx, c => sqlx::query(
            "/* findings::hold_undone */ UPDATE findings SET state = 'stuck', held_by = NULL, deferral = $3 \
              WHERE repository_id = $1 AND goal = $2 AND state IN ('ready', 'waiting', 'held') \
                AND repair IS NOT NULL",
        )
        .bind(repository).bind(goal).bind(Json(&deferral))
        .execute(c).await.map(|done| done.rows_affected()))
        .doing("holding findings of goals that undo each other")?;
    }
    tx.commit().await?;
    Ok(held)
}
