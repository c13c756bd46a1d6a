//! Private, migrated databases for tests, on either engine.
//!
//! Always compiled, because integration tests stand outside of this crate. A scratch
//! database is gone when its value is dropped, also when the test failed.
use super::{Database, Doing, Result};
use crate::clock;
use sqlx::{Connection, PgConnection};
use std::sync::atomic::{AtomicU64, Ordering};

mod crowd;

pub use crowd::Crowd;

static MADE: AtomicU64 = AtomicU64::new(0);

/// A migrated database that nobody else uses.
#[derive(Debug)]
pub struct Scratch {
    database: Database,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Removed with its directory.
    File(#[allow(dead_code, reason = "held for its Drop")] tempfile::TempDir),
    /// Dropped by a connection to the server's own database.
    Server { url: String, name: String },
}

impl Scratch {
    /// One in a file of its own.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub async fn sqlite() -> Result<Self> {
        let directory =
            tempfile::tempdir().map_err(sqlx::Error::Io).doing("making a directory for a test")?;
        let database =
            Database::open(&format!("sqlite:{}", directory.path().join("trued.db").display())).await?;
        database.migrate().await?;
        Ok(Self { database, place: Place::File(directory) })
    }

    /// One on this server: `url` names a database that may be connected to, with a role that may create others.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn postgres(url: &str) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("trued_scratch_{}_{}_{number}", std::process::id(), clock::now());
        run(url, format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
        // From here on it is dropped whatever happens.
        let place = Place::Server { url: url.to_owned(), name: name.clone() };
        let opened = async {
            let database = Database::open(&of_name(url, &name)).await?;
            database.migrate().await?;
            Ok(database)
        };
        match opened.await {
            Ok(database) => Ok(Self { database, place }),
            Err(error) => {
                place.remove();
                Err(error)
            }
        }
    }

    /// Another one on the same engine.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn like(&self) -> Result<Self> {
        match &self.place {
            Place::File(_) => Self::sqlite().await,
            Place::Server { url, .. } => Self::postgres(url).await,
        }
    }

    /// The database.
    #[must_use]
    pub const fn database(&self) -> &Database {
        &self.database
    }

    /// Its URL, for processes of their own.
    #[must_use]
    pub fn url(&self) -> &str {
        self.database.url()
    }

    /// Closes its connections and removes it. Dropping it removes it as well, and ends its connections.
    pub async fn close(self) {
        self.database.close().await;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.place.remove();
    }
}

impl Place {
    /// On a thread of its own, for a value is dropped in the middle of a runtime, which may be ending.
    fn remove(&self) {
        let Self::Server { url, name } = self else { return };
        let (url, name_of) = (url.clone(), name.clone());
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.is_ok_and(|runtime| runtime.block_on(remove(&url, &name_of)).is_ok())
        });
        if !removed.join().unwrap_or_default() {
            tracing::warn!(database.name = name, "a scratch database was not removed");
        }
    }
}

/// The database, and the role that goals were asked as, if one was made: roles are the server's.
async fn remove(url: &str, name: &str) -> Result<()> {
    let doing = "removing a database for a test";
    let mut connection = PgConnection::connect(url).await.doing(doing)?;
    let role: Option<String> = sqlx::query_scalar(
        "/* scratch::role, postgres */ SELECT 'trued_goals_' || oid FROM pg_database WHERE datname = $1",
    )
    .bind(name)
    .fetch_optional(&mut connection)
    .await
    .doing(doing)?;
    connection.close().await.doing(doing)?;
    run(url, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
    match role {
        Some(role) => run(url, format!("DROP ROLE IF EXISTS {role}")).await,
        None => Ok(()),
    }
}

#[allow(clippy::disallowed_types, reason = "CREATE and DROP DATABASE take no parameters; the name is ours")]
async fn run(url: &str, statement: String) -> Result<()> {
    let doing = "making or removing a database for a test";
    let mut connection = PgConnection::connect(url).await.doing(doing)?;
    sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.doing(doing)?;
    connection.close().await.doing(doing)
}

/// The same server's URL with another database's name.
fn of_name(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let host = base.find("://").map_or(0, |at| at + 3);
    let end = base[host..].find('/').map_or(base.len(), |at| host + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &base[..end])
}

#[cfg(test)]
mod tests {
    use super::of_name;

    #[test]
    fn the_name_of_the_database_alone_is_replaced() {
        for (url, expected) in [
            (
                "postgres://me:pw@host:5433/old?sslmode=disable",
                "postgres://me:pw@host:5433/new?sslmode=disable",
            ),
            ("postgres://host", "postgres://host/new"),
            ("postgres:///old?host=/run/pg", "postgres:///new?host=/run/pg"),
        ] {
            assert_eq!(of_name(url, "new"), expected);
        }
    }
}
