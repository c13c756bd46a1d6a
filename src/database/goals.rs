//! What is remembered of goals and evaluations.
use super::rows::{self, GoalStateRow};
use super::transaction::{Tx, retrying, within};
use super::values::Words;
use super::{Database, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::goal::GoalStatus;
use crate::model::id::EvaluationId;

/// The last word of each goal, by name.
///
/// # Errors
/// When the engine fails.
pub async fn states(db: &Database) -> Result<Vec<GoalStatus>> {
    let rows: Vec<GoalStateRow> = on!(db, p => sqlx::query_as(
        "/* goals::states */ SELECT goal, state, findings, at_least, evaluated_at, finished_at, took_ms, error, \
                failures, file_error, digest, ended, gave_way, gave_way_at FROM goal_states ORDER BY goal",
    )
    .fetch_all(p).await)
    .doing("reading the goals' states")?;
    rows::all(rows)
}

/// Says which goals exist, with their texts' digests and the errors of files that do not load; the state of a
/// new one is unknown, and so is that of one of which no version runs, whatever it was before a restart. Rows of goals that are gone are removed and their findings closed into history.
/// What is there already is not written again.
///
/// # Errors
/// When the engine fails.
pub async fn declare(db: &Database, goals: &[Declared]) -> Result<()> {
    retrying!(try_declare(db, goals).await)
}

async fn try_declare(db: &Database, goals: &[Declared]) -> Result<()> {
    let doing = "declaring the goals";
    let names = Words(goals.iter().map(|goal| goal.goal.clone()).collect());
    let mut tx = Tx::begin(db).await?;
    for goal in goals {
        within!(&mut tx, c => sqlx::query(
            "/* goals::declare */ INSERT INTO goal_states (goal, state, digest, file_error, gave_way, gave_way_at) \
             SELECT $1, 'unknown', $2, $3, $4, CASE WHEN CAST($4 AS TEXT) IS NULL THEN NULL ELSE now END \
               FROM clock WHERE true \
             ON CONFLICT (goal) DO UPDATE SET digest = excluded.digest, file_error = excluded.file_error, \
                gave_way = excluded.gave_way, \
                gave_way_at = CASE WHEN goal_states.gave_way IS DISTINCT FROM excluded.gave_way \
                                   THEN excluded.gave_way_at ELSE goal_states.gave_way_at END, \
                state = CASE WHEN excluded.digest IS NULL THEN 'unknown' ELSE goal_states.state END, \
                error = CASE WHEN excluded.digest IS NULL THEN excluded.file_error ELSE goal_states.error END \
              WHERE goal_states.digest IS DISTINCT FROM excluded.digest \
                 OR goal_states.file_error IS DISTINCT FROM excluded.file_error \
                 OR goal_states.gave_way IS DISTINCT FROM excluded.gave_way \
                 OR (excluded.digest IS NULL AND goal_states.state <> 'unknown')",
        )
        .bind(&goal.goal).bind(&goal.digest).bind(&goal.file_error).bind(&goal.gave_way)
        .execute(c).await.map(drop))
        .doing(doing)?;
    }
    for text in forgetting(tx.engine()) {
        within!(&mut tx, c => sqlx::query(text).bind(&names).execute(c).await.map(drop)).doing(doing)?;
    }
    tx.commit().await
}

/// What the last evaluation of a goal that finished looked at; none: it said nothing of it.
///
/// # Errors
/// When the engine fails.
pub async fn population(db: &Database, goal: &str) -> Result<Option<i64>> {
    let found: Option<Option<i64>> = on!(db, p => sqlx::query_scalar(
        "/* goals::population */ SELECT population FROM goal_states WHERE goal = $1",
    )
    .bind(goal).fetch_optional(p).await)
    .doing("reading what a goal looked at")?;
    Ok(found.flatten())
}

/// Remembers what an evaluation that finished looked at; `None` forgets it, so that a population that is rightly
/// empty now is believed. What is remembered already is not written again.
///
/// # Errors
/// When the engine fails.
pub async fn record_population(db: &Database, goal: &str, population: Option<i64>) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* goals::record_population */ UPDATE goal_states SET population = $2 \
          WHERE goal = $1 AND population IS DISTINCT FROM CAST($2 AS BIGINT)",
    )
    .bind(goal).bind(population).execute(p).await.map(drop))
    .doing("writing what a goal looked at")
}

