//! One transaction on either engine.
//!
//! On SQLite it takes the file's write lock when it begins (`BEGIN IMMEDIATE`), so that
//! it never fails half-way because another process wrote first. On PostgreSQL it is at
//! read-committed, waits for locks a bounded time, and is ended by the server when its
//! process stops in the middle of it.

use super::server::{Leash, Server};
use super::{Database, DatabaseError, Doing, Engine, Pools, Result};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Postgres, Sqlite, Transaction};

/// How often a write that collided with another is tried.
const TRIES: u32 = 5;

/// A transaction that may write. Dropped, it is undone.
#[derive(Debug)]
pub(crate) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    /// A connection of its own, outside of the pools: see [`Tx::apart`].
    Apart(SqliteConnection),
    Postgres(Transaction<'static, Postgres>, Leash),
}

/// Runs one statement of a transaction: `within!(tx, c => sqlx::query("…").execute(c).await)`.
macro_rules! within {
    ($tx:expr, $connection:ident => $body:expr) => {
        match $tx {
            $crate::database::transaction::Tx::Sqlite(transaction) => {
                let $connection = &mut **transaction;
                $body
            }
            $crate::database::transaction::Tx::Apart(connection) => {
                let $connection = &mut *connection;
                $body
            }
            $crate::database::transaction::Tx::Postgres(transaction, leash) => {
                let $connection = &mut **transaction;
                leash.hold(async { $body }).await
            }
        }
    };
}
pub(crate) use within;

/// Runs a whole transaction again, a few times, when it collided with another and was undone.
macro_rules! retrying {
    ($attempt:expr) => {{
        let mut tried = 0;
        loop {
            match $attempt {
                Err(error) if $crate::database::transaction::again(&error, &mut tried).await => {}
                result => break result,
            }
        }
    }};
}
pub(crate) use retrying;

/// Whether to try again, after a short wait.
pub(crate) async fn again(error: &DatabaseError, tried: &mut u32) -> bool {
    *tried += 1;
    if !error.is_collision() || *tried >= TRIES {
        return false;
    }
    tokio::time::sleep(std::time::Duration::from_millis(10 << *tried)).await;
    true
}

impl Tx {
    /// Begins one.
    pub(crate) async fn begin(db: &Database) -> Result<Self> {
        match db.pools() {
            Pools::Sqlite(pools) => {
                retrying!(pools.write.begin_with("BEGIN IMMEDIATE").await.doing("beginning a transaction"))
                    .map(Self::Sqlite)
            }
            Pools::Postgres(server) => Self::on_server(server, "60s").await,
        }
    }

    /// Begins one that first collects rows in a temporary table, and writes only after [`Tx::write`]. On `SQLite`
    /// it has a connection of its own and locks nothing until then, so that nobody waits for the collecting.
    pub(crate) async fn apart(db: &Database) -> Result<Self> {
        match db.pools() {
            Pools::Sqlite(pools) => {
                pools.connect().await.doing("opening the database file once more").map(Self::Apart)
            }
            Pools::Postgres(server) => Self::on_server(server, "15min").await,
        }
    }

    /// `idle`: how long the server waits for the next statement of a process that may have stopped.
    async fn on_server(server: &Server, idle: &str) -> Result<Self> {
        let leash = server.leash();
        let begun = leash.hold(async {
            let mut transaction = leash.pool().begin().await?;
            sqlx::query(
                "/* transaction::begin, postgres */ SELECT set_config('lock_timeout', '10s', true), \
                        set_config('idle_in_transaction_session_timeout', $1, true)",
            )
            .bind(idle)
            .execute(&mut *transaction)
            .await?;
            Ok(transaction)
        });
        let transaction = begun.await.doing("beginning a transaction")?;
        Ok(Self::Postgres(transaction, leash))
    }

    /// Takes `SQLite`'s write lock on a connection of its own. Nothing to do elsewhere.
    pub(crate) async fn write(&mut self) -> Result<()> {
        let Self::Apart(connection) = self else { return Ok(()) };
        retrying!(
            sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.doing("beginning a transaction")
        )
        .map(drop)
    }

    /// The engine it runs on.
    pub(crate) const fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) | Self::Apart(_) => Engine::Sqlite,
            Self::Postgres(..) => Engine::Postgres,
        }
    }

    /// Makes it stand.
    pub(crate) async fn commit(self) -> Result<()> {
        let doing = "committing a transaction";
        match self {
            Self::Sqlite(transaction) => transaction.commit().await.doing(doing),
            Self::Apart(mut connection) => {
                sqlx::query("COMMIT").execute(&mut connection).await.doing(doing)?;
                connection.close().await.doing(doing)
            }
            Self::Postgres(transaction, leash) => leash.hold(transaction.commit()).await.doing(doing),
        }
    }
}
