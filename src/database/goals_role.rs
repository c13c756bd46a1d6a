//! The role that goals are asked as on PostgreSQL: made, mended, and looked at.
//!
//! It may connect and read the published tables and views, and nothing else. A `SET ROLE`
//! in a session of the main role would be no wall (`RESET ROLE` undoes it), so it is a role
//! that logs in, with a password that only the main role can read. Roles belong to the
//! server, not to the database: its name carries the database's number. What cannot be
//! taken from it without a superuser is tried, and then said ([`verify`]).
use super::{Database, Doing, Pools, Result, on, on_writer};
use crate::model::published::PUBLISHED;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::types::Json;
use sqlx::{Acquire as _, ConnectOptions as _};
use std::str::FromStr;

mod scram;
mod verify;

/// How `trued migrate` left the goals' role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// An SQLite file knows no roles.
    Embedded,
    /// There is one, and goals are asked as it.
    Ready {
        /// Its name.
        role: String,
        /// What it can do beyond reading, in sentences.
        remains: Vec<String>,
    },
    /// There is none: goals are asked as the main role, read-only.
    Refused {
        /// Why, in the server's words.
        why: String,
    },
}

/// What a goal session logs in with.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The role.
    pub role: String,
    /// Its password; none: the configuration has its URL.
    pub password: Option<String>,
}

/// Without secrets.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The role as the last `trued migrate` left it; none: there is none.
///
/// # Errors
/// When the engine fails.
pub async fn login(db: &Database) -> Result<Option<Login>> {
    let row: Option<(String, Option<String>)> =
        on!(db, p => sqlx::query_as("/* goals_role::login */ SELECT role, password FROM goals_role WHERE id = 1")
            .fetch_optional(p).await)
        .doing("reading the goals' role")?;
    Ok(row.map(|(role, password)| Login { role, password }))
}

/// Makes the role or mends it, and looks at what it can really do. `secret` are fresh random bytes, for a
/// password; `url` is where the configuration has goals asked, where it names a role of its own.
///
/// # Errors
/// When the engine fails otherwise than by refusing.
pub async fn mend(db: &Database, secret: &[u8; 32], url: Option<&str>) -> Result<Standing> {
    let Pools::Postgres(server) = db.pools() else { return Ok(Standing::Embedded) };
    let pool = &server.pool();
    let refused = |error: sqlx::Error| Standing::Refused { why: said(&error) };
    let known = login(db).await?;
    let own = url.is_none();
    let (role, options) = match url {
        Some(url) => {
            let options = PgConnectOptions::from_str(url).doing("reading the URL for goals")?;
            (options.get_username().to_owned(), options)
        }
        None => (own_name(pool).await?, server.addresses()[server.at()].clone()),
    };
    let kept = known.filter(|known| own && known.role == role).and_then(|known| known.password);
    let password = kept.unwrap_or_else(|| scram::password(secret));
    let verifier = own.then(|| scram::verifier(&password, secret));
    if let Err(error) = give(pool, &role, verifier.as_deref()).await {
        forget(db).await?;
        return Ok(refused(error));
    }
    let options = if own { options.username(&role).password(&password) } else { options };
    let remains = match verify::remains(&options.disable_statement_logging()).await {
        Ok(remains) => remains,
        Err(error) => {
            forget(db).await?;
            return Ok(refused(error));
        }
    };
    remember(db, &role, own.then_some(password.as_str()), &remains).await?;
    Ok(Standing::Ready { role, remains })
}

fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

async fn own_name(pool: &PgPool) -> Result<String> {
    sqlx::query_scalar(
        "/* goals_role::own_name, postgres */ SELECT 'trued_goals_' || oid FROM pg_database \
          WHERE datname = current_database()",
    )
    .fetch_one(pool)
    .await
    .doing("naming the goals' role")
}

/// Functions that act on other sessions, on the server, on what outlives the statement, or that run text as SQL.
/// `SELECT` reaches each of them, and everybody may call them unless a superuser says otherwise.
const ACTING: &str = "^(set_config|lo_.*|loread|lowrite|pg_(try_)?advisory.*|pg_notify|pg_sleep.*\
    |pg_terminate_backend|pg_cancel_backend|.*_to_xml.*|ts_stat|ts_rewrite|txid_current|pg_current_xact_id\
    |pg_export_snapshot|pg_logical_emit_message|pg_stat_reset.*|pg_(read|ls|stat_file|reload|rotate|switch|create\
    |drop|promote|backup).*|dblink.*|brin_.*|gin_clean.*)$";

