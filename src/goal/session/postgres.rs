//! A session on PostgreSQL: a connection of its own, one read-only transaction, deadlines kept by the server.
//!
//! One snapshot holds the moment, the population and the rows. No statement is cached:
//! after a change of a table a cached plan would fail for ever. Rows come as `jsonb`, so
//! that every type of column can be evidence. A connection that is dropped leaves its
//! query running until `statement_timeout`; that is why the server has the deadline too.

use super::explain::{self, Known, Names, Said};
use super::source::Host;
use super::{
    Evaluated, OPENING, Problem, Sending, Taker, bindings, duration, queries, recheck_text, run_time, sample,
};
use crate::goal::Goal;
use crate::goal::contract::{Column, Type};
use crate::goal::file::Population;
use crate::goal::sql::Query;
use crate::goal::value::Value;
use crate::model::Millis;
use crate::model::finding::Subject;
use futures::TryStreamExt as _;
use serde_json::{Map, Value as Json};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgDatabaseError, PgErrorPosition, PgTypeInfo};
use sqlx::{
    Column as _, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Postgres, Row as _,
    Statement as _, TypeInfo as _,
};
use std::sync::{Arc, Mutex, PoisonError};

pub mod plan;

/// Bytes of one row; a row is a summary for people.
const MAX_ROW: usize = 64 * 1024;
const CANCELLED: &str = "57014";
/// Classes of SQLSTATE that say that the text is at fault: wrong data, not supported, a transaction that may not
/// write, wrong syntax or names, a limit of the program itself.
const TEXT_CLASSES: [&str; 6] = ["21", "22", "0A", "25", "42", "54"];

/// A database on a server.
#[derive(Clone)]
pub struct Door {
    options: PgConnectOptions,
    /// Who ends a session that does not end itself: the main role.
    keeper: PgConnectOptions,
    /// Whether it is the fleet's.
    fleet: bool,
    /// Where it is now, if it may move.
    host: Option<Arc<Host>>,
}

/// Which of the server's sessions a question has, so that it can be ended from outside.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Option<(i32, String)>>);

