//! The merge of one evaluation's rows into the open findings.
//!
//! Rows are collected in a temporary table, outside of any lock on what others use, and
//! merged as a set in one transaction: whoever looks sees the findings before or after,
//! never half. What did not change is not written.
//!
//! The table is filled in the order of arrival and indexed once it is whole: a tree that
//! is kept while rows come in grows out of the engine's small cache of temporary pages,
//! and each row is then dearer than the one before.
use crate::database::transaction::{Tx, within};
use crate::database::{Database, DatabaseError, Doing, Result};
use crate::model::Millis;
use crate::model::brake::Bound;
use crate::model::finding::{Exception, Hints, Lane, ONCE};
use crate::model::goal::SubjectKind;
use crate::model::id::EvaluationId;
use sqlx::types::Json;
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
    /// Digest of the text that was evaluated.
    pub digest: String,
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
    /// Findings that are kept (`max-rows`). Of rows past it only those are kept that are findings already, so that
    /// the set stands whatever the order in which an engine returns them.
    pub most: i64,
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
    /// Rows returned, whether or not they were kept.
    pub returned: i64,
    /// Whether more may have been returned than were counted.
    pub at_least: bool,
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
    count: Count,
    /// Opened with the first row: while a goal computes, no connection is held for it.
    tx: Option<Tx>,
    permit: Option<OwnedSemaphorePermit>,
}

/// What came so far.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    returned: i64,
    kept: i64,
    /// Whether the rows end here; otherwise there may be more, and who was not returned is not known.
    at_least: bool,
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
        std::future::ready(Ok(Self { db: db.clone(), into, count: Count::default(), tx: None, permit: None }))
            .await
    }

    /// Adds a batch of rows (the caller's batches bound the memory; 1,000 is good). Rows past the bound are counted,
    /// and kept where they are findings already.
    ///
    /// # Errors
    /// When a subject is of another kind than the goal's (`Refused`, naming it), or the engine fails.
    pub async fn add(&mut self, rows: &[Exception]) -> Result<()> {
        let room = usize::try_from(self.into.most - self.count.returned).unwrap_or(0);
        let (within, beyond) = rows.split_at(room.min(rows.len()));
        self.keep(within, false).await?;
        self.keep(beyond, true).await
    }

    async fn keep(&mut self, rows: &[Exception], known_alone: bool) -> Result<()> {
        let incoming = self.incoming(rows)?;
        if incoming.is_empty() {
            return Ok(());
        }
        let goal = self.into.goal.clone();
        let tx = self.open().await?;
        let text = tx.engine().text(
            "/* findings::add, sqlite */ INSERT INTO incoming (subject, repository_id, fileserver_id, lane, \
                    priority, reason, hints, evidence) \
             SELECT value->>'subject', value->>'repository_id', value->>'fileserver_id', value->>'lane', \
                    value->>'priority', value->>'reason', value->'hints', value->'evidence' \
               FROM json_each($1) WHERE NOT $2 \
                 OR EXISTS (SELECT 1 FROM findings f WHERE f.goal = $3 AND f.subject = value->>'subject')",
            "/* findings::add, postgres */ INSERT INTO incoming (subject, repository_id, fileserver_id, lane, \
                    priority, reason, hints, evidence) \
             SELECT i.subject, i.repository_id, i.fileserver_id, i.lane, i.priority, i.reason, i.hints, i.evidence \
               FROM jsonb_to_recordset($1) AS i (subject TEXT, repository_id BIGINT, fileserver_id BIGINT, \
                       lane BIGINT, priority INTEGER, reason TEXT, hints JSONB, evidence JSONB) \
              WHERE NOT $2 OR EXISTS (SELECT 1 FROM findings f WHERE f.goal = $3 AND f.subject = i.subject)",
        );
        let added =
            within!(&mut *tx, c => sqlx::query(text).bind(Json(&incoming)).bind(known_alone).bind(goal)
            .execute(c).await.map(|done| done.rows_affected()))
            .doing("collecting an evaluation's rows")?;
        self.count.returned += i64::try_from(incoming.len()).unwrap_or(i64::MAX);
        self.count.kept += i64::try_from(added).unwrap_or(i64::MAX);
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
            "/* findings::collect, sqlite */ CREATE TEMP TABLE incoming (arrival INTEGER PRIMARY KEY, \
                    subject TEXT NOT NULL, repository_id BIGINT, fileserver_id BIGINT, lane BIGINT NOT NULL, \
                    priority INTEGER NOT NULL, reason TEXT, hints TEXT NOT NULL, evidence TEXT NOT NULL)",
            "/* findings::collect, postgres */ CREATE TEMP TABLE incoming ( \
                    arrival BIGINT GENERATED ALWAYS AS IDENTITY, \
                    subject TEXT NOT NULL, repository_id BIGINT, fileserver_id BIGINT, lane BIGINT NOT NULL, \
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

    /// Says that the goal may have returned more rows than came here: the count is "at least", and findings that
    /// did not come are left open.
    pub const fn more(&mut self) {
        self.count.at_least = true;
    }

    /// One transaction: new subjects open as far as there is room, subjects not returned close into history, changed
    /// ones change, the rest is not written at all; findings whose succeeded attempt ended before the evaluation
    /// began and that were returned again count one ineffective attempt and back off (or become stuck); the goal's
    /// state and the evaluation are written.
    ///
    /// # Errors
    /// When a subject came twice (`Refused`, naming it), or an evaluation that began later was merged already
    /// (`Refused`), or the engine fails; then nothing has changed.
    pub async fn finish(mut self, took_ms: Millis) -> Result<Merged> {
        self.open().await?;
        let Self { into, count, tx, permit, .. } = self;
        let Some(mut tx) = tx else {
            return Err(DatabaseError::Refused("an evaluation without a table for its rows".to_owned()));
        };
        index(&mut tx, count.kept).await?;
        tx.write().await?;
        let merged = set::patiently(&mut tx, &into, count, took_ms).await?;
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
            hints: row.hints.clone(),
            evidence: &row.evidence,
        }
    }
}

