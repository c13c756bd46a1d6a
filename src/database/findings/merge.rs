//! The merge of one evaluation's rows into the open findings.
//!
//! Rows are collected in a temporary table, outside of any lock on what others use, and
//! merged as a set in one transaction: whoever looks sees the findings before or after,
//! never half. What did not change is not written.
use crate::database::transaction::{Tx, within};
use crate::database::values::Words;
use crate::database::{Database, DatabaseError, Doing, Engine, Result};
use crate::model::Millis;
use crate::model::finding::{Deferral, Exception, Hints, Lane};
use crate::model::goal::{GoalState, SubjectKind};
use crate::model::id::EvaluationId;
use sqlx::types::Json;
use std::collections::BTreeSet;

/// From so many rows on the planner needs statistics of the temporary table.
const LARGE: i64 = 1_000;

/// How often a merge is tried that collided with somebody who changed the same findings.
const TRIES: u32 = 4;

/// What the merge needs to know of a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeInto {
    /// The goal.
    pub goal: String,
    /// What its rows are about.
    pub subject: SubjectKind,
    /// Its repair; none: listed only (observe mode too).
    pub repair: Option<String>,
    /// Whether its findings go to the lane of last copies.
    pub last_copies: bool,
    /// When the evaluation began, by the database's clock.
    pub began_at: Millis,
    /// Backoff after an ineffective attempt, by their number from 1: milliseconds.
    pub backoff_ms: Vec<Millis>,
    /// Ineffective attempts after which a finding is stuck.
    pub stuck_after: i32,
}

/// What a merge changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merged {
    /// The evaluation's number.
    pub evaluation: EvaluationId,
    /// Rows returned.
    pub returned: i64,
    /// Findings opened.
    pub opened: i64,
    /// Findings closed into history.
    pub closed: i64,
    /// Findings whose priority, reason, hints or evidence changed.
    pub changed: i64,
}

/// Collects an evaluation's rows outside of any transaction, then merges them as a set in one.
/// Dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Merge {
    db: Database,
    into: MergeInto,
    returned: i64,
    batches: i64,
    /// Opened with the first row: while a goal computes, no connection is held for it.
    tx: Option<Tx>,
}

#[derive(serde::Serialize)]
struct Incoming<'a> {
    subject: String,
    repository_id: Option<i64>,
    fileserver_id: Option<i64>,
    lane: i64,
    priority: i32,
    reason: Option<&'a str>,
    hints: Hints,
    evidence: &'a serde_json::Map<String, serde_json::Value>,
}

