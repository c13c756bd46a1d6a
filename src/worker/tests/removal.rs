//! Taking copies away: what is asked before, what is left after a death at any point.

use super::super::testing::{Fleet, fleet, quick, sum, verdict};
use crate::database::scratch::Scratch;
use crate::database::{attempts, fileservers, findings, repositories};
use crate::model::attempt::{AttemptState, Step};
use crate::model::chance::Chance;
use crate::model::finding::Subject;
use crate::model::fleet::{Health, ReplicaState};
use std::time::Duration;

/// Four good copies of a repository that wants three, and the fourth is to go.
async fn spare(scratch: Scratch) -> Fleet {
    fleet(scratch, 5, 4).await
}

async fn counts(fleet: &Fleet) -> (i64, i64) {
    let replicas = fleet.number("SELECT count(*) FROM replicas").await;
    (replicas, fleet.number("SELECT count(*) FROM quarantine").await)
}

/// SQL and disks say the same: the fourth copy is set aside, three good ones stand.
async fn assert_gone(fleet: &Fleet, point: &str) {
    assert!(fleet.replica(4).await.is_none(), "{point}: its row is gone");
    assert_eq!(fleet.on_disk(4), None, "{point}: nothing stands at its place");
    assert_eq!(counts(fleet).await, (3, 1), "{point}: rows");
    assert_eq!(fleet.disks.lock().unwrap().quarantined.len(), 1, "{point}: it is in quarantine, whole");
    assert_eq!(fleet.good_on_disks(sum(1)), 3, "{point}");
    let counted = fleet.number("SELECT replica_count * 10 + rack_count FROM repositories").await;
    assert_eq!(counted, 33, "{point}: the counts are true");
}

on_each_engine! {
async fn a_spare_copy_is_set_aside_after_all_others_were_asked(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.admit(Step::Remove, None, 4).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "set aside in quarantine/1-0.git (100 B)"));
    assert_gone(&fleet, "no fault").await;
    let mut calls = fleet.calls();
    assert_eq!(calls.pop().unwrap(), "fs-4 quarantine");
    calls.sort();
    assert_eq!(calls, ["fs-1 checksum", "fs-2 checksum", "fs-3 checksum", "fs-4 checksum"]);
}

async fn a_copy_stays_when_another_is_found_damaged_at_the_moment_of_removal(scratch) {
    for damaged in [None, Some(sum(9))] {
        let mut fleet = spare(Scratch::like(&scratch).await.unwrap()).await;
        fleet.put(2, damaged);
        fleet.admit(Step::Remove, None, 4).await;
        let (outcome, message) = fleet.end().await;
        assert!(outcome == "stale" && message.contains("2 others said that they are good, 3 are wanted"), "{message}");
        assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Live);
        assert_eq!(fleet.on_disk(4), Some(Some(sum(1))));
        let flagged = fleet.number("SELECT fileserver_id FROM inventory WHERE found = 'changed'").await;
        assert_eq!(flagged, fleet.ids[1].0, "the one that SQL took for good is to be verified");
    }
}

async fn a_copy_stays_while_others_do_not_count_or_answer(scratch) {
    let mut fleet = spare(scratch).await;
    let unheard = fileservers::Verdict { counts: false, ..verdict(fleet.ids[0], Health::Online) };
    fileservers::record_verdicts(fleet.db(), &[unheard]).await.unwrap();
    fleet.admit(Step::Remove, None, 4).await;
    assert_eq!(fleet.end().await.0, "stale");
    assert_eq!(fleet.on_disk(4), Some(Some(sum(1))));
    assert!(!fleet.calls().iter().any(|call| call.contains("quarantine")));
}

async fn nothing_is_removed_while_a_push_is_open(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.number(
        "INSERT INTO pushes (repository_id, state, base_version, epoch, router, commands, voters, opened_at, \
                lease_until) VALUES (1, 'open', 1, 1, 'r', '[]', '[]', 1, 1) RETURNING id",
    ).await;
    fleet.admit(Step::Remove, None, 4).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "failed" && message.contains("pushes came in between"), "{message}");
    assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Live);
}

async fn a_push_between_the_asking_and_the_intent_makes_it_ask_again(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.freeze("fs-4 checksum", false);
    fleet.admit(Step::Remove, None, 4).await;
    let stop = fleet.work(quick());
    fleet.until_open(1).await;
    fleet.number("UPDATE repositories SET version = 2, push_epoch = 1 RETURNING version").await;
    fleet.thaw();
    fleet.until_none_lives().await;
    stop.cancel();
    assert_gone(&fleet, "after a push").await;
    assert_eq!(fleet.calls().iter().filter(|call| *call == "fs-1 checksum").count(), 2, "asked at both versions");
}