/// Indexes the rows once they are all there, which finds a subject that came twice, and lets the planner know them.
async fn index(tx: &mut Tx, kept: i64) -> Result<()> {
    set::savepoint(tx, "SAVEPOINT indexing").await?;
    let indexed = within!(&mut *tx, c => sqlx::query(
        "/* findings::index */ CREATE UNIQUE INDEX incoming_by_subject ON incoming (subject)",
    )
    .persistent(false).execute(c).await.map(drop));
    match indexed {
        Err(error) if is_twice(&error) => return Err(twice(tx).await?),
        other => other.doing("indexing an evaluation's rows")?,
    }
    let Tx::Postgres(transaction, _) = tx else { return Ok(()) };
    if kept < LARGE {
        return Ok(());
    }
    sqlx::query("/* findings::analyze, postgres */ ANALYZE incoming")
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map(drop)
        .doing("analyzing an evaluation's rows")
}

/// Whether an index found one value in two rows: PostgreSQL's code, and SQLite's.
fn is_twice(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("23505" | "2067"))
}

/// Which subject it was that came twice.
async fn twice(tx: &mut Tx) -> Result<DatabaseError> {
    set::savepoint(tx, "ROLLBACK TO SAVEPOINT indexing").await?;
    let twice: Option<String> = within!(tx, c => sqlx::query_scalar(
        "/* findings::twice */ SELECT subject FROM incoming GROUP BY subject HAVING count(*) > 1 LIMIT 1",
    )
    .persistent(false).fetch_optional(c).await)
    .doing("looking for a subject that came twice")?;
    let subject = twice.as_deref().unwrap_or("a subject");
    Ok(DatabaseError::Refused(format!("{subject} was returned twice in one evaluation: {ONCE}")))
}
