//! What a role can really do: tried in a transaction that is rolled back, as that role.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use std::time::Duration;

/// Longest look; an unreachable server is no role.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a statement succeeds, the sentence holds.
const TRIES: [(&str, &str); 14] = [
    (
        "turn its own read-only and time limits off (set_config)",
        "/* goals_role::try_settings, postgres */ SELECT set_config('transaction_read_only', 'off', true)",
    ),
    (
        "make temporary tables",
        "/* goals_role::try_temporary, postgres */ CREATE TEMP TABLE trued_goals_try (i BIGINT)",
    ),
    ("make tables", "/* goals_role::try_table, postgres */ CREATE TABLE trued_goals_try_too (i BIGINT)"),
    ("write large objects", "/* goals_role::try_object, postgres */ SELECT lo_create(0)"),
    ("take advisory locks", "/* goals_role::try_lock, postgres */ SELECT pg_try_advisory_xact_lock(7305534)"),
    (
        "notify other sessions",
        "/* goals_role::try_notify, postgres */ SELECT pg_notify('trued_goals_try', '')",
    ),
    ("end its own role's sessions", "/* goals_role::try_end, postgres */ SELECT pg_terminate_backend(0)"),
    (
        "cancel its own role's statements",
        "/* goals_role::try_cancel, postgres */ SELECT pg_cancel_backend(0)",
    ),
    (
        "run text as SQL (query_to_xml)",
        "/* goals_role::try_xml, postgres */ SELECT query_to_xml('SELECT 1', TRUE, TRUE, '')",
    ),
    ("sleep", "/* goals_role::try_sleep, postgres */ SELECT pg_sleep(0)"),
    ("read the server's files", "/* goals_role::try_file, postgres */ SELECT pg_read_file('PG_VERSION')"),
    ("run programs", "/* goals_role::try_program, postgres */ COPY (SELECT 1) TO PROGRAM 'true'"),
    (
        "read keys and passwords",
        "/* goals_role::try_secrets, postgres */ SELECT * FROM fleet, parts, goals_role LIMIT 1",
    ),
    (
        "read more than the published tables, or write to them",
        "/* goals_role::try_more, postgres */ SELECT 1 / (SELECT count(*) FROM pg_class c \
           WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND c.relnamespace = current_schema()::regnamespace \
             AND (has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') \
               OR c.relname IN ('fleet', 'parts', 'goals_role', '_sqlx_migrations') \
                  AND has_any_column_privilege(c.oid, 'SELECT')))",
    ),
];

const RANK: &str = "/* goals_role::rank, postgres */ SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication \
        OR rolbypassrls OR EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = r.oid) \
   FROM pg_roles r WHERE rolname = current_user";

/// What a role can do beyond reading. The last of the tries divides by the number of tables that it should have
/// no right to, so that it succeeds where there is one.
pub async fn remains(options: &PgConnectOptions) -> Result<Vec<String>, sqlx::Error> {
    let looking = async {
        let mut connection = options.connect().await?;
        let remains = look(&mut connection).await?;
        connection.close().await?;
        Ok(remains)
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

async fn look(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let mut remains = Vec::new();
    let (ranked,): (bool,) = sqlx::query_as(RANK).fetch_one(&mut *connection).await?;
    if ranked {
        remains.push("has rights of its own as a role, or is a member of another".to_owned());
    }
    for (sentence, text) in TRIES {
        sqlx::query("BEGIN READ WRITE").execute(&mut *connection).await?;
        let able = sqlx::query(text).persistent(false).execute(&mut *connection).await.is_ok();
        sqlx::query("ROLLBACK").execute(&mut *connection).await?;
        if able {
            remains.push(sentence.to_owned());
        }
    }
    Ok(remains)
}