impl Merge {
    /// Begins to collect rows for a goal.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn begin(db: &Database, into: MergeInto) -> Result<Self> {
        std::future::ready(Ok(Self { db: db.clone(), into, returned: 0, batches: 0, tx: None })).await
    }

    /// Adds a batch of rows (the caller's batches bound the memory; 1,000 is good).
    ///
    /// # Errors
    /// When a subject came twice, or is of another kind than the goal's (`Refused`, naming it), or the engine fails.
    pub async fn add(&mut self, rows: &[Exception]) -> Result<()> {
        let incoming = self.incoming(rows)?;
        if incoming.is_empty() {
            return Ok(());
        }
        self.batches += 1;
        let batch = self.batches;
        let tx = self.open().await?;
        let text = tx.engine().text(
            "/* findings::add, sqlite */ INSERT INTO incoming (subject, batch, repository_id, fileserver_id, lane, \
                    priority, reason, hints, evidence) \
             SELECT value->>'subject', $2, value->>'repository_id', value->>'fileserver_id', value->>'lane', \
                    value->>'priority', value->>'reason', value->'hints', value->'evidence' \
               FROM json_each($1) WHERE true ON CONFLICT (subject) DO NOTHING",
            "/* findings::add, postgres */ INSERT INTO incoming (subject, batch, repository_id, fileserver_id, lane, \
                    priority, reason, hints, evidence) \
             SELECT i.subject, $2, i.repository_id, i.fileserver_id, i.lane, i.priority, i.reason, i.hints, i.evidence \
               FROM jsonb_to_recordset($1) AS i (subject TEXT, repository_id BIGINT, fileserver_id BIGINT, \
                       lane BIGINT, priority INTEGER, reason TEXT, hints JSONB, evidence JSONB) \
             ON CONFLICT (subject) DO NOTHING",
        );
        let added = within!(&mut *tx, c => sqlx::query(text).bind(Json(&incoming)).bind(batch)
            .persistent(false).execute(c).await.map(|done| done.rows_affected()))
        .doing("collecting an evaluation's rows")?;
        if added < incoming.len() as u64 {
            return Err(twice(tx, batch, &incoming).await?);
        }
        self.returned += i64::try_from(added).unwrap_or(i64::MAX);
        Ok(())
    }

    fn incoming<'a>(&self, rows: &'a [Exception]) -> Result<Vec<Incoming<'a>>> {
        let wrong = rows.iter().find(|row| row.subject.kind() != self.into.subject);
        if let Some(row) = wrong {
            return Err(DatabaseError::Refused(format!(
                "goal {} is about a {}, and returned {}",
                self.into.goal, self.into.subject, row.subject
            )));
        }
        Ok(rows.iter().map(|row| Incoming::new(row, self.into.last_copies)).collect())
    }

    /// The connection with the temporary table, made when it is first needed.
    async fn open(&mut self) -> Result<&mut Tx> {
        if let Some(ref mut tx) = self.tx {
            return Ok(tx);
        }
        let mut tx = Tx::apart(&self.db).await?;
        let text = tx.engine().text(
            "/* findings::collect, sqlite */ CREATE TEMP TABLE incoming (subject TEXT PRIMARY KEY, \
                    batch BIGINT NOT NULL, repository_id BIGINT, fileserver_id BIGINT, lane BIGINT NOT NULL, \
                    priority INTEGER NOT NULL, reason TEXT, hints TEXT NOT NULL, evidence TEXT NOT NULL) \
             WITHOUT ROWID",
            "/* findings::collect, postgres */ CREATE TEMP TABLE incoming (subject TEXT PRIMARY KEY, \
                    batch BIGINT NOT NULL, repository_id BIGINT, fileserver_id BIGINT, lane BIGINT NOT NULL, \
                    priority INTEGER NOT NULL, reason TEXT, hints JSONB NOT NULL, evidence JSONB NOT NULL) \
             ON COMMIT DROP",
        );
        within!(&mut tx, c => sqlx::query(text).persistent(false).execute(c).await.map(drop))
            .doing("making a table for an evaluation's rows")?;
        Ok(self.tx.insert(tx))
    }

    /// One transaction: new subjects open, subjects not returned close into history, changed ones change, the
    /// rest is not written at all; findings whose succeeded attempt ended before the evaluation began and that
    /// were returned again count one ineffective attempt and back off (or become stuck); the goal's state and
    /// the evaluation are written.
    ///
    /// # Errors
    /// When an evaluation that began later was merged already (`Refused`), or the engine fails; then nothing has
    /// changed.
    pub async fn finish(mut self, took_ms: Millis) -> Result<Merged> {
        self.open().await?;
        let Self { into, returned, tx, .. } = self;
        let Some(mut tx) = tx else {
            return Err(DatabaseError::Refused("an evaluation without a table for its rows".to_owned()));
        };
        analyze(&mut tx, returned).await?;
        tx.write().await?;
        let merged = patiently(&mut tx, &into, returned, took_ms).await?;
        tx.commit().await?;
        Ok(merged)
    }
}

impl<'a> Incoming<'a> {
    fn new(row: &'a Exception, last_copies: bool) -> Self {
        let fileserver = row.subject.fileserver();
        let lane = match fileserver {
            _ if last_copies => Lane::Last,
            Some(id) => Lane::Fileserver(id),
            None => Lane::Common,
        };
        Self {
            subject: row.subject.to_string(),
            repository_id: row.subject.repository().map(|id| id.0),
            fileserver_id: fileserver.map(|id| id.0),
            lane: lane.to_sql(),
            priority: row.priority,
            reason: row.reason.as_deref(),
            hints: row.hints,
            evidence: &row.evidence,
        }
    }
}

