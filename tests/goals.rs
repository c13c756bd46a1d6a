//! The shipped goals against their fixtures, and goals that misbehave, on the real engines.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

mod goal_support;

use goal_support::{Tables, engines};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use trued::goal::fixture::{self, Fixture, Scratch};
use trued::goal::library::{self, Library, Repairs};
use trued::goal::session::{Problem, Source};
use trued::goal::shipped;
use trued::goal::{Engine, Goal};
use trued::model::finding::Subject;
use trued::model::id::RepositoryId;

fn repairs() -> Repairs {
    let shipped = trued::repair::library::shipped().unwrap();
    shipped.by_name.iter().map(|(name, repair)| (name.clone(), repair.subject)).collect()
}

fn goals_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/goals"))
}

fn goal(engine: Engine, subject: &str, header: &str, sql: &str) -> Goal {
    let text = format!("-- goal: x\n-- summary: X.\n-- subject: {subject}\n{header}--\n{sql}\n");
    Goal::parse(Path::new("goals/x.sql"), &text, engine).unwrap()
}

/// All rows, and how the evaluation ended.
async fn evaluate(source: &Source, goal: &Goal) -> Result<(Vec<String>, bool), Problem> {
    let (rows, evaluated) = source.collect(goal, u64::MAX).await?;
    let rows: Vec<_> = rows.into_iter().map(|row| row.subject.to_string()).collect();
    assert_eq!(evaluated.rows, rows.len() as u64);
    Ok((rows, evaluated.more))
}

async fn run_fixture(scratch: &mut Scratch, source: &Source, goal: &Goal) -> Vec<String> {
    let path = goals_dir().join("tests").join(format!("{}.toml", goal.name));
    let text = std::fs::read_to_string(&path).unwrap();
    let fixture = Fixture::parse_for(&path, &text, goal.subject).unwrap();
    assert!(fixture.case.iter().any(|case| case.expect.is_empty()), "{}: no case that is met", goal.name);
    assert!(fixture.case.iter().any(|case| !case.expect.is_empty()), "{}: no case that is unmet", goal.name);
    let mut failed = Vec::new();
    for case in &fixture.case {
        if let Some(diff) = fixture::run(scratch, source, goal, case).await.unwrap() {
            failed.push(format!("{} on {:?}: {}\n{diff}", goal.name, source.engine(), case.name));
        }
    }
    failed
}

#[tokio::test]
async fn every_shipped_goal_returns_what_its_fixtures_expect() {
    let mut failed = Vec::new();
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let mut scratch = Scratch::connect(&tables.url).await.unwrap();
        for goal in library::shipped(source.engine()).unwrap() {
            failed.extend(run_fixture(&mut scratch, &source, &goal).await);
        }
        drop(scratch);
        tables.drop().await;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[tokio::test]
async fn a_fixture_that_expects_otherwise_fails_with_a_diff() {
    let tables = Tables::sqlite().await;
    let mut scratch = Scratch::connect(&tables.url).await.unwrap();
    let text = "[[case]]\nname = 'x'\nrepositories = [{ name = 'p', on = ['a'] }, { name = 'q', on = ['a', 'b', 'c'] }]\nexpect = ['q']";
    let fixture = Fixture::parse(Path::new("x.toml"), text).unwrap();
    let goal =
        library::shipped(Engine::Sqlite).unwrap().into_iter().find(|goal| goal.name == "replicas-suffice");
    let diff = fixture::run(&mut scratch, &tables.source(), &goal.unwrap(), &fixture.case[0])
        .await
        .unwrap()
        .unwrap();
    assert!(
        diff.contains("- q (expected") && diff.contains("+ p (returned, and not expected; 1 of 3 copies)"),
        "{diff}"
    );
}

#[tokio::test]
async fn the_shipped_directory_loads_without_an_error_on_the_real_engine() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let library = Library::load(goals_dir(), tables.source(), repairs()).await.unwrap();
        let errors: Vec<_> = library.entries().filter_map(|entry| entry.error.clone()).collect();
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(library.running().count(), shipped::FILES.len());
        tables.drop().await;
    }
}

