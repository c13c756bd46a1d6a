//! What a goal must not be able to do, tried on the real engines: first as a file, then past the reader of files,
//! as if it had let the text through. Nothing may come of it either way.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;
use std::time::{Duration, Instant};
use trued::database::goals_role::{self, Standing};
use trued::database::scratch::Scratch;
use trued::goal::library;
use trued::goal::session::Source;
use trued::goal::{Engine, Goal};

const SECRET: [u8; 32] = [9; 32];

fn server() -> Option<String> {
    std::env::var("TRUED_TEST_POSTGRES_URL").ok().filter(|url| !url.is_empty())
}

fn text(sql: &str, header: &str) -> String {
    format!("-- goal: x\n-- summary: X.\n-- subject: key\n-- timeout: 2s\n{header}--\n{sql}\n")
}

/// A goal whose query is this text, whatever the reader of files would say of it.
fn past_the_reader(engine: Engine, sql: &str) -> Goal {
    let mut goal = Goal::parse(Path::new("goals/x.sql"), &text("SELECT 'a' AS key", ""), engine).unwrap();
    sql.clone_into(&mut goal.query.text);
    goal
}

async fn as_a_file(source: &Source, sql: &str) -> Result<Goal, String> {
    let path = Path::new("goals/x.sql");
    let checked = library::check(path, &text(sql, ""), source, &BTreeMap::new()).await;
    checked.map_err(|problem| problem.message)
}

async fn postgres() -> Option<(Scratch, Source)> {
    let scratch = Scratch::postgres(&server()?).await.unwrap();
    let standing = goals_role::mend(scratch.database(), &SECRET, None).await.unwrap();
    assert!(matches!(standing, Standing::Ready { .. }), "{standing:?}");
    let login = goals_role::login(scratch.database()).await.unwrap().unwrap();
    let source = Source::new(scratch.url()).unwrap().with_login(&login.role, &login.password.unwrap());
    Some((scratch, source))
}

/// Attacks that are refused as files already, with what is said.
const FILES: [(&str, &str); 30] = [
    ("SELECT 'a' AS key; DELETE FROM racks", "second statement"),
    ("SELECT 'a' AS key) AS g; DELETE FROM racks; --", "second statement"),
    ("SELECT 'a' AS key) UNION (SELECT name FROM parts", "closes nothing"),
    ("WITH d AS (DELETE FROM racks RETURNING name) SELECT name AS key FROM d", "only reads"),
    ("WITH d AS (SELECT 1) INSERT INTO racks (name) SELECT 'x'", "only reads"),
    ("SELECT name AS key INTO stolen FROM racks", "only reads"),
    ("SELECT name AS key FROM racks FOR UPDATE", "take locks"),
    ("SELECT name AS key FROM racks FOR NO KEY UPDATE", "take locks"),
    ("SELECT set_config('statement_timeout', '0', false) AS key", "only reads"),
    ("SELECT set_config('transaction_read_only', 'off', true) AS key", "only reads"),
    ("SET statement_timeout = 0", "one SELECT"),
    ("CREATE TEMP TABLE t (i BIGINT)", "one SELECT"),
    ("SELECT lo_create(0)::text AS key", "only reads"),
    ("SELECT lo_from_bytea(0, 'x')::text AS key", "only reads"),
    ("SELECT pg_advisory_lock(1)::text AS key", "only reads"),
    ("SELECT pg_try_advisory_lock(1)::text AS key", "only reads"),
    ("SELECT pg_notify('x', 'y')::text AS key", "only reads"),
    ("NOTIFY x", "one SELECT"),
    ("SELECT pg_terminate_backend(1)::text AS key", "other sessions"),
    ("SELECT \"pg_catalog\".\"pg_cancel_backend\"(1)::text AS key", "other sessions"),
    ("SELECT query_to_xml('DELETE FROM racks', true, true, '')::text AS key", "runs text"),
    ("SELECT pg_read_file('/etc/passwd') AS key", "files"),
    ("SELECT readfile('/etc/passwd') AS key", "files"),
    ("SELECT load_extension('x') AS key", "files"),
    ("COPY racks TO PROGRAM 'true'", "one SELECT"),
    ("ATTACH 'x' AS y", "one SELECT"),
    ("PRAGMA query_only = off", "one SELECT"),
    ("SELECT name AS key FROM pragma_database_list", "tells of the engine"),
    ("SELECT \"pg_catalog\".\"pg_sleep\"(100)::text AS key", "must not wait"),
    ("TABLE parts", "one SELECT"),
];

