//! Attempts: admitted, claimed, renewed, ended. Each change is a compare-and-set on state and epoch.
//!
//! This file has what a dispatcher and a worker do to an attempt that lives; how attempts
//! end, and what that means for their findings, is in `ending`.
use super::rows::{self, AttemptRow};
use super::transaction::{Tx, retrying, within};
use super::values::{Ids, Words};
use super::{Database, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::attempt::{Attempt, Plan, Step};
use crate::model::finding::Finding;
use crate::model::id::AttemptId;
use sqlx::types::Json;
use std::cmp::Reverse;

mod cancelling;
mod ending;
mod success;
mod write_lock;

pub use cancelling::{cancel_for, cancel_one};
pub use ending::{cancel_obsolete, finish, take_lost, yield_repository};
pub use write_lock::renew_write_lock;

/// All live attempts: queued, and running ones whether or not their lease holds. Bounded by the limits. Those whose
/// step this program does not know are left to the newer one that made them.
///
/// # Errors
/// When the engine fails.
pub async fn live(db: &Database) -> Result<Vec<Attempt>> {
    let text = db.engine().text(
        "/* attempts::live, sqlite */ SELECT id, finding_id, goal, subject, repair, number, state, lane, priority, plan, \
                epoch, worker, lease_until, queued_at, started_at, progress FROM attempts \
          WHERE step IN (SELECT value FROM json_each($1)) ORDER BY id",
        "/* attempts::live, postgres */ SELECT id, finding_id, goal, subject, repair, number, state, lane, priority, \
                plan, epoch, worker, lease_until, queued_at, started_at, progress FROM attempts \
          WHERE step = ANY($1) ORDER BY id",
    );
    let rows: Vec<AttemptRow> = on!(db, p => sqlx::query_as(text).bind(known_steps()).fetch_all(p).await)
        .doing("reading live attempts")?;
    rows::all(rows)
}

/// The steps that this program knows.
fn known_steps() -> Words {
    Words(Step::ALL.iter().map(|step| step.as_str().to_owned()).collect())
}

/// Attempts that were started (queued) since a moment, by repair: for the limit per minute.
///
/// # Errors
/// When the engine fails.
pub async fn started_since(db: &Database, since: Millis) -> Result<Vec<(String, i64)>> {
    on!(db, p => sqlx::query_as(
        "/* attempts::started_since */ SELECT repair, count(*) FROM \
           (SELECT repair FROM attempts WHERE queued_at >= $1 \
            UNION ALL SELECT repair FROM attempt_history WHERE queued_at >= $1) AS started \
          GROUP BY repair ORDER BY repair",
    )
    .bind(since).fetch_all(p).await)
    .doing("counting started attempts")
}

#[derive(serde::Serialize)]
struct PlanRow<'a> {
    finding_id: i64,
    repository_id: Option<i64>,
    step: &'static str,
    plan: &'a Plan,
    source_id: Option<i64>,
    destination_id: Option<i64>,
    bytes: i64,
}

impl<'a> From<&'a (Finding, Plan)> for PlanRow<'a> {
    fn from((finding, plan): &'a (Finding, Plan)) -> Self {
        Self {
            finding_id: finding.id.0,
            repository_id: plan.repository_id.map(|id| id.0),
            step: plan.step.as_str(),
            plan,
            source_id: plan.source_id.map(|id| id.0),
            destination_id: plan.destination_id.map(|id| id.0),
            bytes: plan.bytes,
        }
    }
}

/// In one transaction: an attempt queued for each plan and its finding running. Left out, and not an error: findings that
/// are no longer ready, and subjects that got another attempt meanwhile. Returns those made.
///
/// # Errors
/// When the engine fails.
pub async fn admit(db: &Database, admitted: &[(Finding, Plan)]) -> Result<Vec<AttemptId>> {
    if admitted.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<PlanRow<'_>> = admitted.iter().map(PlanRow::from).collect();
    retrying!(try_admit(db, &rows).await)
}

