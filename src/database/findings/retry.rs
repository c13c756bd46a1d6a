//! Stuck findings: found, and begun anew by a person's word.
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result, on};
use crate::model::id::FindingId;
use sqlx::types::Json;

/// Stuck findings, by their numbers (none named: all) and goal (empty: any); at most `limit`.
///
/// # Errors
/// When the engine fails.
pub async fn stuck(db: &Database, ids: &[i64], goal: &str, limit: i64) -> Result<Vec<FindingId>> {
    let text = db.engine().text(
        "/* findings::stuck, sqlite */ SELECT id FROM findings WHERE state = 'stuck' AND ($2 = '' OR goal = $2) \
            AND ($3 OR id IN (SELECT value FROM json_each($1))) ORDER BY id LIMIT $4",
        "/* findings::stuck, postgres */ SELECT id FROM findings WHERE state = 'stuck' AND ($2 = '' OR goal = $2) \
            AND ($3 OR id = ANY($1)) ORDER BY id LIMIT $4",
    );
    let some = Ids(ids.to_vec());
    on!(db, p => sqlx::query_scalar(text).bind(&some).bind(goal).bind(ids.is_empty()).bind(limit)
        .fetch_all(p).await)
    .doing("looking for stuck findings")
}

/// Begins stuck findings anew: nothing of what was tried counts any more. Audited in the same transaction; those
/// that are not stuck any more are left alone. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn retry(db: &Database, ids: &[FindingId], who: &str, reason: &str) -> Result<u64> {
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    retrying!(try_retry(db, &ids, who, reason).await)
}

async fn try_retry(db: &Database, ids: &Ids, who: &str, reason: &str) -> Result<u64> {
    let doing = "giving stuck findings another chance";
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* findings::retry, sqlite */ UPDATE findings SET state = 'waiting', deferral = NULL, tries = 0, \
           ineffective = 0, retried_at = (SELECT now FROM clock), next_at = (SELECT now FROM clock) \
          WHERE id IN (SELECT value FROM json_each($1)) AND state = 'stuck' RETURNING id",
        "/* findings::retry, postgres */ UPDATE findings SET state = 'waiting', deferral = NULL, tries = 0, \
           ineffective = 0, retried_at = (SELECT now FROM clock), next_at = (SELECT now FROM clock) \
          WHERE id = ANY($1) AND state = 'stuck' RETURNING id",
    );
    let begun: Vec<i64> =
        within!(&mut tx, c => sqlx::query_scalar(text).bind(ids).fetch_all(c).await).doing(doing)?;
    if begun.is_empty() {
        return Ok(0);
    }
    let detail = serde_json::json!({ "findings": begun });
    let subject =
        if let [one] = begun[..] { format!("finding {one}") } else { format!("{} findings", begun.len()) };
    within!(&mut tx, c => sqlx::query(
        "/* findings::audit_retry */ INSERT INTO audit (at, who, what, subject, reason, detail) \
         SELECT now, $1, 'backlog.retry', $2, $3, $4 FROM clock",
    )
    .bind(who).bind(&subject).bind(reason).bind(Json(&detail)).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await?;
    Ok(begun.len() as u64)
}
