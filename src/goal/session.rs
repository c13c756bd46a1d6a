//! Evaluating: one read-only session per evaluation, on either engine, with bounds of time and rows.
//!
//! A session shares no connection with the rest of the program, lives for one question
//! and is closed after it. It promises that nothing is changed, that it ends soon after
//! the goal's timeout, and that no more rows than `max-rows` are kept. Texts that were
//! read at run time are handed to an engine here and nowhere else.

use super::Goal;
use super::contract::{self, Column};
use super::file::Population;
use super::sql::Query;
use super::text::FileError;
use super::value::Value;
use crate::model::Millis;
use crate::model::finding::{Exception, Subject};
use crate::model::goal::SubjectKind;
use crate::model::id::{FileserverId, RepositoryId};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

mod explain;
pub mod plan;
mod postgres;
mod rows;
mod source;
mod sqlite;

use rows::{Sending, Taker};
use source::Place;
pub use source::{Names, Source};

/// Share of a goal's timeout, in hundredths, in which rows past `max-rows` are still read: what is left is for the
/// merge of those that came.
const COUNTING: u32 = 75;
/// How long after a goal's timeout the engine's own end of it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest opening of a session: a database that does not answer holds nobody else up.
const OPENING: Duration = Duration::from_secs(5);
/// Longest preparation of a query; it runs on no rows.
const CHECK_TIMEOUT: Millis = 10_000;
/// Longest recheck of one subject.
const RECHECK_TIMEOUT: Millis = 5_000;

/// Why an evaluation did not finish, or a goal cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// `goals/x.sql:7:12: column "rack" does not exist (42703); did you mean "rack_id"?`
    pub message: String,
    /// Whether the text is at fault (as against the time it took, or the engine being away).
    pub text: bool,
    /// Whether it took longer than it may.
    pub late: bool,
}

/// How an evaluation that finished ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluated {
    /// The moment that `:now` was bound to, by the database's clock.
    pub now: Millis,
    /// Rows sent.
    pub rows: u64,
    /// Whether there were more than were sent.
    pub more: bool,
    /// How many were looked at, where the goal says what that is.
    pub population: Option<i64>,
}

impl Problem {
    fn text(message: String) -> Self {
        Self { message, text: true, late: false }
    }

    fn away(message: String) -> Self {
        Self { message, text: false, late: false }
    }

    fn timeout(goal: &Goal, within: Millis) -> Self {
        let message = format!("{}: timed out after {}", goal.path.display(), seconds(within));
        Self { late: true, ..Self::away(message) }
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        Self::text(error.to_string())
    }
}