async fn try_admit(db: &Database, rows: &[PlanRow<'_>]) -> Result<Vec<AttemptId>> {
    let doing = "admitting attempts";
    let mut tx = Tx::begin(db).await?;
    let ready = lock_ready(&mut tx, &Ids(rows.iter().map(|row| row.finding_id).collect())).await?;
    let text = tx.engine().text(
        "/* attempts::admit, sqlite */ INSERT INTO attempts (finding_id, goal, subject, repository_id, repair, step, \
                number, state, lane, priority, plan, source_id, destination_id, bytes, queued_at) \
         SELECT f.id, f.goal, f.subject, a.value->>'repository_id', f.repair, a.value->>'step', \
                1 + COALESCE((SELECT max(h.number) FROM attempt_history h WHERE h.finding_id = f.id), 0), 'queued', \
                f.lane, f.priority, a.value->'plan', a.value->>'source_id', a.value->>'destination_id', \
                a.value->>'bytes', (SELECT now FROM clock) \
           FROM json_each($1) AS a JOIN findings f ON f.id = a.value->>'finding_id' \
          WHERE f.repair IS NOT NULL AND f.id IN (SELECT value FROM json_each($2)) \
          ORDER BY a.key ON CONFLICT DO NOTHING RETURNING id, finding_id",
        "/* attempts::admit, postgres */ INSERT INTO attempts (finding_id, goal, subject, repository_id, repair, step, \
                number, state, lane, priority, plan, source_id, destination_id, bytes, queued_at) \
         SELECT f.id, f.goal, f.subject, a.repository_id, f.repair, a.step, \
                1 + COALESCE((SELECT max(h.number) FROM attempt_history h WHERE h.finding_id = f.id), 0), 'queued', \
                f.lane, f.priority, a.plan, a.source_id, a.destination_id, a.bytes, (SELECT now FROM clock) \
           FROM ROWS FROM (jsonb_to_recordset($1) AS (finding_id BIGINT, repository_id BIGINT, step TEXT, \
                       plan JSONB, source_id BIGINT, destination_id BIGINT, bytes BIGINT)) WITH ORDINALITY \
                    AS a (finding_id, repository_id, step, plan, source_id, destination_id, bytes, place) \
           JOIN findings f ON f.id = a.finding_id \
          WHERE f.repair IS NOT NULL AND f.id = ANY($2) \
          ORDER BY a.place ON CONFLICT DO NOTHING RETURNING id, finding_id",
    );
    let made: Vec<(AttemptId, i64)> = within!(&mut tx, c => sqlx::query_as(text)
        .bind(Json(rows)).bind(&ready).fetch_all(c).await)
    .doing(doing)?;
    let running = Ids(made.iter().map(|(_, finding)| *finding).collect());
    let text = tx.engine().text(
        "/* attempts::start_findings, sqlite */ UPDATE findings SET state = 'running', deferral = NULL \
          WHERE id IN (SELECT value FROM json_each($1))",
        "/* attempts::start_findings, postgres */ UPDATE findings SET state = 'running', deferral = NULL \
          WHERE id = ANY($1)",
    );
    within!(&mut tx, c => sqlx::query(text).bind(&running).execute(c).await.map(drop)).doing(doing)?;
    tx.commit().await?;
    Ok(made.into_iter().map(|(id, _)| id).collect())
}

/// Of these findings, those that are ready; they stay so to the end of the transaction.
async fn lock_ready(tx: &mut Tx, ids: &Ids) -> Result<Ids> {
    let text = tx.engine().text(
        "/* attempts::lock_ready, sqlite */ SELECT id FROM findings \
          WHERE id IN (SELECT value FROM json_each($1)) AND state = 'ready'",
        // Not by an index of what is ready, of which there may be very much: by the ids.
        "/* attempts::lock_ready, postgres */ SELECT id FROM findings WHERE id = ANY($1) AND state || '' = 'ready' \
          ORDER BY id FOR UPDATE",
    );
    let ready = within!(tx, c => sqlx::query_scalar(text).bind(ids).fetch_all(c).await);
    Ok(Ids(ready.doing("reading which findings are ready")?))
}

/// Claims up to `limit` queued attempts, best priority first, whose step is among `steps`: each gets a lease and its
/// repository's repair epoch, raised, in the same transaction (without a repository: one of its own, which rises
/// with each claim). One whose repository is gone ends stale instead.
///
/// # Errors
/// When the engine fails.
pub async fn claim(
    db: &Database,
    worker: &str,
    limit: i64,
    lease: Millis,
    steps: &[&str],
) -> Result<Vec<Attempt>> {
    let steps = Words(steps.iter().map(|&step| step.to_owned()).collect());
    if !anything_queued(db, &steps).await? {
        return Ok(Vec::new());
    }
    retrying!(try_claim(db, worker, limit, lease, &steps).await)
}

/// Workers look every few seconds, and mostly there is nothing: that costs no transaction and no write lock.
async fn anything_queued(db: &Database, steps: &Words) -> Result<bool> {
    let text = db.engine().text(
        "/* attempts::anything_queued, sqlite */ SELECT EXISTS (SELECT 1 FROM attempts \
          WHERE state = 'queued' AND step IN (SELECT value FROM json_each($1)))",
        "/* attempts::anything_queued, postgres */ SELECT EXISTS (SELECT 1 FROM attempts \
          WHERE state = 'queued' AND step = ANY($1))",
    );
    on!(db, p => sqlx::query_scalar(text).bind(steps).fetch_one(p).await).doing("looking for queued attempts")
}

async fn try_claim(
    db: &Database,
    worker: &str,
    limit: i64,
    lease: Millis,
    steps: &Words,
) -> Result<Vec<Attempt>> {
    let doing = "claiming attempts";
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* attempts::choose, sqlite */ SELECT id FROM attempts \
          WHERE state = 'queued' AND step IN (SELECT value FROM json_each($1)) \
          ORDER BY priority DESC, id LIMIT $2",
        "/* attempts::choose, postgres */ SELECT id FROM attempts WHERE state = 'queued' AND step = ANY($1) \
          ORDER BY priority DESC, id LIMIT $2 FOR UPDATE SKIP LOCKED",
    );
    let chosen: Vec<i64> = within!(&mut tx, c => sqlx::query_scalar(text)
        .bind(steps).bind(limit).fetch_all(c).await)
    .doing(doing)?;
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let chosen = Ids(chosen);
    raise_epochs(&mut tx, &chosen).await?;
    let rows = take(&mut tx, &chosen, worker, lease).await?;
    write_lock::take(&mut tx, &chosen, lease).await?;
    let mut claimed: Vec<Attempt> = rows::all(rows)?;
    let gone = Ids(chosen.0.into_iter().filter(|id| claimed.iter().all(|one| one.id.0 != *id)).collect());
    ending::end_vanished(&mut tx, &gone).await?;
    tx.commit().await?;
    claimed.sort_by_key(|attempt| (Reverse(attempt.priority), attempt.id));
    Ok(claimed)
}