/// The statements, written by the server itself so that names are quoted as it quotes them. Those that must not
/// fail say so; the others are rights of people who may not be there.
const STATEMENTS: &str = "/* goals_role::statements, postgres */ \
    WITH me AS (SELECT CAST($1 AS TEXT) AS role, CAST($2 AS TEXT) AS verifier, current_schema()::text AS place, \
                       current_database()::text AS base, \
                       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS super, \
                       (SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = to_regclass('fleet')) AS owner), \
         acting AS (SELECT p.oid::regprocedure::text AS name FROM pg_proc p \
                     WHERE p.proname ~ $3 AND p.prokind = 'f' AND pg_has_role(p.proowner, 'USAGE') \
                       AND (p.pronamespace = 'pg_catalog'::regnamespace OR p.proname ~ '^dblink') \
                       AND EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
                                    WHERE a.grantee = 0)), \
         published AS (SELECT c.relname FROM pg_class c \
                        WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($4)) \
    SELECT must, statement FROM ( \
      SELECT 1, TRUE, format('CREATE ROLE %I LOGIN', role) FROM me \
       WHERE verifier IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) \
      UNION ALL SELECT 2, TRUE, format('ALTER ROLE %I LOGIN PASSWORD %L', role, verifier) FROM me \
       WHERE verifier IS NOT NULL \
      UNION ALL SELECT 3, FALSE, format('ALTER ROLE %I SET default_transaction_read_only = on', role) FROM me \
       WHERE verifier IS NOT NULL \
      UNION ALL SELECT 3, FALSE, format('REVOKE %I FROM %I', g.rolname, role) FROM me, pg_auth_members m, pg_roles g, \
             pg_roles r WHERE g.oid = m.roleid AND r.oid = m.member AND r.rolname = role \
      UNION ALL SELECT 3, FALSE, format('GRANT %I TO %I', role, current_user) FROM me \
       WHERE verifier IS NOT NULL AND NOT super \
      UNION ALL SELECT 4, FALSE, format('GRANT TEMPORARY ON DATABASE %I TO %I, %I', base, owner, current_user) FROM me \
      UNION ALL SELECT 5, FALSE, format('REVOKE TEMPORARY, CREATE ON DATABASE %I FROM PUBLIC', base) FROM me \
      UNION ALL SELECT 5, FALSE, format('REVOKE ALL ON DATABASE %I FROM %I', base, role) FROM me \
      UNION ALL SELECT 6, FALSE, format('GRANT CONNECT ON DATABASE %I TO %I', base, role) FROM me \
      UNION ALL SELECT 7, FALSE, format('GRANT CREATE, USAGE ON SCHEMA %I TO %I', place, owner) FROM me \
      UNION ALL SELECT 8, FALSE, format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC, %I', place, role) FROM me \
      UNION ALL SELECT 8, FALSE, format('GRANT USAGE ON SCHEMA %I TO %I', place, role) FROM me \
      UNION ALL SELECT 9, TRUE, format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', place, role) FROM me \
      UNION ALL SELECT 9, TRUE, format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM %I', place, role) FROM me \
      UNION ALL SELECT 10, TRUE, format('GRANT SELECT ON %I.%I TO %I', place, relname, role) FROM me, published \
      UNION ALL SELECT 11, FALSE, format('GRANT EXECUTE ON FUNCTION %s TO %I, %I', name, owner, current_user) \
             FROM me, acting \
      UNION ALL SELECT 12, FALSE, format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name) FROM me, acting \
    ) AS s (step, must, statement) ORDER BY step, statement";

/// In one transaction. Two that mend at once wait for each other.
async fn give(pool: &PgPool, role: &str, verifier: Option<&str>) -> std::result::Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query("/* goals_role::lock, postgres */ LOCK TABLE goals_role IN EXCLUSIVE MODE")
        .execute(&mut *tx)
        .await?;
    let published: Vec<String> = PUBLISHED.iter().map(|name| (*name).to_owned()).collect();
    let statements: Vec<(bool, String)> = sqlx::query_as(STATEMENTS)
        .bind(role)
        .bind(verifier)
        .bind(ACTING)
        .bind(published)
        .fetch_all(&mut *tx)
        .await?;
    for (must, statement) in statements {
        let mut step = tx.begin().await?;
        let done = run(&mut step, statement).await;
        match done {
            Ok(()) => step.commit().await?,
            Err(error) if must => return Err(error),
            Err(_) => step.rollback().await?,
        }
    }
    tx.commit().await
}

#[allow(
    clippy::disallowed_types,
    reason = "GRANT and its like take no parameters; the server wrote the text"
)]
async fn run(
    step: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    statement: String,
) -> std::result::Result<(), sqlx::Error> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut **step).await.map(drop)
}

async fn remember(db: &Database, role: &str, password: Option<&str>, remains: &[String]) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* goals_role::remember */ INSERT INTO goals_role (id, role, password, checked_at, remains) \
         VALUES (1, $1, $2, (SELECT now FROM clock), $3) \
         ON CONFLICT (id) DO UPDATE SET role = excluded.role, password = excluded.password, \
           checked_at = excluded.checked_at, remains = excluded.remains",
    )
    .bind(role).bind(password).bind(Json(remains)).execute(p).await.map(drop))
    .doing("writing the goals' role")
}

async fn forget(db: &Database) -> Result<()> {
    on_writer!(db, p => sqlx::query("/* goals_role::forget */ DELETE FROM goals_role").execute(p).await.map(drop))
        .doing("forgetting the goals' role")
}
