//! A SQLite file: one connection writes, others read, and a look now and then says whether it takes writes.
//!
//! On a full or sick disk SQLite may undo a transaction by itself, and its connection then
//! does not know any more whether it is in one: such a connection is thrown away. Reading
//! goes on all the while, so that whoever asks is told what is wrong.

use super::standing::{Standing, State};
use super::{DatabaseError, Doing, PATIENCE, Result};
use crate::clock;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Connections that read a file at the same time.
const READERS: u32 = 8;
/// Time between two looks, and while it takes no writes.
const PERIOD: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(1);

/// An open file. SQLite has one writer at a time: ours wait for each other in the pool, in order, and not in the file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) read: SqlitePool,
    pub(crate) write: SqlitePool,
    options: Arc<SqliteConnectOptions>,
    standing: Arc<watch::Sender<Standing>>,
}

impl File {
    /// Opens a file; it is made.
    pub(super) async fn open(path: &str) -> Result<Self> {
        if path.is_empty() || path.starts_with(":memory:") {
            return Err(DatabaseError::Refused(
                "sqlite: needs the path of a file: a database in memory has no second connection".to_owned(),
            ));
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        let pool = || SqlitePoolOptions::new().acquire_timeout(PATIENCE);
        first_connection(&options).await?;
        let write = pool().max_connections(1).before_acquire(|connection, _| {
            let knows = !connection.is_in_transaction();
            Box::pin(async move { Ok(knows) })
        });
        let read = pool().max_connections(READERS);
        Ok(Self {
            read: read.connect_lazy_with(options.clone().pragma("query_only", "ON")),
            write: write.connect_lazy_with(options.clone()),
            options: Arc::new(options),
            standing: Arc::default(),
        })
    }

    /// A connection outside of the pools, for what keeps one busy for long.
    pub(crate) async fn connect(&self) -> std::result::Result<SqliteConnection, sqlx::Error> {
        self.options.connect().await
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Looks until stopped.
    pub(super) async fn keep(&self, stop: CancellationToken) {
        loop {
            let rest = if matches!(self.standing().state, State::Here) { PERIOD } else { SOON };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
            }
            self.look().await;
        }
    }

    /// Writes: what that needs is what every write needs.
    pub(super) async fn look(&self) {
        let state = match self.try_write().await {
            Ok(()) => State::Here,
            Err(error) => match of_the_disk(&error) {
                Some(why) => State::Unwritable { since: clock::now(), why },
                // Somebody writes for long, or the tables are not there yet.
                None => return,
            },
        };
        self.standing.send_modify(|standing| match (&standing.state, &state) {
            (State::Here, State::Here) | (State::Unwritable { .. }, State::Unwritable { .. }) => {}
            (_, State::Here) => {
                tracing::info!("the database file takes writes again");
                standing.state = state;
            }
            _ => {
                standing.state = state;
                tracing::error!("{}", standing.trouble().unwrap_or_default());
            }
        });
    }

    /// Changes a row and changes it back: SQLite does not write what it finds to be as it was.
    async fn try_write(&self) -> std::result::Result<(), sqlx::Error> {
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        for text in [
            "/* file::look */ UPDATE fleet SET created_at = created_at + 1 WHERE id = 1",
            "/* file::look_back */ UPDATE fleet SET created_at = created_at - 1 WHERE id = 1",
        ] {
            sqlx::query(text).execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

/// SQLite's words, where it is full, unreadable, not to be written or opened: none of it is another writer's doing.
fn of_the_disk(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
    // The low byte is the kind: https://www.sqlite.org/rescode.html
    matches!(code & 0xff, 8 | 10 | 11 | 13 | 14 | 26).then(|| error.message().to_owned())
}

/// Makes the file and turns its journal to WAL. That change, alone of all, is not waited for by SQLite itself
/// when two processes open a new file at once.
async fn first_connection(options: &SqliteConnectOptions) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match options.connect().await.doing("opening the database file") {
            Ok(connection) => return connection.close().await.doing("opening the database file"),
            Err(error) if error.is_collision() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Pools;
    use crate::database::scratch::Scratch;
    use crate::database::transaction::Tx;

    fn file(scratch: &Scratch) -> &File {
        let Pools::Sqlite(file) = scratch.database().pools() else { panic!("not a file") };
        file
    }

    // What a full disk does to a commit: SQLite has undone the transaction when its connection wants to.
    #[tokio::test]
    async fn a_connection_whose_transaction_is_gone_is_not_used_again() {
        let scratch = Scratch::sqlite().await.unwrap();
        let Ok(Tx::Sqlite(mut transaction)) = Tx::begin(scratch.database()).await else {
            panic!("not begun")
        };
        sqlx::query("ROLLBACK").execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap_err();
        Tx::begin(scratch.database()).await.unwrap().commit().await.unwrap();
        scratch.close().await;
    }

    #[tokio::test]
    async fn a_file_that_takes_no_writes_is_said_and_so_is_its_return() {
        let scratch = Scratch::sqlite().await.unwrap();
        let file = file(&scratch);
        sqlx::query("INSERT INTO fleet (id, fleet_id, checksum_key_id, checksum_key, created_at) VALUES (1, 'f', 1, x'00', 1)")
            .execute(&file.write)
            .await
            .unwrap();
        file.look().await;
        assert_eq!(file.standing().trouble(), None);
        sqlx::query("PRAGMA query_only = ON").execute(&file.write).await.unwrap();
        file.look().await;
        let said = scratch.database().standing().trouble().unwrap();
        assert!(said.starts_with("the database file takes no writes: "), "{said}");
        sqlx::query("PRAGMA query_only = OFF").execute(&file.write).await.unwrap();
        file.look().await;
        assert_eq!(file.standing().trouble(), None);
        scratch.close().await;
    }
}
