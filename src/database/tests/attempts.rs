//! Attempts: admitted once, claimed once, ended once.

use super::{
    about, evaluate, fileservers, goal, make, merge, next_moment, number, on_each_engine, repository,
    repository_rows,
};
use crate::database::findings::MergeInto;
use crate::database::{Database, attempts, findings, leases};
use crate::model::attempt::{Attempt, AttemptEvent, AttemptState, Ending, Plan, Step};
use crate::model::finding::{Deferral, Finding, FindingState, Lane, Subject};
use crate::model::goal::SubjectKind;
use crate::model::id::{AttemptId, FileserverId, RepositoryId};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const MINUTE: i64 = 60_000;
const STEPS: &[&str] = &["replicate"];

fn plan(repository: RepositoryId, destination: FileserverId) -> Plan {
    Plan {
        step: Step::Replicate,
        repository_id: Some(repository),
        source_id: None,
        destination_id: Some(destination),
        bytes: 10,
        deadline_ms: MINUTE,
        bytes_per_second: 0,
        write_lock: false,
        path: None,
    }
}

async fn ready(db: &Database) -> Vec<Finding> {
    findings::lane_head(db, Lane::Common, 1_000, 0).await.expect("a lane's head")
}

/// So many repositories with an open finding each, on two fileservers of three; the third is the destination.
async fn situation(db: &Database, many: u8) -> Vec<(Finding, Plan)> {
    let fleet = fileservers(db, 3).await;
    let mut ids = Vec::new();
    for number in 0..many {
        ids.push(repository(db, &format!("r{number}"), 3, &fleet[..2]).await.id.0);
    }
    evaluate(db, "a", &repository_rows(ids)).await;
    let plans = ready(db).await.into_iter().map(|finding| {
        let repository = finding.subject.repository().expect("a repository");
        (finding, plan(repository, fleet[2]))
    });
    plans.collect()
}

async fn claim_one(db: &Database) -> Attempt {
    let claimed = attempts::claim(db, "w", 1, MINUTE, STEPS).await.expect("a claim");
    claimed.into_iter().next().expect("an attempt")
}

fn ending(event: AttemptEvent) -> Ending {
    Ending { event, message: "so it ended".to_owned(), bytes: 77, blame: None }
}

async fn finding(db: &Database, attempt: &Attempt) -> Finding {
    let of = findings::of_repository(db, attempt.plan.repository_id.expect("a repository"))
        .await
        .expect("findings");
    of.into_iter().find(|finding| finding.id == attempt.finding_id).expect("its finding")
}

async fn outcome(db: &Database, word: &'static str) -> i64 {
    let counts: Vec<(String, i64)> = crate::database::on!(db, p => sqlx::query_as(
        "SELECT outcome, count(*) FROM attempt_history GROUP BY outcome")
        .fetch_all(p).await)
    .expect("history");
    counts.iter().find(|(outcome, _)| outcome == word).map_or(0, |(_, count)| *count)
}