async fn a_worker_that_dies_at_any_point_of_a_removal_leaves_one_that_is_finished(scratch) {
    let points = [("before intent", "fs-4 checksum", false), ("after intent", "fs-4 quarantine", false),
                  ("after rename", "fs-4 quarantine", true)];
    for (point, call, acted) in points {
        let mut fleet = spare(Scratch::like(&scratch).await.unwrap()).await;
        fleet.freeze(call, acted);
        fleet.admit(Step::Remove, None, 4).await;
        fleet.work_apart();
        fleet.until_open(1).await;
        fleet.kill_worker().await;
        fleet.thaw();
        assert!(fleet.good_on_disks(sum(1)) >= 3, "{point}");
        let state = fleet.replica(4).await.unwrap().state;
        assert_eq!(state == ReplicaState::Removing, point != "before intent", "{point}: {state}");
        // The next evaluation returns it, and its attempt ends what was begun.
        fleet.admit(Step::Remove, None, 4).await;
        assert_eq!(fleet.end().await.0, "succeeded", "{point}");
        assert_gone(&fleet, point).await;
    }
}

async fn an_agent_that_dies_at_any_point_of_a_removal_is_asked_again(scratch) {
    for (point, acted) in [("before the rename", false), ("after the rename", true)] {
        let mut fleet = spare(Scratch::like(&scratch).await.unwrap()).await;
        fleet.freeze("fs-4 quarantine", acted);
        fleet.admit(Step::Remove, None, 4).await;
        let stop = fleet.work(quick());
        fleet.until_open(1).await;
        // Silent: its attempt is cancelled, and uses up no try.
        fileservers::record_verdicts(fleet.db(), &[verdict(fleet.ids[3], Health::Offline)]).await.unwrap();
        attempts::cancel_obsolete(fleet.db(), 10).await.unwrap();
        fleet.until_open(0).await;
        stop.cancel();
        assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Removing, "{point}: unknown is maybe gone");
        fleet.thaw();
        fileservers::record_verdicts(fleet.db(), &[verdict(fleet.ids[3], Health::Online)]).await.unwrap();
        fleet.admit(Step::Remove, None, 4).await;
        assert_eq!(fleet.end().await.0, "succeeded", "{point}");
        assert_gone(&fleet, point).await;
    }
}

async fn a_removal_that_was_begun_is_taken_back_where_the_copy_is_needed_by_now(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.freeze("fs-4 quarantine", false);
    fleet.admit(Step::Remove, None, 4).await;
    fleet.work_apart();
    fleet.until_open(1).await;
    fleet.kill_worker().await;
    fleet.thaw();
    fleet.put(2, None);
    fleet.admit(Step::Remove, None, 4).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "kept: only 2 others are good by now, 3 are wanted"));
    let replica = fleet.replica(4).await.unwrap();
    assert_eq!((replica.state, replica.in_sync), (ReplicaState::Leaving, true), "it reads, and goes when it is spare");
    assert_eq!(fleet.on_disk(4), Some(Some(sum(1))));
}

async fn a_late_worker_of_an_old_epoch_writes_no_outcome(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.freeze("fs-4 quarantine", false);
    fleet.admit(Step::Remove, None, 4).await;
    let stop = fleet.work(quick());
    fleet.until_open(1).await;
    fleet.number("UPDATE repositories SET repair_epoch = repair_epoch + 1 RETURNING repair_epoch").await;
    fleet.disks.lock().unwrap().epochs.insert(fleet.repository.id, 2);
    fleet.thaw();
    fleet.until_none_lives().await;
    stop.cancel();
    assert_eq!(fleet.replica(4).await.unwrap().state, ReplicaState::Removing);
    assert_eq!(fleet.on_disk(4), Some(Some(sum(1))), "the agent refused it");
}

async fn two_removals_of_one_repository_never_run_at_once(scratch) {
    let fleet = fleet(scratch, 5, 5).await;
    fleet.admit(Step::Remove, None, 4).await;
    let plan = fleet.plan(Step::Remove, None, 5);
    let subject = Subject::Replica(fleet.repository.id, fleet.ids[4]);
    let mut other = findings::of_repository(fleet.db(), fleet.repository.id).await.unwrap().remove(0);
    other.subject = subject;
    assert_eq!(attempts::admit(fleet.db(), &[(other, plan)]).await.unwrap().len(), 0);
    assert_eq!(attempts::live(fleet.db()).await.unwrap().len(), 1);
}

