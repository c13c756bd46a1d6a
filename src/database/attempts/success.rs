//! The ending that most attempts have, in one statement where the engine can do that.
//!
//! PostgreSQL deletes, moves the finding on, gives a write lock back and keeps the history in one round trip and one
//! commit, where a transaction of six statements took eight. Other endings are rarer, and
//! go the long way.
use crate::database::server::Server;
use crate::database::{Doing, Result};
use crate::model::finding::{Deferral, FindingState};
use crate::model::id::AttemptId;
use sqlx::types::Json;

/// Ends an attempt as succeeded: its finding waits for the next evaluation. `false`: it was not running under this epoch.
pub(super) async fn succeed(
    server: &Server,
    id: AttemptId,
    epoch: i64,
    message: &str,
    bytes: i64,
) -> Result<bool> {
    let leash = server.leash();
    let kept = leash.hold(async {
        sqlx::query(
            "/* attempts::succeed, postgres */ WITH at AS MATERIALIZED (SELECT now FROM clock), \
             ended AS (DELETE FROM attempts WHERE id = $1 AND epoch = $2 AND state = 'running' RETURNING *), \
             moved AS (UPDATE findings f SET state = $3, deferral = $4, next_at = at.now, repaired_at = at.now \
                         FROM ended, at WHERE f.id = ended.finding_id AND f.state = 'running'), \
             unlocked AS (UPDATE repositories p SET write_lock_until = NULL, write_lock_reason = NULL, \
                                 write_lock_attempt = NULL \
                            FROM ended WHERE p.id = ended.repository_id AND p.write_lock_attempt = ended.id) \
             INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, repair, step, number, outcome, \
                    plan, source_id, destination_id, bytes, epoch, worker, queued_at, started_at, finished_at, message) \
             SELECT id, finding_id, goal, subject, repository_id, repair, step, number, 'succeeded', plan, source_id, \
                    destination_id, $5, epoch, worker, queued_at, started_at, at.now, $6 FROM ended, at",
        )
        .bind(id)
        .bind(epoch)
        .bind(FindingState::Waiting.as_str())
        .bind(Json(Deferral::CoolingDown { until: None }))
        .bind(bytes)
        .bind(message)
        .execute(leash.pool())
        .await
        .map(|done| done.rows_affected())
    });
    Ok(kept.await.doing("ending an attempt")? == 1)
}
