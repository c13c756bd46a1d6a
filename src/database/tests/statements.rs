//! Every SQL text of the room is prepared on the engines that it is for.

use crate::database::Engine;
use crate::database::scratch::Scratch;
use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One text, with the name that its comment gives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Statement {
    label: String,
    text: String,
}

impl Statement {
    fn is_for(&self, engine: Engine) -> bool {
        match engine {
            Engine::Sqlite => !self.label.ends_with(", postgres"),
            Engine::Postgres => !self.label.ends_with(", sqlite"),
        }
    }

    /// Makes the temporary table that others read.
    fn makes_a_table(&self) -> bool {
        self.text.contains("CREATE TEMP TABLE")
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the room's sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// String literals that begin with a comment, unescaped as the compiler does.
fn literals(source: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("\"/* ") {
        let mut text = String::new();
        let mut characters = rest[at + 1..].char_indices();
        let mut end = rest.len();
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    end = at + 1 + offset + 1;
                    break;
                }
                '\\' => match characters.next().map(|(_, next)| next) {
                    Some('\n') => {
                        let after = characters.as_str();
                        let skipped = after.len() - after.trim_start().len();
                        for _ in 0..after[..skipped].chars().count() {
                            characters.next();
                        }
                    }
                    Some(other) => text.push(other),
                    None => {}
                },
                other => text.push(other),
            }
        }
        texts.push(text);
        rest = &rest[end..];
    }
    texts
}

fn statements() -> Vec<Statement> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.join("database.rs")];
    sources(&root.join("database"), &mut files);
    let mut statements = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a source file");
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let source = code.collect::<Vec<_>>().join("\n");
        for text in literals(&source) {
            let label = text.trim_start_matches("/* ").split(" */").next().unwrap_or_default().to_owned();
            statements.push(Statement { label, text });
        }
    }
    assert!(statements.len() > 80, "only {} statements were found", statements.len());
    statements.sort_by_key(|statement| (!statement.makes_a_table(), statement.label.clone()));
    statements
}

#[test]
fn each_statement_has_a_name_of_its_own() {
    let statements = statements();
    let names: BTreeSet<&str> = statements.iter().map(|statement| statement.label.as_str()).collect();
    assert_eq!(names.len(), statements.len(), "two texts have one name");
    for name in names {
        let plain = name.trim_end_matches(", sqlite").trim_end_matches(", postgres");
        assert!(plain.split_once("::").is_some(), "{name:?} is not room::function");
    }
}

#[test]
fn a_text_for_one_engine_has_its_twin_unless_only_one_needs_it() {
    let labels: BTreeSet<String> = statements().into_iter().map(|statement| statement.label).collect();
    for label in labels.iter().filter(|label| label.ends_with(", sqlite")) {
        assert!(labels.contains(&label.replace(", sqlite", ", postgres")), "{label} has no twin");
    }
}

#[tokio::test]
#[allow(clippy::disallowed_types, reason = "texts of this room, read from its sources")]
async fn every_statement_is_prepared_on_sqlite() {
    let scratch = Scratch::sqlite().await.expect("a scratch database");
    let path = scratch.url().replace("sqlite:", "sqlite://");
    let mut connection = SqliteConnection::connect(&path).await.expect("a connection");
    for Statement { label, text } in statements().into_iter().filter(|one| one.is_for(Engine::Sqlite)) {
        if text.contains("CREATE TEMP TABLE") {
            connection
                .execute(sqlx::AssertSqlSafe(text))
                .await
                .unwrap_or_else(|error| panic!("{label}: {error}"));
        } else {
            let prepared =
                (&mut connection).prepare(sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(text))).await;
            prepared.unwrap_or_else(|error| panic!("{label}: {error}"));
        }
    }
}

#[tokio::test]
#[allow(clippy::disallowed_types, reason = "texts of this room, read from its sources")]
async fn every_statement_is_prepared_on_postgres() {
    let Some(scratch) = super::postgres().await else { return };
    let mut connection = PgConnection::connect(scratch.url()).await.expect("a connection");
    for Statement { label, text } in statements().into_iter().filter(|one| one.is_for(Engine::Postgres)) {
        if text.contains("CREATE TEMP TABLE") {
            let kept = text.replace("ON COMMIT DROP", "");
            connection
                .execute(sqlx::AssertSqlSafe(kept))
                .await
                .unwrap_or_else(|error| panic!("{label}: {error}"));
        } else {
            let prepared =
                (&mut connection).prepare(sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(text))).await;
            prepared.unwrap_or_else(|error| panic!("{label}: {error}"));
        }
    }
}

/// Tables that grow with the fleet.
const LARGE: [&str; 5] = ["repositories", "replicas", "findings", "attempt_history", "finding_history"];

/// Under which names a statement reads large tables.
fn large_names(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> =
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    let mut names = BTreeSet::new();
    for (index, table) in words.iter().enumerate().filter(|(_, word)| LARGE.contains(word)) {
        names.insert((*table).to_owned());
        let next = words[index + 1..].iter().find(|word| **word != "AS");
        names.extend(next.filter(|word| word.len() == 1).map(|word| (*word).to_owned()));
    }
    names
}

// Whatever is done to a list of ids costs that list, and not the fleet.
#[tokio::test]
#[allow(clippy::disallowed_types, reason = "texts of this room, read from its sources")]
async fn no_statement_about_given_ids_reads_a_large_table_whole_on_sqlite() {
    let scratch = Scratch::sqlite().await.expect("a scratch database");
    let path = scratch.url().replace("sqlite:", "sqlite://");
    let mut connection = SqliteConnection::connect(&path).await.expect("a connection");
    let mut broken = Vec::new();
    for Statement { label, text } in statements().into_iter().filter(|one| one.is_for(Engine::Sqlite)) {
        if text.contains("CREATE TEMP TABLE") {
            connection.execute(sqlx::AssertSqlSafe(text)).await.expect("made");
            continue;
        }
        // What is not in a list cannot be looked up: findings of goals whose files are gone.
        if !text.contains("json_each(") || text.contains("goal NOT IN (SELECT value FROM json_each($1))") {
            continue;
        }
        let names = large_names(&text);
        let asked = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::SqlSafeStr::into_sql_str(asked))
            .fetch_all(&mut connection)
            .await
            .expect("a plan");
        for (.., step) in plan {
            let scanned = step.strip_prefix("SCAN ").filter(|rest| !rest.contains(' '));
            if scanned.is_some_and(|name| names.contains(name)) {
                broken.push(format!("{label}: {step}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