#[tokio::test]
async fn every_attack_is_refused_as_a_file_with_its_place_and_reason() {
    let sqlite = Scratch::sqlite().await.unwrap();
    let mut sources = vec![Source::new(sqlite.url()).unwrap()];
    let postgres = postgres().await;
    sources.extend(postgres.iter().map(|(_, source)| source.clone()));
    for source in sources {
        for (sql, why) in FILES {
            let said = as_a_file(&source, sql).await.expect_err(sql);
            assert!(said.starts_with("goals/x.sql:6:") && said.contains(why), "{sql}: {said}");
        }
    }
}

/// What reads as a query to a reader of texts, and is the role's or the engine's to refuse.
#[tokio::test]
async fn tables_that_are_not_published_cannot_be_read_in_any_form() {
    let sqlite = Scratch::sqlite().await.unwrap();
    let mut sources = vec![Source::new(sqlite.url()).unwrap()];
    let postgres = postgres().await;
    sources.extend(postgres.iter().map(|(_, source)| source.clone()));
    for source in sources {
        let forms = [
            "SELECT fleet_id AS key FROM fleet",
            "SELECT id AS key FROM parts",
            "SELECT \"password\" AS key FROM \"goals_role\"",
            "SELECT 'a' AS key WHERE EXISTS (SELECT 1 FROM goals_role)",
            "WITH p AS (SELECT id FROM parts) SELECT id AS key FROM p",
            "SELECT description AS key FROM _sqlx_migrations",
            "SELECT name AS key FROM racks UNION SELECT id FROM parts",
        ];
        for sql in forms {
            let said = as_a_file(&source, sql).await;
            let ran = source.collect(&past_the_reader(source.engine(), sql), 10).await;
            assert!(ran.is_err(), "{:?}: {sql}: {ran:?}", source.engine());
            if source.engine() == Engine::Sqlite {
                let said = said.expect_err(sql);
                assert!(
                    said.starts_with("goals/x.sql:6:") && said.contains("not published"),
                    "{sql}: {said}"
                );
            }
        }
        let good = "SELECT r.name AS key FROM racks r, clock, suspects, countable_replicas, goal_states";
        as_a_file(&source, good).await.unwrap();
        source.collect(&past_the_reader(source.engine(), good), 10).await.unwrap();
    }
}

