//! Edits of goals: looked at soon, kept where only the database is slow, given up where they have no end; goals that go.

use super::{NONE, Stage, quick, stage, state};
use crate::database::goals;
use crate::database::scratch::Scratch;
use crate::model::goal::{GoalState, GoalStatus};

/// No schedule would say so before the test is over.
const YEARLY: &str = "0 0 0 1 1 *";

/// It has no end once there is a repository.
const SLOW: &str = "\
-- goal: nothing-is-wrong
-- summary: It has no end once there is a repository.
-- subject: key
-- schedule: * * * * * *
-- timeout: 1s

WITH RECURSIVE n (i) AS (SELECT 1 FROM repositories UNION ALL SELECT i + 1 - 1 FROM n)
SELECT 'x' AS key WHERE (SELECT count(*) FROM n) < 0
";

async fn status(stage: &Stage) -> GoalStatus {
    goals::states(stage.db()).await.unwrap().into_iter().find(|one| one.goal == "nothing-is-wrong").unwrap()
}

async fn met(stage: &Stage) -> bool {
    state(stage, "nothing-is-wrong").await == Some(GoalState::Met)
}

on_each_engine! {
async fn an_edit_of_a_rarely_evaluated_goal_is_evaluated_at_once(scratch) {
    let mut stage = stage(scratch, 1).await;
    let yearly = NONE.replace("* * * * * *", YEARLY);
    stage.goal("nothing-is-wrong", &yearly);
    let stop = stage.run(quick()).await;
    stage.until("met", met).await;
    stage.goal("nothing-is-wrong", &yearly.replace("WHERE 1 = 0", ""));
    stage
        .until("unmet", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Unmet))
        .await;
    assert_eq!(stage.number("SELECT count(*) FROM findings").await, 1);
    let many = stage.number("SELECT count(*) FROM evaluations").await;
    let rounds = stage.rounds();
    stage.until("many more rounds", async |stage| stage.rounds() > rounds + 20).await;
    assert_eq!(stage.number("SELECT count(*) FROM evaluations").await, many, "and once");
    stop.cancel();
}

async fn an_endless_edit_of_a_rarely_evaluated_goal_gives_way_at_once(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", &NONE.replace("* * * * * *", YEARLY));
    stage.repository("a/b", 1, 1).await;
    // Both know of it: what one of them finds out is so for the other, too.
    let stops = [stage.run(quick()).await, stage.run(quick()).await];
    stage.until("met", met).await;
    let before = status(&stage).await.digest;
    stage.goal("nothing-is-wrong", &SLOW.replace("* * * * * *", YEARLY));
    stage
        .until("tried", async |stage| state(stage, "nothing-is-wrong").await != Some(GoalState::Met))
        .await;
    stage
        .until("given up", async |stage| {
            // A machine that is busy with other tests looks like a slow database for a while.
            stage.nudge.evaluate(Some("nothing-is-wrong"));
            status(stage).await.gave_way.is_some()
        })
        .await;
    stage.until("met by the version before", met).await;
    let now = status(&stage).await;
    assert_eq!((&now.digest, &now.ended), (&before, &before));
    assert!(now.gave_way != before && now.gave_way_at.is_some());
    let why = now.file_error.unwrap();
    assert!(why.contains("nothing-is-wrong.sql:7:1: timed out after 1s, and was never evaluated"), "{why}");
    stage.goal("nothing-is-wrong", &NONE.replace("* * * * * *", "0 0 0 2 1 *"));
    stage
        .until("another text", async |stage| {
            let now = status(stage).await;
            now.gave_way.is_none() && now.gave_way_at.is_none() && now.file_error.is_none() && now.ended != before
        })
        .await;
    stops.iter().for_each(tokio_util::sync::CancellationToken::cancel);
}

async fn a_good_edit_stays_while_the_version_before_it_is_late_too(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", SLOW);
    let stop = stage.run(quick()).await;
    stage.until("met", met).await;
    let before = status(&stage).await.digest;
    // As a database does that is slow: both have an end, and neither comes to it in time.
    stage.repository("a/b", 1, 1).await;
    stage
        .until("late", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Unknown))
        .await;
    stage.goal("nothing-is-wrong", &SLOW.replace("It has", "The edit has"));
    stage.until("loaded", async |stage| status(stage).await.digest != before).await;
    let failures = status(&stage).await.failures;
    stage.until("late again and again", async |stage| status(stage).await.failures >= failures + 3).await;
    let now = status(&stage).await;
    assert_eq!((now.gave_way, now.file_error), (None, None));
    assert_ne!(now.digest, before);
    stage.write("DELETE FROM replicas").await;
    stage.write("DELETE FROM repositories").await;
    stage.until("met by the edit", async |stage| status(stage).await.ended != before).await;
    stop.cancel();
}

async fn a_goal_that_never_came_to_an_end_goes_with_its_file_and_another_has_time(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.repository("a/b", 1, 1).await;
    stage.goal("never-ends", &SLOW.replace("goal: nothing-is-wrong", "goal: never-ends"));
    stage.goal("nothing-is-wrong", NONE);
    let stop = stage.run(quick()).await;
    stage
        .until("unknown and met", async |stage| {
            let states = goals::states(stage.db()).await.unwrap();
            let failures = states.iter().find(|one| one.goal == "never-ends").map(|one| one.failures);
            met(stage).await && failures >= Some(1)
        })
        .await;
    stage.remove_goal("never-ends");
    stage.remove_goal("nothing-is-wrong");
    stage.until("gone", async |stage| state(stage, "never-ends").await.is_none()).await;
    let left = status(&stage).await;
    assert!(left.file_error.unwrap().contains("the file is gone; the goal itself goes 10 minutes after it"));
    stop.cancel();
}
}
