//! `trued migrate`, and opening a database whose tables are this program's.

use super::args::{Global, Migrate};
use super::failure::{Exit, Failure, exit_of, sentence};
use super::{enrolment, output, settings};
use crate::config::Config;
use crate::config::value::mask_url;
use crate::database::goals_role::{self, Standing};
use crate::database::{Database, SchemaState, fleet};
use crate::model::checksum::ChecksumKey;
use anyhow::Context as _;
use std::path::Path;

/// The id of the first checksum key of a fleet.
const FIRST_KEY: i64 = 1;

/// What names a database.
const NAMED_BY: &str = "--database-url, TRUED_DATABASE__URL or database.url names the database, and \
                        database.password_file the file with its password";

/// Runs it.
///
/// # Errors
/// When the database cannot be opened, or its tables are newer.
pub async fn run(global: &Global, ask: Migrate) -> anyhow::Result<Exit> {
    let flags = [("--database-url", "database.url", ask.database_url.clone())];
    let (_, config) = settings::with_flags(global, &flags)?;
    let url = settings::required(config.database_url.clone())?;
    if ask.check {
        // It changes nothing: it makes no file either.
        return check(&open_existing(&url).await?).await;
    }
    let db = open(&url).await?;
    let applied = db.migrate().await?;
    let fleet = ensure_fleet(&db).await?;
    output::line(&match applied {
        0 => format!("the tables are up to date; fleet {}", fleet.fleet_id),
        1 => format!("1 migration was applied; fleet {}", fleet.fleet_id),
        n => format!("{n} migrations were applied; fleet {}", fleet.fleet_id),
    });
    let standing = mend_role(&db, &config).await?;
    for line in told(&standing) {
        output::line(&line);
    }
    db.close().await;
    Ok(Exit::Done)
}

/// Makes or mends the role that goals are asked as.
///
/// # Errors
/// When the engine fails otherwise than by refusing.
pub async fn mend_role(db: &Database, config: &Config) -> anyhow::Result<Standing> {
    let url = Some(config.goals_url.as_str()).filter(|url| !url.is_empty());
    Ok(goals_role::mend(db, &enrolment::secret()?, url).await?)
}

/// How the role stands, for people.
fn told(standing: &Standing) -> Vec<String> {
    match standing {
        Standing::Embedded => Vec::new(),
        Standing::Ready { role, remains } if remains.is_empty() => {
            vec![format!(
                "goals are asked as role {role}, which can read the published tables and nothing else"
            )]
        }
        Standing::Ready { role, remains } => {
            let mut lines = vec![format!(
                "goals are asked as role {role}; a superuser that runs `trued migrate` could take from it what it \
                 can still do beyond reading:"
            )];
            lines.extend(remains.iter().map(|one| format!("  {one}")));
            lines
        }
        Standing::Refused { why } => vec![format!(
            "goals have no role of their own and are asked as the main role, read-only: {why}; run `trued migrate` \
             as a role that may create roles, or name one in database.goals_url"
        )],
    }
}

async fn check(db: &Database) -> anyhow::Result<Exit> {
    let state = db.schema().await?;
    db.close().await;
    match state {
        SchemaState::Current => {
            output::line("the tables are up to date");
            Ok(Exit::Done)
        }
        SchemaState::Behind(count) => {
            output::line(&format!("{count} migrations are missing; `trued migrate` applies them"));
            Ok(Exit::Failed)
        }
        SchemaState::Newer { found, known } | SchemaState::Ahead { found, known } => {
            Err(newer(found, known).into())
        }
    }
}

fn newer(found: i64, known: i64) -> Failure {
    Failure::usage(format!(
        "the tables are of version {found}, made by a newer trued; this one knows up to {known}"
    ))
}

/// Opens a database; an SQLite file that is missing is made.
///
/// # Errors
/// When it cannot be opened.
pub async fn open(url: &str) -> anyhow::Result<Database> {
    let opened = Database::open(url).await.with_context(|| format!("opening the database {}", mask_url(url)));
    opened.map_err(|error| {
        let exit = exit_of(&error);
        if exit != Exit::Unreachable && exit != Exit::Usage {
            return error;
        }
        Failure::new(exit, sentence(&error)).hint(NAMED_BY).into()
    })
}

/// Opens a database that must be there: an SQLite file that is not is a path that was mistyped, and no empty fleet.
///
/// # Errors
/// When there is none, or it cannot be opened.
pub async fn open_existing(url: &str) -> anyhow::Result<Database> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = Path::new(path.strip_prefix("//").unwrap_or(path));
        if !path.exists() {
            let message = format!("there is no database file {}", path.display());
            return Err(Failure::usage(message)
                .hint(format!("{NAMED_BY}; `trued migrate` makes a new one"))
                .into());
        }
    }
    open(url).await
}

/// Opens a database whose tables must be this program's already, with its fleet.
///
/// # Errors
/// When it cannot be opened, or its tables are of another version.
pub async fn open_current(url: &str) -> anyhow::Result<(Database, fleet::Fleet)> {
    let db = open_existing(url).await?;
    match db.schema().await? {
        SchemaState::Current => {}
        SchemaState::Ahead { found, known } => {
            tracing::warn!(found, known, "the tables are of a newer version, which this one can work beside");
        }
        SchemaState::Behind(count) => {
            return Err(Failure::usage(format!("{count} migrations are missing in {}", mask_url(url)))
                .hint("`trued migrate` applies them")
                .into());
        }
        SchemaState::Newer { found, known } => return Err(newer(found, known).into()),
    }
    let fleet = ensure_fleet(&db).await?;
    Ok((db, fleet))
}

/// The fleet's identity, made when there is none.
///
/// # Errors
/// When the engine fails.
pub async fn ensure_fleet(db: &Database) -> anyhow::Result<fleet::Fleet> {
    let new = fleet::Fleet {
        fleet_id: enrolment::fresh_word()?,
        checksum_key: ChecksumKey { id: FIRST_KEY, secret: enrolment::secret()? },
    };
    Ok(fleet::ensure(db, &new).await?)
}