/// Past the reader on PostgreSQL: the role itself is the wall.
#[tokio::test]
async fn the_role_can_do_nothing_that_the_reader_would_refuse() {
    let Some((scratch, source)) = postgres().await else { return };
    let login = goals_role::login(scratch.database()).await.unwrap().unwrap();
    let options = PgConnectOptions::from_str(scratch.url()).unwrap();
    let role = options.clone().username(&login.role).password(&login.password.unwrap());
    let mut victim = role.connect().await.unwrap();
    let number: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut victim).await.unwrap();
    let mut watcher = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::query("INSERT INTO racks (name) VALUES ('r')").execute(&mut watcher).await.unwrap();
    let program = tempfile::tempdir().unwrap();
    let mark = program.path().join("ran");
    let attacks = [
        "SELECT 'a' AS key; DELETE FROM racks".to_owned(),
        "SELECT 'a' AS key) AS g; DELETE FROM racks; --".to_owned(),
        "WITH d AS (DELETE FROM racks RETURNING name) SELECT name AS key FROM d".to_owned(),
        "SELECT name AS key INTO stolen FROM racks".to_owned(),
        "SELECT name AS key FROM racks FOR UPDATE".to_owned(),
        "SELECT name AS key FROM racks FOR SHARE".to_owned(),
        "SELECT set_config('transaction_read_only', 'off', true) AS key".to_owned(),
        "SELECT set_config('statement_timeout', '0', false) AS key".to_owned(),
        "SELECT lo_create(0)::text AS key".to_owned(),
        "SELECT lo_from_bytea(0, 'x')::text AS key".to_owned(),
        "SELECT lo_import('/etc/passwd')::text AS key".to_owned(),
        "SELECT pg_advisory_lock(77)::text AS key".to_owned(),
        "SELECT pg_try_advisory_lock_shared(77)::text AS key".to_owned(),
        "SELECT pg_notify('x', 'y')::text AS key".to_owned(),
        format!("SELECT pg_terminate_backend({number})::text AS key"),
        format!("SELECT pg_cancel_backend({number})::text AS key"),
        format!("SELECT \"pg_catalog\".\"pg_terminate_backend\"({number})::text AS key"),
        "SELECT query_to_xml('DELETE FROM racks RETURNING 1', true, true, '')::text AS key".to_owned(),
        "SELECT table_to_xml('parts', true, true, '')::text AS key".to_owned(),
        "SELECT word AS key FROM ts_stat('SELECT to_tsvector(name) FROM racks')".to_owned(),
        "SELECT pg_read_file('/etc/passwd') AS key".to_owned(),
        "SELECT pg_ls_dir('/') AS key".to_owned(),
        "SELECT (pg_stat_file('/etc/passwd')).size::text AS key".to_owned(),
        "SELECT U&\"\\0070g_sleep\"(100)::text AS key".to_owned(),
        "SELECT \"pg_catalog\".\"pg_sleep\"(100)::text AS key".to_owned(),
        "VALUES (pg_sleep(100)::text)".to_owned(),
        "TABLE parts".to_owned(),
        "SELECT rolpassword AS key FROM pg_authid".to_owned(),
        "SELECT passwd AS key FROM pg_shadow WHERE passwd IS NOT NULL".to_owned(),
        "SELECT nextval('racks_id_seq')::text AS key".to_owned(),
        "SELECT setval('racks_id_seq', 99)::text AS key".to_owned(),
        "SELECT pg_reload_conf()::text AS key".to_owned(),
        "SELECT pg_stat_reset()::text AS key".to_owned(),
        "SELECT pg_export_snapshot() AS key".to_owned(),
        "SELECT pg_logical_emit_message(false, 'x', 'y')::text AS key".to_owned(),
        format!("COPY racks TO PROGRAM 'touch {}'", mark.display()),
        "CREATE TEMP TABLE t (i BIGINT)".to_owned(),
        "SET statement_timeout = 0".to_owned(),
        "DO $$ BEGIN DELETE FROM racks; END $$".to_owned(),
    ];
    let before = Traces::of(&mut watcher).await;
    for sql in &attacks {
        let began = Instant::now();
        let ran = source.collect(&past_the_reader(Engine::Postgres, sql), 10).await;
        assert!(ran.is_err(), "{sql}: {ran:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{sql}");
    }
    assert_eq!(Traces::of(&mut watcher).await, before);
    assert!(!mark.exists());
    sqlx::query("SELECT 1").execute(&mut victim).await.unwrap();
    // Even as a session of its own, outside of a goal's transaction.
    for sql in [
        "CREATE TEMP TABLE t (i BIGINT)",
        "CREATE TABLE t (i BIGINT)",
        "DELETE FROM racks",
        "SELECT * FROM fleet",
    ] {
        let error = sqlx::query(sql).execute(&mut victim).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert!(matches!(code.as_deref(), Some("42501" | "25006")), "{sql}: {error}");
    }
}

/// What an attack would leave.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    racks: i64,
    tables: i64,
    objects: i64,
    locks: i64,
    sequence: i64,
}

