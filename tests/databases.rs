//! Goals over other databases than the fleet's: a forge's own tables, on either engine.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trued::database::scratch::Scratch;
use trued::goal::Goal;
use trued::goal::library;
use trued::goal::session::{Names, Problem, Source};
use trued::model::finding::Subject;
use trued::model::id::RepositoryId;

/// A fleet that knows two repositories.
struct Two;

impl Names for Two {
    fn ids<'a>(
        &'a self,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<BTreeMap<String, RepositoryId>, String>> {
        let known = [("a/one", 1), ("a/two", 2)].map(|(name, id)| (name.to_owned(), RepositoryId(id)));
        let ids = known.into_iter().filter(|(name, _)| names.contains(name)).collect();
        async { Ok(ids) }.boxed()
    }

    fn name(&self, id: RepositoryId) -> BoxFuture<'_, Result<Option<String>, String>> {
        let name = [(1, "a/one"), (2, "a/two")].into_iter().find(|(one, _)| *one == id.0);
        async move { Ok(name.map(|(_, name)| name.to_owned())) }.boxed()
    }
}

/// A fleet with a forge beside it, on each engine that is there. The forge's tables are all its own.
async fn forges() -> Vec<(Source, Scratch)> {
    let mut forges = vec![Scratch::sqlite().await.unwrap()];
    if let Some(server) = std::env::var("TRUED_TEST_POSTGRES_URL").ok().filter(|url| !url.is_empty()) {
        forges.push(Scratch::postgres(&server).await.unwrap());
    }
    let mut sources = Vec::new();
    for forge in forges {
        let table = "CREATE TABLE projects (path TEXT, bytes BIGINT, archived BOOLEAN)";
        let rows = "INSERT INTO projects (path, bytes, archived) VALUES ('a/one', 5, FALSE), ('a/two', 50, FALSE), ('b', 1, TRUE)";
        if forge.url().starts_with("sqlite:") {
            let url = forge.url().replace("sqlite:", "sqlite://");
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            for text in [table, rows, "DROP VIEW clock"] {
                sqlx::query(text).execute(&mut connection).await.unwrap();
            }
        } else {
            let mut connection = PgConnection::connect(forge.url()).await.unwrap();
            for text in [table, rows, "DROP VIEW clock CASCADE"] {
                sqlx::query(text).execute(&mut connection).await.unwrap();
            }
        }
        // The fleet itself is not asked anything here.
        let source = Source::new("sqlite:/nowhere/fleet.db").unwrap().with_names(Arc::new(Two));
        sources.push((source.with_database("forge", forge.url()).unwrap(), forge));
    }
    sources
}

async fn goal(source: &Source, header: &str, sql: &str) -> Result<Goal, Problem> {
    let text = format!("-- goal: x\n-- summary: X.\n{header}\n--\n{sql}\n");
    library::check(Path::new("goals/x.sql"), &text, source, &BTreeMap::new()).await
}

async fn subjects(source: &Source, goal: &Goal) -> Result<Vec<String>, Problem> {
    let (rows, _) = source.collect(goal, 100).await?;
    Ok(rows.iter().map(|row| row.subject.to_string()).collect())
}

#[tokio::test]
async fn rows_name_repositories_and_findings_have_their_ids() {
    for (source, _forge) in forges().await {
        let header = "-- subject: repository\n-- database: forge\n-- param: most = 10";
        let sql = "SELECT path AS repository_name, bytes, :now AS asked FROM projects WHERE bytes > :most ORDER BY path";
        let large = goal(&source, header, sql).await.unwrap();
        assert_eq!(subjects(&source, &large).await.unwrap(), ["repository:2"]);
        assert!(source.recheck(&large, &Subject::Repository(RepositoryId(2))).await.unwrap());
        assert!(!source.recheck(&large, &Subject::Repository(RepositoryId(1))).await.unwrap());
        assert!(!source.recheck(&large, &Subject::Repository(RepositoryId(3))).await.unwrap(), "it is gone");
        let all =
            goal(&source, header, &sql.replace("bytes > :most", "bytes < :most OR archived")).await.unwrap();
        let said = subjects(&source, &all).await.unwrap_err();
        assert_eq!(
            said.message,
            "goals/x.sql: row 2: the fleet has no repository \"b\"; leave it out, or return names it may not have \
             with `-- subject: key`"
        );
        let keys = "-- subject: key\n-- database: forge\n-- population: SELECT count(*) AS n FROM projects";
        let keys = goal(&source, keys, "SELECT path AS key FROM projects ORDER BY path").await.unwrap();
        assert_eq!(subjects(&source, &keys).await.unwrap(), ["key:a/one", "key:a/two", "key:b"]);
        assert_eq!(source.collect(&keys, 10).await.unwrap().1.population, Some(3));
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_meant_for_another_database_is_an_error_with_its_place() {
    for (source, _forge) in forges().await {
        for (header, part) in [
            ("-- subject: key\n-- database: fogre", "unknown database \"fogre\"; did you mean \"forge\"?"),
            ("-- subject: key\n-- database: other", "[databases.other] with a url configures it"),
            ("-- subject: key\n-- database: forge\n-- population: replicas", "write a query"),
            ("-- subject: key\n-- database: forge\n-- scope: suspects", "a table of the fleet"),
        ] {
            let said = goal(&source, header, "SELECT path AS key FROM projects").await.unwrap_err();
            assert!(said.text && said.message.starts_with("goals/x.sql:"), "{said}");
            assert!(said.message.contains(part), "{said}");
        }
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_not_the_texts_fault() {
    for url in ["sqlite:/nowhere/forge.db", "postgres://nobody@127.0.0.1:1/none"] {
        let source = Source::new("sqlite:/nowhere/fleet.db").unwrap().with_database("forge", url).unwrap();
        let said =
            goal(&source, "-- subject: key\n-- database: forge", "SELECT path AS key FROM projects").await;
        assert!(!said.unwrap_err().text);
    }
    assert!(Source::new("sqlite:x").unwrap().with_database("fleet", "sqlite:y").is_err());
}
