//! Where goals are asked: the fleet's database, and others that the configuration names.

use super::{Problem, postgres, sqlite};
use crate::goal::file::{self, FLEET};
use crate::goal::text::did_you_mean;
use crate::goal::{Engine, Goal};
use crate::model::id::RepositoryId;
use futures::future::BoxFuture;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// Repositories' names and ids, for goals over databases that know names alone.
pub trait Names: Send + Sync {
    /// The ids of these names; those that the fleet does not know are left out.
    fn ids<'a>(
        &'a self,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<BTreeMap<String, RepositoryId>, String>>;

    /// The name of one; none: there is no such repository.
    fn name(&self, id: RepositoryId) -> BoxFuture<'_, Result<Option<String>, String>>;
}

/// Host and port of a database that may move; none: where it always was.
pub type Host = dyn Fn() -> Option<(String, u16)> + Send + Sync;

/// Where goals are asked: what a session is opened with. Never shares a connection with `database`.
#[derive(Clone)]
pub struct Source {
    fleet: Place,
    others: Arc<BTreeMap<String, Place>>,
    pub(super) names: Option<Arc<dyn Names>>,
    note: Option<String>,
}

/// One database.
#[derive(Clone)]
pub(super) enum Place {
    Sqlite(Box<sqlite::Door>),
    Postgres(Box<postgres::Door>),
}

/// Without secrets.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others: Vec<_> = self.others.keys().collect();
        f.debug_struct("Source")
            .field("engine", &self.engine())
            .field("others", &others)
            .finish_non_exhaustive()
    }
}

impl Place {
    fn new(url: &str, fleet: bool) -> Result<Self, Problem> {
        let wrong =
            |error: sqlx::Error| Problem::away(format!("goals cannot be asked of this database: {error}"));
        if url.starts_with("sqlite:") {
            let options = SqliteConnectOptions::from_str(url).map_err(wrong)?;
            Ok(Self::Sqlite(Box::new(sqlite::Door::new(options, fleet))))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            let options = PgConnectOptions::from_str(url).map_err(wrong)?;
            Ok(Self::Postgres(Box::new(postgres::Door::new(options, fleet))))
        } else {
            Err(Problem::away("a database's URL begins with sqlite: or postgres:".to_owned()))
        }
    }

    const fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }
}

impl Source {
    /// Goals will be asked of this database (`sqlite:PATH`, `postgres://…`), and as its role until
    /// [`with_login`](Self::with_login) or [`at`](Self::at) says otherwise.
    ///
    /// # Errors
    /// When the URL is of neither kind.
    pub fn new(url: &str) -> Result<Self, Problem> {
        Ok(Self { fleet: Place::new(url, true)?, others: Arc::default(), names: None, note: None })
    }

    /// As a role of its own. The role of the URL is kept for ending sessions that do not end themselves.
    #[must_use]
    pub fn with_login(mut self, role: &str, password: &str) -> Self {
        if let Place::Postgres(door) = &mut self.fleet {
            door.login(|options| options.username(role).password(password));
        }
        self
    }

    /// At another URL of the same database, with a role of its own.
    ///
    /// # Errors
    /// When the URL is none of PostgreSQL's, or the database is not one.
    pub fn at(mut self, url: &str) -> Result<Self, Problem> {
        let wrong = |error: sqlx::Error| Problem::away(format!("goals cannot be asked there: {error}"));
        let options = PgConnectOptions::from_str(url).map_err(wrong)?;
        match &mut self.fleet {
            Place::Postgres(door) => door.login(|_| postgres::options(options)),
            Place::Sqlite(_) => {
                return Err(Problem::away(
                    "an SQLite file knows no roles: goals have no other URL".to_owned(),
                ));
            }
        }
        Ok(self)
    }

    /// Who knows at which host and port the fleet's database is now.
    #[must_use]
    pub fn with_host(mut self, host: Arc<Host>) -> Self {
        if let Place::Postgres(door) = &mut self.fleet {
            door.follow(host);
        }
        self
    }

    /// Another database, by the name that goals' headers use.
    ///
    /// # Errors
    /// When the name is taken, or the URL is of neither kind.
    pub fn with_database(mut self, name: &str, url: &str) -> Result<Self, Problem> {
        if name == FLEET {
            return Err(Problem::away(format!("the database {FLEET} is the fleet's own")));
        }
        let place = Place::new(url, false)?;
        Arc::make_mut(&mut self.others).insert(name.to_owned(), place);
        Ok(self)
    }

    /// Who knows the ids of repositories' names.
    #[must_use]
    pub fn with_names(mut self, names: Arc<dyn Names>) -> Self {
        self.names = Some(names);
        self
    }

    /// Something that people should know of how goals are asked.
    #[must_use]
    pub fn with_note(mut self, note: Option<String>) -> Self {
        self.note = note;
        self
    }

    /// What people should know of how goals are asked, if anything.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The engine of the fleet's database: it decides which variant of a goal's file is taken.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        self.fleet.engine()
    }

    /// The engine that a goal's text is for, by the database that its header names.
    #[must_use]
    pub fn engine_of(&self, text: &str) -> Engine {
        self.others.get(file::database(text)).map_or(self.engine(), Place::engine)
    }

    pub(super) fn place(&self, goal: &Goal) -> Result<&Place, Problem> {
        if goal.asks_fleet() {
            return Ok(&self.fleet);
        }
        self.others.get(&goal.database).ok_or_else(|| {
            let known = || std::iter::once(FLEET).chain(self.others.keys().map(String::as_str));
            let near = did_you_mean(&goal.database, known());
            let all = known().collect::<Vec<_>>().join(", ");
            let message = format!(
                "unknown database \"{}\"{near} (databases: {all}); [databases.{}] with a url configures it",
                goal.database, goal.database
            );
            Problem::text(goal.at(goal.text.find("database:").unwrap_or(0), message))
        })
    }
}
