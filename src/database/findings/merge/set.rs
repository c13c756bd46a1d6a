//! The one transaction in which collected rows and open findings become one.
use super::{Count, MergeInto, Merged, braking};
use crate::database::transaction::{Tx, within};
use crate::database::{DatabaseError, Doing, Engine, Result, brakes};
use crate::model::Millis;
use crate::model::amount::counted;
use crate::model::finding::Deferral;
use crate::model::goal::GoalState;
use crate::model::id::EvaluationId;
use sqlx::types::Json;

/// No moment makes such a finding ready, evaluations do: the end of the year 9999.
const NOT_BY_TIME: Millis = 253_402_300_799_000;
/// How often a merge is tried that collided with somebody who changed the same findings.
const TRIES: u32 = 4;

/// Merges; where another transaction was in the way, the rows that were collected are kept and it is tried again.
pub(super) async fn patiently(
    tx: &mut Tx,
    into: &MergeInto,
    count: Count,
    took_ms: Millis,
) -> Result<Merged> {
    let mut tried = 0;
    loop {
        savepoint(tx, "SAVEPOINT merge").await?;
        match merge(tx, into, count, took_ms).await {
            Err(error) if error.is_collision() && tried < TRIES => {
                tried += 1;
                savepoint(tx, "ROLLBACK TO SAVEPOINT merge").await?;
            }
            result => return result,
        }
    }
}

pub(super) async fn savepoint(tx: &mut Tx, text: &'static str) -> Result<()> {
    if tx.engine() == Engine::Sqlite {
        return Ok(()); // it has the file's write lock: nobody can be in the way
    }
    within!(tx, c => sqlx::query(text).execute(c).await.map(drop)).doing("marking a place in a merge")
}

async fn merge(tx: &mut Tx, into: &MergeInto, count: Count, took_ms: Millis) -> Result<Merged> {
    plan_for_sets(tx).await?;
    let (now, number) = lock_goal(tx, into).await?;
    let evaluation = begin_evaluation(tx, into, count, took_ms).await?;
    // Where rows may be missing, what did not come may well have been returned.
    let closed = if count.at_least { 0 } else { close(tx, into, now).await? };
    let changed = change(tx, into).await?;
    judge(tx, into, now).await?;
    ripen(tx, into, number).await?;
    let brake = braking::look(tx, into, count.returned, now).await?;
    let room = room(tx, into, count).await?;
    let fresh = Fresh { evaluation, now, number, brake, room };
    let opened = open(tx, into, &fresh).await?;
    let Count { returned, at_least, .. } = count;
    let merged = Merged { evaluation, returned, at_least, opened, closed, changed };
    end_evaluation(tx, into, &merged, took_ms).await?;
    Ok(merged)
}

/// `PostgreSQL` learns late how many findings a goal has: by what it knew, it looked each of 380,000 rows up, three
/// times. Both sides of these joins are whole sets, so they are hashed whatever it believes.
async fn plan_for_sets(tx: &mut Tx) -> Result<()> {
    let Tx::Postgres(transaction, _) = tx else { return Ok(()) };
    sqlx::query(
        "/* findings::plan, postgres */ SELECT set_config('enable_nestloop', 'off', true), \
                set_config('work_mem', '64MB', true), set_config('jit', 'off', true)",
    )
    .execute(&mut **transaction)
    .await
    .map(drop)
    .doing("beginning a merge")
}

/// Locks the goal's row, so that two evaluations of one goal are merged one after the other, and not one that
/// began earlier after one that began later. Returns the database's clock, and the evaluation's number among those
/// of its goal that finished.
async fn lock_goal(tx: &mut Tx, into: &MergeInto) -> Result<(Millis, i64)> {
    let doing = "beginning a merge";
    let (finished_at, now, finished): (Option<Millis>, Millis, i64) = within!(tx, c => sqlx::query_as(
        "/* findings::lock_goal */ INSERT INTO goal_states (goal, state) VALUES ($1, 'unknown') \
         ON CONFLICT (goal) DO UPDATE SET goal = excluded.goal \
         RETURNING finished_at, (SELECT now FROM clock), finished",
    )
    .bind(&into.goal).fetch_one(c).await)
    .doing(doing)?;
    if finished_at.is_some_and(|finished| finished > into.began_at) {
        return Err(DatabaseError::Refused(format!(
            "an evaluation of {} that began later was merged already",
            into.goal
        )));
    }
    Ok((now, finished + 1))
}

async fn begin_evaluation(
    tx: &mut Tx,
    into: &MergeInto,
    count: Count,
    took_ms: Millis,
) -> Result<EvaluationId> {
    within!(tx, c => sqlx::query_scalar(
        "/* findings::begin_evaluation */ INSERT INTO evaluations \
           (goal, began_at, took_ms, findings, at_least, opened, closed, changed) VALUES ($1, $2, $3, $4, $5, 0, 0, 0) \
         RETURNING id",
    )
    .bind(&into.goal).bind(into.began_at).bind(took_ms).bind(count.returned).bind(count.at_least)
    .fetch_one(c).await)
    .doing("recording an evaluation")
}