/// Which subject it was that came twice: in this batch, or in one before.
async fn twice(tx: &mut Tx, batch: i64, incoming: &[Incoming<'_>]) -> Result<DatabaseError> {
    let mut seen = BTreeSet::new();
    let mut subject = incoming.iter().map(|row| row.subject.as_str()).find(|subject| !seen.insert(*subject));
    let earlier: Option<String>;
    if subject.is_none() {
        let text = tx.engine().text(
            "/* findings::twice, sqlite */ SELECT subject FROM incoming \
              WHERE batch < $2 AND subject IN (SELECT value FROM json_each($1)) ORDER BY subject LIMIT 1",
            "/* findings::twice, postgres */ SELECT subject FROM incoming \
              WHERE batch < $2 AND subject = ANY($1) ORDER BY subject LIMIT 1",
        );
        let subjects = Words(incoming.iter().map(|row| row.subject.clone()).collect());
        earlier = within!(tx, c => sqlx::query_scalar(text).bind(&subjects).bind(batch)
            .persistent(false).fetch_optional(c).await)
        .doing("looking for a subject that came twice")?;
        subject = earlier.as_deref();
    }
    let subject = subject.unwrap_or("a subject");
    Ok(DatabaseError::Refused(format!("{subject} was returned twice in one evaluation")))
}

async fn analyze(tx: &mut Tx, returned: i64) -> Result<()> {
    let Tx::Postgres(transaction) = tx else { return Ok(()) };
    if returned < LARGE {
        return Ok(());
    }
    sqlx::query("/* findings::analyze, postgres */ ANALYZE incoming")
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map(drop)
        .doing("analyzing an evaluation's rows")
}

/// Merges; where another transaction was in the way, the rows that were collected are kept and it is tried again.
async fn patiently(tx: &mut Tx, into: &MergeInto, returned: i64, took_ms: Millis) -> Result<Merged> {
    let mut tried = 0;
    loop {
        savepoint(tx, "SAVEPOINT merge").await?;
        match merge(tx, into, returned, took_ms).await {
            Err(error) if error.is_collision() && tried < TRIES => {
                tried += 1;
                savepoint(tx, "ROLLBACK TO SAVEPOINT merge").await?;
            }
            result => return result,
        }
    }
}

async fn savepoint(tx: &mut Tx, text: &'static str) -> Result<()> {
    if tx.engine() == Engine::Sqlite {
        return Ok(()); // it has the file's write lock: nobody can be in the way
    }
    within!(tx, c => sqlx::query(text).execute(c).await.map(drop)).doing("marking the start of a merge")
}

async fn merge(tx: &mut Tx, into: &MergeInto, returned: i64, took_ms: Millis) -> Result<Merged> {
    let now = lock_goal(tx, into).await?;
    let evaluation = begin_evaluation(tx, into, returned, took_ms).await?;
    let closed = close(tx, into, now).await?;
    let changed = change(tx, into).await?;
    judge(tx, into, now).await?;
    let opened = open(tx, into, evaluation, now).await?;
    let merged = Merged { evaluation, returned, opened, closed, changed };
    end_evaluation(tx, into, &merged, took_ms).await?;
    Ok(merged)
}

/// Locks the goal's row, so that two evaluations of one goal are merged one after the other, and not one that
/// began earlier after one that began later. Returns the database's clock.
async fn lock_goal(tx: &mut Tx, into: &MergeInto) -> Result<Millis> {
    let doing = "beginning a merge";
    let (finished_at, now): (Option<Millis>, Millis) = within!(tx, c => sqlx::query_as(
        "/* findings::lock_goal */ INSERT INTO goal_states (goal, state) VALUES ($1, 'unknown') \
         ON CONFLICT (goal) DO UPDATE SET goal = excluded.goal \
         RETURNING finished_at, (SELECT now FROM clock)",
    )
    .bind(&into.goal).fetch_one(c).await)
    .doing(doing)?;
    if finished_at.is_some_and(|finished| finished > into.began_at) {
        return Err(DatabaseError::Refused(format!(
            "an evaluation of {} that began later was merged already",
            into.goal
        )));
    }
    Ok(now)
}

async fn begin_evaluation(
    tx: &mut Tx,
    into: &MergeInto,
    returned: i64,
    took_ms: Millis,
) -> Result<EvaluationId> {
    within!(tx, c => sqlx::query_scalar(
        "/* findings::begin_evaluation */ INSERT INTO evaluations \
           (goal, began_at, took_ms, findings, opened, closed, changed) VALUES ($1, $2, $3, $4, 0, 0, 0) \
         RETURNING id",
    )
    .bind(&into.goal).bind(into.began_at).bind(took_ms).bind(returned).fetch_one(c).await)
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
        "/* findings::change */ UPDATE findings AS f SET priority = i.priority, reason = i.reason, hints = i.hints, \
           evidence = i.evidence, lane = i.lane, repair = CAST($2 AS TEXT), \
           state = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) OR f.state = 'running' THEN f.state \
                        WHEN CAST($2 AS TEXT) IS NULL THEN 'waiting' ELSE 'ready' END, \
           deferral = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.deferral END, \
           repaired_at = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.repaired_at END, \
           tries = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.tries ELSE 0 END, \
           ineffective = CASE WHEN f.repair IS NOT DISTINCT FROM CAST($2 AS TEXT) THEN f.ineffective ELSE 0 END \
          FROM incoming AS i WHERE f.goal = $1 AND f.subject = i.subject \
           AND (f.priority <> i.priority OR f.reason IS DISTINCT FROM i.reason OR f.hints <> i.hints \
             OR f.evidence <> i.evidence OR f.lane <> i.lane OR f.repair IS DISTINCT FROM CAST($2 AS TEXT))",
    )
    .bind(&into.goal).bind(&into.repair).persistent(false)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing("changing findings that were returned otherwise")?;
    Ok(i64::try_from(changed).unwrap_or(i64::MAX))
}