/// Line 8 of what must be shown: each mistake keeps the last good version, and names file, line and column.
#[tokio::test]
async fn a_bad_edit_keeps_the_last_good_version_and_names_the_place() {
    let good = "-- goal: x\n-- summary: X.\n-- subject: repository\n--\nSELECT r.repository_id\n  FROM replicas r\n WHERE NOT r.in_sync\n";
    let edits: [(&str, &str, &str); 9] = [
        ("half-written", &good[..good.len() - 9], "x.sql:7:13: the file ends in the middle"),
        (
            "half a parenthesis",
            &good.replace("WHERE NOT", "WHERE (NOT"),
            "x.sql:7:8: this parenthesis is not closed",
        ),
        ("syntax error", &good.replace("WHERE NOT", "WHERE WHERE NOT"), "x.sql:7:8: "),
        ("wrong column", &good.replace("r.in_sync", "r.in_sink"), "in_sink"),
        ("wrong table", &good.replace("replicas r", "replica r"), "did you mean \"replicas\"?"),
        (
            "wrong subject",
            &good.replace("r.repository_id", "r.repository_id AS repo_id"),
            "did you mean \"repository_id\"?",
        ),
        ("DELETE", &good.replace("SELECT r.repository_id", "DELETE"), "x.sql:5:1: a goal is one SELECT"),
        (
            "two statements",
            &good.replace("r.in_sync", "r.in_sync; DELETE FROM replicas"),
            "x.sql:7:21: a second statement",
        ),
        (
            "pg_sleep",
            &good.replace("NOT r.in_sync", "pg_sleep(100) IS NULL"),
            "x.sql:7:8: pg_sleep() is refused",
        ),
    ];
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sql");
        std::fs::write(&path, good).unwrap();
        let mut library = Library::load(dir.path(), tables.source(), repairs()).await.unwrap();
        let digest = library.get("x").unwrap().running.as_ref().unwrap().digest.clone();
        for (what, text, expected) in &edits {
            std::fs::write(&path, text).unwrap();
            assert!(library.reload().await.unwrap(), "{what}");
            let entry = library.get("x").unwrap();
            assert_eq!(entry.running.as_ref().unwrap().digest, digest, "{what}");
            let error = entry.error.as_deref().unwrap();
            assert!(error.starts_with(path.to_str().unwrap()) && error.contains(expected), "{what}: {error}");
            let place = &error[path.to_str().unwrap().len()..];
            let mut numbers = place.split(':').skip(1).map(str::parse::<usize>);
            assert!(
                matches!((numbers.next(), numbers.next()), (Some(Ok(_)), Some(Ok(_)))),
                "{what}: {error}"
            );
            let running = entry.running.clone().unwrap();
            assert_eq!(evaluate(&tables.source(), &running).await.unwrap(), (vec![], false));
        }
        std::fs::write(&path, good).unwrap();
        assert!(library.reload().await.unwrap());
        assert_eq!(library.get("x").unwrap().error, None);
        tables.drop().await;
    }
}

/// Each with its place on either engine, and with what there is.
#[tokio::test]
async fn a_name_that_is_like_no_other_is_told_with_those_there_are() {
    let of = |table: &str, condition: &str| {
        format!("SELECT p.id AS repository_id\n  FROM {table} p WHERE {condition}")
    };
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        for (sql, place, said) in [
            // Columns that the database keeps itself are columns too.
            (of("repositories", "zorkmid > 3"), "6:29: ", ", miscounted, crowded"),
            (of("zorkmids", "TRUE"), "6:8", "; tables and views: adoptions, attempt_history, "),
            (
                of("repositories", "q.bytes > 3"),
                "6:29: ",
                "no table of the query is called q (it reads repositories)",
            ),
            (of("fileservers f, racks", "name = 'a'"), "6:", "; say which: f.name or p.name"),
            (of("repositories", "lenght(name) > 3"), "6:29: ", "length"),
            (of("repositories", "bytes > 1GiB"), "6:", ""),
            (of("repositories", "bytes > > 1"), "6:", ""),
        ] {
            let problem = source.check(&goal(source.engine(), "repository", "", &sql)).await.unwrap_err();
            let lenght = sql.contains("lenght") && source.engine() == Engine::Postgres;
            assert!(problem.message.starts_with(&format!("goals/x.sql:{place}")), "{sql}: {problem}");
            assert!(problem.message.contains(said) || lenght, "{sql}: {problem}");
        }
        tables.drop().await;
    }
}