async fn whatever_happens_verified_copies_never_fall_below_what_is_wanted(scratch) {
    let seeds = if scratch.url().starts_with("sqlite:") { 8 } else { 3 };
    for seed in 1..=seeds {
        let mut fleet = fleet(Scratch::like(&scratch).await.unwrap(), 6, 6).await;
        let chance = Chance::new(seed);
        let (mut pushes, mut wrong) = (1_u8, 0);
        for round in 0..8 {
            one_round(&mut fleet, &chance, &mut pushes, &mut wrong, &format!("seed {seed}, round {round}")).await;
        }
    }
}

async fn a_removed_repository_is_purged_copy_by_copy_and_leaves_a_tombstone(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    repositories::remove(fleet.db(), fleet.repository.id).await.unwrap();
    for number in 1..=3 {
        fleet.admit(Step::Purge, None, number).await;
        let (outcome, message) = fleet.end().await;
        assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "unlinked, 100 B given free"));
        assert_eq!(fleet.on_disk(number), None);
    }
    assert_eq!(fleet.number("SELECT count(*) FROM repositories").await, 0);
    let kept = fleet.number("SELECT count(*) FROM tombstones WHERE name = 'a/b' AND repair_epoch = 3").await;
    assert_eq!(kept, 1, "its number, its name and its epochs stay");
}

async fn attempts_for_a_repository_that_was_removed_meanwhile_end_stale_without_a_call(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.put(3, Some(sum(9)));
    fleet.admit(Step::Resync, Some(1), 3).await;
    repositories::remove(fleet.db(), fleet.repository.id).await.unwrap();
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("stale", "the repository is gone"));
    assert_eq!(fleet.calls(), Vec::<String>::new());
    let finding = findings::of_repository(fleet.db(), fleet.repository.id).await.unwrap().remove(0);
    assert_eq!(finding.tries, 0, "nothing failed");
}

async fn a_purge_that_was_cut_short_is_done_again(scratch) {
    for acted in [false, true] {
        let mut fleet = fleet(Scratch::like(&scratch).await.unwrap(), 3, 3).await;
        repositories::remove(fleet.db(), fleet.repository.id).await.unwrap();
        fleet.freeze("fs-1 purge", acted);
        fleet.admit(Step::Purge, None, 1).await;
        fleet.work_apart();
        fleet.until_open(1).await;
        let refused = repositories::undelete(fleet.db(), fleet.repository.id, "a/b").await.unwrap_err();
        assert!(refused.to_string().contains("being unlinked"), "{refused}");
        fleet.kill_worker().await;
        fleet.thaw();
        assert!(!fleet.replica(1).await.unwrap().in_sync, "nothing is brought back from it");
        fleet.admit(Step::Purge, None, 1).await;
        assert_eq!(fleet.end().await.0, "succeeded");
        assert!(fleet.replica(1).await.is_none() && fleet.on_disk(1).is_none());
    }
}

async fn a_copy_of_a_repository_that_is_not_removed_is_never_purged(scratch) {
    let mut fleet = fleet(scratch, 4, 4).await;
    fleet.admit(Step::Purge, None, 4).await;
    assert_eq!(fleet.end().await.0, "stale");
    assert_eq!(fleet.on_disk(4), Some(Some(sum(1))));
    assert!(!fleet.calls().iter().any(|call| call.contains("purge")));
}

async fn an_untracked_copy_goes_only_while_enough_others_say_that_they_are_good(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.put(4, Some(sum(7)));
    fleet.flag(4, "untracked", 1).await;
    fleet.put(2, None);
    fleet.admit(Step::Purge, None, 4).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "stale" && message.contains("it may be needed"), "{message}");
    assert_eq!(fleet.on_disk(4), Some(Some(sum(7))));
    fleet.put(2, Some(sum(1)));
    let (subject, plan) = (Subject::Replica(fleet.repository.id, fleet.ids[3]), fleet.plan(Step::Purge, None, 4));
    fleet.admit_plan("another-goal", subject, plan).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert_eq!(fleet.on_disk(4), None);
    assert_eq!(fleet.number("SELECT count(*) FROM inventory WHERE found = 'untracked'").await, 0);
}

async fn what_nothing_knows_of_is_never_purged(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.number("DELETE FROM replicas RETURNING repository_id").await;
    fleet.number("DELETE FROM repositories RETURNING id").await;
    fleet.admit(Step::Purge, None, 1).await;
    assert_eq!(fleet.end().await.0, "stale");
    assert_eq!(fleet.on_disk(1), Some(Some(sum(1))));
}

