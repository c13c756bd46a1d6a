//! Evaluating: one read-only session per evaluation, on either engine, with bounds of time and rows.
//!
//! A session shares no connection with the rest of the program, lives for one question
//! and is closed after it. It promises that nothing is changed, that it ends soon after
//! the goal's timeout, and that no more rows than `max-rows` are kept. Texts that were
//! read at run time are handed to an engine here and nowhere else.

use super::contract::{self, Column};
use super::file::Population;
use super::sql::Query;
use super::text::FileError;
use super::value::Value;
use super::{Engine, Goal};
use crate::model::Millis;
use crate::model::finding::{Exception, Subject};
use crate::model::goal::SubjectKind;
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use std::future::Future;
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::mpsc;

mod explain;
pub mod plan;
mod postgres;
mod sqlite;

/// Rows in a batch.
const BATCH: usize = 500;
/// How long after a goal's timeout the engine's own end of it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest preparation of a query; it runs on no rows.
const CHECK_TIMEOUT: Millis = 10_000;
/// Longest recheck of one subject.
const RECHECK_TIMEOUT: Millis = 5_000;

/// Where goals are asked: what a session is opened with. Never shares a connection with `database`.
#[derive(Clone)]
pub struct Source {
    options: Options,
}

#[derive(Clone)]
enum Options {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

/// Why an evaluation did not finish, or a goal cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// `goals/x.sql:7:12: column "rack" does not exist (42703); did you mean "rack_id"?`
    pub message: String,
    /// Whether the text is at fault (as against the time it took, or the engine being away).
    pub text: bool,
}

/// How an evaluation that finished ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluated {
    /// The moment that `:now` was bound to, by the database's clock.
    pub now: Millis,
    /// Rows sent.
    pub rows: u64,
    /// Whether there were more than `max-rows`.
    pub more: bool,
    /// How many were looked at, where the goal says what that is.
    pub population: Option<i64>,
}

impl Problem {
    fn text(message: String) -> Self {
        Self { message, text: true }
    }

    fn away(message: String) -> Self {
        Self { message, text: false }
    }

    fn timeout(goal: &Goal, within: Millis) -> Self {
        Self::away(format!("{}: timed out after {}", goal.path.display(), seconds(within)))
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        Self::text(error.to_string())
    }
}

/// Without secrets.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("engine", &self.engine()).finish_non_exhaustive()
    }
}

impl Source {
    /// Goals will be asked of this database (`sqlite:PATH`, `postgres://…`). A role that may only read is best.
    ///
    /// # Errors
    /// When the URL is of neither kind.
    pub fn new(url: &str) -> Result<Self, Problem> {
        let wrong =
            |error: sqlx::Error| Problem::away(format!("goals cannot be asked of this database: {error}"));
        let options = if url.starts_with("sqlite:") {
            Options::Sqlite(Box::new(sqlite::options(SqliteConnectOptions::from_str(url).map_err(wrong)?)))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Options::Postgres(Box::new(postgres::options(PgConnectOptions::from_str(url).map_err(wrong)?)))
        } else {
            return Err(Problem::away("a database's URL begins with sqlite: or postgres:".to_owned()));
        };
        Ok(Self { options })
    }

