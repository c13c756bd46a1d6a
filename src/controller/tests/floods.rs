//! Floods, blindness, hanging goals, goals that undo each other: what starts, and what is held.

use super::{MISSING_COPIES, NONE, Stage, quick, stage, state};
use crate::controller::Settings;
use crate::database::scratch::Scratch;
use crate::database::{attempts, brakes, fileservers, goals};
use crate::model::brake::{BLIND, Brake};
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use std::time::Duration;

const ALL: &str = "\
-- goal: everything-is-wrong
-- summary: Somebody meant something else.
-- subject: repository
-- repair: re-replicate
-- schedule: * * * * * *

SELECT p.id AS repository_id FROM repositories p WHERE true
";

/// Counts copies on fileservers that count, as the shipped goal does.
const COUNTING: &str = "\
-- goal: copies-count
-- summary: Every repository has copies that count.
-- subject: repository
-- repair: re-replicate
-- schedule: * * * * * *
-- brake: none

SELECT p.id AS repository_id FROM repositories p
 WHERE (SELECT count(*) FROM countable_replicas r WHERE r.repository_id = p.id) < p.wanted
";

const HANGING: &str = "\
-- goal: never-ends
-- summary: It never ends once there is a repository.
-- subject: key
-- schedule: * * * * * *
-- timeout: 1s

WITH RECURSIVE n (i) AS (SELECT 1 FROM repositories UNION ALL SELECT i + 1 - 1 FROM n)
SELECT CASE WHEN (SELECT count(*) FROM n) < 0 THEN 'y' ELSE 'x' END AS key
";

async fn brake(stage: &Stage, name: &str) -> Option<Brake> {
    brakes::all(stage.db()).await.unwrap().into_iter().find(|brake| brake.name == name)
}

async fn attempted(stage: &Stage) -> i64 {
    stage.number("SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM attempt_history)").await
}

async fn health(stage: &Stage, number: usize) -> Health {
    fileservers::all(stage.db()).await.unwrap()[number].health
}