/// Closes what was not returned. An attempt that is under way for it stays, and finds itself stale.
async fn close(tx: &mut Tx, into: &MergeInto, now: Millis) -> Result<i64> {
    let doing = "closing findings that were not returned";
    let kept = within!(&mut *tx, c => sqlx::query(
        "/* findings::close */ INSERT INTO finding_history (id, goal, subject, repository_id, fileserver_id, repair, \
                priority, reason, evidence, opened_at, closed_at, tries, ineffective) \
         SELECT f.id, f.goal, f.subject, f.repository_id, f.fileserver_id, f.repair, f.priority, f.reason, \
                f.evidence, f.opened_at, $2, f.tries, f.ineffective \
           FROM findings f WHERE f.goal = $1 \
            AND NOT EXISTS (SELECT 1 FROM incoming i WHERE i.subject = f.subject)",
    )
    .bind(&into.goal).bind(now).persistent(false).execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    if kept == 0 {
        return Ok(0); // mostly; and to find that out again is a join of both sets
    }
    let gone = within!(tx, c => sqlx::query(
        "/* findings::close_live */ DELETE FROM findings WHERE goal = $1 \
            AND NOT EXISTS (SELECT 1 FROM incoming i WHERE i.subject = findings.subject)",
    )
    .bind(&into.goal).persistent(false).execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    if kept != gone {
        return Err(DatabaseError::Unreadable(format!(
            "{kept} findings went to history and {gone} were closed: somebody else closes findings of {}",
            into.goal
        )));
    }
    Ok(i64::try_from(gone).unwrap_or(i64::MAX))
}

/// Changes what was returned with other values. Where the goal has another repair now, the finding begins anew:
/// what was tried says nothing about the new one.
async fn change(tx: &mut Tx, into: &MergeInto) -> Result<i64> {
    let changed = within!(tx, c => sqlx::query(
        "/* findings::change */ UPDATE findings AS f SET priority = COALESCE(f.bumped, i.priority), reason = i.reason, hints = i.hints, \
           evidence = i.evidence, lane = i.lane, repair = CAST($2 AS TEXT), \
           state = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) OR f.state = 'running' THEN f.state \
                        WHEN CAST($2 AS TEXT) IS NULL OR f.ripe_at IS NOT NULL THEN 'waiting' ELSE 'ready' END, \
           held_by = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.held_by END, \
           deferral = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.deferral END, \
           repaired_at = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.repaired_at END, \
           tries = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.tries ELSE 0 END, \
           ineffective = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.ineffective ELSE 0 END \
          FROM incoming AS i WHERE f.goal = $1 AND f.subject = i.subject \
           AND (f.priority <> COALESCE(f.bumped, i.priority) OR f.reason IS DISTINCT FROM i.reason OR f.hints <> i.hints \
             OR f.evidence <> i.evidence OR f.lane <> i.lane OR f.repair IS DISTINCT FROM CAST($2 AS TEXT))",
    )
    .bind(&into.goal).bind(&into.repair).persistent(false)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing("changing findings that were returned otherwise")?;
    Ok(i64::try_from(changed).unwrap_or(i64::MAX))
}

/// What was repaired before the evaluation began and was returned all the same: the attempt was ineffective.
/// There are as many statements as different counts, and those that were never repaired are not looked at.
async fn judge(tx: &mut Tx, into: &MergeInto, now: Millis) -> Result<()> {
    let doing = "judging repaired findings";
    let counts: Vec<i32> = within!(&mut *tx, c => sqlx::query_scalar(
        "/* findings::repaired */ SELECT DISTINCT ineffective FROM findings \
          WHERE goal = $1 AND repaired_at IS NOT NULL AND repaired_at < $2 ORDER BY ineffective",
    )
    .bind(&into.goal).bind(into.began_at).fetch_all(c).await)
    .doing(doing)?;
    for count in counts {
        let (state, deferral, next_at) = verdict(into, count + 1, now);
        within!(&mut *tx, c => sqlx::query(
            "/* findings::judge */ UPDATE findings SET ineffective = ineffective + 1, repaired_at = NULL, \
               state = $4, deferral = $5, next_at = $6 \
              WHERE goal = $1 AND repaired_at IS NOT NULL AND repaired_at < $2 AND ineffective = $3 \
                AND EXISTS (SELECT 1 FROM incoming i WHERE i.subject = findings.subject)",
        )
        .bind(&into.goal).bind(into.began_at).bind(count).bind(state).bind(Json(&deferral)).bind(next_at)
        .execute(c).await.map(drop))
        .doing(doing)?;
    }
    Ok(())
}

/// What a finding becomes after so many ineffective attempts.
fn verdict(into: &MergeInto, ineffective: i32, now: Millis) -> (&'static str, Deferral, Millis) {
    if ineffective >= into.stuck_after {
        let reason = format!("{} succeeded, and the goal still returns it", counted(ineffective, "attempt"));
        return ("stuck", Deferral::Stuck { reason }, now);
    }
    let step = usize::try_from(ineffective - 1).unwrap_or_default();
    let wait = into.backoff_ms.get(step).or(into.backoff_ms.last()).copied().unwrap_or_default();
    ("waiting", Deferral::CoolingDown { until: Some(now + wait) }, now + wait)
}

/// How many findings may be opened: whoever is open and was returned keeps its place, the rest is for new ones.
async fn room(tx: &mut Tx, into: &MergeInto, count: Count) -> Result<i64> {
    let open: i64 = within!(tx, c => sqlx::query_scalar(
        "/* findings::open_already */ SELECT count(*) FROM findings WHERE goal = $1",
    )
    .bind(&into.goal).fetch_one(c).await)
    .doing("counting the open findings of a goal")?;
    // What was not returned is closed by now. So if as many are open as were returned, they are the same.
    let same = !count.at_least && open == count.kept;
    Ok(if same { 0 } else { (into.most - open).max(0) })
}

/// What has been returned by as many evaluations in a row as its goal asks for may start.
async fn ripen(tx: &mut Tx, into: &MergeInto, number: i64) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* findings::ripen */ UPDATE findings SET state = CASE WHEN repair IS NULL THEN 'waiting' ELSE 'ready' END, \
           deferral = NULL, ripe_at = NULL, next_at = (SELECT now FROM clock) \
          WHERE goal = $1 AND ripe_at IS NOT NULL AND (ripe_at <= $2 OR $3)",
    )
    .bind(&into.goal).bind(number).bind(into.in_a_row <= 1).execute(c).await.map(drop))
    .doing("looking which findings have lasted")
}

