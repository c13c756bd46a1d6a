//! The worker against real SQL and agents in memory: what it does, and what it must not do.

use super::testing::{Faulty, GENERATION, fleet, quick, sum, verdict};
use super::{Programs, Settings};
use crate::database::replicas::begin_copy;
use crate::database::scratch::Scratch;
use crate::database::{attempts, fileservers, findings, repositories};
use crate::model::attempt::{AttemptState, Step};
use crate::model::finding::Subject;
use crate::model::fleet::{Health, ReplicaState};
use crate::model::wire::RefusalCode;
use crate::repair::plan::plan;
use crate::repair::testing::{about_replica, repair};
use crate::repair::view::{FleetView, RepositoryView};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs a test on SQLite, and on PostgreSQL where `TRUED_TEST_POSTGRES_URL` names a server.
macro_rules! on_each_engine {
    ($(async fn $name:ident($scratch:ident) $body:block)+) => { $(
        mod $name {
            use super::*;

            async fn body($scratch: Scratch) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                body(Scratch::sqlite().await.unwrap()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
                    body(Scratch::postgres(&url).await.unwrap()).await;
                }
            }
        }
    )+ };
}

mod removal;
mod tidying;

on_each_engine! {
async fn a_resynced_replica_is_in_sync_because_it_was_compared(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(3, Some(sum(9)));
    fleet.admit(Step::Resync, Some(1), 3).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "resync (70 B)"));
    let replica = fleet.replica(3).await.unwrap();
    assert!(replica.in_sync && replica.checksum == Some(sum(1)) && replica.bytes == 80);
    assert!(replica.verified_at.is_some());
    let compared: Vec<_> = fleet.calls().into_iter().skip(2).collect();
    assert_eq!(compared.len(), 3, "one act: every replica is asked after the copy: {compared:?}");
}

async fn a_copy_made_anew_answers_what_its_inventory_had_flagged_and_nothing_later(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    let subject = Subject::Replica(fleet.repository.id, fleet.ids[2]);
    for (goal, generation, left) in [("first", GENERATION, 0), ("second", GENERATION + 1, 1)] {
        fleet.lose(3);
        fleet.flag(3, "missing", generation).await;
        let plan = fleet.plan(Step::Resync, Some(1), 3);
        fleet.admit_plan(goal, subject.clone(), plan).await;
        assert_eq!(fleet.end().await.0, "succeeded");
        let flags = fleet.number("SELECT count(*) FROM inventory WHERE found = 'missing'").await;
        assert_eq!(flags, left, "flagged at generation {generation}");
    }
}

async fn a_mended_copy_keeps_its_flag_until_it_is_verified(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(3, Some(sum(9)));
    fleet.flag(3, "changed", GENERATION).await;
    fleet.admit(Step::Resync, Some(1), 3).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert_eq!(fleet.number("SELECT count(*) FROM inventory WHERE found = 'changed'").await, 1);
}

async fn a_program_gets_its_finding_and_its_last_line_is_the_result(scratch) {
    let mut fleet = fleet(scratch, 2, 2).await;
    fleet.tell("cat", 60_000).await;
    let (outcome, message) = fleet.end().await;
    let told: serde_json::Value = serde_json::from_str(&message).unwrap();
    assert_eq!(outcome, "succeeded");
    assert_eq!(told["subject"], serde_json::json!({ "kind": "key", "key": "backup" }));
    assert_eq!((&told["goal"], &told["repair"], &told["reason"]), (&"a-key-goal".into(), &"tell".into(), &"it is late".into()));
    assert_eq!((&told["evidence"]["size"], &told["attempt"]["number"]), (&7.into(), &1.into()));
    assert_eq!(told["deadline_seconds"], 60);
}

async fn a_program_that_asks_to_be_tried_later_uses_up_no_try_and_one_that_fails_does(scratch) {
    let mut fleet = fleet(scratch, 2, 2).await;
    fleet.tell("echo the pager is busy; exit 75", 60_000).await;
    assert_eq!(fleet.end().await, ("cancelled".into(), "the pager is busy".into()));
    assert_eq!(fleet.number("SELECT CAST(tries AS BIGINT) FROM findings").await, 0);
    assert_eq!(fleet.number("SELECT count(*) FROM findings WHERE state = 'waiting' AND next_at > opened_at + 10000").await, 1);
    fleet.number("UPDATE findings SET state = 'ready', next_at = 0 RETURNING id").await;
    fleet.tell("echo no such team; exit 1", 60_000).await;
    assert_eq!(fleet.end().await, ("failed".into(), "exit code 1: no such team".into()));
    assert_eq!(fleet.number("SELECT CAST(tries AS BIGINT) FROM findings").await, 1);
}