on_each_engine! {
async fn a_new_goal_that_returns_everything_is_braked_until_a_person_approves(scratch) {
    let mut stage = stage(scratch, 4).await;
    for number in 0..110 {
        stage.repository(&format!("r/{number}"), 3, 2).await;
    }
    stage.goal("everything-is-wrong", ALL);
    let stop = stage.run(quick()).await;
    let held = "SELECT count(*) FROM findings WHERE state = 'held' AND held_by = 'goal:everything-is-wrong'";
    stage.until("held", async |stage| stage.number(held).await == 110).await;
    let rounds = stage.rounds();
    stage.until("many more rounds", async |stage| stage.rounds() > rounds + 20).await;
    assert_eq!(attempted(&stage).await, 0, "nothing starts");
    let one = brake(&stage, "goal:everything-is-wrong").await.unwrap();
    assert!(one.holds && one.reason.starts_with("110 unexplained findings of 110"), "{}", one.reason);
    brakes::approve(stage.db(), std::slice::from_ref(&one.name), "local", "it is so").await.unwrap();
    stage.until("attempts", async |stage| attempted(stage).await > 0).await;
    stage.until("none held", async |stage| stage.number(held).await == 0).await;
    assert_eq!(stage.number("SELECT count(*) FROM audit WHERE what = 'brake.approve'").await, 1);
    stop.cancel();
}

async fn one_hanging_goal_of_twenty_is_unknown_and_touches_no_other(scratch) {
    let mut stage = stage(scratch, 1).await;
    for number in 1..20 {
        let name = format!("goal-{number}");
        stage.goal(&name, &NONE.replace("nothing-is-wrong", &name));
    }
    // It has a finding before it begins to hang.
    stage.goal("never-ends", HANGING);
    let stop = stage.run(quick()).await;
    let open = "SELECT count(*) FROM findings WHERE goal = 'never-ends' AND subject = 'key:x'";
    stage.until("a finding", async |stage| stage.number(open).await == 1).await;
    stage.repository("a/b", 1, 1).await;
    stage
        .until("unknown three times in a row", async |stage| {
            let states = goals::states(stage.db()).await.unwrap();
            let one = states.iter().find(|one| one.goal == "never-ends").unwrap();
            let why = one.error.as_deref().unwrap_or_default();
            one.failures >= 3 && one.state == GoalState::Unknown && why.contains("timed out")
        })
        .await;
    assert_eq!(stage.number(open).await, 1, "not closed");
    assert_eq!(stage.number("SELECT count(*) FROM findings").await, 1, "nothing opened");
    // The others were evaluated again and again meanwhile.
    let least = "SELECT min(n) FROM (SELECT count(*) AS n FROM evaluations WHERE error IS NULL \
                  AND goal <> 'never-ends' GROUP BY goal) AS each_goal";
    let before = stage.number(least).await;
    assert!(before >= 2, "only {before} evaluations of the slowest");
    stage.until("all go on", async |stage| stage.number(least).await >= before + 2).await;
    for number in 1..20 {
        assert_eq!(state(&stage, &format!("goal-{number}")).await, Some(GoalState::Met));
    }
    stop.cancel();
}

// Case 24: all seem down to a controller that is itself cut off.
async fn a_controller_that_hears_nobody_any_more_is_blind_and_starts_nothing(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.repository("a/b", 3, 3).await;
    stage.goal("copies-count", COUNTING);
    let stop = stage.run(quick()).await;
    stage.until("met", async |stage| state(stage, "copies-count").await == Some(GoalState::Met)).await;
    stage.until("no start brake", async |stage| brake(stage, "start").await.is_none_or(|one| !one.holds)).await;
    for number in 1..=4 {
        stage.kill(&format!("fs-{number}"));
    }
    stage.until("blind", async |stage| brake(stage, BLIND).await.is_some_and(|one| one.holds)).await;
    stage
        .until("its findings held", async |stage| {
            stage.number("SELECT count(*) FROM findings WHERE state = 'held'").await == 1
        })
        .await;
    let rounds = stage.rounds();
    stage.until("many more rounds", async |stage| stage.rounds() > rounds + 20).await;
    assert_eq!(attempted(&stage).await, 0);
    for number in 1..=4 {
        stage.revive(&format!("fs-{number}"));
    }
    stage.until("met again", async |stage| state(stage, "copies-count").await == Some(GoalState::Met)).await;
    assert_eq!(attempted(&stage).await, 0, "nothing was moved because of it");
    stop.cancel();
}

// `trued up` with four agents, one a rack: one death is never held.
async fn the_death_of_one_of_four_is_repaired_without_a_brake(scratch) {
    let mut stage = stage(scratch, 4).await;
    for number in 0..5 {
        stage.repository(&format!("r/{number}"), 3, 3).await;
    }
    stage.goal("copies-count", &COUNTING.replace("-- brake: none\n", "-- brake: 1\n"));
    let stop = stage.run(quick()).await;
    stage.until("met", async |stage| state(stage, "copies-count").await == Some(GoalState::Met)).await;
    stage.kill("fs-2");
    stage.until("attempts", async |stage| attempted(stage).await > 0).await;
    assert_eq!(stage.number("SELECT count(*) FROM brakes WHERE holds AND name <> 'start'").await, 0);
    stop.cancel();
}

// Case 5: a blip makes no copy, and is over soon after it is over.
async fn a_fileserver_that_is_silent_for_a_blip_is_not_copied_away_from(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.repository("a/b", 3, 3).await;
    stage.goal("copies-count", COUNTING);
    let stop = stage.run(Settings { grace: Duration::from_mins(30), ..quick() }).await;
    stage.until("met", async |stage| state(stage, "copies-count").await == Some(GoalState::Met)).await;
    stage.kill("fs-2");
    stage.until("offline", async |stage| health(stage, 1).await == Health::Offline).await;
    let evaluated = "SELECT count(*) FROM evaluations";
    let before = stage.number(evaluated).await;
    stage.until("looked at meanwhile", async |stage| stage.number(evaluated).await >= before + 3).await;
    stage.revive("fs-2");
    stage.until("in service", async |stage| health(stage, 1).await == Health::Online).await;
    assert_eq!(attempted(&stage).await, 0);
    assert_eq!(stage.number("SELECT count(*) FROM fileservers WHERE counts").await, 4);
    stop.cancel();
}

async fn goals_that_undo_each_other_are_both_held_naming_each_other(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.repository("a/b", 3, 2).await;
    let before = "INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, repair, step, number, \
                    outcome, plan, bytes, epoch, queued_at, finished_at, message) \
                  SELECT 900 + n, 1, CASE n WHEN 1 THEN 'copies-suffice' ELSE 'copies-excess' END, 'repository:1', 1, \
                    'x', CASE n WHEN 1 THEN 'replicate' ELSE 'remove' END, 1, 'succeeded', '{}', 0, 0, c.now, \
                    c.now - 10 + n, 'done' FROM clock c, (SELECT 1 AS n UNION SELECT 2) AS two RETURNING id";
    stage.number(before).await;
    stage.goal("copies-suffice", MISSING_COPIES);
    let stop = stage.run(quick()).await;
    let stuck = "SELECT count(*) FROM findings WHERE state = 'stuck' AND deferral->>'by' = 'copies-excess'";
    stage.until("stuck", async |stage| stage.number(stuck).await == 1).await;
    assert!(attempts::live(stage.db()).await.unwrap().is_empty());
    stop.cancel();
}
}
