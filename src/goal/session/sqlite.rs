//! A session on SQLite: a read-only connection of its own, and a progress handler that ends it at its deadline.
//!
//! Read-only alone does not refuse ATTACH, and SQLite would run a second statement: that
//! the text is one SELECT was seen by [`crate::goal::sql`] before it comes here.

use super::explain::{self, Known, Names, Said, words_at};
use super::{
    Evaluated, OPENING, Problem, Sending, Taker, bindings, duration, queries, recheck_text, run_time, sample,
};
use crate::goal::Goal;
use crate::goal::contract::{Column, Type};
use crate::goal::file::Population;
use crate::goal::functions;
use crate::goal::sql::Query;
use crate::goal::value::Value;
use crate::model::Millis;
use crate::model::finding::Subject;
use crate::model::published::PUBLISHED;
use futures::TryStreamExt as _;
use serde_json::{Map, Value as Json};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sqlx::{
    Column as _, ConnectOptions as _, Executor as _, Row as _, SqliteConnection, Statement as _,
    TypeInfo as _, ValueRef as _,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod seal;

pub mod plan;

/// Steps of SQLite's machine between two looks at the deadline: well below a millisecond.
const STEPS: i32 = 2_000;
/// Occurrences of a word that are tried to find a syntax error's place.
const MAX_TRIES: usize = 200;
const INTERRUPT: i32 = 9;
const TEXT_CODES: [i32; 6] = [1, 18, 20, 21, 23, 25];

/// A database in a file.
#[derive(Clone)]
pub struct Door {
    options: SqliteConnectOptions,
    /// Whether it is the fleet's: then only published tables are read.
    fleet: bool,
}

impl Door {
    pub fn new(options: SqliteConnectOptions, fleet: bool) -> Self {
        Self { options: self::options(options), fleet }
    }
}

fn options(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .read_only(true)
        .create_if_missing(false)
        .pragma("query_only", "on")
        .busy_timeout(Duration::from_secs(5))
        .statement_cache_capacity(0)
        .disable_statement_logging()
}

/// A connection whose work ends at a deadline, or as soon as nobody waits for it.
struct Session {
    connection: SqliteConnection,
    fleet: bool,
    abandoned: Arc<AtomicBool>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

impl Session {
    async fn open(door: &Door, timeout: Millis) -> Result<Self, Problem> {
        let deadline = Instant::now() + duration(timeout);
        let away = |error: sqlx::Error| Problem::away(format!("goals cannot be asked: {error}"));
        let opening = tokio::time::timeout(OPENING, door.options.connect()).await;
        let mut connection = opening.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(away)?;
        let abandoned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&abandoned);
        let goes_on = move || !flag.load(Ordering::Relaxed) && Instant::now() < deadline;
        connection.lock_handle().await.map_err(away)?.set_progress_handler(STEPS, goes_on);
        Ok(Self { connection, fleet: door.fleet, abandoned })
    }

    async fn now(&mut self) -> Result<Millis, sqlx::Error> {
        let text = if self.fleet {
            "/* goal.now */ SELECT now FROM clock"
        } else {
            "/* goal.now */ SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        };
        sqlx::query_scalar(text).fetch_one(&mut self.connection).await
    }
}

pub async fn check(door: &Door, goal: &Goal) -> Result<Vec<Column>, Problem> {
    let mut session = Session::open(door, super::CHECK_TIMEOUT).await?;
    let mut columns = None;
    for query in queries(goal) {
        bindings(goal, query, 0, Some(&sample(goal)))?;
        match (&mut session.connection).prepare(run_time(query.text.clone())).await {
            Ok(prepared) => {
                let found: Vec<_> = prepared.columns().iter().map(column).collect();
                columns.get_or_insert(found);
                sealed(&mut session, goal, query, &query.text).await.map_err(told)?;
            }
            Err(error) => return Err(explained(&mut session, goal, query, error, super::CHECK_TIMEOUT).await),
        }
    }
    Ok(columns.unwrap_or_default())
}

/// Of a text that was prepared, only what is refused is of interest.
fn told(failed: Failed) -> Problem {
    match failed {
        Failed::Problem(problem) => problem,
        Failed::Sql(error) => Problem::away(format!("goals cannot be asked: {error}")),
    }
}

/// What SQLite would do for a text, as it says itself, is reading, and reading published tables alone.
async fn sealed(session: &mut Session, goal: &Goal, query: &Query, text: &str) -> Result<(), Failed> {
    let published = session.fleet.then_some(PUBLISHED.as_slice());
    let Some(refused) = seal::refusal(&mut session.connection, text, published).await? else { return Ok(()) };
    let place = refused.table.as_ref().and_then(|table| explain::find_word(&query.text, table)).unwrap_or(0);
    Err(Problem::text(goal.at(query.file_offset(place), refused.why)).into())
}

/// Declared types say something for plain columns only.
fn column(column: &sqlx::sqlite::SqliteColumn) -> Column {
    let kind = match column.type_info().name() {
        "INTEGER" | "REAL" => Type::Number,
        "TEXT" => Type::Text,
        "BLOB" => Type::Other("bytes".to_owned()),
        "BOOLEAN" => Type::Other("a boolean".to_owned()),
        _ => Type::Unknown,
    };
    Column { name: column.name().to_owned(), kind }
}

pub async fn evaluate(
    door: &Door,
    goal: &Goal,
    now: Option<Millis>,
    rows: Taker,
) -> Result<Evaluated, Problem> {
    let mut session = Session::open(door, goal.timeout).await?;
    match stream(&mut session, goal, now, rows).await {
        Ok(evaluated) => Ok(evaluated),
        Err(Failed::Problem(problem)) => Err(problem),
        Err(Failed::Sql(error)) => Err(explained(&mut session, goal, &goal.query, error, goal.timeout).await),
    }
}

enum Failed {
    Problem(Problem),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Everything in one read transaction, so that the population and the rows are of one moment.
async fn stream(
    session: &mut Session,
    goal: &Goal,
    now: Option<Millis>,
    rows: Taker,
) -> Result<Evaluated, Failed> {
    sqlx::query("/* goal.begin */ BEGIN").execute(&mut session.connection).await?;
    let now = match now {
        Some(now) => now,
        None => session.now().await?,
    };
    let population = population(session, goal, now).await?;
    sealed(session, goal, &goal.query, &goal.query.text).await?;
    let arguments = arguments(&bindings(goal, &goal.query, now, Some(&sample(goal)))?)?;
    let mut sending = Sending::new(goal, rows);
    let mut more = false;
    {
        let query = sqlx::query_with(run_time(goal.query.text.clone()), arguments).persistent(false);
        let mut stream = query.fetch(&mut session.connection);
        while let Some(row) = stream.try_next().await? {
            if sending.is_full() {
                more = true;
                break;
            }
            sending.row(values(&row)?).await?;
        }
    }
    sending.flush().await?;
    Ok(Evaluated { now, rows: sending.rows, more, population })
}

async fn population(session: &mut Session, goal: &Goal, now: Millis) -> Result<Option<i64>, Failed> {
    match &goal.population {
        None => Ok(None),
        Some(Population::Counter(name)) => {
            let query =
                sqlx::query_scalar("/* goal.population */ SELECT value FROM counters WHERE name = $1");
            Ok(query.bind(*name).fetch_optional(&mut session.connection).await?)
        }
        Some(Population::Query(query)) => {
            sealed(session, goal, query, &query.text).await?;
            let arguments = arguments(&bindings(goal, query, now, Some(&sample(goal)))?)?;
            let scalar = sqlx::query_scalar_with(run_time(query.text.clone()), arguments).persistent(false);
            match scalar.fetch_optional(&mut session.connection).await {
                Ok(number) => Ok(number),
                Err(error) => Err(explained(session, goal, query, error, goal.timeout).await.into()),
            }
        }
    }
}

pub async fn recheck(
    door: &Door,
    goal: &Goal,
    subject: &Subject,
    now: Option<Millis>,
    timeout: Millis,
) -> Result<bool, Problem> {
    let mut session = Session::open(door, timeout).await?;
    let query = goal.recheck.as_ref().unwrap_or(&goal.query);
    let found = async {
        let now = match now {
            Some(now) => now,
            None => session.now().await?,
        };
        let (text, _, more) = recheck_text(goal, subject);
        let mut bound = bindings(goal, query, now, Some(subject))?;
        bound.extend(more);
        sealed(&mut session, goal, query, &text).await?;
        let query = sqlx::query_with(run_time(text), arguments(&bound)?).persistent(false);
        Ok::<_, Failed>(query.fetch_optional(&mut session.connection).await?.is_some())
    }
    .await;
    match found {
        Ok(found) => Ok(found),
        Err(Failed::Problem(problem)) => Err(problem),
        Err(Failed::Sql(error)) => Err(explained(&mut session, goal, query, error, timeout).await),
    }
}

fn arguments(values: &[Value]) -> Result<SqliteArguments, sqlx::Error> {
    use sqlx::Arguments as _;
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Integer(number) => arguments.add(*number),
            Value::Fraction(number) => arguments.add(*number),
            Value::Text(text) => arguments.add(text.as_str()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

fn values(row: &SqliteRow) -> Result<Map<String, Json>, sqlx::Error> {
    row.columns()
        .iter()
        .enumerate()
        .map(|(index, column)| Ok((column.name().to_owned(), value(row, index, column)?)))
        .collect()
}

/// A value has a type of its own, whatever its column says; 0 and 1 of a boolean column are shown as such.
fn value(row: &SqliteRow, index: usize, column: &sqlx::sqlite::SqliteColumn) -> Result<Json, sqlx::Error> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Json::Null);
    }
    let boolean = column.type_info().name() == "BOOLEAN";
    let kind = raw.type_info().name().to_owned();
    Ok(match kind.as_str() {
        "INTEGER" | "BOOLEAN" => match row.try_get_unchecked::<i64, _>(index)? {
            number @ (0 | 1) if boolean => Json::Bool(number == 1),
            number => Json::from(number),
        },
        "REAL" => Json::from(row.try_get_unchecked::<f64, _>(index)?),
        "BLOB" => Json::String(hex(&row.try_get_unchecked::<Vec<u8>, _>(index)?)),
        _ => Json::String(String::from_utf8_lossy(&row.try_get_unchecked::<Vec<u8>, _>(index)?).into_owned()),
    })
}

/// As PostgreSQL shows bytes.
fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().take(1_000).flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    std::iter::once('\\').chain(std::iter::once('x')).chain(digits).collect()
}

async fn explained(
    session: &mut Session,
    goal: &Goal,
    query: &Query,
    error: sqlx::Error,
    timeout: Millis,
) -> Problem {
    let Some(database) = error.as_database_error() else {
        return Problem::away(format!("{}: {error}", goal.path.display()));
    };
    let message = database.message().to_owned();
    let number: i32 = database.code().and_then(|code| code.parse().ok()).unwrap_or(1) & 0xff;
    if number == INTERRUPT {
        return Problem::timeout(goal, timeout);
    }
    if !TEXT_CODES.contains(&number) {
        return Problem::away(format!("{}: {message} (code {number})", goal.path.display()));
    }
    let offset = syntax_error(session, query, &message).await;
    let names = if explain::is_about_a_name(&message) { names(session).await } else { Names::default() };
    let said = Said { message, code: format!("SQLite {number}"), offset, hint: None };
    explain::problem(goal, query, &said, &names)
}

/// SQLite says `near "x"`, which may stand in many places. Its parser reads from left to right and stops at
/// the wrong word, so the first place up to which the text alone gives the same error is the one.
async fn syntax_error(session: &mut Session, query: &Query, message: &str) -> Option<usize> {
    if message == "incomplete input" {
        return Some(query.file_offset(query.text.len()));
    }
    let word = message.strip_prefix("near \"")?.strip_suffix("\": syntax error")?;
    for at in words_at(&query.text, word).take(MAX_TRIES) {
        let until = query.text.get(..at + word.len())?.to_owned();
        let prepared = (&mut session.connection).prepare(run_time(until)).await;
        if prepared
            .is_err_and(|error| error.as_database_error().is_some_and(|error| error.message() == message))
        {
            return Some(query.file_offset(at));
        }
    }
    None
}

/// `table_xinfo`, and not `table_info`, which leaves out columns that the database keeps itself.
async fn names(session: &mut Session) -> Names {
    let text = "/* goal.known */ SELECT lower(t.name), lower(c.name) FROM sqlite_schema t, pragma_table_xinfo(t.name) c
                 WHERE t.type IN ('table', 'view') AND c.hidden <> 1 ORDER BY t.name, c.cid LIMIT 5000";
    let columns: Vec<Known> =
        sqlx::query_as(text).fetch_all(&mut session.connection).await.unwrap_or_default();
    let text = "/* goal.functions */ SELECT DISTINCT name FROM pragma_function_list ORDER BY name";
    let functions: Vec<String> =
        sqlx::query_scalar(text).fetch_all(&mut session.connection).await.unwrap_or_default();
    let functions = functions.into_iter().filter(|name| is_admitted(name)).collect();
    Names { columns, functions }
}

fn is_admitted(function: &str) -> bool {
    functions::refusal(function).is_none() && !functions::is_inner(function)
}
