//! Databases with the tables for goals: SQLite always, PostgreSQL where `TRUED_TEST_POSTGRES_URL` names a server.

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection};
use std::path::Path;
use std::str::FromStr;
use tempfile::TempDir;
use trued::goal::session::Source;

/// A database of one test's own; on PostgreSQL call [`Tables::drop`] at the end.
pub struct Tables {
    pub url: String,
    server: Option<(PgConnectOptions, String)>,
    _dir: Option<TempDir>,
}

/// The engines that a test runs on.
pub fn engines() -> Vec<Option<String>> {
    let postgres = std::env::var("TRUED_TEST_POSTGRES_URL").ok().filter(|url| !url.is_empty());
    std::iter::once(None).chain(postgres.map(Some)).collect()
}

async fn migrator(engine: &str) -> Migrator {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
    Migrator::new(dir).await.unwrap()
}

impl Tables {
    pub async fn new(server: Option<&str>) -> Self {
        match server {
            None => Self::sqlite().await,
            Some(url) => Self::postgres(url).await,
        }
    }

    pub async fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.sqlite");
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        migrator("sqlite").await.run(&pool).await.unwrap();
        pool.close().await;
        Self { url: format!("sqlite:{}", path.display()), server: None, _dir: Some(dir) }
    }

    #[allow(clippy::disallowed_types, reason = "a database's name cannot be bound")]
    pub async fn postgres(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap();
        let unique = tempfile::NamedTempFile::new().unwrap();
        let random = unique.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let name = format!("trued_goal_{}_{random}", std::process::id());
        let mut server = PgConnection::connect_with(&options).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE \"{name}\""));
        sqlx::query(create).execute(&mut server).await.unwrap();
        server.close().await.unwrap();
        let own = options.clone().database(&name);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(own.clone()).await.unwrap();
        migrator("postgres").await.run(&pool).await.unwrap();
        pool.close().await;
        let url = own.to_url_lossy().to_string();
        Self { url, server: Some((options, name)), _dir: None }
    }

    pub fn source(&self) -> Source {
        Source::new(&self.url).unwrap()
    }

    #[allow(clippy::disallowed_types, reason = "a database's name cannot be bound")]
    pub async fn drop(self) {
        let Some((options, name)) = self.server else { return };
        let mut server = PgConnection::connect_with(&options).await.unwrap();
        let text = sqlx::AssertSqlSafe(format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
        sqlx::query(text).execute(&mut server).await.unwrap();
    }
}
