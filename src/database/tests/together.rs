//! Evaluations, dispatch and workers at once: whatever the order, nothing is lost, doubled, or left running.

use super::{evaluate, fileservers, next_moment, number, on_each_engine, repository, repository_rows};
use crate::database::{Database, attempts, findings, suspects};
use crate::model::attempt::{AttemptEvent, Ending, Plan, Step};
use crate::model::finding::{Deferral, Lane};
use crate::model::id::FileserverId;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 25;

/// A finding runs exactly as long as it has an attempt.
const RUNNING_ALONE: &str = "SELECT count(*) FROM findings f WHERE f.state = 'running' \
                             AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.finding_id = f.id)";
const WORKED_UNSEEN: &str = "SELECT count(*) FROM attempts a JOIN findings f ON f.id = a.finding_id \
                             WHERE f.state <> 'running'";
const AMBIGUOUS: &str = "SELECT count(*) FROM attempt_history h JOIN attempts a ON a.id = h.id";

/// Each round returns other subjects, so that findings open and close under the others' hands.
async fn evaluator(db: Database, goal: &'static str, ids: Vec<i64>) {
    for round in 0..ROUNDS {
        let left_out = round % 3;
        let rows = ids.iter().copied().enumerate().filter(|(place, _)| place % 3 != left_out);
        let mut rows = repository_rows(rows.map(|(_, id)| id));
        for row in &mut rows {
            row.priority = i32::try_from(round).expect("small");
        }
        evaluate(&db, goal, &rows).await;
        suspects::refresh(&db).await.expect("suspects");
        next_moment(&db).await;
    }
}

async fn dispatcher(db: Database, destination: FileserverId, stop: CancellationToken) {
    while !stop.is_cancelled() {
        findings::promote_due(&db, 100).await.expect("promoted");
        for lane in findings::ready_lanes(&db).await.expect("lanes") {
            assert_eq!(lane, Lane::Common);
            let head = findings::lane_head(&db, lane, 30, 4).await.expect("a head");
            let (start, wait): (Vec<_>, Vec<_>) = head.into_iter().partition(|one| one.id.0 % 4 != 0);
            let wait: Vec<_> = wait.iter().map(|one| (one.id, Deferral::RepositoryBusy, None)).collect();
            findings::defer(&db, &wait).await.expect("deferred");
            let plans: Vec<_> = start
                .into_iter()
                .map(|finding| {
                    let repository_id = finding.subject.repository();
                    let plan = Plan {
                        step: Step::Replicate,
                        repository_id,
                        source_id: None,
                        destination_id: Some(destination),
                        bytes: 1,
                        deadline_ms: 1_000,
                        bytes_per_second: 0,
                        write_lock: false,
                        path: None,
                    };
                    (finding, plan)
                })
                .collect();
            attempts::admit(&db, &plans).await.expect("admitted");
        }
        attempts::cancel_obsolete(&db, 50).await.expect("cancelled");
        attempts::take_lost(&db, 50).await.expect("taken");
    }
}

async fn worker(db: Database, name: &'static str, stop: CancellationToken) -> u64 {
    let mut ended = 0;
    while !stop.is_cancelled() {
        for (place, attempt) in attempts::claim(&db, name, 5, 60_000, &["replicate"])
            .await
            .expect("claimed")
            .into_iter()
            .enumerate()
        {
            let event = [AttemptEvent::Succeed, AttemptEvent::Fail, AttemptEvent::GoStale][place % 3];
            let ending = Ending { event, message: String::new(), bytes: 1, blame: None };
            let (id, epoch) = (attempt.id, attempt.epoch);
            if place == 4 {
                attempts::hand_back(&db, id, epoch).await.expect("handed back");
            } else if attempts::renew(&db, id, epoch, 60_000, Some("half")).await.expect("renewed") {
                ended += u64::from(attempts::finish(&db, id, epoch, &ending, 0).await.expect("finished"));
            }
        }
        tokio::task::yield_now().await;
    }
    ended
}

on_each_engine! {
    async fn evaluations_dispatch_and_workers_at_once_leave_nothing_half_done(db) {
        let on = fileservers(db, 2).await;
        let mut ids = Vec::new();
        for number in 0..30 {
            ids.push(repository(db, &format!("r{number}"), 2, &on).await.id.0);
        }
        let stop = CancellationToken::new();
        let mut others = JoinSet::new();
        for name in ["w1", "w2"] {
            others.spawn(worker(db.clone(), name, stop.clone()));
        }
        let mut dispatchers = JoinSet::new();
        for destination in on {
            dispatchers.spawn(dispatcher(db.clone(), destination, stop.clone()));
        }
        let mut evaluators = JoinSet::new();
        for goal in ["a", "b"] {
            evaluators.spawn(evaluator(db.clone(), goal, ids.clone()));
        }
        evaluators.join_all().await;
        stop.cancel();
        dispatchers.join_all().await;
        let ended: u64 = others.join_all().await.into_iter().sum();
        assert!(ended > 0, "workers must have had something to do");
        for law in [RUNNING_ALONE, WORKED_UNSEEN, AMBIGUOUS] {
            assert_eq!(number(db, law).await, 0, "{law}");
        }
        for goal in ["a", "b"] {
            evaluate(db, goal, &[]).await;
        }
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 0);
        assert_eq!(number(db, "SELECT count(*) FROM evaluations WHERE error IS NOT NULL").await, 0);
        let opened = number(db, "SELECT CAST(sum(opened) AS BIGINT) FROM evaluations").await;
        assert_eq!(number(db, "SELECT count(*) FROM finding_history").await, opened, "what opened has closed");
    }
}