    /// The engine that goals are asked of.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        match self.options {
            Options::Sqlite(_) => Engine::Sqlite,
            Options::Postgres(_) => Engine::Postgres,
        }
    }

    /// Prepares the query on the real engine and checks its columns; runs nothing of it on rows.
    ///
    /// # Errors
    /// Naming file, line and column.
    pub async fn check(&self, goal: &Goal) -> Result<(), Problem> {
        let columns = within(goal, CHECK_TIMEOUT, async {
            match &self.options {
                Options::Sqlite(options) => sqlite::check(options, goal).await,
                Options::Postgres(options) => postgres::check(options, goal).await,
            }
        })
        .await?;
        checked(goal, &columns)
    }

    /// Evaluates, sending rows in batches; the channel's bound is the memory's. Rows that were sent before an
    /// error are the receiver's to throw away. A subject that comes twice is the merge's to refuse.
    ///
    /// # Errors
    /// When it did not finish: the goal is unknown.
    pub async fn evaluate(
        &self,
        goal: &Goal,
        rows: mpsc::Sender<Vec<Exception>>,
    ) -> Result<Evaluated, Problem> {
        self.evaluate_at(goal, None, rows).await
    }

    /// The same with `:now` given, for fixtures; none: the database's clock.
    ///
    /// # Errors
    /// When it did not finish.
    pub async fn evaluate_at(
        &self,
        goal: &Goal,
        now: Option<Millis>,
        rows: mpsc::Sender<Vec<Exception>>,
    ) -> Result<Evaluated, Problem> {
        within(goal, goal.timeout, async {
            match &self.options {
                Options::Sqlite(options) => sqlite::evaluate(options, goal, now, rows).await,
                Options::Postgres(options) => postgres::evaluate(options, goal, now, rows).await,
            }
        })
        .await
    }

    /// Evaluates and keeps the first rows, for people who look at what a goal returns.
    ///
    /// # Errors
    /// When it did not finish.
    pub async fn collect(&self, goal: &Goal, most: u64) -> Result<(Vec<Exception>, Evaluated), Problem> {
        let bounded = Goal { max_rows: goal.max_rows.min(most), ..goal.clone() };
        let (sender, mut receiver) = mpsc::channel::<Vec<Exception>>(1);
        let keep = async {
            let mut all = Vec::new();
            while let Some(mut batch) = receiver.recv().await {
                all.append(&mut batch);
            }
            all
        };
        let (evaluated, rows) = tokio::join!(self.evaluate(&bounded, sender), keep);
        Ok((rows, evaluated?))
    }

    /// Asks again for one subject.
    ///
    /// # Errors
    /// When it could not be asked: the finding is taken to hold.
    pub async fn recheck(&self, goal: &Goal, subject: &Subject) -> Result<bool, Problem> {
        self.recheck_at(goal, subject, None).await
    }

    /// The same with `:now` given, for fixtures; none: the database's clock.
    ///
    /// # Errors
    /// When it could not be asked.
    pub async fn recheck_at(
        &self,
        goal: &Goal,
        subject: &Subject,
        now: Option<Millis>,
    ) -> Result<bool, Problem> {
        let timeout = goal.timeout.min(RECHECK_TIMEOUT);
        within(goal, timeout, async {
            match &self.options {
                Options::Sqlite(options) => sqlite::recheck(options, goal, subject, now, timeout).await,
                Options::Postgres(options) => postgres::recheck(options, goal, subject, now, timeout).await,
            }
        })
        .await
    }
}

