//! Tests of the room. Each runs on SQLite, and on PostgreSQL where `TRUED_TEST_POSTGRES_URL` names a server.

use super::scratch::Scratch;
use super::{Database, fileservers, repositories};
use crate::model::Millis;
use crate::model::checksum::Checksum;
use crate::model::finding::{Exception, Hints, Subject};
use crate::model::fleet::{ObjectFormat, Repository};
use crate::model::goal::SubjectKind;
use crate::model::grant::{Part, Role};
use crate::model::id::{FileserverId, RepositoryId};
use base64::Engine as _;

mod attempts;
mod bounds;
mod brakes;
mod drains;
mod findings;
mod history;
mod inventory;
mod places;
mod pushes;
mod removals;
mod replicas;
mod routing;
mod statements;
mod steering;
mod suspects;
mod together;
mod verbs;

/// Runs a test's body on each engine that is there.
macro_rules! on_each_engine {
    ($(async fn $name:ident($db:ident) $body:block)+) => { $(
        mod $name {
            use super::*;

            async fn body($db: &$crate::database::Database) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                let scratch = $crate::database::scratch::Scratch::sqlite().await.expect("a scratch database");
                body(scratch.database()).await;
                scratch.close().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                let Some(scratch) = $crate::database::tests::postgres().await else { return };
                body(scratch.database()).await;
                scratch.close().await;
            }
        }
    )+ };
}
pub(super) use on_each_engine;

async fn postgres() -> Option<Scratch> {
    let url = std::env::var("TRUED_TEST_POSTGRES_URL").ok()?;
    Some(Scratch::postgres(&url).await.expect("a scratch database on PostgreSQL"))
}

fn part(name: &str, byte: u8) -> Part {
    let public_key = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    Part { id: name.to_owned(), name: name.to_owned(), role: Role::Agent, public_key }
}

/// So many fileservers, each in a rack of its own, online and counting.
async fn fileservers(db: &Database, many: u8) -> Vec<FileserverId> {
    let mut ids = Vec::new();
    for number in 1..=many {
        let name = format!("fs{number}");
        let (rack, part) = (format!("rack{number}"), part(&name, number));
        let id = fileservers::add(db, &name, &rack, "http://127.0.0.1:1", &part).await;
        ids.push(id.expect("a new fileserver"));
    }
    let verdicts: Vec<_> = ids.iter().map(|&id| online(id)).collect();
    fileservers::record_verdicts(db, &verdicts).await.expect("verdicts");
    ids
}

fn online(id: FileserverId) -> fileservers::Verdict {
    fileservers::Verdict {
        id,
        health: crate::model::fleet::Health::Online,
        health_since: 1,
        offline_ms: 0,
        counts: true,
        empty_since: None,
    }
}

fn sum(byte: u8) -> Checksum {
    Checksum { key: 1, sum: [byte; 32] }
}

/// A repository whose copies on these fileservers are whole, at version 1 with the checksum `sum(1)`.
async fn repository(db: &Database, name: &str, wanted: u32, on: &[FileserverId]) -> Repository {
    let import =
        repositories::plan_import(db, name, ObjectFormat::Sha1, wanted, 10, on).await.expect("a plan");
    let holders: Vec<_> = on.iter().map(|&id| (id, 100)).collect();
    repositories::finish_import(db, import.id, &sum(1), &holders).await.expect("an import")
}

fn about(subject: Subject, priority: i32) -> Exception {
    let evidence = serde_json::json!({ "countable": 2, "ratio": 0.5, "name": "ü\"x" });
    let serde_json::Value::Object(evidence) = evidence else { unreachable!() };
    Exception {
        subject,
        priority,
        reason: Some("two of three".to_owned()),
        hints: Hints::default(),
        evidence,
    }
}

fn repository_rows(ids: impl IntoIterator<Item = i64>) -> Vec<Exception> {
    ids.into_iter().map(|id| about(Subject::Repository(RepositoryId(id)), 100)).collect()
}

fn goal(name: &str, began_at: Millis) -> super::findings::MergeInto {
    super::findings::MergeInto {
        goal: name.to_owned(),
        digest: "d".to_owned(),
        subject: SubjectKind::Repository,
        repair: Some("re-replicate".to_owned()),
        last_copies: false,
        began_at,
        backoff_ms: vec![0, 60_000],
        stuck_after: 3,
        in_a_row: 1,
        brake: None,
        removes: false,
        most: 500_000,
    }
}

/// Merges these rows as an evaluation that begins now.
async fn evaluate(db: &Database, name: &str, rows: &[Exception]) -> super::findings::Merged {
    let now = db.now().await.expect("the clock");
    merge(db, goal(name, now), rows).await
}

async fn merge(
    db: &Database,
    into: super::findings::MergeInto,
    rows: &[Exception],
) -> super::findings::Merged {
    let mut merge = super::findings::Merge::begin(db, into).await.expect("a merge");
    for chunk in rows.chunks(1_000) {
        merge.add(chunk).await.expect("rows");
    }
    merge.finish(5).await.expect("merged")
}

/// The number that one statement without parameters answers.
async fn number(db: &Database, text: &'static str) -> i64 {
    super::on!(db, p => sqlx::query_scalar(text).fetch_one(p).await).expect("a number")
}

/// Runs one statement that no room has, to make a situation.
async fn make(db: &Database, text: &'static str) {
    super::on_writer!(db, p => sqlx::query(text).execute(p).await.map(drop)).expect("made");
}

/// Waits until the database's clock has moved on, so that a later moment is later.
async fn next_moment(db: &Database) -> Millis {
    let before = db.now().await.expect("the clock");
    loop {
        let now = db.now().await.expect("the clock");
        if now > before {
            return now;
        }
        tokio::task::yield_now().await;
    }
}