async fn a_worker_that_may_run_no_programs_leaves_them_to_others(scratch) {
    let mut fleet = fleet(scratch, 2, 2).await;
    fleet.tell("echo done", 60_000).await;
    let mut careful = fleet.worker(quick());
    careful.programs = Programs::new(false);
    let stop = fleet.start(careful);
    fleet.admit(Step::Verify, None, 1).await;
    let others = async {
        while fleet.number("SELECT count(*) FROM attempt_history").await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), others).await.expect("other work goes on");
    assert_eq!(fleet.number("SELECT count(*) FROM attempts WHERE state = 'queued' AND step = 'exec'").await, 1);
    stop.cancel();
    fleet.end().await;
    let done = "SELECT count(*) FROM attempt_history WHERE step = 'exec' AND outcome = 'succeeded'";
    assert_eq!(fleet.number(done).await, 1);
}

async fn a_copy_becomes_live_only_when_it_is_whole_and_raises_the_seats(scratch) {
    let mut fleet = fleet(scratch, 4, 2).await;
    fleet.admit(Step::Replicate, Some(1), 4).await;
    let (outcome, _) = fleet.end().await;
    assert_eq!(outcome, "succeeded");
    let replica = fleet.replica(4).await.unwrap();
    assert!(replica.state == ReplicaState::Live && replica.in_sync);
    let repository = repositories::by_ids(fleet.db(), &[fleet.repository.id]).await.unwrap().remove(0);
    assert_eq!((repository.seats, repository.repair_epoch), (3, 1));
}

async fn a_moved_replica_leaves_when_the_new_one_is_live_and_in_sync(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.admit_about(fleet.of(2), Step::Move, Some(1), 4).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    let new = fleet.replica(4).await.unwrap();
    assert!(new.state == ReplicaState::Live && new.in_sync);
    assert_eq!(fleet.replica(2).await.unwrap().state, ReplicaState::Leaving);
    let leaving = "SELECT leaving FROM fileserver_flows WHERE fileserver_id = (SELECT fileserver_id FROM replicas \
                    WHERE state = 'leaving')";
    assert_eq!(fleet.number(leaving).await, 100);
    let repository = repositories::by_ids(fleet.db(), &[fleet.repository.id]).await.unwrap().remove(0);
    assert_eq!(repository.seats, 3, "one more and one fewer that count");
}

async fn a_move_whose_copy_came_out_behind_lets_nothing_leave(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.disks.lock().unwrap().stale.insert("fs-4".into());
    fleet.admit_about(fleet.of(2), Step::Move, Some(1), 4).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "succeeded" && message.contains("pushed meanwhile"), "{outcome}: {message}");
    assert!(!fleet.replica(4).await.unwrap().in_sync);
    assert_eq!(fleet.replica(2).await.unwrap().state, ReplicaState::Live);
}

async fn a_move_that_failed_leaves_no_row_and_the_old_replica_as_it_was(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.disks.lock().unwrap().refusing.insert("fs-4".into(), RefusalCode::DiskFull);
    fleet.admit_about(fleet.of(2), Step::Move, Some(1), 4).await;
    assert_eq!(fleet.end().await.0, "failed");
    assert!(fleet.replica(4).await.is_none());
    assert_eq!(fleet.replica(2).await.unwrap().state, ReplicaState::Live);
}

async fn a_replica_that_leaves_already_is_not_moved_again(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.number("UPDATE replicas SET state = 'leaving' WHERE fileserver_id = 2 RETURNING fileserver_id").await;
    fleet.admit_about(fleet.of(2), Step::Move, Some(1), 4).await;
    assert_eq!(fleet.end().await.0, "stale");
    assert_eq!(fleet.calls(), Vec::<String>::new());
}

