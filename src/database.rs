//! Every SQL text but the goals': one function a statement, on SQLite and PostgreSQL alike.
//!
//! Each text begins with a comment that names its function, so that the database's
//! activity view reads like code: `/* attempts::claim */` runs on both engines as it
//! stands, `/* attempts::claim, postgres */` and `/* attempts::claim, sqlite */` where the
//! dialects differ. A test prepares each of them on its engines. Transactions are short
//! and never span a call to an agent. Everybody locks the repository's row first, then
//! its replicas.
//!
//! SQLite: one connection writes, a pool of others reads and cannot write; other
//! processes may share the file. PostgreSQL: one pool, which is renewed when its server
//! hangs, takes no writes, or is another one, and nothing depends on the state of a session. `on!` reads, `on_writer!` is one writing statement, and
//! `Tx` is several.

use crate::model::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

pub use standing::Standing;

pub mod address;
pub mod attempts;
pub mod audit;
pub mod brakes;
pub mod drains;
pub mod evaluations;
mod file;
pub mod fileservers;
pub mod findings;
pub mod fleet;
pub mod flows;
pub mod goals;
pub mod goals_role;
pub mod history;
pub mod inventory;
mod keeper;
pub mod leases;
pub mod limits;
pub mod parts;
pub mod pauses;
mod pooler;
pub mod purges;
pub mod pushes;
pub mod quarantine;
pub mod rebuild;
pub mod removals;
pub mod replicas;
pub mod report;
pub mod repositories;
pub mod routing;
pub(crate) mod rows;
mod schema;
pub mod scratch;
pub(crate) mod server;
pub mod settings;
pub mod standing;
pub mod stops;
pub mod suspects;
pub mod tidying;
pub(crate) mod transaction;
pub(crate) mod values;
pub mod words;

#[cfg(test)]
mod tests;

/// How long a caller waits for a connection, and SQLite for another's write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Evaluations that collect rows at the same time. Each keeps a connection for as long as its goal takes: short
/// statements must find others.
const MERGES: usize = 8;

/// Runs one reading statement, written once, on whichever engine it is:
/// `on!(db, p => sqlx::query_as("/* room::function */ SELECT …").bind(x).fetch_one(p).await)`.
macro_rules! on {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db.pools() {
            $crate::database::Pools::Sqlite(pools) => {
                let $pool = &pools.read;
                $body
            }
            $crate::database::Pools::Postgres(server) => {
                let leash = server.leash();
                let $pool = leash.pool();
                leash.hold(async { $body }).await
            }
        }
    };
}
pub(crate) use on;

/// As `on!`, on the connection that may write.
macro_rules! on_writer {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db.pools() {
            $crate::database::Pools::Sqlite(pools) => {
                let $pool = &pools.write;
                $body
            }
            $crate::database::Pools::Postgres(server) => {
                let leash = server.leash();
                let $pool = leash.pool();
                leash.hold(async { $body }).await
            }
        }
    };
}
pub(crate) use on_writer;

/// A database of trued: a pool on one of the two engines.
#[derive(Debug, Clone)]
pub struct Database {
    url: String,
    pools: Pools,
    merges: Arc<Semaphore>,
}

/// The two engines' pools.
#[derive(Debug, Clone)]
pub(crate) enum Pools {
    Sqlite(file::File),
    Postgres(server::Server),
}

/// Which engine a database runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Embedded, one file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Engine {
    /// The text for this engine, where one does not do for both.
    #[must_use]
    pub(crate) const fn text(self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Self::Sqlite => sqlite,
            Self::Postgres => postgres,
        }
    }
}

/// Why a statement did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The engine's own error.
    #[error("{doing}")]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// The engine's words.
        #[source]
        source: sqlx::Error,
    },
    /// The tables are of another version than this program's.
    #[error("{0}")]
    Version(String),
    /// What is asked cannot be, as things stand: a name is taken, a row is missing, a bound is broken.
    #[error("{0}")]
    Refused(String),
    /// A row holds what this program cannot read.
    #[error("{0}")]
    Unreadable(String),
}

