//! What does not last: backing off, the write lock, a person; and nobody else waits for it.

use super::{MISSING_COPIES, Stage, quick, stage};
use crate::database::scratch::{Crowd, Scratch};
use crate::database::{Database, attempts, limits, repositories};
use crate::model::attempt::{AttemptEvent, Ending, Step};
use crate::model::id::RepositoryId;
use crate::repair::{Repairs, library};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OUT_OF_SYNC: &str = "\
-- goal: copies-match
-- summary: Every copy is in sync.
-- subject: replica
-- repair: resync
-- schedule: * * * * * *
-- brake: none

SELECT r.repository_id, r.fileserver_id FROM replicas r WHERE NOT r.in_sync
";

/// A goal that returns what a crowd has open.
fn crowded(open: i64) -> String {
    format!(
        "-- goal: copies-suffice\n-- summary: Nothing is open.\n-- subject: repository\n-- repair: re-replicate\n\
         -- brake: none\n\nWITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {open})\n\
         SELECT i AS repository_id, CAST(200 + i % 5 AS INTEGER) AS priority FROM n\n"
    )
}

/// The shipped repairs with small numbers.
fn impatient() -> Repairs {
    let mut repairs = library::shipped().unwrap();
    for repair in repairs.by_name.values_mut() {
        let one = Arc::make_mut(repair);
        (one.retry.first_ms, one.retry.max_ms) = (20, 50);
        (one.retry.lock_after, one.retry.stuck_after) = (5, 8);
    }
    repairs
}