/// What was repaired before the evaluation began and was returned all the same: the attempt was ineffective.
/// By now only findings that were returned are left. There are as many statements as different counts, and
/// those that were never repaired are not looked at.
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
              WHERE goal = $1 AND repaired_at IS NOT NULL AND repaired_at < $2 AND ineffective = $3",
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
        let reason = format!("{ineffective} attempts succeeded, and the goal still returns it");
        return ("stuck", Deferral::Stuck { reason }, now);
    }
    let step = usize::try_from(ineffective - 1).unwrap_or_default();
    let wait = into.backoff_ms.get(step).or(into.backoff_ms.last()).copied().unwrap_or_default();
    ("waiting", Deferral::CoolingDown { until: Some(now + wait) }, now + wait)
}

async fn open(tx: &mut Tx, into: &MergeInto, evaluation: EvaluationId, now: Millis) -> Result<i64> {
    let opened = within!(tx, c => sqlx::query(
        "/* findings::open */ INSERT INTO findings (goal, subject, repository_id, fileserver_id, repair, lane, \
                priority, reason, hints, evidence, opened_at, opened_evaluation, state, next_at) \
         SELECT $1, i.subject, i.repository_id, i.fileserver_id, CAST($2 AS TEXT), i.lane, i.priority, i.reason, \
                i.hints, i.evidence, $3, $4, CASE WHEN CAST($2 AS TEXT) IS NULL THEN 'waiting' ELSE 'ready' END, $3 \
           FROM incoming i \
          WHERE NOT EXISTS (SELECT 1 FROM findings f WHERE f.goal = $1 AND f.subject = i.subject) \
          ORDER BY i.repository_id, i.fileserver_id, i.subject",
    )
    .bind(&into.goal).bind(&into.repair).bind(now).bind(evaluation).persistent(false)
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
    let state = if merged.returned == 0 { GoalState::Met } else { GoalState::Unmet };
    within!(tx, c => sqlx::query(
        "/* findings::state_of_goal */ UPDATE goal_states SET state = $2, findings = $3, evaluated_at = $4, \
           finished_at = $4, took_ms = $5, error = NULL, failures = 0 WHERE goal = $1",
    )
    .bind(&into.goal).bind(state.as_str()).bind(merged.returned).bind(into.began_at).bind(took_ms)
    .execute(c).await.map(drop))
    .doing(doing)
}