impl DatabaseError {
    /// Whether the same act may well succeed at once when it is tried again: another
    /// transaction was in the way, and this one was undone.
    #[must_use]
    pub fn is_collision(&self) -> bool {
        let Self::Sql { source: sqlx::Error::Database(error), .. } = self else { return false };
        // PostgreSQL: serialization failure, deadlock. SQLite: busy, busy with an old snapshot, locked.
        matches!(error.code().as_deref(), Some("40001" | "40P01" | "5" | "517" | "261" | "6"))
    }

    /// Whether the engine's disk has no room left. Nothing was changed then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let Self::Sql { source: sqlx::Error::Database(error), .. } = self else { return false };
        matches!(error.code().as_deref(), Some("53100" | "13"))
    }
}

/// Says what was being done when the engine failed.
pub(crate) trait Doing<T> {
    /// `reading the goals' states`, say.
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| DatabaseError::Sql { doing, source })
    }
}

/// Shorthand for this module's results.
pub type Result<T> = std::result::Result<T, DatabaseError>;

/// How the tables stand to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// Up to date.
    Current,
    /// So many migrations are missing.
    Behind(usize),
    /// Made by a newer program, which left everything that this one knows: parts of this version may go on beside
    /// parts of that one.
    Ahead {
        /// The highest migration in the database.
        found: i64,
        /// The highest that this program knows.
        known: i64,
    },
    /// Made by a newer program, and without what this one needs.
    Newer {
        /// The highest migration in the database.
        found: i64,
        /// The highest that this program knows.
        known: i64,
    },
}

impl Database {
    /// Opens `sqlite:PATH` (or `sqlite://PATH`; the file is made) or `postgres://…`, where several servers may be
    /// named and the one that takes writes is used. Applies no migration.
    ///
    /// # Errors
    /// When the URL is of neither kind, or the engine cannot be reached within ten seconds.
    pub async fn open(url: &str) -> Result<Self> {
        let pools = if let Some(rest) = url.strip_prefix("sqlite:") {
            Pools::Sqlite(file::File::open(rest.strip_prefix("//").unwrap_or(rest)).await?)
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Pools::Postgres(server::Server::open(url).await?)
        } else {
            return Err(DatabaseError::Refused(
                "a database's URL begins with sqlite: or postgres://".to_owned(),
            ));
        };
        Ok(Self { url: url.to_owned(), pools, merges: Arc::new(Semaphore::new(MERGES)) })
    }

    /// The engine it runs on.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        match self.pools {
            Pools::Sqlite(_) => Engine::Sqlite,
            Pools::Postgres(_) => Engine::Postgres,
        }
    }

    /// The URL it was opened with, for goal sessions.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Looks after it until stopped: says how it stands, and renews connections when they are of no use any more.
    pub async fn keep(&self, stop: CancellationToken) {
        match &self.pools {
            Pools::Sqlite(file) => file.keep(stop).await,
            Pools::Postgres(server) => keeper::keep(server, stop).await,
        }
    }

    /// How it stood at the keeper's last look.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.pools {
            Pools::Sqlite(file) => file.standing(),
            Pools::Postgres(server) => server.standing(),
        }
    }

    /// Host and port of the server that is used now; none: a file, or a socket.
    #[must_use]
    pub fn host(&self) -> Option<(String, u16)> {
        let Pools::Postgres(server) = &self.pools else { return None };
        let options = &server.addresses()[server.at()];
        options.get_socket().is_none().then(|| (options.get_host().to_owned(), options.get_port()))
    }

    /// How its tables stand to this program.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn schema(&self) -> Result<SchemaState> {
        schema::state(self).await
    }

    /// Applies what is missing; refuses tables that are newer than this program. Returns how many it applied.
    /// Two processes may do it at once: one waits for the other.
    ///
    /// # Errors
    /// When the tables are newer, or the engine fails.
    pub async fn migrate(&self) -> Result<usize> {
        schema::migrate(self).await
    }

    /// Now, by the database's clock.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn now(&self) -> Result<Millis> {
        on!(self, p => sqlx::query_scalar("/* database::now */ SELECT now FROM clock").fetch_one(p).await)
            .doing("reading the database's clock")
    }

    /// Closes all connections.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite(pools) => {
                pools.read.close().await;
                pools.write.close().await;
            }
            Pools::Postgres(server) => server.close().await,
        }
    }

    /// A place among those that collect rows.
    pub(crate) async fn merge_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.merges).acquire_owned().await.ok()
    }

    pub(crate) const fn pools(&self) -> &Pools {
        &self.pools
    }
}
