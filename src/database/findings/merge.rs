//! The merge of one evaluation's rows into the open findings.
//!
//! Rows are collected in a temporary table, outside of any lock on what others use, and
//! merged as a set in one transaction: whoever looks sees the findings before or after,
//! never half. What did not change is not written.
use crate::database::transaction::{Tx, within};
use crate::database::values::Words;
use crate::database::{Database, DatabaseError, Doing, Result};
use crate::model::Millis;
use crate::model::brake::Bound;
use crate::model::finding::{Exception, Hints, Lane};
use crate::model::goal::SubjectKind;
use crate::model::id::EvaluationId;
use sqlx::types::Json;
use std::collections::BTreeSet;
use tokio::sync::OwnedSemaphorePermit;

mod braking;
mod set;

/// From so many rows on the planner needs statistics of the temporary table.
const LARGE: i64 = 1_000;

/// What the merge needs to know of a goal.
#[derive(Debug, Clone, PartialEq)]
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
    /// Evaluations in a row that must return a subject before its repair may start; 1: the first one does.
    pub in_a_row: u32,
    /// Its brake; none: however many there are, repairs start.
    pub brake: Option<BrakeAt>,
    /// Whether its repair removes replicas: the brake on removals holds it, too.
    pub removes: bool,
}

/// When a goal's own brake begins to hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BrakeAt {
    /// The most unexplained findings that are not too many.
    pub bound: Bound,
    /// How many were looked at; none: as many as the subject's kind counts.
    pub population: Option<i64>,
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
    permit: Option<OwnedSemaphorePermit>,
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
        std::future::ready(Ok(Self { db: db.clone(), into, returned: 0, batches: 0, tx: None, permit: None }))
            .await
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
        self.permit = self.db.merge_permit().await;
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

    /// Says how many subjects the evaluation looked at: what a brake's share is of.
    pub const fn looked_at(&mut self, population: Option<i64>) {
        if let Some(brake) = &mut self.into.brake
            && population.is_some()
        {
            brake.population = population;
        }
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
        let Self { into, returned, tx, permit, .. } = self;
        let Some(mut tx) = tx else {
            return Err(DatabaseError::Refused("an evaluation without a table for its rows".to_owned()));
        };
        analyze(&mut tx, returned).await?;
        tx.write().await?;
        let merged = set::patiently(&mut tx, &into, returned, took_ms).await?;
        tx.commit().await?;
        drop(permit);
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