impl Trace {
    fn set(&self, session: (i32, String)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    fn take(&self) -> Option<(i32, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Door {
    pub fn new(options: PgConnectOptions, fleet: bool) -> Self {
        let options = self::options(options);
        Self { keeper: options.clone().application_name("trued goal keeper"), options, fleet, host: None }
    }

    /// Sessions log in otherwise; the keeper stays who it is.
    pub fn login(&mut self, change: impl FnOnce(PgConnectOptions) -> PgConnectOptions) {
        self.options = change(self.options.clone());
    }

    /// Sessions go where the database is at the time.
    pub fn follow(&mut self, host: Arc<Host>) {
        self.host = Some(host);
    }

    fn there(&self, options: &PgConnectOptions) -> PgConnectOptions {
        match self.host.as_ref().and_then(|host| host()) {
            Some((host, port)) => options.clone().host(&host).port(port),
            None => options.clone(),
        }
    }

    /// Ends a session that went on past its deadline. The server says what it is by its number and its start, so
    /// that another one of the same number is left alone.
    pub async fn end(&self, trace: &Trace) {
        let Some((number, start)) = trace.take() else { return };
        let ending = async {
            let mut connection = self.there(&self.keeper).connect().await?;
            let text = "/* goal.end */ SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                         WHERE pid = $1 AND backend_start::text = $2";
            let asked = sqlx::query(text).bind(number).bind(start).persistent(false);
            asked.execute(&mut connection).await?;
            connection.close().await
        };
        if let Ok(Err(error)) = tokio::time::timeout(OPENING, ending).await {
            tracing::warn!(%error, "a goal's session went on past its deadline and could not be ended");
        }
    }
}

pub fn options(options: PgConnectOptions) -> PgConnectOptions {
    options.statement_cache_capacity(0).application_name("trued goal").disable_statement_logging()
}

enum Failed {
    Problem(Problem),
    /// And how many bytes stand before the goal's own text, or that it was another text.
    Sql(sqlx::Error, Option<usize>),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error, None)
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Opens a connection and begins a transaction that can only read and that the server ends.
async fn open(door: &Door, timeout: Millis, trace: &Trace) -> Result<PgConnection, Problem> {
    let opening = async {
        let mut connection = door.there(&door.options).connect().await?;
        let text = "/* goal.begin */ BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        sqlx::query(text).execute(&mut connection).await?;
        if door.fleet {
            // A session that nobody waits for any more ends before its timeout.
            let text = "/* goal.listen */ SET LOCAL client_connection_check_interval = '1s'";
            sqlx::query(text).execute(&mut connection).await?;
        }
        bound(&mut connection, timeout).await?;
        let text = "/* goal.session */ SELECT pid, backend_start::text FROM pg_stat_activity
                     WHERE pid = pg_backend_pid()";
        trace.set(sqlx::query_as(text).fetch_one(&mut connection).await?);
        Ok(connection)
    };
    let opened = tokio::time::timeout(duration(timeout).min(OPENING), opening).await;
    opened.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(|error| away(&error))
}

fn away(error: &sqlx::Error) -> Problem {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default();
    let message = match error {
        sqlx::Error::PoolTimedOut => "the database does not answer".to_owned(),
        error => error.to_string(),
    };
    // The role is gone or has another password, as in a database that was restored on another server.
    let hint = if code.starts_with("28") { "; `trued migrate` mends the goals' role" } else { "" };
    Problem::away(format!("goals cannot be asked: {message}{hint}"))
}

/// The limits, before each query: one that turned them off did so for itself at most. No function is called for
/// it, so that the one that changes settings need not be the role's to call.
async fn bound(connection: &mut PgConnection, timeout: Millis) -> Result<(), sqlx::Error> {
    let text = format!(
        "/* goal.bounds */ SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = {timeout}; \
         SET LOCAL lock_timeout = {timeout}; SET LOCAL idle_in_transaction_session_timeout = {timeout}; \
         SET LOCAL standard_conforming_strings = on"
    );
    sqlx::raw_sql(run_time(text)).execute(connection).await.map(drop)
}

async fn close(connection: PgConnection) {
    // What is left of the session ends with its socket, whether or not the server hears a farewell.
    if let Err(error) = connection.close().await {
        tracing::debug!(error = %error, "a goal's session was not closed politely");
    }
}

pub async fn check(door: &Door, goal: &Goal, trace: &Trace) -> Result<Vec<Column>, Problem> {
    let mut connection = open(door, super::CHECK_TIMEOUT, trace).await?;
    let mut columns = None;
    for query in queries(goal) {
        let values = bindings(goal, query, 0, Some(&sample(goal)))?;
        let types: Vec<PgTypeInfo> = values.iter().map(type_of).collect();
        match (&mut connection).prepare_with(run_time(query.text.clone()), &types).await {
            Ok(prepared) => {
                columns.get_or_insert_with(|| prepared.columns().iter().map(column).collect());
            }
            Err(error) => {
                let failed = Failed::Sql(error, Some(0));
                return Err(explained(connection, goal, query, failed, super::CHECK_TIMEOUT).await);
            }
        }
    }
    close(connection).await;
    Ok(columns.unwrap_or_default())
}

fn column(column: &sqlx::postgres::PgColumn) -> Column {
    let kind = match column.type_info().name() {
        "INT2" | "INT4" | "INT8" | "NUMERIC" | "FLOAT4" | "FLOAT8" => Type::Number,
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" => Type::Text,
        "BOOL" => Type::Other("a boolean".to_owned()),
        name => Type::Other(name.to_lowercase()),
    };
    Column { name: column.name().to_owned(), kind }
}

fn type_of(value: &Value) -> PgTypeInfo {
    match value {
        Value::Integer(_) => <i64 as sqlx::Type<Postgres>>::type_info(),
        Value::Fraction(_) => <f64 as sqlx::Type<Postgres>>::type_info(),
        Value::Text(_) => <str as sqlx::Type<Postgres>>::type_info(),
    }
}

pub async fn evaluate(
    door: &Door,
    goal: &Goal,
    now: Option<Millis>,
    rows: Taker,
    trace: &Trace,
) -> Result<Evaluated, Problem> {
    let mut connection = open(door, goal.timeout, trace).await?;
    match stream(&mut connection, door.fleet, goal, now, rows).await {
        Ok(evaluated) => {
            // Where rows were left unread the server stops sending when the socket is gone.
            if !evaluated.more {
                close(connection).await;
            }
            Ok(evaluated)
        }
        Err(failed) => Err(explained(connection, goal, &goal.query, failed, goal.timeout).await),
    }
}

async fn stream(
    connection: &mut PgConnection,
    fleet: bool,
    goal: &Goal,
    now: Option<Millis>,
    rows: Taker,
) -> Result<Evaluated, Failed> {
    let now = match now {
        Some(now) => now,
        None => clock(connection, fleet).await?,
    };
    let population = population(connection, goal, now).await?;
    bound(connection, goal.timeout).await?;
    let arguments = arguments(&bindings(goal, &goal.query, now, Some(&sample(goal)))?)?;
    let head = format!("/* goal.evaluate {} */ SELECT to_jsonb(g)::text FROM (", goal.name);
    let query =
        sqlx::query_with(run_time(format!("{head}{}\n) AS g", goal.query.text)), arguments).persistent(false);
    let mut sending = Sending::new(goal, rows);
    let mut more = false;
    {
        let mut stream = query.fetch(connection);
        let in_goal = |error| Failed::Sql(error, Some(head.len()));
        while let Some(row) = stream.try_next().await.map_err(in_goal)? {
            if sending.is_full() {
                more = true;
                break;
            }
            sending.row(values(goal, sending.rows + 1, row.try_get(0)?)?).await?;
        }
    }
    sending.flush().await?;
    Ok(Evaluated { now, rows: sending.rows, more, population })
}

async fn clock(connection: &mut PgConnection, fleet: bool) -> Result<Millis, sqlx::Error> {
    let text = if fleet {
        "/* goal.now */ SELECT now FROM clock"
    } else {
        "/* goal.now */ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
    sqlx::query_scalar(text).fetch_one(connection).await
}

fn values(goal: &Goal, row: u64, text: &str) -> Result<Map<String, Json>, Problem> {
    let wrong = |why: String| Problem::text(format!("{}: row {row}: {why}", goal.path.display()));
    if text.len() > MAX_ROW {
        return Err(wrong(format!("{} bytes are more than {MAX_ROW}", text.len())));
    }
    serde_json::from_str(text).map_err(|error| wrong(error.to_string()))
}

async fn population(connection: &mut PgConnection, goal: &Goal, now: Millis) -> Result<Option<i64>, Failed> {
    match &goal.population {
        None => Ok(None),
        Some(Population::Counter(name)) => {
            let query =
                sqlx::query_scalar("/* goal.population */ SELECT value FROM counters WHERE name = $1");
            Ok(query.bind(*name).fetch_optional(connection).await?)
        }
        Some(Population::Query(query)) => {
            let arguments = arguments(&bindings(goal, query, now, Some(&sample(goal)))?)?;
            let head = "/* goal.population */ SELECT to_jsonb(g)::text FROM (";
            let text = run_time(format!("{head}{}\n) AS g", query.text));
            let asked = sqlx::query_scalar_with(text, arguments).persistent(false);
            let row: Option<String> = asked.fetch_optional(connection).await?;
            let values = row.map(|row| values(goal, 1, &row)).transpose()?.unwrap_or_default();
            Ok(values.values().next().and_then(Json::as_i64))
        }
    }
}

pub async fn recheck(
    door: &Door,
    goal: &Goal,
    subject: &Subject,
    now: Option<Millis>,
    timeout: Millis,
    trace: &Trace,
) -> Result<bool, Problem> {
    let mut connection = open(door, timeout, trace).await?;
    let query = goal.recheck.as_ref().unwrap_or(&goal.query);
    let found = async {
        let now = match now {
            Some(now) => now,
            None => clock(&mut connection, door.fleet).await?,
        };
        let (text, head, more) = recheck_text(goal, subject);
        let mut bound = bindings(goal, query, now, Some(subject))?;
        bound.extend(more);
        let asked = sqlx::query_with(run_time(text), arguments(&bound)?).persistent(false);
        let row = asked.fetch_optional(&mut connection).await;
        Ok::<_, Failed>(row.map_err(|error| Failed::Sql(error, Some(head)))?.is_some())
    }
    .await;
    match found {
        Ok(found) => {
            close(connection).await;
            Ok(found)
        }
        Err(failed) => Err(explained(connection, goal, query, failed, timeout).await),
    }
}

fn arguments(values: &[Value]) -> Result<PgArguments, sqlx::Error> {
    use sqlx::Arguments as _;
    let mut arguments = PgArguments::default();
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

async fn explained(
    mut connection: PgConnection,
    goal: &Goal,
    query: &Query,
    failed: Failed,
    timeout: Millis,
) -> Problem {
    let (error, head) = match failed {
        Failed::Problem(problem) => return problem,
        Failed::Sql(error, head) => (error, head),
    };
    let database = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    let Some(database) = database else {
        return Problem::away(format!("{}: {error}", goal.path.display()));
    };
    let (message, code) = (database.message().to_owned(), database.code().to_owned());
    if code == CANCELLED {
        return Problem::timeout(goal, timeout);
    }
    if !TEXT_CLASSES.iter().any(|class| code.starts_with(class)) {
        return Problem::away(format!("{}: {message} ({code})", goal.path.display()));
    }
    let offset = match (database.position(), head) {
        (Some(PgErrorPosition::Original(position)), Some(head)) => {
            Some(query.file_offset_of_char(position.saturating_sub(head)))
        }
        _ => None,
    };
    let hint = database.hint().map(str::to_owned);
    let columns = if explain::is_about_a_name(&message) { known(&mut connection).await } else { Vec::new() };
    close(connection).await;
    let names = Names { columns, functions: Vec::new() };
    explain::problem(goal, query, &Said { message, code, offset, hint }, &names)
}

/// The transaction is broken by the error: names are asked for outside of it.
async fn known(connection: &mut PgConnection) -> Vec<Known> {
    if sqlx::query("/* goal.rollback */ ROLLBACK").execute(&mut *connection).await.is_err() {
        return Vec::new();
    }
    let text = "/* goal.known */ SELECT table_name::text, column_name::text FROM information_schema.columns
                 WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
                 ORDER BY table_name, ordinal_position LIMIT 5000";
    sqlx::query_as(text).fetch_all(connection).await.unwrap_or_default()
}
