//! The tables' versions: which migrations a database has, and applying those it lacks.
//!
//! Both engines have the same numbers. The migrations are part of the program, so a
//! program and its tables cannot be mixed up on disk.

use super::{Database, DatabaseError, Doing, Engine, Pools, Result, SchemaState, on};
use sqlx::migrate::{MigrateError, Migrator};

static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");

const fn migrator(engine: Engine) -> &'static Migrator {
    match engine {
        Engine::Sqlite => &SQLITE,
        Engine::Postgres => &POSTGRES,
    }
}

/// How the tables stand to this program.
pub(super) async fn state(db: &Database) -> Result<SchemaState> {
    Ok(compare(db.engine(), &applied(db).await?))
}

/// Applies what is missing.
pub(super) async fn migrate(db: &Database) -> Result<usize> {
    let missing = match state(db).await? {
        SchemaState::Current => return Ok(0),
        SchemaState::Newer { found, known } | SchemaState::Ahead { found, known } => {
            return Err(newer(found, known));
        }
        SchemaState::Behind(missing) => missing,
    };
    match db.pools() {
        // sqlx takes no lock on SQLite: one transaction around all of it is the lock.
        Pools::Sqlite(pools) => {
            let doing = "migrating the database file";
            let mut transaction = pools.write.begin_with("BEGIN IMMEDIATE").await.doing(doing)?;
            SQLITE.run_direct(None, &mut *transaction, false).await.map_err(readable)?;
            transaction.commit().await.doing(doing)?;
        }
        Pools::Postgres(server) => POSTGRES.run(&server.pool()).await.map_err(readable)?,
    }
    Ok(missing)
}

/// A migration whose name begins so takes away what programs before it need. Others only add: expand, move, contract,
/// each in a version of its own.
const CONTRACTS: &str = "contract";

/// The migrations that a database has, by number and name; none when it has no such table.
async fn applied(db: &Database) -> Result<Vec<(i64, String)>> {
    let text = db.engine().text(
        "/* schema::exists, sqlite */ SELECT count(*) FROM sqlite_master WHERE name = '_sqlx_migrations'",
        "/* schema::exists, postgres */ SELECT count(*) FROM pg_catalog.pg_class \
          WHERE oid = to_regclass('_sqlx_migrations')",
    );
    let doing = "reading which migrations the database has";
    let exists: i64 = on!(db, p => sqlx::query_scalar(text).fetch_one(p).await).doing(doing)?;
    if exists == 0 {
        return Ok(Vec::new());
    }
    on!(db, p => sqlx::query_as(
        "/* schema::applied */ SELECT version, description FROM _sqlx_migrations ORDER BY version",
    )
    .fetch_all(p).await)
    .doing(doing)
}

fn compare(engine: Engine, applied: &[(i64, String)]) -> SchemaState {
    let known: Vec<i64> = migrator(engine).iter().map(|migration| migration.version).collect();
    let highest = known.iter().copied().max().unwrap_or_default();
    let unknown = || applied.iter().filter(|(version, _)| !known.contains(version));
    let found = unknown().map(|(version, _)| *version).max();
    if let Some(found) = found.filter(|_| unknown().any(|(_, name)| name.starts_with(CONTRACTS))) {
        return SchemaState::Newer { found, known: highest };
    }
    match known.iter().filter(|version| !applied.iter().any(|(have, _)| have == *version)).count() {
        0 => found.map_or(SchemaState::Current, |found| SchemaState::Ahead { found, known: highest }),
        missing => SchemaState::Behind(missing),
    }
}

fn newer(found: i64, known: i64) -> DatabaseError {
    DatabaseError::Version(format!(
        "the database was made by a newer trued (migration {found}; this one knows {known}): use that one"
    ))
}

fn readable(error: MigrateError) -> DatabaseError {
    match error {
        MigrateError::VersionMissing(found) => {
            newer(found, SQLITE.iter().map(|one| one.version).max().unwrap_or_default())
        }
        MigrateError::VersionMismatch(version) => DatabaseError::Version(format!(
            "migration {version} in the database is not the one in this program: the two are of different builds"
        )),
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
            DatabaseError::Sql { doing: "migrating the database", source }
        }
        other => DatabaseError::Version(format!("migrating the database: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_have_the_same_migrations() {
        let list = |migrator: &Migrator| {
            migrator.iter().map(|one| (one.version, one.description.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(list(&SQLITE), list(&POSTGRES));
    }

    #[test]
    fn unknown_migrations_mean_a_newer_program_which_may_be_lived_with_until_it_contracts() {
        assert_eq!(compare(Engine::Sqlite, &[]), SchemaState::Behind(SQLITE.iter().count()));
        let mut applied: Vec<_> =
            SQLITE.iter().map(|one| (one.version, one.description.to_string())).collect();
        assert_eq!(compare(Engine::Sqlite, &applied), SchemaState::Current);
        applied.push((9000, "expand limits".into()));
        assert!(matches!(compare(Engine::Sqlite, &applied), SchemaState::Ahead { found: 9000, .. }));
        applied.push((9001, "contract limits".into()));
        assert!(matches!(compare(Engine::Sqlite, &applied), SchemaState::Newer { found: 9001, .. }));
    }
}
