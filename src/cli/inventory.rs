//! `trued inventory`: disks against the database, and the database anew from disks alone.
//!
//! It asks agents itself, in the name of a controller, and opens the database itself: the API calls no agent, and
//! where the database is lost there is no API. No request that it sends changes a disk. Whatever runs beside it does
//! no harm, but a comparison of disks that change is only as true as each look was.

mod decide;
mod import;
mod verify;
mod walk;

use super::args::{Asked, Global, InventoryCommand, InventoryVerb};
use super::failure::{Exit, Failure};
use super::{enrolment, settings};
use crate::config::value::mask_url;
use crate::database::{Database, SchemaState, fileservers};
use crate::fleet::Agents;
use crate::model::grant::{End, Enrolment, Role};
use std::path::PathBuf;

/// Runs it.
///
/// # Errors
/// When the database or an agent cannot be asked.
pub async fn run(global: &Global, ask: InventoryCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        InventoryVerb::Verify { asked } => verify::run(global, &asked).await,
        InventoryVerb::Import { asked, key_from, dry_run } => {
            import::run(global, &asked, key_from.as_deref(), dry_run).await
        }
    }
}

/// What both verbs work with.
struct Room {
    db: Database,
    controller: Enrolment,
    agents: Agents,
}

impl Room {
    /// Opens the database and reads the enrolment; `anew`: tables that are missing are made.
    async fn open(global: &Global, asked: &Asked, anew: bool) -> anyhow::Result<Self> {
        let controller = enrolment::read(&enrolment_of(global, asked), Role::Controller)?;
        let url = url_of(global, asked)?;
        let db = if anew {
            super::migrate::open(&url).await?
        } else {
            super::migrate::open_existing(&url).await?
        };
        match db.schema().await? {
            SchemaState::Current => {}
            SchemaState::Behind(_) if anew => drop(db.migrate().await?),
            SchemaState::Behind(count) => {
                return Err(Failure::usage(format!("{count} migrations are missing"))
                    .hint("`trued migrate` applies them")
                    .into());
            }
            SchemaState::Newer { found, known } | SchemaState::Ahead { found, known } => {
                return Err(Failure::usage(format!(
                    "the tables are of version {found}, this trued knows up to {known}"
                ))
                .into());
            }
        }
        let agents = Agents::new(&controller)?;
        Ok(Self { db, controller, agents })
    }

    /// The fileservers of the database that were named, or all.
    async fn fileservers(&self, names: &[String]) -> anyhow::Result<Vec<walk::Place>> {
        let all = fileservers::all(&self.db).await?;
        if let Some(unknown) = names.iter().find(|name| !all.iter().any(|one| one.name == **name)) {
            return Err(Failure::usage(format!("the database knows no fileserver {unknown}"))
                .hint("one that it does not know is named NAME=RACK@URL")
                .into());
        }
        let chosen = all.into_iter().filter(|one| names.is_empty() || names.contains(&one.name));
        Ok(chosen.map(|one| walk::Place { id: one.id, end: End { name: one.name, url: one.url } }).collect())
    }
}

fn enrolment_of(global: &Global, asked: &Asked) -> PathBuf {
    asked.enrolment.clone().unwrap_or_else(|| global.data.join("keys/controller.json"))
}

fn url_of(global: &Global, asked: &Asked) -> anyhow::Result<String> {
    let flags = [("--database-url", "database.url", asked.database_url.clone())];
    let (_, config) = settings::with_flags(global, &flags)?;
    let beside = global.data.join("trued.db");
    let url = match (config.database_url.is_empty(), asked.enrolment.is_none()) {
        (true, true) => format!("sqlite:{}", beside.display()),
        _ => settings::required(config.database_url)?,
    };
    tracing::debug!(url = mask_url(&url), "the database");
    Ok(url)
}