/// What findings that open now have in common.
struct Fresh {
    evaluation: EvaluationId,
    now: Millis,
    number: i64,
    brake: Option<String>,
    room: i64,
}

impl Fresh {
    /// State, deferral, `ripe_at` and `next_at` of those that no lane of last copies passes.
    fn first(&self, into: &MergeInto) -> (&'static str, Option<Deferral>, Option<i64>, Millis) {
        if into.repair.is_none() {
            return ("waiting", None, None, self.now);
        }
        if into.in_a_row > 1 {
            let evaluations = i64::from(into.in_a_row);
            let until = self.number + evaluations - 1;
            return ("waiting", Some(Deferral::Ripening { evaluations, until }), Some(until), NOT_BY_TIME);
        }
        match &self.brake {
            Some(name) => ("held", Some(brakes::braked(name)), None, self.now),
            None => ("ready", None, None, self.now),
        }
    }
}

async fn open(tx: &mut Tx, into: &MergeInto, fresh: &Fresh) -> Result<i64> {
    if fresh.room == 0 {
        return Ok(0);
    }
    let (state, deferral, ripe_at, next_at) = fresh.first(into);
    let held_by = fresh.brake.as_ref().filter(|_| state == "held");
    let opened = within!(tx, c => sqlx::query(
        "/* findings::open */ INSERT INTO findings (goal, subject, repository_id, fileserver_id, repair, lane, \
                priority, reason, hints, evidence, opened_at, opened_evaluation, state, held_by, deferral, ripe_at, \
                next_at) \
         SELECT $1, i.subject, i.repository_id, i.fileserver_id, CAST($2 AS TEXT), i.lane, i.priority, i.reason, \
                i.hints, i.evidence, $3, $4, $5, CAST($6 AS TEXT), $7, CAST($8 AS BIGINT), $9 \
           FROM incoming i \
          WHERE NOT EXISTS (SELECT 1 FROM findings f WHERE f.goal = $1 AND f.subject = i.subject) LIMIT $10",
    )
    .bind(&into.goal).bind(&into.repair).bind(fresh.now).bind(fresh.evaluation).bind(state).bind(held_by)
    .bind(deferral.as_ref().map(Json)).bind(ripe_at).bind(next_at).bind(fresh.room).persistent(false)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing("opening findings")?;
    Ok(i64::try_from(opened).unwrap_or(i64::MAX))
}

async fn end_evaluation(tx: &mut Tx, into: &MergeInto, merged: &Merged, took_ms: Millis) -> Result<()> {
    let doing = "recording an evaluation";
    within!(&mut *tx, c => sqlx::query(
        "/* findings::end_evaluation */ UPDATE evaluations SET opened = $2, closed = $3, changed = $4 WHERE id = $1",
    )
    .bind(merged.evaluation).bind(merged.opened).bind(merged.closed).bind(merged.changed)
    .execute(c).await.map(drop))
    .doing(doing)?;
    let state = if merged.returned == 0 && !merged.at_least { GoalState::Met } else { GoalState::Unmet };
    within!(tx, c => sqlx::query(
        "/* findings::state_of_goal */ UPDATE goal_states SET state = $2, findings = $3, evaluated_at = $4, \
           finished_at = $4, took_ms = $5, error = NULL, failures = 0, at_least = $6, finished = finished + 1, \
           ended = $7 \
          WHERE goal = $1",
    )
    .bind(&into.goal).bind(state.as_str()).bind(merged.returned).bind(into.began_at).bind(took_ms)
    .bind(merged.at_least).bind(&into.digest)
    .execute(c).await.map(drop))
    .doing(doing)
}