impl Source {
    /// Prepares the query on the real engine and checks its columns; runs nothing of it on rows.
    ///
    /// # Errors
    /// Naming file, line and column.
    pub async fn check(&self, goal: &Goal) -> Result<(), Problem> {
        // Whether there is such a database comes before what it could not be asked for.
        let place = self.place(goal)?;
        placeable(goal)?;
        let trace = postgres::Trace::default();
        let asking = async {
            match place {
                Place::Sqlite(door) => sqlite::check(door, goal).await,
                Place::Postgres(door) => postgres::check(door, goal, &trace).await,
            }
        };
        let columns = within(goal, place, CHECK_TIMEOUT, &trace, asking).await?;
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

    /// Evaluates, and sends also the rows past `max-rows`, so that the receiver can count them and tell which of them
    /// it knows; `more` says that they were too many to be read within three quarters of the goal's timeout.
    ///
    /// # Errors
    /// When it did not finish: the goal is unknown.
    pub async fn evaluate_all(
        &self,
        goal: &Goal,
        rows: mpsc::Sender<Vec<Exception>>,
    ) -> Result<Evaluated, Problem> {
        let counting = duration(goal.timeout) * COUNTING / 100;
        self.send(goal, None, rows, Instant::now().checked_add(counting)).await
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
        self.send(goal, now, rows, None).await
    }

    async fn send(
        &self,
        goal: &Goal,
        now: Option<Millis>,
        rows: mpsc::Sender<Vec<Exception>>,
        beyond: Option<Instant>,
    ) -> Result<Evaluated, Problem> {
        let place = self.place(goal)?;
        let trace = postgres::Trace::default();
        let asking = async {
            let taker = Taker { to: rows, names: self.names.clone(), beyond };
            match place {
                Place::Sqlite(door) => sqlite::evaluate(door, goal, now, taker).await,
                Place::Postgres(door) => postgres::evaluate(door, goal, now, taker, &trace).await,
            }
        };
        within(goal, place, goal.timeout, &trace, asking).await
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
        let place = self.place(goal)?;
        let Some(subject) = self.known_as(goal, subject).await? else { return Ok(false) };
        let trace = postgres::Trace::default();
        let asking = async {
            match place {
                Place::Sqlite(door) => sqlite::recheck(door, goal, &subject, now, timeout).await,
                Place::Postgres(door) => postgres::recheck(door, goal, &subject, now, timeout, &trace).await,
            }
        };
        within(goal, place, timeout, &trace, asking).await
    }

    /// A subject as the goal's database knows it: a repository by its name where the goal names them. None: the
    /// fleet has no such repository any more.
    async fn known_as(&self, goal: &Goal, subject: &Subject) -> Result<Option<Subject>, Problem> {
        let (true, Subject::Repository(id), Some(names)) = (goal.is_by_name(), subject, &self.names) else {
            return Ok(Some(subject.clone()));
        };
        let name = names.name(*id).await;
        let name = name.map_err(|why| Problem::away(format!("{}: {why}", goal.path.display())))?;
        Ok(name.map(Subject::Key))
    }
}

/// The last bound: an engine that does not even answer that it timed out.
async fn within<T>(
    goal: &Goal,
    place: &Place,
    timeout: Millis,
    trace: &postgres::Trace,
    asking: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let ended = tokio::time::timeout(duration(timeout) + PATIENCE, asking).await;
    if let (Err(_), Place::Postgres(door)) = (&ended, place) {
        // The goal may have turned its own limits off: its session is ended from outside.
        door.end(trace).await;
    }
    ended.unwrap_or_else(|_| Err(Problem::timeout(goal, timeout)))
}

/// What only the fleet's database has, a goal over another one cannot ask for.
fn placeable(goal: &Goal) -> Result<(), Problem> {
    let wrong = |key: &str, why: &str| {
        let at = goal.text.find(key).unwrap_or(0);
        Err(Problem::text(goal.at(at, format!("{key} {why}"))))
    };
    match &goal.population {
        _ if goal.asks_fleet() => Ok(()),
        Some(Population::Counter(_)) => {
            wrong("population:", "counts the fleet, and this goal asks another database: write a query")
        }
        _ if goal.suspects => {
            wrong("scope:", "suspects is a table of the fleet, and this goal asks another database")
        }
        _ => Ok(()),
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
    let subject = subject_columns(goal);
    contract::check_subject(goal.subject, subject, columns).map_err(|(message, word)| {
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

/// The columns that name a goal's subject.
fn subject_columns(goal: &Goal) -> &'static [&'static str] {
    if goal.is_by_name() { &contract::BY_NAME } else { contract::subject_columns(goal.subject) }
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
        ("key" | "subject" | "repository_name", Subject::Key(key)) => Value::Text(key.clone()),
        ("subject", Subject::Repository(id)) => Value::Integer(id.0),
        ("subject", Subject::Fileserver(id)) => Value::Integer(id.0),
        _ => return None,
    })
}

/// Some subject of a kind, to prepare queries with.
fn sample(goal: &Goal) -> Subject {
    match goal.subject {
        SubjectKind::Repository if goal.is_by_name() => Subject::Key(String::new()),
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
    for (index, column) in subject_columns(goal).iter().enumerate() {
        let and = if index == 0 { "" } else { " AND " };
        text.extend([and, "g.", column, " = $", &(goal.query.names.len() + index + 1).to_string()]);
        values.extend(named(column, 0, Some(subject)));
    }
    text.push_str(" LIMIT 1");
    (text, head.len(), values)
}