async fn a_copy_in_quarantine_goes_by_its_very_path_and_only_while_a_good_one_is_left(scratch) {
    let mut fleet = spare(scratch).await;
    fleet.admit(Step::Remove, None, 4).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    let mut plan = fleet.plan(Step::Purge, None, 4);
    plan.path = Some("quarantine/1-0.git".into());
    let subject = Subject::Replica(fleet.repository.id, fleet.ids[3]);
    fleet.number("UPDATE replicas SET in_sync = FALSE RETURNING repository_id").await;
    fleet.admit_plan("purged-1", subject.clone(), plan.clone()).await;
    let (outcome, message) = fleet.end().await;
    assert!(outcome == "stale" && message.contains("no good copy"), "{message}");
    fleet.number("UPDATE replicas SET in_sync = TRUE RETURNING repository_id").await;
    fleet.admit_plan("purged-2", subject, plan).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert_eq!(counts(&fleet).await, (3, 0));
    assert!(fleet.disks.lock().unwrap().quarantined.is_empty());
}
}

/// A removal at a random place, with random damage before and amid it, and perhaps a death. The number of good
/// copies may only fall to the wanted number by a removal; damage is the test's own doing and is counted out.
async fn one_round(fleet: &mut Fleet, chance: &Chance, pushes: &mut u8, wrong: &mut usize, story: &str) {
    let pick = |below: u64| usize::try_from(chance.next() % below).unwrap();
    let number = 1 + pick(6);
    if pick(3) == 0 {
        damage(fleet, 1 + pick(6), wrong);
    }
    if fleet.replica(number).await.is_none() {
        return;
    }
    let calls = ["checksum", "quarantine"];
    let frozen = pick(2) == 0;
    if frozen {
        fleet.freeze(&format!("fs-{number} {}", calls[pick(2)]), pick(2) == 0);
    }
    let before = fleet.good_on_disks(sum(*pushes));
    let mut least = before.min(3);
    let subject = Subject::Replica(fleet.repository.id, fleet.ids[number - 1]);
    let goal = format!("goal {story}");
    fleet.admit_plan(&goal, subject.clone(), fleet.plan(Step::Remove, None, number)).await;
    if frozen && pick(2) == 0 {
        fleet.work_apart();
        // A call that the removal does not come to is not waited for long.
        let _ = tokio::time::timeout(Duration::from_millis(300), fleet.until_open(1)).await;
        fleet.kill_worker().await;
        fleet.thaw();
        settle(fleet).await;
    } else {
        let stop = fleet.work(quick());
        let open = tokio::time::timeout(Duration::from_millis(300), fleet.until_open(1));
        if frozen && open.await.is_ok() && pick(2) == 0 {
            let good = fleet.good_on_disks(sum(*pushes));
            damage(fleet, 1 + pick(6), wrong);
            least -= good - fleet.good_on_disks(sum(*pushes));
        }
        fleet.thaw();
        fleet.until_none_lives().await;
        stop.cancel();
    }
    let after = fleet.good_on_disks(sum(*pushes));
    assert!(after >= least, "{story}: {before} good copies became {after}");
    if fleet.replica(number).await.is_some_and(|replica| replica.state == ReplicaState::Removing) {
        fleet.admit_plan(&format!("{goal} again"), subject, fleet.plan(Step::Remove, None, number)).await;
        assert_eq!(fleet.end().await.0, "succeeded", "{story}");
        assert!(fleet.good_on_disks(sum(*pushes)) >= least, "{story}");
        let gone = fleet.replica(number).await.is_none();
        assert_eq!(gone, fleet.on_disk(number).is_none(), "{story}: SQL and disks say the same");
    }
    if pick(4) == 0 {
        push(fleet, pushes).await;
    }
}

/// A worker may die before it claims anything, or just after: another one takes up what it left.
async fn settle(fleet: &mut Fleet) {
    while let Some(left) = attempts::live(fleet.db()).await.unwrap().pop() {
        match left.state {
            AttemptState::Queued => drop(fleet.end().await),
            _ => fleet.kill_worker().await,
        }
    }
}

fn damage(fleet: &Fleet, number: usize, wrong: &mut usize) {
    if fleet.on_disk(number).is_some() {
        fleet.put(number, if wrong.is_multiple_of(2) { None } else { Some(sum(200)) });
        *wrong += 1;
    }
}

/// A push that every whole copy took, as its outcome writes it.
async fn push(fleet: &Fleet, pushes: &mut u8) {
    *pushes += 1;
    for copy in fleet.disks.lock().unwrap().copies.values_mut() {
        if *copy == Some(sum(*pushes - 1)) {
            *copy = Some(sum(*pushes));
        }
    }
    let text = "UPDATE repositories SET version = version + 1, push_epoch = push_epoch + 1 RETURNING version";
    fleet.number(text).await;
    fleet.set_sums(*pushes).await;
}
