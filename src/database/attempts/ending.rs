//! How attempts end: into history, with their finding moved on in the same transaction.
//!
//! An attempt that has no finding any more (an evaluation closed it) ends all the same.
use super::{success, write_lock};
use crate::database::rows::{self, AttemptRow};
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::{Ids, Words};
use crate::database::{Database, DatabaseError, Doing, Pools, Result};
use crate::model::Millis;
use crate::model::attempt::{Attempt, AttemptState, Ending};
use crate::model::finding::{Deferral, FindingState};
use crate::model::id::{AttemptId, RepositoryId};
use sqlx::types::Json;

/// How long a finding waits whose attempt made way for another, or whose repository is gone: until then the
/// reason has had time to pass, or an evaluation to close it.
const MAKE_WAY_MS: Millis = 60_000;

/// How long an attempt may go on after its finding closed. A repair that worked is often seen by an evaluation
/// before its worker has said so, and it did not end cancelled.
const CLOSED_GRACE_MS: Millis = 30_000;

/// What a finding becomes when its attempt ends.
pub(super) struct Next {
    state: FindingState,
    deferral: Option<Deferral>,
    wait: Millis,
    failed: bool,
    repaired: bool,
}

impl Next {
    /// Ready at once, or when `wait` is over. Uses up no try.
    const fn again(wait: Millis, until: Millis) -> Self {
        let (state, deferral) = if wait > 0 {
            (FindingState::Waiting, Some(Deferral::CoolingDown { until: Some(until) }))
        } else {
            (FindingState::Ready, None)
        };
        Self { state, deferral, wait, failed: false, repaired: false }
    }

    /// Waiting for a while, with a reason; what it was does not count as a try.
    pub(super) const fn waiting(deferral: Deferral, wait: Millis) -> Self {
        Self { state: FindingState::Waiting, deferral: Some(deferral), wait, failed: false, repaired: false }
    }

    const fn after(state: AttemptState, backoff: Millis, until: Millis) -> Self {
        match state {
            AttemptState::Succeeded => Self {
                state: FindingState::Waiting,
                deferral: Some(Deferral::CoolingDown { until: None }),
                wait: 0,
                failed: false,
                repaired: true,
            },
            // A failure waits even for no time at all: only what is due becomes ready again.
            AttemptState::Failed => Self {
                state: FindingState::Waiting,
                deferral: Some(Deferral::CoolingDown { until: Some(until) }),
                wait: backoff,
                failed: true,
                repaired: false,
            },
            _ => Self::again(backoff, until),
        }
    }
}

/// Ends an attempt into history and moves its finding on, in one transaction:
/// succeeded: waiting, judged by the next evaluation; failed: one more try, waiting for `backoff`; stale and
/// cancelled: ready at once or after `backoff`. `false`: it was not running under this epoch, nothing was written.
///
/// # Errors
/// When the event does not end a running attempt, or the engine fails.
pub async fn finish(
    db: &Database,
    id: AttemptId,
    epoch: i64,
    ending: &Ending,
    backoff: Millis,
) -> Result<bool> {
    let outcome =
        AttemptState::Running.after(ending.event).filter(|state| state.is_final()).ok_or_else(|| {
            DatabaseError::Refused(format!("a running attempt does not end by the event {}", ending.event))
        })?;
    match db.pools() {
        Pools::Postgres(server) if outcome == AttemptState::Succeeded => {
            retrying!(success::succeed(server, id, epoch, &ending.message, ending.bytes).await)
        }
        _ => retrying!(try_finish(db, id, epoch, outcome, ending, backoff).await),
    }
}

async fn try_finish(
    db: &Database,
    id: AttemptId,
    epoch: i64,
    outcome: AttemptState,
    ending: &Ending,
    backoff: Millis,
) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* attempts::lock_running, sqlite */ SELECT id FROM attempts \
          WHERE id = $1 AND epoch = $2 AND state = 'running'",
        "/* attempts::lock_running, postgres */ SELECT id FROM attempts \
          WHERE id = $1 AND epoch = $2 AND state = 'running' FOR UPDATE",
    );
    let found: Vec<i64> =
        within!(&mut tx, c => sqlx::query_scalar(text).bind(id).bind(epoch).fetch_all(c).await)
            .doing("ending an attempt")?;
    if found.is_empty() {
        return Ok(false);
    }
    let now = now(&mut tx).await?;
    let next = Next::after(outcome, backoff, now + backoff);
    end(&mut tx, &Ids(found), outcome, &ending.message, ending.bytes, &next, now).await?;
    tx.commit().await?;
    Ok(true)
}

pub(super) async fn now(tx: &mut Tx) -> Result<Millis> {
    within!(tx, c => sqlx::query_scalar("/* attempts::now */ SELECT now FROM clock").fetch_one(c).await)
        .doing("reading the database's clock")
}