/// Closes the findings of goals that are not in the set, and removes the goals and their brakes.
const fn forgetting(engine: super::Engine) -> [&'static str; 4] {
    [
        engine.text(
            "/* goals::close, sqlite */ INSERT INTO finding_history (id, goal, subject, repository_id, \
                    fileserver_id, repair, priority, reason, evidence, opened_at, closed_at, tries, ineffective) \
             SELECT id, goal, subject, repository_id, fileserver_id, repair, priority, reason, evidence, opened_at, \
                    (SELECT now FROM clock), tries, ineffective \
               FROM findings WHERE goal NOT IN (SELECT value FROM json_each($1))",
            "/* goals::close, postgres */ INSERT INTO finding_history (id, goal, subject, repository_id, \
                    fileserver_id, repair, priority, reason, evidence, opened_at, closed_at, tries, ineffective) \
             SELECT id, goal, subject, repository_id, fileserver_id, repair, priority, reason, evidence, opened_at, \
                    (SELECT now FROM clock), tries, ineffective \
               FROM findings WHERE goal <> ALL($1)",
        ),
        engine.text(
            "/* goals::close_live, sqlite */ DELETE FROM findings \
              WHERE goal NOT IN (SELECT value FROM json_each($1))",
            "/* goals::close_live, postgres */ DELETE FROM findings WHERE goal <> ALL($1)",
        ),
        engine.text(
            "/* goals::forget, sqlite */ DELETE FROM goal_states \
              WHERE goal NOT IN (SELECT value FROM json_each($1))",
            "/* goals::forget, postgres */ DELETE FROM goal_states WHERE goal <> ALL($1)",
        ),
        engine.text(
            "/* goals::forget_brakes, sqlite */ DELETE FROM brakes \
              WHERE (name LIKE 'goal:%' OR name LIKE 'removals:%') \
                AND substr(name, instr(name, ':') + 1) NOT IN (SELECT value FROM json_each($1))",
            "/* goals::forget_brakes, postgres */ DELETE FROM brakes \
              WHERE (name LIKE 'goal:%' OR name LIKE 'removals:%') \
                AND substr(name, strpos(name, ':') + 1) <> ALL($1)",
        ),
    ]
}

/// One goal as its file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub goal: String,
    /// Digest of the text that runs; none: no good version was ever loaded.
    pub digest: Option<String>,
    /// Why the file on disk is not what runs.
    pub file_error: Option<String>,
    /// Digest of the text on disk, where it never came to an end and the version before it runs in its place.
    pub gave_way: Option<String>,
}

/// An evaluation that did not finish: the goal is unknown, nothing else changes.
///
/// # Errors
/// When the engine fails.
pub async fn record_failure(
    db: &Database,
    goal: &str,
    began_at: Millis,
    took_ms: Millis,
    error: &str,
) -> Result<EvaluationId> {
    let doing = "recording an evaluation that did not finish";
    let mut tx = Tx::begin(db).await?;
    within!(&mut tx, c => sqlx::query(
        "/* goals::record_failure */ INSERT INTO goal_states (goal, state, evaluated_at, took_ms, error, failures) \
         VALUES ($1, 'unknown', $2, $3, $4, 1) \
         ON CONFLICT (goal) DO UPDATE SET state = 'unknown', evaluated_at = excluded.evaluated_at, \
            took_ms = excluded.took_ms, error = excluded.error, failures = goal_states.failures + 1",
    )
    .bind(goal).bind(began_at).bind(took_ms).bind(error)
    .execute(c).await.map(drop))
    .doing(doing)?;
    let id = within!(&mut tx, c => sqlx::query_scalar(
        "/* goals::failed_evaluation */ INSERT INTO evaluations \
           (goal, began_at, took_ms, findings, opened, closed, changed, error) \
         VALUES ($1, $2, $3, 0, 0, 0, 0, $4) RETURNING id",
    )
    .bind(goal).bind(began_at).bind(took_ms).bind(error)
    .fetch_one(c).await)
    .doing(doing)?;
    tx.commit().await?;
    Ok(id)
}