/// Raises the repair epoch of the repositories that these attempts are about: no two attempts are about one.
async fn raise_epochs(tx: &mut Tx, attempts: &Ids) -> Result<()> {
    let text = tx.engine().text(
        "/* attempts::raise_epochs, sqlite */ UPDATE repositories SET repair_epoch = repair_epoch + 1 \
          WHERE id IN (SELECT a.repository_id FROM attempts a JOIN repositories p ON p.id = a.repository_id \
                        WHERE a.id IN (SELECT value FROM json_each($1)) \
                          AND (a.step = 'purge' OR p.removed_at IS NULL))",
        "/* attempts::raise_epochs, postgres */ UPDATE repositories SET repair_epoch = repair_epoch + 1 \
          WHERE id = ANY (ARRAY(SELECT a.repository_id FROM attempts a JOIN repositories p ON p.id = a.repository_id \
                                 WHERE a.id = ANY($1) AND (a.step = 'purge' OR p.removed_at IS NULL)))",
    );
    within!(&mut *tx, c => sqlx::query(text).bind(attempts).execute(c).await.map(drop))
        .doing("raising repair epochs")?;
    raise_tombstones(tx, attempts).await
}

/// What is left on disks of repositories that are gone is purged under epochs that go on rising.
async fn raise_tombstones(tx: &mut Tx, attempts: &Ids) -> Result<()> {
    let text = tx.engine().text(
        "/* attempts::raise_tombstones, sqlite */ UPDATE tombstones SET repair_epoch = repair_epoch + 1 \
          WHERE repository_id IN (SELECT repository_id FROM attempts \
                  WHERE id IN (SELECT value FROM json_each($1)) AND step = 'purge')",
        "/* attempts::raise_tombstones, postgres */ UPDATE tombstones SET repair_epoch = repair_epoch + 1 \
          WHERE repository_id = ANY (ARRAY(SELECT repository_id FROM attempts \
                  WHERE id = ANY($1) AND step = 'purge'))",
    );
    within!(tx, c => sqlx::query(text).bind(attempts).execute(c).await.map(drop))
        .doing("raising repair epochs of repositories that are gone")
}