on_each_engine! {
    async fn a_plan_is_admitted_once_and_its_finding_runs(db) {
        let admitted = situation(db, 3).await;
        assert_eq!(attempts::admit(db, &admitted).await.expect("admitted").len(), 3);
        assert_eq!(attempts::admit(db, &admitted).await.expect("admitted").len(), 0, "they run already");
        let live = attempts::live(db).await.expect("live");
        assert_eq!((live.len(), live[0].state, live[0].number, live[0].epoch), (3, AttemptState::Queued, 1, 0));
        assert_eq!(live[0].plan, admitted[0].1);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'running'").await, 3);
        assert_eq!(attempts::started_since(db, 0).await.expect("started"), [("re-replicate".to_owned(), 3)]);
    }

    async fn a_key_has_one_attempt_at_a_time_and_its_epoch_rises_with_each_claim(db) {
        let row = |key: &str| about(Subject::Key(key.to_owned()), 1);
        let now = db.now().await.expect("the clock");
        let of = |name| MergeInto { subject: SubjectKind::Key, ..goal(name, now) };
        merge(db, of("told"), &[row("a"), row("b")]).await;
        merge(db, of("told-too"), &[row("a")]).await;
        let plan = Plan { step: Step::Exec, repository_id: None, destination_id: None, ..plan(RepositoryId(0), FileserverId(0)) };
        let all: Vec<_> = ready(db).await.into_iter().map(|finding| (finding, plan.clone())).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(attempts::admit(db, &all).await.expect("admitted").len(), 2, "one for each key");
        let claim = || attempts::claim(db, "w", 1, MINUTE, &["exec"]);
        assert!(attempts::claim(db, "w", 9, MINUTE, STEPS).await.expect("a claim").is_empty(), "not its step");
        let first = claim().await.expect("a claim").remove(0);
        assert_eq!((first.epoch, &first.plan), (1, &plan));
        assert!(attempts::hand_back(db, first.id, first.epoch).await.expect("handed back"));
        let again = claim().await.expect("a claim").remove(0);
        assert_eq!((again.id, again.epoch), (first.id, 2));
        let done = ending(AttemptEvent::Succeed);
        assert!(!attempts::finish(db, first.id, first.epoch, &done, 0).await.expect("an old epoch"));
        assert!(attempts::finish(db, again.id, again.epoch, &done, 0).await.expect("finished"));
        assert_eq!(attempts::admit(db, &all).await.expect("admitted").len(), 1, "the other goal's turn");
    }

    async fn two_attempts_on_one_repository_are_impossible(db) {
        let admitted = situation(db, 1).await;
        let id = admitted[0].1.repository_id.expect("a repository").0;
        evaluate(db, "b", &repository_rows([id])).await;
        let both = ready(db).await;
        assert_eq!(both.len(), 2);
        let plans: Vec<_> = both.into_iter().map(|finding| (finding, admitted[0].1.clone())).collect();
        assert_eq!(attempts::admit(db, &plans).await.expect("admitted").len(), 1, "in one round");
        assert_eq!(ready(db).await.len(), 1, "the other stays ready");
        assert_eq!(attempts::admit(db, &plans).await.expect("admitted").len(), 0, "in the next round");
        let many = number(db, "SELECT count(*) FROM attempts").await;
        assert_eq!(many, 1);
    }

    async fn two_dispatchers_at_once_never_start_two_attempts_on_one_repository(db) {
        let first = situation(db, 20).await;
        evaluate(db, "b", &repository_rows(first.iter().filter_map(|(_, plan)| plan.repository_id).map(|id| id.0))).await;
        let all: Vec<_> = ready(db).await.into_iter().map(|finding| {
            let id = finding.subject.repository().expect("a repository");
            let plan = plan(id, first[0].1.destination_id.expect("a destination"));
            (finding, plan)
        }).collect();
        assert_eq!(all.len(), 40);
        let mut tasks = JoinSet::new();
        for shift in 0..4 {
            let (db, mut mine) = (db.clone(), all.clone());
            mine.rotate_left(shift * 10);
            tasks.spawn(async move { attempts::admit(&db, &mine).await.expect("admitted").len() });
        }
        let made: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(made, 20);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'running'").await, 20);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 20);
    }

    async fn each_attempt_is_claimed_exactly_once_by_eight_workers(db) {
        let admitted = situation(db, 200).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let mut tasks = JoinSet::new();
        for worker in 0..8 {
            let db = db.clone();
            tasks.spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let some = attempts::claim(&db, &format!("w{worker}"), 7, MINUTE, STEPS).await.expect("a claim");
                    // Rows that another one has locked are passed over: empty-handed is not the end.
                    if some.is_empty() && number(&db, "SELECT count(*) FROM attempts WHERE state = 'queued'").await == 0 {
                        break mine;
                    }
                    assert!(some.iter().all(|one| one.worker.as_deref() == Some(&format!("w{worker}"))));
                    mine.extend(some);
                }
            });
        }
        let claimed: Vec<Attempt> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(claimed.len(), 200);
        assert_eq!(claimed.iter().map(|one| one.id).collect::<BTreeSet<AttemptId>>().len(), 200);
        assert!(claimed.iter().all(|one| one.epoch == 1), "each claim raised its repository's epoch once");
        assert_eq!(number(db, "SELECT count(*) FROM repositories WHERE repair_epoch = 1").await, 200);
    }

    async fn the_best_are_claimed_first_and_steps_that_a_worker_does_not_know_are_left(db) {
        let admitted = situation(db, 3).await;
        make(db, "UPDATE findings SET priority = 900 WHERE subject LIKE '%:2'").await;
        attempts::admit(db, &admitted).await.expect("admitted");
        assert!(attempts::claim(db, "w", 5, MINUTE, &["verify"]).await.expect("a claim").is_empty());
        let claimed = attempts::claim(db, "w", 2, MINUTE, STEPS).await.expect("a claim");
        assert_eq!(claimed.iter().map(|one| one.priority).collect::<Vec<_>>(), [900, 100]);
        assert_eq!(claimed[0].state, AttemptState::Running);
        assert!(claimed[0].lease_until > claimed[0].started_at);
    }

    async fn a_lease_that_ran_out_is_not_renewed_and_its_attempt_is_taken_once(db) {
        let admitted = situation(db, 2).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let first = claim_one(db).await;
        let (id, epoch) = (first.id, first.epoch);
        assert!(attempts::renew(db, id, epoch, MINUTE, Some("copying")).await.expect("renewed"));
        assert!(attempts::renew(db, id, epoch, MINUTE, None).await.expect("renewed"));
        assert!(attempts::holds(db, id, epoch).await.expect("held"));
        assert!(!attempts::renew(db, id, epoch + 1, MINUTE, None).await.expect("renewed"));
        let live = attempts::live(db).await.expect("live");
        assert_eq!(live.iter().find(|one| one.id == id).and_then(|one| one.progress.as_deref()), Some("copying"));
        assert!(attempts::take_lost(db, 10).await.expect("lost").is_empty());
        make(db, "UPDATE attempts SET lease_until = 1 WHERE state = 'running'").await;
        assert!(!attempts::holds(db, id, epoch).await.expect("held"));
        assert!(!attempts::renew(db, id, epoch, MINUTE, None).await.expect("renewed"));
        let lost = attempts::take_lost(db, 10).await.expect("lost");
        assert_eq!(lost.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
        assert!(attempts::take_lost(db, 10).await.expect("lost").is_empty());
        assert_eq!(outcome(db, "lost").await, 1);
        let finding = finding(db, &first).await;
        assert_eq!((finding.state, finding.tries), (FindingState::Ready, 0), "a lost attempt uses up no try");
        let ended = attempts::finish(db, id, epoch, &ending(AttemptEvent::Succeed), 0).await.expect("finished");
        assert!(!ended, "a late result is refused");
        assert_eq!(outcome(db, "succeeded").await, 0);
        // Another try has the next number and a higher epoch.
        let again = [(finding, admitted.iter().find(|(one, _)| one.id == first.finding_id).expect("it").1.clone())];
        attempts::admit(db, &again).await.expect("admitted");
        let all = attempts::claim(db, "w2", 5, MINUTE, STEPS).await.expect("a claim");
        let second = all.iter().find(|one| one.finding_id == first.finding_id).expect("the second try");
        assert_eq!((second.number, second.epoch), (2, epoch + 1));
    }

    async fn each_ending_moves_the_finding_on_as_it_should(db) {
        let admitted = situation(db, 5).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        for (event, backoff, state, tries) in [
            (AttemptEvent::Succeed, 0, FindingState::Waiting, 0),
            (AttemptEvent::Fail, MINUTE, FindingState::Waiting, 1),
            (AttemptEvent::GoStale, 0, FindingState::Ready, 0),
            (AttemptEvent::Cancel, MINUTE, FindingState::Waiting, 0),
        ] {
            let attempt = claim_one(db).await;
            assert!(attempts::finish(db, attempt.id, attempt.epoch, &ending(event), backoff).await.expect("ended"));
            assert!(!attempts::finish(db, attempt.id, attempt.epoch, &ending(event), backoff).await.expect("ended"));
            let finding = finding(db, &attempt).await;
            assert_eq!((finding.state, finding.tries), (state, tries), "after {event}");
            let now = db.now().await.expect("the clock");
            assert_eq!(finding.next_at > now + MINUTE / 2, backoff > 0, "after {event}");
        }
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE repaired_at IS NOT NULL").await, 1);
        assert_eq!(number(db, "SELECT CAST(sum(bytes) AS BIGINT) FROM attempt_history").await, 4 * 77);
        let attempt = claim_one(db).await;
        let lose = attempts::finish(db, attempt.id, attempt.epoch, &ending(AttemptEvent::Lose), 0).await;
        assert!(lose.expect("losing ends a running attempt"));
        let claim = attempts::finish(db, attempt.id, attempt.epoch, &ending(AttemptEvent::Claim), 0).await;
        assert!(claim.is_err(), "a claim is no ending");
    }

    async fn an_attempt_that_is_handed_back_keeps_its_number_and_gets_a_new_epoch(db) {
        let admitted = situation(db, 1).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let first = claim_one(db).await;
        assert!(!attempts::hand_back(db, first.id, first.epoch + 1).await.expect("handed back"));
        assert!(attempts::hand_back(db, first.id, first.epoch).await.expect("handed back"));
        assert!(!attempts::hand_back(db, first.id, first.epoch).await.expect("handed back"));
        let second = claim_one(db).await;
        assert_eq!((second.id, second.number, second.epoch), (first.id, first.number, first.epoch + 1));
        assert!(!attempts::renew(db, first.id, first.epoch, MINUTE, None).await.expect("renewed"));
    }

    async fn an_attempt_whose_repository_is_gone_ends_stale(db) {
        let admitted = situation(db, 2).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        make(db, "UPDATE repositories SET removed_at = 1 WHERE name = 'r0'").await;
        let claimed = attempts::claim(db, "w", 5, MINUTE, STEPS).await.expect("a claim");
        assert_eq!(claimed.len(), 1);
        assert_eq!(outcome(db, "stale").await, 1);
        assert!(attempts::claim(db, "w", 5, MINUTE, STEPS).await.expect("a claim").is_empty());
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'waiting'").await, 1);
    }

    async fn what_nobody_needs_any_more_is_cancelled(db) {
        let admitted = situation(db, 3).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let running = claim_one(db).await;
        assert_eq!(attempts::cancel_obsolete(db, 10).await.expect("cancelled"), 0);
        evaluate(db, "a", &[]).await;
        assert_eq!(attempts::cancel_obsolete(db, 10).await.expect("cancelled"), 2, "the queued ones at once");
        assert!(attempts::holds(db, running.id, running.epoch).await.expect("held"), "it may say how it ended");
        make(db, "UPDATE finding_history SET closed_at = 1").await;
        assert_eq!(attempts::cancel_obsolete(db, 10).await.expect("cancelled"), 1);
        assert!(!attempts::renew(db, running.id, running.epoch, MINUTE, None).await.expect("renewed"));
        assert_eq!(outcome(db, "cancelled").await, 3);
    }

    async fn a_finding_that_closed_leaves_its_running_attempt_to_end_by_itself(db) {
        let admitted = situation(db, 1).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let running = claim_one(db).await;
        evaluate(db, "a", &[]).await;
        let ended = attempts::finish(db, running.id, running.epoch, &ending(AttemptEvent::Succeed), 0).await;
        assert!(ended.expect("ended"));
        assert_eq!(outcome(db, "succeeded").await, 1);
    }

    async fn attempts_towards_a_fileserver_that_is_offline_are_cancelled_and_use_no_try(db) {
        let admitted = situation(db, 2).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let running = claim_one(db).await;
        make(db, "UPDATE fileservers SET health = 'offline' WHERE name = 'fs3'").await;
        assert_eq!(attempts::cancel_obsolete(db, 10).await.expect("cancelled"), 2);
        let finding = finding(db, &running).await;
        assert_eq!((finding.state, finding.tries), (FindingState::Ready, 0));
    }

    async fn only_repairs_that_yield_make_way(db) {
        let admitted = situation(db, 1).await;
        attempts::admit(db, &admitted).await.expect("admitted");
        let running = claim_one(db).await;
        let id = running.plan.repository_id.expect("a repository");
        assert!(!attempts::yield_repository(db, id, &["verify", "scrub"]).await.expect("asked"));
        assert!(attempts::yield_repository(db, id, &["verify", "re-replicate"]).await.expect("asked"));
        assert!(!attempts::yield_repository(db, id, &["verify", "re-replicate"]).await.expect("asked"));
        let finding = finding(db, &running).await;
        assert_eq!(finding.state, FindingState::Waiting);
        assert!(matches!(finding.deferral, Some(Deferral::CoolingDown { until: Some(_) })));
    }

    async fn a_lease_has_one_holder_at_a_time(db) {
        let mut tasks = JoinSet::new();
        for holder in 0..8 {
            let db = db.clone();
            tasks.spawn(async move {
                leases::acquire(&db, "goal:a", &format!("h{holder}"), MINUTE).await.expect("asked")
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().filter(|&taken| taken).count(), 1);
        leases::release(db, "goal:a", "nobody").await.expect("released");
        assert!(!leases::acquire(db, "goal:a", "other", MINUTE).await.expect("asked"));
        assert!(leases::acquire(db, "goal:b", "other", 0).await.expect("asked"));
        assert!(leases::acquire(db, "goal:b", "other", MINUTE).await.expect("asked"), "it may be renewed");
        leases::release(db, "goal:b", "other").await.expect("released");
        assert!(leases::acquire(db, "goal:b", "one", 0).await.expect("asked"));
        next_moment(db).await;
        assert!(leases::acquire(db, "goal:b", "two", 0).await.expect("asked"), "it had run out");
    }
}