async fn a_copy_that_a_lost_attempt_left_whole_is_adopted(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.put(4, Some(sum(1)));
    begin_copy(fleet.db(), fleet.repository.id, fleet.ids[3], 0).await.unwrap();
    fleet.admit(Step::Replicate, Some(1), 4).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!(
        (outcome.as_str(), message.as_str()),
        ("succeeded", "the copy of an earlier attempt was whole")
    );
    assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Live);
}

async fn a_copy_that_a_lost_attempt_left_behind_the_times_is_brought_up_to_date(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.put(4, Some(sum(8)));
    fleet.admit(Step::Replicate, Some(1), 4).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "succeeded" && message.contains("brought up to date"), "{message}");
    assert!(fleet.replica(4).await.unwrap().in_sync);
}

async fn a_half_made_copy_elsewhere_is_forgotten_by_the_next_attempt(scratch) {
    let mut fleet = fleet(scratch, 5, 3).await;
    begin_copy(fleet.db(), fleet.repository.id, fleet.ids[3], 0).await.unwrap();
    fleet.admit(Step::Replicate, Some(1), 5).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert!(fleet.replica(4).await.is_none() && fleet.replica(5).await.is_some());
}

async fn a_damaged_copy_is_written_as_damaged(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(2, None);
    fleet.admit(Step::Verify, None, 2).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "damaged: a pack is cut off"));
    let replica = fleet.replica(2).await.unwrap();
    assert!(!replica.in_sync && replica.checksum.is_none() && replica.out_of_sync_since.is_some());
}

async fn a_finding_that_no_longer_holds_costs_no_agent_call(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.holds.store(false, Ordering::SeqCst);
    fleet.admit(Step::Resync, Some(1), 3).await;
    assert_eq!(fleet.end().await.0, "stale");
    assert_eq!(fleet.calls(), Vec::<String>::new());
}

// Metadata that names a copy that is gone: every repair failed, and was scheduled again for ever.
async fn a_copy_that_is_gone_costs_one_failed_attempt_and_the_next_uses_another_source(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    let gone = ("fs-1".to_owned(), fleet.repository.id);
    fleet.disks.lock().unwrap().copies.remove(&gone);
    fleet.put(3, Some(sum(9)));
    fleet.admit(Step::Resync, Some(1), 3).await;
    assert_eq!(fleet.end().await.0, "failed");
    let flagged = "SELECT count(*) FROM inventory WHERE fileserver_id = 1";
    assert_eq!(fleet.number(flagged).await, 1, "the source is to be verified");
    fleet.admit(Step::Verify, None, 1).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert!(!fleet.replica(1).await.unwrap().in_sync, "the record is corrected");
    let db = fleet.db();
    let view = RepositoryView {
        repository: repositories::by_ids(db, &[fleet.repository.id]).await.unwrap().remove(0),
        replicas: repositories::replicas_of(db, &[fleet.repository.id]).await.unwrap(),
    };
    let all = fileservers::all(db).await.unwrap();
    let view = FleetView {
        fileservers: all.into_iter().map(|one| (one.id, one)).collect(),
        repositories: [(fleet.repository.id, view)].into(),
        ..FleetView::default()
    };
    let finding = about_replica(1, Step::Resync, fleet.repository.id.0, fleet.ids[2].0);
    let planned = plan(&finding, &repair(Step::Resync), &view, 1).unwrap();
    assert_eq!(planned.source_id, Some(fleet.ids[1]));
    fleet.admit(Step::Resync, Some(2), 3).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert!(fleet.replica(3).await.unwrap().in_sync);
}

async fn a_source_that_is_no_longer_good_is_blamed_and_nothing_is_copied_from_it(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(1, Some(sum(6)));
    fleet.admit(Step::Resync, Some(1), 3).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "failed" && message.contains("fs-1 no longer has"), "{message}");
    assert_eq!(fleet.calls(), ["fs-1 checksum"]);
    let flagged = "SELECT fileserver_id FROM inventory WHERE found = 'changed'";
    assert_eq!(fleet.number(flagged).await, fleet.ids[0].0);
}

