//! A goal that returns far too many rows: the process stays small, and the count is true.
//!
//! A process of its own, so that nothing else grows meanwhile. `TRUED_TEST_ROWS` sets how many; `docs/performance.md`
//! has what ten million take.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

use std::path::Path;
use tokio::sync::mpsc;
use trued::database::findings::{Merge, MergeInto, Merged};
use trued::database::goals;
use trued::database::scratch::Scratch;
use trued::goal::session::Source;
use trued::goal::{Engine, Goal};
use trued::model::finding::Exception;

/// More than this the process may not grow.
const LIMIT_KIB: u64 = 64 * 1024;

fn rows() -> u64 {
    std::env::var("TRUED_TEST_ROWS").ok().and_then(|text| text.parse().ok()).unwrap_or(150_000)
}

fn goal(engine: Engine, rows: u64, max_rows: u64) -> Goal {
    let text = format!(
        "-- goal: too-many\n-- summary: X.\n-- subject: repository\n-- timeout: 2h\n-- max-rows: {max_rows}\n--\n\
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
         SELECT i AS repository_id, 'far too many' AS reason, 3 AS wanted, 2 AS countable FROM n\n"
    );
    Goal::parse(Path::new("goals/too-many.sql"), &text, engine).unwrap()
}

/// As a controller does it.
async fn evaluate(scratch: &Scratch, source: &Source, goal: &Goal) -> Merged {
    let db = scratch.database();
    let into = MergeInto {
        goal: goal.name.clone(),
        digest: "d".into(),
        subject: goal.subject,
        repair: None,
        last_copies: false,
        began_at: db.now().await.unwrap(),
        backoff_ms: vec![0],
        stuck_after: 3,
        most: i64::try_from(goal.max_rows).unwrap(),
        in_a_row: 1,
        brake: None,
        removes: false,
    };
    let (sender, mut batches) = mpsc::channel::<Vec<Exception>>(4);
    let collect = async {
        let mut merge = Merge::begin(db, into).await.unwrap();
        while let Some(batch) = batches.recv().await {
            merge.add(&batch).await.unwrap();
        }
        merge
    };
    let (evaluated, mut merge) = tokio::join!(source.evaluate_all(goal, sender), collect);
    if evaluated.unwrap().more {
        merge.more();
    }
    merge.finish(0).await.unwrap()
}

/// A line of this process's status, in KiB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

async fn stays_small(scratch: Scratch, engine: Engine) {
    let (rows, kept) = (rows(), (rows() / 20).min(500_000));
    let source = Source::new(scratch.url()).unwrap();
    // What any evaluation needs is not counted.
    evaluate(&scratch, &source, &goal(engine, 1_000, 1_000)).await;
    let before = status("VmRSS");
    let merged = evaluate(&scratch, &source, &goal(engine, rows, kept)).await;
    let grown = status("VmHWM").saturating_sub(before);
    println!("{engine:?}: {rows} rows, {kept} kept: grown by {grown} KiB");
    let state = goals::states(scratch.database()).await.unwrap().remove(0);
    assert_eq!((merged.returned.unsigned_abs(), merged.at_least), (rows, false), "the count is exact");
    assert_eq!((state.findings.unsigned_abs(), state.at_least), (rows, false));
    assert_eq!(merged.opened.unsigned_abs(), kept - 1_000);
    assert!(grown < LIMIT_KIB, "{engine:?}: grown by {grown} KiB");
    scratch.close().await;
}

#[tokio::test]
async fn far_too_many_rows_do_not_make_the_process_grow() {
    stays_small(Scratch::sqlite().await.unwrap(), Engine::Sqlite).await;
    if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
        stays_small(Scratch::postgres(&url).await.unwrap(), Engine::Postgres).await;
    }
}

/// Counting goes on until three quarters of the timeout are over; then the count is "at least".
#[tokio::test]
async fn rows_that_take_too_long_to_count_are_counted_at_least() {
    let scratch = Scratch::sqlite().await.unwrap();
    let source = Source::new(scratch.url()).unwrap();
    let goal = Goal { timeout: 2_000, ..goal(Engine::Sqlite, 1_000_000_000, 700) };
    let merged = evaluate(&scratch, &source, &goal).await;
    assert_eq!((merged.at_least, merged.opened), (true, 700));
    assert!(merged.returned > 700, "only {} were counted", merged.returned);
    let again = evaluate(&scratch, &source, &goal).await;
    assert_eq!((again.at_least, again.opened, again.closed), (true, 0, 0), "the set stands");
    scratch.close().await;
}