/// Makes the chosen attempts this worker's, where their repository is there.
async fn take(tx: &mut Tx, chosen: &Ids, worker: &str, lease: Millis) -> Result<Vec<AttemptRow>> {
    let text = tx.engine().text(
        "/* attempts::claim, sqlite */ UPDATE attempts SET state = 'running', worker = $2, \
           epoch = COALESCE((SELECT p.repair_epoch FROM repositories p WHERE p.id = attempts.repository_id), \
                            (SELECT t.repair_epoch FROM tombstones t WHERE t.repository_id = attempts.repository_id), \
                            epoch + 1), \
           lease_until = (SELECT now FROM clock) + $3, started_at = (SELECT now FROM clock), progress = NULL \
          WHERE id IN (SELECT value FROM json_each($1)) AND state = 'queued' \
            AND (repository_id IS NULL \
                 OR EXISTS (SELECT 1 FROM repositories p WHERE p.id = attempts.repository_id \
                            AND (p.removed_at IS NULL OR attempts.step = 'purge')) \
                 OR (step = 'purge' AND EXISTS (SELECT 1 FROM tombstones t \
                            WHERE t.repository_id = attempts.repository_id))) \
         RETURNING id, finding_id, goal, subject, repair, number, state, lane, priority, plan, epoch, worker, \
                   lease_until, queued_at, started_at, progress",
        "/* attempts::claim, postgres */ UPDATE attempts SET state = 'running', worker = $2, \
           epoch = COALESCE((SELECT p.repair_epoch FROM repositories p WHERE p.id = attempts.repository_id), \
                            (SELECT t.repair_epoch FROM tombstones t WHERE t.repository_id = attempts.repository_id), \
                            epoch + 1), \
           lease_until = (SELECT now FROM clock) + $3, started_at = (SELECT now FROM clock), progress = NULL \
          WHERE id = ANY($1) AND state = 'queued' \
            AND (repository_id IS NULL \
                 OR EXISTS (SELECT 1 FROM repositories p WHERE p.id = attempts.repository_id \
                            AND (p.removed_at IS NULL OR attempts.step = 'purge')) \
                 OR (step = 'purge' AND EXISTS (SELECT 1 FROM tombstones t \
                            WHERE t.repository_id = attempts.repository_id))) \
         RETURNING id, finding_id, goal, subject, repair, number, state, lane, priority, plan, epoch, worker, \
                   lease_until, queued_at, started_at, progress",
    );
    within!(tx, c => sqlx::query_as(text).bind(chosen).bind(worker).bind(lease).fetch_all(c).await)
        .doing("claiming attempts")
}

/// Renews the lease and says what is being done; `false`: it is not this worker's any more. A lease that ran out
/// is not renewed, whether or not somebody has noticed.
///
/// # Errors
/// When the engine fails.
pub async fn renew(
    db: &Database,
    id: AttemptId,
    epoch: i64,
    lease: Millis,
    progress: Option<&str>,
) -> Result<bool> {
    let renewed = on_writer!(db, p => sqlx::query(
        "/* attempts::renew */ UPDATE attempts SET lease_until = (SELECT now FROM clock) + $3, \
           progress = COALESCE($4, progress) \
          WHERE id = $1 AND epoch = $2 AND state = 'running' AND lease_until >= (SELECT now FROM clock)",
    )
    .bind(id).bind(epoch).bind(lease).bind(progress)
    .execute(p).await.map(|done| done.rows_affected()))
    .doing("renewing an attempt's lease")?;
    Ok(renewed == 1)
}

/// Whether the attempt is still running under this epoch with a lease that holds.
///
/// # Errors
/// When the engine fails.
pub async fn holds(db: &Database, id: AttemptId, epoch: i64) -> Result<bool> {
    on!(db, p => sqlx::query_scalar(
        "/* attempts::holds */ SELECT EXISTS (SELECT 1 FROM attempts WHERE id = $1 AND epoch = $2 \
            AND state = 'running' AND lease_until >= (SELECT now FROM clock))",
    )
    .bind(id).bind(epoch).fetch_one(p).await)
    .doing("looking whether an attempt's lease holds")
}

/// Gives a running attempt back to the queue under the same number, and its repository to whoever pushes.
///
/// # Errors
/// When the engine fails.
pub async fn hand_back(db: &Database, id: AttemptId, epoch: i64) -> Result<bool> {
    retrying!(try_hand_back(db, id, epoch).await)
}

async fn try_hand_back(db: &Database, id: AttemptId, epoch: i64) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    let given = within!(&mut tx, c => sqlx::query(
        "/* attempts::hand_back */ UPDATE attempts SET state = 'queued', worker = NULL, \
           epoch = CASE WHEN repository_id IS NULL THEN epoch ELSE 0 END, \
           lease_until = NULL, started_at = NULL, progress = NULL \
          WHERE id = $1 AND epoch = $2 AND state = 'running'",
    )
    .bind(id).bind(epoch).execute(c).await.map(|done| done.rows_affected()))
    .doing("handing back an attempt")?;
    if given != 1 {
        return Ok(false);
    }
    write_lock::release(&mut tx, &Ids(vec![id.0])).await?;
    tx.commit().await?;
    Ok(true)
}