impl Traces {
    async fn of(watcher: &mut PgConnection) -> Self {
        let row = sqlx::query(
            "SELECT (SELECT count(*) FROM racks), (SELECT count(*) FROM pg_class WHERE relkind = 'r'),
                    (SELECT count(*) FROM pg_largeobject_metadata),
                    (SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                      WHERE locktype = 'advisory' AND d.datname = current_database()),
                    (SELECT last_value FROM racks_id_seq)",
        )
        .fetch_one(watcher)
        .await
        .unwrap();
        let [racks, tables, objects, locks, sequence] = [0, 1, 2, 3, 4].map(|index: usize| row.get(index));
        Self { racks, tables, objects, locks, sequence }
    }
}

/// Past the reader on SQLite: the connection and the program that SQLite makes are the wall.
#[tokio::test]
async fn an_sqlite_session_can_do_nothing_that_the_reader_would_refuse() {
    let scratch = Scratch::sqlite().await.unwrap();
    let source = Source::new(scratch.url()).unwrap();
    let url = scratch.url().replace("sqlite:", "sqlite://");
    let mut watcher = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("INSERT INTO racks (name) VALUES ('r')").execute(&mut watcher).await.unwrap();
    let beside = tempfile::tempdir().unwrap();
    let file = beside.path().join("made");
    let path = file.display();
    let attacks = [
        ("SELECT 'a' AS key; DELETE FROM racks".to_owned(), true),
        (format!("ATTACH '{path}' AS y"), true),
        (format!("SELECT 'a' AS key; ATTACH '{path}' AS y"), true),
        ("WITH d AS (SELECT 1) DELETE FROM racks RETURNING name AS key".to_owned(), true),
        ("INSERT INTO racks (name) VALUES ('x') RETURNING name AS key".to_owned(), true),
        ("CREATE TEMP TABLE t (i)".to_owned(), true),
        (format!("VACUUM INTO '{path}'"), true),
        ("SELECT load_extension('x') AS key".to_owned(), true),
        ("SELECT readfile('/etc/passwd') AS key".to_owned(), true),
        (format!("SELECT writefile('{path}', 'x') AS key"), true),
        ("SELECT sql AS key FROM sqlite_schema".to_owned(), true),
        ("SELECT hex(checksum_key) AS key FROM fleet".to_owned(), true),
        // A pragma takes hold while it is prepared, in a session that is closed after it and cannot write.
        ("PRAGMA query_only = off".to_owned(), false),
        ("PRAGMA writable_schema = on".to_owned(), false),
        ("SELECT 'a' AS key; PRAGMA query_only = off; DELETE FROM racks".to_owned(), true),
    ];
    for (sql, errs) in &attacks {
        let ran = source.collect(&past_the_reader(Engine::Sqlite, sql), 10).await;
        assert!(ran.is_err() || !errs, "{sql}: {ran:?}");
    }
    let racks: i64 = sqlx::query_scalar("SELECT count(*) FROM racks").fetch_one(&mut watcher).await.unwrap();
    assert_eq!((racks, file.exists()), (1, false));
}

#[tokio::test]
async fn the_narrowed_question_is_no_way_out_of_its_parentheses() {
    let sqlite = Scratch::sqlite().await.unwrap();
    let mut sources = vec![Source::new(sqlite.url()).unwrap()];
    let postgres = postgres().await;
    sources.extend(postgres.iter().map(|(_, source)| source.clone()));
    let subject = trued::model::finding::Subject::Key("a".to_owned());
    for source in sources {
        for sql in
            ["SELECT 'a' AS key) AS g; DELETE FROM racks; --", "SELECT 'a' AS key) AS g UNION SELECT 1 --"]
        {
            assert!(source.recheck(&past_the_reader(source.engine(), sql), &subject).await.is_err(), "{sql}");
        }
        let honest = "SELECT 'a' AS key -- and a comment at its end";
        assert!(source.recheck(&past_the_reader(source.engine(), honest), &subject).await.unwrap());
    }
}

