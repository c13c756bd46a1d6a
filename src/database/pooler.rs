//! Finding out whether a pooler between us and PostgreSQL hands one session to several clients.
//!
//! Prepared statements live in a session, so such a pooler breaks them, and now and then
//! only: it is refused at the start, with a sentence. The question is put so that no answer
//! depends on which pooler it is: something is set in a session, and looked for from another
//! one that keeps its server's session busy.

use super::{DatabaseError, Doing, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

const SET: &str = "/* pooler::set, postgres */ SET trued.probe = 'on'";
const BEGIN: &str = "/* pooler::begin, postgres */ BEGIN";
const END: &str = "/* pooler::end, postgres */ ROLLBACK";
const READ: &str = "/* pooler::read, postgres */ SELECT COALESCE(current_setting('trued.probe', true), '')";
const MARK: &str = "on";

/// Refuses a pooler in transaction mode.
pub(super) async fn refuse(options: &PgConnectOptions) -> Result<()> {
    let shared = shares_sessions(options).await.doing("looking for a pooler before PostgreSQL")?;
    if shared {
        return Err(DatabaseError::Refused(
            "the database's URL leads to a pooler in transaction mode (pgbouncer's pool_mode = transaction): give \
             trued a pool in session mode, or PostgreSQL itself; each process keeps 20 connections at most"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Simple queries alone: prepared ones are what may not work. Once the mark is set, another client holds a server's
/// session in a transaction: either it sees the mark, or, where it was given the marked session, the first client
/// no longer does.
async fn shares_sessions(options: &PgConnectOptions) -> std::result::Result<bool, sqlx::Error> {
    let mut one = options.connect().await?;
    let mut other = options.connect().await?;
    sqlx::raw_sql(SET).execute(&mut one).await?;
    sqlx::raw_sql(BEGIN).execute(&mut other).await?;
    let seen_by_other = mark(&mut other).await?;
    let seen_by_one = mark(&mut one).await?;
    sqlx::raw_sql(END).execute(&mut other).await?;
    let _ = one.close().await;
    let _ = other.close().await;
    Ok(seen_by_other || !seen_by_one)
}

async fn mark(connection: &mut PgConnection) -> std::result::Result<bool, sqlx::Error> {
    use sqlx::{Executor as _, Row as _};
    let row = connection.fetch_one(sqlx::raw_sql(READ)).await?;
    Ok(row.try_get::<&str, _>(0)? == MARK)
}