/// Ends attempts that this transaction has locked: findings move on, rows go to history.
pub(super) async fn end(
    tx: &mut Tx,
    ids: &Ids,
    outcome: AttemptState,
    message: &str,
    bytes: i64,
    next: &Next,
    now: Millis,
) -> Result<()> {
    let doing = "ending attempts";
    if ids.0.is_empty() {
        return Ok(());
    }
    move_findings(tx, ids, next, now).await?;
    write_lock::release(tx, ids).await?;
    let text = tx.engine().text(
        "/* attempts::keep, sqlite */ INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, \
                repair, step, number, outcome, plan, source_id, destination_id, bytes, epoch, worker, queued_at, \
                started_at, finished_at, message) \
         SELECT id, finding_id, goal, subject, repository_id, repair, step, number, $2, plan, source_id, \
                destination_id, $3, epoch, worker, queued_at, started_at, $4, $5 \
           FROM attempts WHERE id IN (SELECT value FROM json_each($1))",
        "/* attempts::keep, postgres */ INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, \
                repair, step, number, outcome, plan, source_id, destination_id, bytes, epoch, worker, queued_at, \
                started_at, finished_at, message) \
         SELECT id, finding_id, goal, subject, repository_id, repair, step, number, $2, plan, source_id, \
                destination_id, $3, epoch, worker, queued_at, started_at, $4, $5 \
           FROM attempts WHERE id = ANY($1)",
    );
    within!(&mut *tx, c => sqlx::query(text)
        .bind(ids).bind(outcome.as_str()).bind(bytes).bind(now).bind(message)
        .execute(c).await.map(drop))
    .doing(doing)?;
    let text = tx.engine().text(
        "/* attempts::end, sqlite */ DELETE FROM attempts WHERE id IN (SELECT value FROM json_each($1))",
        "/* attempts::end, postgres */ DELETE FROM attempts WHERE id = ANY($1)",
    );
    within!(tx, c => sqlx::query(text).bind(ids).execute(c).await.map(drop)).doing(doing)
}

async fn move_findings(tx: &mut Tx, attempts: &Ids, next: &Next, now: Millis) -> Result<()> {
    let text = tx.engine().text(
        "/* attempts::move_findings, sqlite */ UPDATE findings SET state = $2, deferral = $3, next_at = $4, \
           tries = tries + $5, repaired_at = CASE WHEN $6 THEN $7 ELSE repaired_at END \
          WHERE state = 'running' AND id IN (SELECT finding_id FROM attempts \
                  WHERE id IN (SELECT value FROM json_each($1)))",
        "/* attempts::move_findings, postgres */ UPDATE findings SET state = $2, deferral = $3, next_at = $4, \
           tries = tries + $5, repaired_at = CASE WHEN $6 THEN $7 ELSE repaired_at END \
          WHERE state = 'running' AND id = ANY (ARRAY(SELECT finding_id FROM attempts WHERE id = ANY($1)))",
    );
    within!(tx, c => sqlx::query(text)
        .bind(attempts).bind(next.state.as_str()).bind(next.deferral.as_ref().map(Json))
        .bind(now + next.wait).bind(i32::from(next.failed)).bind(next.repaired).bind(now)
        .execute(c).await.map(drop))
    .doing("moving on the findings of ended attempts")
}

/// Ends chosen attempts whose repository is gone, or was removed, as stale.
pub(super) async fn end_vanished(tx: &mut Tx, ids: &Ids) -> Result<()> {
    if ids.0.is_empty() {
        return Ok(());
    }
    let now = now(tx).await?;
    let next = Next::again(MAKE_WAY_MS, now + MAKE_WAY_MS);
    end(tx, ids, AttemptState::Stale, "the repository is gone", 0, &next, now).await
}

/// Ends attempts whose lease ran out as lost, at most `limit`; their findings are ready at once. Returns them
/// as they were.
///
/// # Errors
/// When the engine fails.
pub async fn take_lost(db: &Database, limit: i64) -> Result<Vec<Attempt>> {
    retrying!(try_take_lost(db, limit).await)
}

async fn try_take_lost(db: &Database, limit: i64) -> Result<Vec<Attempt>> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* attempts::lost, sqlite */ SELECT id, finding_id, goal, subject, repair, number, state, lane, priority, \
                plan, epoch, worker, lease_until, queued_at, started_at, progress FROM attempts \
          WHERE state = 'running' AND lease_until < (SELECT now FROM clock) \
            AND step IN (SELECT value FROM json_each($2)) ORDER BY lease_until LIMIT $1",
        "/* attempts::lost, postgres */ SELECT id, finding_id, goal, subject, repair, number, state, lane, priority, \
                plan, epoch, worker, lease_until, queued_at, started_at, progress FROM attempts \
          WHERE state = 'running' AND lease_until < (SELECT now FROM clock) AND step = ANY($2) \
          ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED",
    );
    let rows: Vec<AttemptRow> = within!(&mut tx, c => sqlx::query_as(text)
        .bind(limit).bind(super::known_steps()).fetch_all(c).await)
    .doing("looking for lost attempts")?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lost: Vec<Attempt> = rows::all(rows)?;
    let now = now(&mut tx).await?;
    let ids = Ids(lost.iter().map(|attempt| attempt.id.0).collect());
    end(&mut tx, &ids, AttemptState::Lost, "the worker's lease ran out", 0, &Next::again(0, now), now)
        .await?;
    tx.commit().await?;
    Ok(lost)
}

