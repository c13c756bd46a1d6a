//! Attempts that a person ends, and findings whose repair a person puts off.
use super::ending::{Next, end, now};
use crate::database::findings::{By, finish};
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result};
use crate::model::Millis;
use crate::model::attempt::AttemptState;
use crate::model::finding::Deferral;
use crate::model::id::{AttemptId, FindingId};
use sqlx::types::Json;

/// Ends the live attempts of these findings and lets nothing start for them until `wait` is over. Their workers
/// notice at the next renewal. Findings that are stuck, held, or about to be judged are left as they are. Returns how
/// many findings it was.
///
/// # Errors
/// When the engine fails.
pub async fn cancel_for(db: &Database, findings: &[FindingId], wait: Millis, by: By<'_>) -> Result<u64> {
    let ids = Ids(findings.iter().map(|id| id.0).collect());
    retrying!(try_cancel_for(db, &ids, wait, by).await)
}

async fn try_cancel_for(db: &Database, ids: &Ids, wait: Millis, by: By<'_>) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let mut put_off = of_findings(&mut tx, ids).await?;
    let now = now(&mut tx).await?;
    let until = now.saturating_add(wait);
    let paused = Deferral::Paused { by: by.who.to_owned(), until: Some(until), reason: by.reason.to_owned() };
    let attempts = Ids(put_off.iter().map(|(attempt, _)| *attempt).collect());
    let message = format!("cancelled by {}: {}", by.who, by.reason);
    let next = Next::waiting(paused.clone(), wait);
    end(&mut tx, &attempts, AttemptState::Cancelled, &message, 0, &next, now).await?;
    let mut chosen: Vec<i64> = put_off.drain(..).map(|(_, finding)| finding).collect();
    chosen.extend(wait_for(&mut tx, ids, &paused, until, &chosen).await?);
    finish(tx, by, "backlog.cancel", &chosen).await
}

/// Live attempts of these findings, locked: attempt and finding.
async fn of_findings(tx: &mut Tx, ids: &Ids) -> Result<Vec<(i64, i64)>> {
    let text = tx.engine().text(
        "/* attempts::of_findings, sqlite */ SELECT id, finding_id FROM attempts \
          WHERE finding_id IN (SELECT value FROM json_each($1))",
        "/* attempts::of_findings, postgres */ SELECT id, finding_id FROM attempts WHERE finding_id = ANY($1) \
          ORDER BY id FOR UPDATE",
    );
    within!(tx, c => sqlx::query_as(text).bind(ids).fetch_all(c).await)
        .doing("looking for the attempts of findings")
}

async fn wait_for(
    tx: &mut Tx,
    ids: &Ids,
    paused: &Deferral,
    until: Millis,
    already: &[i64],
) -> Result<Vec<i64>> {
    let text = tx.engine().text(
        "/* attempts::put_off, sqlite */ UPDATE findings SET state = 'waiting', deferral = $2, next_at = $3 \
          WHERE id IN (SELECT value FROM json_each($1)) AND id NOT IN (SELECT value FROM json_each($4)) \
            AND state IN ('ready', 'waiting') AND repair IS NOT NULL AND repaired_at IS NULL AND ripe_at IS NULL \
         RETURNING id",
        "/* attempts::put_off, postgres */ UPDATE findings SET state = 'waiting', deferral = $2, next_at = $3 \
          WHERE id = ANY($1) AND id <> ALL($4) \
            AND state IN ('ready', 'waiting') AND repair IS NOT NULL AND repaired_at IS NULL AND ripe_at IS NULL \
         RETURNING id",
    );
    within!(tx, c => sqlx::query_scalar(text)
        .bind(ids).bind(Json(paused)).bind(until).bind(Ids(already.to_vec())).fetch_all(c).await)
    .doing("putting findings off")
}

/// Ends one live attempt; its finding waits until `wait` is over. `false`: it had ended already.
///
/// # Errors
/// When the engine fails.
pub async fn cancel_one(db: &Database, id: AttemptId, wait: Millis, by: By<'_>) -> Result<bool> {
    retrying!(try_cancel_one(db, id, wait, by).await)
}

async fn try_cancel_one(db: &Database, id: AttemptId, wait: Millis, by: By<'_>) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* attempts::lock_one, sqlite */ SELECT finding_id FROM attempts WHERE id = $1",
        "/* attempts::lock_one, postgres */ SELECT finding_id FROM attempts WHERE id = $1 FOR UPDATE",
    );
    let finding: Option<i64> =
        within!(&mut tx, c => sqlx::query_scalar(text).bind(id).fetch_optional(c).await)
            .doing("cancelling an attempt")?;
    let Some(finding) = finding else { return Ok(false) };
    let now = now(&mut tx).await?;
    let until = Some(now.saturating_add(wait));
    let paused = Deferral::Paused { by: by.who.to_owned(), until, reason: by.reason.to_owned() };
    let message = format!("cancelled by {}: {}", by.who, by.reason);
    let next = Next::waiting(paused, wait);
    end(&mut tx, &Ids(vec![id.0]), AttemptState::Cancelled, &message, 0, &next, now).await?;
    finish(tx, by, "attempt.cancel", &[finding]).await.map(|many| many > 0)
}