#[tokio::test]
async fn a_wrong_column_is_named_with_its_place_and_what_was_meant() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let sql = "SELECT p.id AS repository_id, :now AS \"ä\",\n       f.rack\n  FROM repositories p, fileservers f";
        let problem = source.check(&goal(source.engine(), "repository", "", sql)).await.unwrap_err();
        assert!(problem.text);
        assert!(problem.message.starts_with("goals/x.sql:6:"), "{problem}");
        assert!(problem.message.contains("did you mean \"rack_id\"?"), "{problem}");
        if source.engine() == Engine::Postgres {
            assert!(
                problem.message.starts_with("goals/x.sql:6:8: column f.rack does not exist (42703)"),
                "{problem}"
            );
        }
        let numbers =
            goal(source.engine(), "repository", "", "SELECT name AS repository_id FROM repositories");
        let problem = source.check(&numbers).await.unwrap_err();
        assert!(
            problem.message.contains("column \"repository_id\" is text and must be a number"),
            "{problem}"
        );
        tables.drop().await;
    }
}

#[tokio::test]
async fn an_endless_query_ends_at_its_timeout_while_others_go_on() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let endless = goal(
            source.engine(),
            "repository",
            "-- timeout: 1500ms\n",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 0 OR i > 0)\n\
             SELECT count(*) AS repository_id FROM n WHERE i < 0",
        );
        source.check(&endless).await.unwrap();
        let quick = goal(source.engine(), "key", "", "SELECT 'a' AS key");
        let began = Instant::now();
        let others = async {
            let mut slowest = Duration::ZERO;
            while began.elapsed() < Duration::from_secs(1) {
                let start = Instant::now();
                assert_eq!(evaluate(&source, &quick).await.unwrap().0, ["key:a"]);
                slowest = slowest.max(start.elapsed());
            }
            slowest
        };
        let (ended, slowest) = tokio::join!(evaluate(&source, &endless), others);
        let problem = ended.unwrap_err();
        assert_eq!(problem.message, "goals/x.sql: timed out after 1500ms");
        assert!(!problem.text);
        assert!(began.elapsed() < Duration::from_millis(3_400), "{:?}", began.elapsed());
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        tables.drop().await;
    }
}

#[tokio::test]
async fn rows_past_the_bound_are_not_kept() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i AS repository_id FROM n";
        let bounded = goal(source.engine(), "repository", "-- max-rows: 1200\n", sql);
        let (rows, more) = evaluate(&source, &bounded).await.unwrap();
        assert_eq!((rows.len(), more), (1_200, true));
        let exact = goal(source.engine(), "repository", "-- max-rows: 5000\n", sql);
        let (rows, more) = evaluate(&source, &exact).await.unwrap();
        assert_eq!((rows.len(), more), (5_000, false));
        tables.drop().await;
    }
}

#[tokio::test]
async fn values_are_bound_with_their_types_and_evidence_keeps_them() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let goal = goal(
            source.engine(),
            "key",
            "-- param: age = 7d\n-- param: size = 2MiB\n-- param: share = 25%\n-- param: word = it's\n",
            "SELECT :word AS key, :age AS age, :size AS size, :share AS share, :now - :age AS since,\n\
                    CASE WHEN :share < 0.3 THEN 'small' ELSE 'big' END AS reason",
        );
        source.check(&goal).await.unwrap();
        let (sender, mut receiver) = mpsc::channel(2);
        let evaluated = source.evaluate(&goal, sender).await.unwrap();
        let row = receiver.recv().await.unwrap().remove(0);
        assert_eq!(row.subject, Subject::Key("it's".to_owned()));
        assert_eq!(row.reason.as_deref(), Some("small"));
        assert_eq!(row.evidence["age"], 604_800_000);
        assert_eq!(row.evidence["size"], 2_097_152);
        assert_eq!(row.evidence["share"], 0.25);
        assert_eq!(row.evidence["since"], evaluated.now - 604_800_000);
        tables.drop().await;
    }
}

#[tokio::test]
async fn errors_in_rows_name_row_and_column() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let sql = "SELECT 1 AS repository_id, 5 AS priority UNION ALL SELECT 2, 5000";
        let problem = evaluate(&source, &goal(source.engine(), "repository", "", sql)).await.unwrap_err();
        assert!(
            problem.message.contains(": row 2: column \"priority\" is 5000, not between 0 and 999")
                && !problem.message.starts_with("goals/x.sql: "),
            "{}",
            problem.message
        );
        let sql = "SELECT NULLIF(i, 1) AS repository_id FROM (SELECT 1 AS i) AS one";
        let problem = evaluate(&source, &goal(source.engine(), "repository", "", sql)).await.unwrap_err();
        assert!(
            problem.message.contains(": row 1: column \"repository_id\" is NULL or missing"),
            "{}",
            problem.message
        );
        assert!(problem.text);
        tables.drop().await;
    }
}