/// Where the server lets a goal change settings (no superuser migrated), it changes its own alone.
#[tokio::test]
async fn a_goal_that_turns_off_its_timeout_ends_in_time_and_harms_no_other() {
    let Some((scratch, _)) = postgres().await else { return };
    let source = Source::new(scratch.url()).unwrap();
    let mut endless = past_the_reader(
        Engine::Postgres,
        "SELECT count(*)::text AS key FROM generate_series(1, 100000000000) AS g(i) WHERE i < 0",
    );
    let population = "-- population: SELECT 1 AS n\n";
    let with =
        Goal::parse(Path::new("goals/x.sql"), &text("SELECT 'a' AS key", population), Engine::Postgres)
            .unwrap();
    endless.population = with.population;
    if let Some(trued::goal::file::Population::Query(query)) = &mut endless.population {
        query.text = "SELECT length(set_config('statement_timeout', '0', false)) AS n".to_owned();
    }
    let began = Instant::now();
    let quick = past_the_reader(Engine::Postgres, "SELECT 'a' AS key");
    let (ended, other) = tokio::join!(source.collect(&endless, 10), source.collect(&quick, 10));
    assert!(ended.unwrap_err().message.contains("timed out after 2s"));
    assert!(began.elapsed() < Duration::from_millis(3_900), "{:?}", began.elapsed());
    assert_eq!(other.unwrap().0.len(), 1);
}

#[tokio::test]
async fn migrating_again_mends_a_role_that_somebody_widened() {
    let Some((scratch, _)) = postgres().await else { return };
    let db = scratch.database();
    let login = goals_role::login(db).await.unwrap().unwrap();
    let mut main = PgConnection::connect(scratch.url()).await.unwrap();
    #[allow(clippy::disallowed_types, reason = "GRANT takes no parameters; the name is ours")]
    for grant in [
        "GRANT SELECT, DELETE ON parts TO",
        "GRANT pg_read_server_files TO",
        "GRANT CREATE ON SCHEMA public TO",
    ] {
        let text = sqlx::AssertSqlSafe(format!("{grant} {}", login.role));
        sqlx::query(text).execute(&mut main).await.unwrap();
    }
    sqlx::query("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC").execute(&mut main).await.unwrap();
    let standing = goals_role::mend(db, &[1; 32], None).await.unwrap();
    assert_eq!(standing, Standing::Ready { role: login.role.clone(), remains: Vec::new() });
    assert_eq!(goals_role::login(db).await.unwrap().unwrap(), login, "the password is kept");
}

#[tokio::test]
async fn without_the_right_to_make_roles_migrate_says_so_and_goals_have_none() {
    let Some(server) = server() else { return };
    let scratch = Scratch::postgres(&server).await.unwrap();
    let mut main = PgConnection::connect(scratch.url()).await.unwrap();
    let name = format!("trued_plain_{}", std::process::id());
    #[allow(clippy::disallowed_types, reason = "the name is ours")]
    for text in [
        format!("CREATE ROLE {name} LOGIN PASSWORD 'plain'"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(&mut main).await.unwrap();
    }
    let options = PgConnectOptions::from_str(scratch.url()).unwrap().username(&name).password("plain");
    let db = trued::database::Database::open(options.to_url_lossy().as_str()).await.unwrap();
    let standing = goals_role::mend(&db, &SECRET, None).await.unwrap();
    let Standing::Refused { why } = standing else { panic!("{standing:?}") };
    assert!(why.contains("permission denied"), "{why}");
    assert_eq!(goals_role::login(&db).await.unwrap(), None);
    // As a role that somebody else made, named in the configuration: what remains is said.
    let url = options.to_url_lossy();
    let standing = goals_role::mend(scratch.database(), &SECRET, Some(url.as_str())).await.unwrap();
    let Standing::Ready { role, remains } = standing else { panic!("{standing:?}") };
    assert_eq!((role, remains), (name.clone(), Vec::new()));
    assert_eq!(goals_role::login(scratch.database()).await.unwrap().unwrap().password, None);
    db.close().await;
    #[allow(clippy::disallowed_types, reason = "the name is ours")]
    for text in [format!("DROP OWNED BY {name}"), format!("DROP ROLE {name}")] {
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(&mut main).await.unwrap();
    }
}