async fn a_failed_copy_leaves_no_row_and_uses_up_a_try(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.disks.lock().unwrap().refusing.insert("fs-4".into(), RefusalCode::DiskFull);
    fleet.admit(Step::Replicate, Some(1), 4).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("failed", "refused: disk-full (disk-full)"));
    assert!(fleet.replica(4).await.is_none());
    let finding = findings::of_repository(fleet.db(), fleet.repository.id).await.unwrap().remove(0);
    assert_eq!(finding.tries, 1);
}

async fn a_busy_fileserver_uses_up_no_try(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.disks.lock().unwrap().refusing.insert("fs-3".into(), RefusalCode::Busy);
    fleet.admit(Step::Resync, Some(1), 3).await;
    assert_eq!(fleet.end().await.0, "cancelled");
    let finding = findings::of_repository(fleet.db(), fleet.repository.id).await.unwrap().remove(0);
    assert_eq!(finding.tries, 0);
}

async fn a_worker_whose_attempt_is_anothers_hangs_up_and_writes_nothing(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.disks.lock().unwrap().hanging.insert("fs-4".into());
    fleet.admit(Step::Replicate, Some(1), 4).await;
    let stop = fleet.work(quick());
    fleet.until_open(1).await;
    assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Creating);
    fleet.number("UPDATE attempts SET epoch = epoch + 1 RETURNING epoch").await;
    fleet.until_open(0).await;
    stop.cancel();
    let live = attempts::live(fleet.db()).await.unwrap();
    assert_eq!((live.len(), live[0].state), (1, AttemptState::Running), "the other one goes on");
    assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Creating);
}

async fn a_silent_fileserver_uses_up_no_try(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fileservers::record_verdicts(fleet.db(), &[verdict(fleet.ids[0], Health::Offline)]).await.unwrap();
    fleet.admit(Step::Resync, Some(1), 3).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("cancelled", "fileserver fs-1 is offline"));
    let finding = findings::of_repository(fleet.db(), fleet.repository.id).await.unwrap().remove(0);
    assert_eq!(finding.tries, 0);
}

async fn what_runs_at_the_end_of_the_grace_is_handed_back_with_its_number(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(3, Some(sum(9)));
    fleet.disks.lock().unwrap().hanging.insert("fs-3".into());
    fleet.admit(Step::Resync, Some(1), 3).await;
    let stop = fleet.work(quick());
    fleet.until_open(1).await;
    stop.cancel();
    fleet.until_open(0).await;
    let queued = async {
        loop {
            let live = attempts::live(fleet.db()).await.unwrap();
            if live[0].state == AttemptState::Queued {
                return live[0].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let queued = tokio::time::timeout(Duration::from_secs(20), queued).await.unwrap();
    assert_eq!((queued.number, queued.worker), (1, None));
    // Another worker takes it up, under a higher epoch.
    fleet.disks.lock().unwrap().hanging.clear();
    assert_eq!(fleet.end().await.0, "succeeded");
    assert_eq!(fleet.disks.lock().unwrap().epochs[&fleet.repository.id], 2);
}

async fn long_work_keeps_its_lease_and_says_what_it_does(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.disks.lock().unwrap().hanging.insert("fs-3".into());
    fleet.admit(Step::Verify, None, 3).await;
    let lease = Duration::from_secs(5);
    let stop = fleet.work(Settings { lease, ..quick() });
    fleet.until_open(1).await;
    let first = attempts::live(fleet.db()).await.unwrap()[0].lease_until;
    let renewed = async {
        loop {
            let live = attempts::live(fleet.db()).await.unwrap().remove(0);
            if live.lease_until > first && live.progress.is_some() {
                return live;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let live = tokio::time::timeout(Duration::from_secs(20), renewed).await.unwrap();
    assert_eq!(live.progress.as_deref(), Some("copying packs: 1 B of 2 B"));
    stop.cancel();
}

    async fn a_fault_in_a_step_ends_its_attempt_and_not_the_worker(scratch) {
        let mut fleet = fleet(scratch, 3, 3).await;
        fleet.admit(Step::Verify, None, 3).await;
        let mut worker = fleet.worker(quick());
        worker.recheck = Arc::new(Faulty);
        let stop = fleet.start(worker);
        fleet.until_none_lives().await;
        stop.cancel();
        assert_eq!(fleet.history().await, ("failed".into(), "the step panicked: a fault".into()));
    }
}