#[tokio::test]
async fn population_comes_from_counters_or_a_query() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        for (population, expected) in
            [("", None), ("repositories", Some(0)), ("SELECT 40 + 2 AS n", Some(42))]
        {
            let header =
                if population.is_empty() { String::new() } else { format!("-- population: {population}\n") };
            let goal = goal(source.engine(), "key", &header, "SELECT 'a' AS key");
            source.check(&goal).await.unwrap();
            let (sender, mut receiver) = mpsc::channel(2);
            assert_eq!(source.evaluate(&goal, sender).await.unwrap().population, expected);
            assert!(receiver.recv().await.is_some());
        }
        tables.drop().await;
    }
}

#[tokio::test]
async fn a_session_cannot_write_even_when_the_text_could() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let mut goal =
            goal(source.engine(), "repository", "", "SELECT id AS repository_id FROM repositories");
        // As if the tokenizer had let it through.
        goal.query.text = match source.engine() {
            Engine::Sqlite => {
                "INSERT INTO racks (name) VALUES ('r') RETURNING id AS repository_id".to_owned()
            }
            Engine::Postgres => "SELECT nextval('racks_id_seq') AS repository_id".to_owned(),
        };
        let problem = evaluate(&source, &goal).await.unwrap_err();
        assert!(problem.message.to_lowercase().contains("read"), "{problem}");
        tables.drop().await;
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_not_the_texts_fault() {
    for url in ["sqlite:/nowhere/at/all.sqlite", "postgres://nobody@127.0.0.1:1/none"] {
        let source = Source::new(url).unwrap();
        let goal = goal(source.engine(), "key", "", "SELECT 'a' AS key");
        let problem = evaluate(&source, &goal).await.unwrap_err();
        assert!(!problem.text, "{problem}");
        assert!(source.recheck(&goal, &Subject::Repository(RepositoryId(1))).await.is_err());
    }
    assert!(Source::new("mysql://x").is_err());
}

/// Whether this process has the file open.
fn is_open(path: &Path) -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors.filter_map(|one| std::fs::read_link(one.path()).ok()).any(|target| target == path)
}

#[tokio::test]
async fn an_evaluation_that_nobody_waits_for_ends_long_before_its_timeout() {
    let tables = Tables::sqlite().await;
    let source = tables.source();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS repository_id FROM n";
    let endless = goal(Engine::Sqlite, "repository", "-- timeout: 10m\n", sql);
    let path = Path::new(tables.url.strip_prefix("sqlite:").unwrap()).canonicalize().unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(300), evaluate(&source, &endless)).await;
    assert!(waited.is_err());
    let until = Instant::now() + Duration::from_secs(10);
    while is_open(&path) {
        assert!(Instant::now() < until, "its connection is still open");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_goals_that_make_copies_never_return_the_same_repository() {
    let tables = Tables::sqlite().await;
    let source = tables.source();
    let mut scratch = Scratch::connect(&tables.url).await.unwrap();
    let shipped = library::shipped(Engine::Sqlite).unwrap();
    let named = |name: &str| shipped.iter().find(|goal| goal.name == name).unwrap();
    let pair = [named("replicas-suffice"), named("racks-differ")];
    for goal in &shipped {
        let path = goals_dir().join("tests").join(format!("{}.toml", goal.name));
        for case in Fixture::parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap().case {
            fixture::run(&mut scratch, &source, goal, &case).await.unwrap();
            let mut subjects = Vec::new();
            for goal in pair {
                let (sender, mut receiver) = mpsc::channel(10);
                source.evaluate_at(goal, Some(fixture::MOMENT), sender).await.unwrap();
                while let Some(rows) = receiver.recv().await {
                    subjects.extend(rows.into_iter().map(|row| row.subject));
                }
            }
            let returned = subjects.len();
            subjects.sort();
            subjects.dedup();
            assert_eq!(subjects.len(), returned, "{}: {}", goal.name, case.name);
        }
    }
}

#[tokio::test]
async fn a_quoted_name_that_is_no_column_is_an_error_and_no_string() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let sql = "SELECT id AS repository_id FROM repositories WHERE \"nmae\" = 'x'";
        let problem = source.check(&goal(source.engine(), "repository", "", sql)).await.unwrap_err();
        assert!(
            problem.message.contains("x.sql:5:52: ") && problem.message.contains("did you mean \"name\"?"),
            "{problem}"
        );
        tables.drop().await;
    }
}
