//! Where a program asks its goals: the fleet's database as the goals' role, and those that the configuration names.

use super::super::failure::Failure;
use crate::config::Config;
use crate::database::{Database, Engine, address, goals_role, repositories};
use crate::goal::session::{Names, Problem, Source};
use crate::model::id::RepositoryId;
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What `status` and the log say where goals have no role of their own.
const NO_ROLE: &str = "goals are asked as the main role, read-only: `trued migrate` with a role that may create roles \
                       makes one of their own, or database.goals_url names one";

/// Makes it.
///
/// # Errors
/// When a URL is of no known kind, or the engine fails.
pub async fn source(config: &Config, db: &Database) -> anyhow::Result<Source> {
    let wrong = |problem: Problem| Failure::usage(problem.message);
    // Any of its servers will do for the rest of the URL: sessions go to the one that is used at the time.
    let one = address::each(db.url()).swap_remove(0);
    let mut source = Source::new(&one).map_err(wrong)?.with_names(Arc::new(Known(db.clone())));
    let ours = config.database_url.is_empty() || config.database_url == db.url();
    if ours && !config.goals_url.is_empty() {
        source = source.at(&address::each(&config.goals_url).swap_remove(0)).map_err(|problem| {
            wrong(problem).hint("database.goals_url is the fleet's PostgreSQL database as another role")
        })?;
    } else if db.engine() == Engine::Postgres {
        let login = goals_role::login(db).await.context("reading the goals' role")?;
        let login = login.and_then(|login| Some((login.role, login.password?)));
        source = if let Some((role, password)) = login {
            source.with_login(&role, &password)
        } else {
            tracing::warn!("{NO_ROLE}");
            source.with_note(Some(NO_ROLE.to_owned()))
        };
    }
    if address::each(db.url()).len() > 1 {
        let moving = db.clone();
        source = source.with_host(Arc::new(move || moving.host()));
    }
    for (name, url) in &config.databases {
        source = source.with_database(name, url).map_err(wrong)?;
    }
    Ok(source)
}

/// Repositories' names as the fleet's database has them.
struct Known(Database);

impl Names for Known {
    fn ids<'a>(
        &'a self,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<BTreeMap<String, RepositoryId>, String>> {
        async move {
            let ids = repositories::ids_of_names(&self.0, names).await;
            ids.map_err(|error| super::super::failure::sentence(&error.into()))
        }
        .boxed()
    }

    fn name(&self, id: RepositoryId) -> BoxFuture<'_, Result<Option<String>, String>> {
        async move {
            let found = repositories::by_ids(&self.0, &[id]).await;
            let found = found.map_err(|error| super::super::failure::sentence(&error.into()))?;
            Ok(found.into_iter().next().map(|repository| repository.name))
        }
        .boxed()
    }
}