/// Cancels queued and running attempts whose finding is closed or whose destination is offline; their workers
/// notice at the next renewal. A running one may go on for 30 s after its finding closed: it closed, most
/// likely, because of it. An operator's own program may be about just that: a fileserver that is offline. Returns
/// how many.
///
/// # Errors
/// When the engine fails.
pub async fn cancel_obsolete(db: &Database, limit: i64) -> Result<u64> {
    let closed = retrying!(cancel(db, limit, Obsolete::Closed).await)?;
    let away = retrying!(cancel(db, limit, Obsolete::Away).await)?;
    Ok(closed + away)
}

#[derive(Clone, Copy)]
enum Obsolete {
    Closed,
    Away,
}

impl Obsolete {
    const fn text(self, engine: crate::database::Engine) -> &'static str {
        match self {
            Self::Closed => engine.text(
                "/* attempts::of_closed, sqlite */ SELECT a.id FROM attempts a \
                  WHERE NOT EXISTS (SELECT 1 FROM findings f WHERE f.id = a.finding_id) \
                    AND (a.state = 'queued' OR NOT EXISTS (SELECT 1 FROM finding_history h \
                          WHERE h.id = a.finding_id AND h.closed_at > (SELECT now FROM clock) - $2)) \
                  ORDER BY a.id LIMIT $1",
                // Asked of each attempt, of which there are few: as an anti join it read all findings.
                "/* attempts::of_closed, postgres */ SELECT a.id FROM attempts a \
                  WHERE (SELECT f.id FROM findings f WHERE f.id = a.finding_id) IS NULL \
                    AND (a.state = 'queued' OR NOT EXISTS (SELECT 1 FROM finding_history h \
                          WHERE h.id = a.finding_id AND h.closed_at > (SELECT now FROM clock) - $2)) \
                  ORDER BY a.id LIMIT $1 FOR UPDATE OF a SKIP LOCKED",
            ),
            Self::Away => engine.text(
                "/* attempts::of_away, sqlite */ SELECT a.id FROM attempts a \
                   JOIN fileservers d ON d.id = a.destination_id \
                  WHERE d.health = 'offline' AND a.step <> 'exec' ORDER BY a.id LIMIT $1",
                "/* attempts::of_away, postgres */ SELECT a.id FROM attempts a \
                   JOIN fileservers d ON d.id = a.destination_id \
                  WHERE d.health = 'offline' AND a.step <> 'exec' ORDER BY a.id LIMIT $1 FOR UPDATE OF a SKIP LOCKED",
            ),
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Closed => "an evaluation no longer returns its finding",
            Self::Away => "its destination does not answer",
        }
    }
}

async fn cancel(db: &Database, limit: i64, why: Obsolete) -> Result<u64> {
    let doing = "cancelling obsolete attempts";
    let mut tx = Tx::begin(db).await?;
    let text = why.text(tx.engine());
    let found: std::result::Result<Vec<i64>, sqlx::Error> = match why {
        Obsolete::Closed => {
            within!(&mut tx, c => sqlx::query_scalar(text).bind(limit).bind(CLOSED_GRACE_MS).fetch_all(c).await)
        }
        Obsolete::Away => within!(&mut tx, c => sqlx::query_scalar(text).bind(limit).fetch_all(c).await),
    };
    let ids = Ids(found.doing(doing)?);
    if ids.0.is_empty() {
        return Ok(0);
    }
    let now = now(&mut tx).await?;
    end(&mut tx, &ids, AttemptState::Cancelled, why.message(), 0, &Next::again(0, now), now).await?;
    tx.commit().await?;
    Ok(ids.0.len() as u64)
}

/// Cancels the live attempt of a repository, if its repair is one that yields. `true` when one was cancelled.
/// Its finding waits a minute, so that the more urgent one gets the repository.
///
/// # Errors
/// When the engine fails.
pub async fn yield_repository(db: &Database, id: RepositoryId, yielding: &[&str]) -> Result<bool> {
    let yielding = Words(yielding.iter().map(|&repair| repair.to_owned()).collect());
    retrying!(try_yield(db, id, &yielding).await)
}

async fn try_yield(db: &Database, id: RepositoryId, yielding: &Words) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* attempts::yielding, sqlite */ SELECT id FROM attempts \
          WHERE repository_id = $1 AND repair IN (SELECT value FROM json_each($2))",
        "/* attempts::yielding, postgres */ SELECT id FROM attempts \
          WHERE repository_id = $1 AND repair = ANY($2) FOR UPDATE",
    );
    let found: Vec<i64> =
        within!(&mut tx, c => sqlx::query_scalar(text).bind(id).bind(yielding).fetch_all(c).await)
            .doing("cancelling an attempt that yields")?;
    if found.is_empty() {
        return Ok(false);
    }
    let now = now(&mut tx).await?;
    let next = Next::again(MAKE_WAY_MS, now + MAKE_WAY_MS);
    end(&mut tx, &Ids(found), AttemptState::Cancelled, "made way for a more urgent repair", 0, &next, now)
        .await?;
    tx.commit().await?;
    Ok(true)
}