/// Runs beside the test; it ends when what is returned is dropped.
fn on_the_side(work: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinSet<()> {
    let mut set = tokio::task::JoinSet::new();
    set.spawn(work);
    set
}

/// What a worker saw of an attempt: the repository, which try, and whether pushes were refused meanwhile.
type Seen = Arc<Mutex<Vec<(RepositoryId, i32, bool)>>>;

async fn locked(db: &Database, id: RepositoryId) -> bool {
    repositories::by_ids(db, &[id]).await.unwrap()[0].write_lock_until.is_some()
}

/// A worker that mends what it is given; somebody damages the poisoned one again at once.
async fn worker(db: Database, poisoned: RepositoryId, seen: Seen) {
    let steps: Vec<&str> = Step::ALL.iter().map(|step| step.as_str()).collect();
    loop {
        for attempt in attempts::claim(&db, "w", 10, 60_000, &steps).await.unwrap() {
            let id = attempt.plan.repository_id.unwrap();
            let locked = locked(&db, id).await;
            seen.lock().unwrap().push((id, attempt.number, locked));
            if id != poisoned {
                let mended = crate::database::replicas::Taken {
                    fileserver_id: attempt.plan.destination_id.unwrap(),
                    checksum: Some(crate::model::checksum::Checksum { key: 1, sum: [1; 32] }),
                    bytes: None,
                    packs_loose: None,
                    verified_generation: None,
                };
                crate::database::replicas::record(&db, id, 1, attempt.epoch, &[mended]).await.unwrap();
            }
            let done =
                Ending { event: AttemptEvent::Succeed, message: "mended".into(), bytes: 0, blame: None };
            attempts::finish(&db, attempt.id, attempt.epoch, &done, 0).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn stuck(stage: &Stage) -> bool {
    stage.number("SELECT count(*) FROM findings WHERE state = 'stuck'").await == 1
}

on_each_engine! {
async fn a_copy_that_is_damaged_again_each_time_gets_the_write_lock_then_a_person_and_blocks_nobody(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.repairs = impatient();
    stage.goal("copies-match", OUT_OF_SYNC);
    let poisoned = stage.repository("bad/one", 3, 3).await;
    for number in 0..6 {
        stage.repository(&format!("good/{number}"), 3, 3).await;
    }
    stage.write("UPDATE replicas SET in_sync = FALSE, checksum = NULL, checksum_key = NULL WHERE fileserver_id = 2").await;
    let seen = Seen::default();
    let working = on_the_side(worker(stage.db().clone(), poisoned, Arc::clone(&seen)));
    let stop = stage.run(quick()).await;
    stage
        .until("all others are mended", async |stage| {
            stage.nudge.evaluate(None);
            stage.number("SELECT count(*) FROM findings").await == 1
        })
        .await;
    assert!(!stuck(&stage).await, "nobody waited for it");
    stage
        .until("a person is asked", async |stage| {
            stage.nudge.evaluate(None);
            stuck(stage).await
        })
        .await;
    let numbers: Vec<(i32, bool)> =
        seen.lock().unwrap().iter().filter(|(id, ..)| *id == poisoned).map(|(_, number, locked)| (*number, *locked)).collect();
    let expected: Vec<(i32, bool)> = (1..=8).map(|number| (number, number > 5)).collect();
    assert_eq!(numbers, expected, "five times without, then with the write lock");
    assert!(!locked(stage.db(), poisoned).await, "it was let go");
    assert!(seen.lock().unwrap().iter().all(|(id, _, locked)| *id == poisoned || !locked));
    let story = crate::database::report::work::finding(
        stage.db(),
        stage.number("SELECT id FROM findings").await,
    )
    .await
    .unwrap()
    .unwrap();
    let open = story.open.unwrap();
    assert_eq!(open.waits.as_deref(), Some("stuck: 8 attempts succeeded, and the goal still returns it"));
    let tried = crate::database::report::work::tried(stage.db(), open.id, 100).await.unwrap();
    assert_eq!(tried.len(), 8, "what was tried is kept");
    // Another one that breaks now is mended while that one waits for a person.
    stage.write("UPDATE replicas SET in_sync = FALSE, checksum = NULL, checksum_key = NULL WHERE fileserver_id = 3 AND repository_id = 2").await;
    let ended = "SELECT count(*) FROM attempt_history WHERE repository_id = 2";
    stage
        .until("the other is mended", async |stage| {
            stage.nudge.evaluate(None);
            stage.number(ended).await == 2
        })
        .await;
    stop.cancel();
    drop(working);
}

async fn a_limit_that_is_set_holds_in_the_next_rounds_and_no_longer_than_it_is_set(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.goal("copies-suffice", MISSING_COPIES);
    for number in 0..5 {
        stage.repository(&format!("r/{number}"), 3, 2).await;
    }
    limits::set(stage.db(), "re-replicate.in_flight", Some(1), "ann", "night").await.unwrap();
    let stop = stage.run(quick()).await;
    stage.until("one", async |stage| attempts::live(stage.db()).await.unwrap().len() == 1).await;
    let rounds = stage.rounds();
    stage.until("more rounds", async |stage| stage.rounds() > rounds + 10).await;
    assert_eq!(attempts::live(stage.db()).await.unwrap().len(), 1);
    let waits = "SELECT count(*) FROM findings WHERE state = 'ready' AND deferral->>'why' = 'repair_at_limit'";
    assert_eq!(stage.number(waits).await, 4);
    limits::set(stage.db(), "fleet.in_flight", Some(2), "ann", "night").await.unwrap();
    limits::set(stage.db(), "re-replicate.in_flight", None, "ann", "day").await.unwrap();
    stage.until("two", async |stage| attempts::live(stage.db()).await.unwrap().len() == 2).await;
    let rounds = stage.rounds();
    stage.until("more rounds", async |stage| stage.rounds() > rounds + 10).await;
    assert_eq!(attempts::live(stage.db()).await.unwrap().len(), 2, "the fleet's own limit");
    limits::set(stage.db(), "fleet.in_flight", None, "ann", "day").await.unwrap();
    stage.until("all", async |stage| attempts::live(stage.db()).await.unwrap().len() == 5).await;
    stop.cancel();
}

// Jobs that a restart left in progress once blocked each repository, and nothing drained for a week.
async fn the_attempts_of_a_killed_worker_are_taken_over_and_the_backlog_drains(scratch) {
    let mut stage = stage(scratch, 30).await;
    let full = std::env::var("TRUED_TEST_FULL").is_ok();
    let open = if full { 350_000 } else { 6_000 };
    stage.goal("copies-suffice", &crowded(open));
    Crowd { fileservers: 30, open, due: 1_500 }.fill(stage.db()).await.unwrap();
    for id in 1..=1_500 {
        stage.hold(&format!("fs-{}", 1 + id % 30), RepositoryId(id));
        stage.hold(&format!("fs-{}", 1 + (id + 4) % 30), RepositoryId(id));
    }
    stage.repairs = library::shipped().unwrap();
    for repair in stage.repairs.by_name.values_mut() {
        let throttle = &mut Arc::make_mut(repair).throttle;
        (throttle.per_fileserver, throttle.per_rack) = (100, 100);
    }
    let stop = stage.run(quick()).await;
    stage.until("as many attempts as may be", async |stage| attempts::live(stage.db()).await.unwrap().len() == 400).await;
    // A worker takes all of them and is killed: its leases run out.
    let taken = attempts::claim(stage.db(), "killed", 1_000, 1_500, &["replicate"]).await.unwrap();
    assert_eq!(taken.len(), 400);
    let lost = "SELECT count(*) FROM attempt_history WHERE outcome = 'lost'";
    stage.until("taken over within a lease and a few seconds", async |stage| stage.number(lost).await == 400).await;
    let db = stage.db().clone();
    let working = on_the_side(async move {
        loop {
            for attempt in attempts::claim(&db, "w", 200, 60_000, &["replicate"]).await.unwrap() {
                let done = Ending { event: AttemptEvent::Succeed, message: "done".into(), bytes: 0, blame: None };
                attempts::finish(&db, attempt.id, attempt.epoch, &done, 0).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let done = "SELECT count(DISTINCT repository_id) FROM attempt_history WHERE outcome = 'succeeded'";
    stage.until("a steady drain", async |stage| stage.number(done).await > 800).await;
    let blocked = "SELECT count(*) FROM (SELECT repository_id FROM attempt_history WHERE outcome = 'lost') l \
                    WHERE NOT EXISTS (SELECT 1 FROM attempt_history h WHERE h.repository_id = l.repository_id \
                                         AND h.outcome = 'succeeded')";
    stage.until("no repository blocked", async |stage| stage.number(blocked).await == 0).await;
    stop.cancel();
    drop(working);
}
}