/// The last bound: an engine that does not even answer that it timed out.
async fn within<T>(
    goal: &Goal,
    timeout: Millis,
    asking: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(duration(timeout) + PATIENCE, asking).await {
        Ok(result) => result,
        Err(_) => Err(Problem::timeout(goal, timeout)),
    }
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

fn seconds(millis: Millis) -> String {
    if millis % 1_000 == 0 { format!("{}s", millis / 1_000) } else { format!("{millis}ms") }
}

/// The columns against the contract, with the place of the one that is wrong.
fn checked(goal: &Goal, columns: &[Column]) -> Result<(), Problem> {
    contract::check(goal.subject, columns).map_err(|(message, word)| {
        let place = word.and_then(|word| explain::find_word(&goal.query.text, &word));
        Problem::text(goal.at(goal.query.file_offset(place.unwrap_or(0)), message))
    })
}

/// The one place where text that was read at run time becomes SQL. It was admitted by [`super::sql::admit`].
#[allow(clippy::disallowed_types, reason = "the room that this type belongs to")]
fn run_time(text: String) -> sqlx::SqlStr {
    use sqlx::SqlSafeStr as _;
    sqlx::AssertSqlSafe(text).into_sql_str()
}

/// All queries of a goal: its own first.
fn queries(goal: &Goal) -> impl Iterator<Item = &Query> {
    let population = match &goal.population {
        Some(Population::Query(query)) => Some(query),
        _ => None,
    };
    std::iter::once(&goal.query).chain(&goal.recheck).chain(population)
}

/// What a query's placeholders are bound to, in their order.
fn bindings(
    goal: &Goal,
    query: &Query,
    now: Millis,
    subject: Option<&Subject>,
) -> Result<Vec<Value>, Problem> {
    query
        .names
        .iter()
        .map(|name| {
            let value = goal.params.get(name).cloned().or_else(|| named(name, now, subject));
            value.ok_or_else(|| Problem::text(goal.at(query.file_offset(0), unnamed(goal.subject, name))))
        })
        .collect()
}

fn unnamed(kind: SubjectKind, name: &str) -> String {
    format!("parameter :{name} does not belong to a {kind}; a replica has :repository_id and :fileserver_id")
}

fn named(name: &str, now: Millis, subject: Option<&Subject>) -> Option<Value> {
    Some(match (name, subject?) {
        ("now", _) => Value::Integer(now),
        ("repository_id", subject) => Value::Integer(subject.repository()?.0),
        ("fileserver_id", subject) => Value::Integer(subject.fileserver()?.0),
        ("key" | "subject", Subject::Key(key)) => Value::Text(key.clone()),
        ("subject", Subject::Repository(id)) => Value::Integer(id.0),
        ("subject", Subject::Fileserver(id)) => Value::Integer(id.0),
        _ => return None,
    })
}

/// Some subject of a kind, to prepare queries with.
fn sample(kind: SubjectKind) -> Subject {
    match kind {
        SubjectKind::Repository => Subject::Repository(RepositoryId(0)),
        SubjectKind::Replica => Subject::Replica(RepositoryId(0), FileserverId(0)),
        SubjectKind::Fileserver => Subject::Fileserver(FileserverId(0)),
        SubjectKind::Key => Subject::Key(String::new()),
    }
}

/// The query for one subject: the goal's own recheck, or the goal narrowed. The second is how many bytes stand
/// before the goal's text.
fn recheck_text(goal: &Goal, subject: &Subject) -> (String, usize, Vec<Value>) {
    if let Some(query) = &goal.recheck {
        return (query.text.clone(), 0, Vec::new());
    }
    let head = "/* goal.recheck */ SELECT 1 FROM (";
    let mut text = format!("{head}{}\n) AS g WHERE ", goal.query.text);
    let mut values = Vec::new();
    for (index, column) in contract::subject_columns(goal.subject).iter().enumerate() {
        let and = if index == 0 { "" } else { " AND " };
        text.extend([and, "g.", column, " = $", &(goal.query.names.len() + index + 1).to_string()]);
        values.extend(named(column, 0, Some(subject)));
    }
    text.push_str(" LIMIT 1");
    (text, head.len(), values)
}

/// Collects rows into batches, and stops at the goal's bound.
struct Sending<'a> {
    goal: &'a Goal,
    to: mpsc::Sender<Vec<Exception>>,
    batch: Vec<Exception>,
    rows: u64,
}

impl<'a> Sending<'a> {
    fn new(goal: &'a Goal, to: mpsc::Sender<Vec<Exception>>) -> Self {
        Self { goal, to, batch: Vec::new(), rows: 0 }
    }

    fn is_full(&self) -> bool {
        self.rows >= self.goal.max_rows
    }

    async fn row(&mut self, values: serde_json::Map<String, serde_json::Value>) -> Result<(), Problem> {
        self.rows += 1;
        let exception = contract::exception(self.goal.subject, self.rows, values)
            .map_err(|message| Problem::text(format!("{}: {message}", self.goal.path.display())))?;
        self.batch.push(exception);
        if self.batch.len() >= BATCH { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Problem> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let sent = self.to.send(batch).await;
        sent.map_err(|_| {
            Problem::away(format!("{}: nobody takes its rows any more", self.goal.path.display()))
        })
    }
}
