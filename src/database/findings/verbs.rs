//! What a person does to many findings at once: begin them anew, or raise their priority.
//!
//! Each acts on the findings that were named and on no other: what came up meanwhile is not
//! touched. Audited in the same transaction, with how many and which filter chose them.
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result};
use crate::model::id::FindingId;
use sqlx::types::Json;

/// Numbers that an audit row names; the rest is counted.
const NAMED: usize = 100;

/// Who does it, why, and what chose the findings.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    /// Who.
    pub who: &'a str,
    /// Why.
    pub reason: &'a str,
    /// The filter, in words.
    pub filter: &'a str,
}

/// Begins findings anew that are stuck or back off: nothing of what was tried counts any more. Those that run, are
/// held, are about to be judged or have never waited are left alone. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn retry(db: &Database, ids: &[FindingId], by: By<'_>) -> Result<u64> {
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    retrying!(try_retry(db, &ids, by).await)
}

async fn try_retry(db: &Database, ids: &Ids, by: By<'_>) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* findings::retry, sqlite */ UPDATE findings SET state = 'waiting', deferral = NULL, tries = 0, \
           ineffective = 0, retried_at = (SELECT now FROM clock), next_at = (SELECT now FROM clock) \
          WHERE id IN (SELECT value FROM json_each($1)) AND (state = 'stuck' OR (state = 'waiting' \
            AND repair IS NOT NULL AND repaired_at IS NULL AND ripe_at IS NULL)) RETURNING id",
        "/* findings::retry, postgres */ UPDATE findings SET state = 'waiting', deferral = NULL, tries = 0, \
           ineffective = 0, retried_at = (SELECT now FROM clock), next_at = (SELECT now FROM clock) \
          WHERE id = ANY($1) AND (state = 'stuck' OR (state = 'waiting' \
            AND repair IS NOT NULL AND repaired_at IS NULL AND ripe_at IS NULL)) RETURNING id",
    );
    let begun: Vec<i64> = within!(&mut tx, c => sqlx::query_scalar(text).bind(ids).fetch_all(c).await)
        .doing("giving findings another chance")?;
    finish(tx, by, "backlog.retry", &begun).await
}

/// Raises (or lowers) the priority of findings, whatever their goal says, and of their queued attempts. Returns how
/// many.
///
/// # Errors
/// When the engine fails.
pub async fn bump(db: &Database, ids: &[FindingId], priority: i32, by: By<'_>) -> Result<u64> {
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    retrying!(try_bump(db, &ids, priority, by).await)
}

async fn try_bump(db: &Database, ids: &Ids, priority: i32, by: By<'_>) -> Result<u64> {
    let doing = "changing the priority of findings";
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* findings::bump, sqlite */ UPDATE findings SET priority = $2, bumped = $2 \
          WHERE id IN (SELECT value FROM json_each($1)) AND repair IS NOT NULL RETURNING id",
        "/* findings::bump, postgres */ UPDATE findings SET priority = $2, bumped = $2 \
          WHERE id = ANY($1) AND repair IS NOT NULL RETURNING id",
    );
    let bumped: Vec<i64> =
        within!(&mut tx, c => sqlx::query_scalar(text).bind(ids).bind(priority).fetch_all(c).await)
            .doing(doing)?;
    let text = tx.engine().text(
        "/* findings::bump_attempts, sqlite */ UPDATE attempts SET priority = $2 \
          WHERE state = 'queued' AND finding_id IN (SELECT value FROM json_each($1))",
        "/* findings::bump_attempts, postgres */ UPDATE attempts SET priority = $2 \
          WHERE state = 'queued' AND finding_id = ANY($1)",
    );
    within!(&mut tx, c => sqlx::query(text).bind(ids).bind(priority).execute(c).await.map(drop))
        .doing(doing)?;
    finish(tx, by, "backlog.bump", &bumped).await
}

/// Keeps who did what to which findings, and ends the transaction.
pub(in crate::database) async fn finish(mut tx: Tx, by: By<'_>, what: &str, ids: &[i64]) -> Result<u64> {
    let many = ids.len() as u64;
    if many == 0 {
        return Ok(0);
    }
    let named = &ids[..ids.len().min(NAMED)];
    let detail = serde_json::json!({ "findings": named, "count": many, "filter": by.filter });
    let subject = if let [one] = ids { format!("finding {one}") } else { format!("{many} findings") };
    within!(&mut tx, c => sqlx::query(
        "/* findings::audit */ INSERT INTO audit (at, who, what, subject, reason, detail) \
         SELECT now, $1, $2, $3, $4, $5 FROM clock",
    )
    .bind(by.who).bind(what).bind(&subject).bind(by.reason).bind(Json(&detail)).execute(c).await.map(drop))
    .doing("keeping who changed the backlog")?;
    tx.commit().await?;
    Ok(many)
}
