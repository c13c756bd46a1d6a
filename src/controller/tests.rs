//! The loops over real SQL: goals become findings, findings attempts, statuses health.

use super::Settings;
use super::testing::{Stage, quick, stage};
use crate::database::scratch::Scratch;
use crate::database::{attempts, fileservers, findings, goals, pauses, settings};
use crate::goal::setting::Setting;
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use crate::model::id::RepositoryId;

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

const MISSING_COPIES: &str = "\
-- goal: copies-suffice
-- summary: Every repository has its copies.
-- subject: repository
-- repair: re-replicate
-- schedule: * * * * * *
-- brake: none

SELECT p.id AS repository_id, p.wanted FROM repositories p
 WHERE p.removed_at IS NULL AND (SELECT count(*) FROM replicas r WHERE r.repository_id = p.id) < p.wanted
";

const NONE: &str = "\
-- goal: nothing-is-wrong
-- summary: Nothing is wrong.
-- subject: key
-- schedule: * * * * * *

SELECT 'x' AS key WHERE 1 = 0
";

async fn state(stage: &Stage, goal: &str) -> Option<GoalState> {
    let states = goals::states(stage.db()).await.unwrap();
    states.into_iter().find(|state| state.goal == goal).map(|state| state.state)
}

on_each_engine! {
async fn what_falls_short_becomes_an_attempt_and_what_does_not_is_met(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.goal("copies-suffice", MISSING_COPIES);
    stage.goal("nothing-is-wrong", NONE);
    stage.repository("a/b", 3, 2).await;
    let stop = stage.run(quick()).await;
    stage.until("an attempt", async |stage| !attempts::live(stage.db()).await.unwrap().is_empty()).await;
    let attempt = attempts::live(stage.db()).await.unwrap().remove(0);
    assert_eq!((attempt.goal.as_str(), attempt.repair.as_str()), ("copies-suffice", "re-replicate"));
    assert!(stage.ids[2..].contains(&attempt.plan.destination_id), "in a rack that has none");
    stage
        .until("both judged", async |stage| {
            state(stage, "copies-suffice").await == Some(GoalState::Unmet)
                && state(stage, "nothing-is-wrong").await == Some(GoalState::Met)
        })
        .await;
    stop.cancel();
}

async fn a_bad_edit_keeps_the_last_good_version_and_touches_no_other_goal(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", NONE);
    let stop = stage.run(quick()).await;
    stage.until("met", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Met)).await;
    stage.goal("nothing-is-wrong", &NONE.replace("SELECT 'x' AS key WHERE 1 = 0", "DELETE FROM racks"));
    stage.goal("copies-suffice", MISSING_COPIES);
    stage
        .until("the error, and the last good version evaluated after it", async |stage| {
            let states = goals::states(stage.db()).await.unwrap();
            let one = states.iter().find(|one| one.goal == "nothing-is-wrong").unwrap();
            one.file_error.is_some() && one.digest.is_some() && one.state == GoalState::Met
        })
        .await;
    stage
        .until("the other", async |stage| state(stage, "copies-suffice").await == Some(GoalState::Met))
        .await;
    stop.cancel();
}

async fn nothing_starts_for_a_paused_goal_until_it_goes_on(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.goal("copies-suffice", MISSING_COPIES);
    stage.repository("a/b", 3, 2).await;
    pauses::put(stage.db(), "goal:copies-suffice", "anna", "a rack moves", None).await.unwrap();
    let stop = stage.run(quick()).await;
    let held = "SELECT count(*) FROM findings WHERE state = 'held'";
    stage.until("held", async |stage| stage.number(held).await == 1).await;
    let evaluated = stage.number("SELECT count(*) FROM evaluations").await;
    stage
        .until("evaluated on, and rounds", async |stage| {
            stage.number("SELECT count(*) FROM evaluations").await > evaluated && stage.rounds() > 20
        })
        .await;
    assert!(attempts::live(stage.db()).await.unwrap().is_empty());
    let deferral = findings::of_repository(stage.db(), RepositoryId(1)).await.unwrap().remove(0).deferral.unwrap();
    assert_eq!(deferral.to_string(), "paused by anna: a rack moves");
    assert!(pauses::end(stage.db(), "goal:copies-suffice").await.unwrap());
    stage.until("an attempt", async |stage| !attempts::live(stage.db()).await.unwrap().is_empty()).await;
    stop.cancel();
}

async fn a_goal_goes_by_what_is_set_over_its_file(scratch) {
    let mut stage = stage(scratch, 4).await;
    stage.goal("copies-suffice", MISSING_COPIES);
    stage.repository("a/b", 3, 2).await;
    let configured = Setting {
        goal: "copies-suffice".into(),
        name: "mode".into(),
        value: "observe".into(),
        origin: "trued.toml:2".into(),
    };
    let stop = stage.run(Settings { configured: vec![configured], ..quick() }).await;
    let listed = "SELECT count(*) FROM findings WHERE repair IS NULL";
    stage.until("only listed", async |stage| stage.number(listed).await == 1).await;
    assert!(attempts::live(stage.db()).await.unwrap().is_empty());
    settings::put(stage.db(), "copies-suffice", "mode", "repair", "anna", "enough seen").await.unwrap();
    stage.until("an attempt", async |stage| !attempts::live(stage.db()).await.unwrap().is_empty()).await;
    stop.cancel();
}

async fn a_nudge_evaluates_a_goal_long_before_it_is_due(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", &NONE.replace("* * * * * *", "0 0 0 1 1 *"));
    let stop = stage.run(quick()).await;
    stage.until("met", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Met)).await;
    let first = goals::states(stage.db()).await.unwrap()[0].evaluated_at;
    stage
        .until("evaluated again", async |stage| {
            stage.nudge.evaluate(Some("nothing-is-wrong"));
            goals::states(stage.db()).await.unwrap()[0].evaluated_at > first
        })
        .await;
    stop.cancel();
}

async fn two_controllers_evaluate_a_due_goal_once(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", &NONE.replace("* * * * * *", "0 0 0 1 1 *"));
    let stops = [stage.run(quick()).await, stage.run(quick()).await];
    stage.until("met", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Met)).await;
    // Both were due at once; the second one gets its turn within moments, and leaves it.
    stage.until("two looks at the files", async |stage| stage.rounds() >= 4).await;
    assert_eq!(stage.number("SELECT count(*) FROM evaluations").await, 1);
    stops.iter().for_each(tokio_util::sync::CancellationToken::cancel);
}

async fn a_dead_agent_is_offline_and_counts_until_its_grace_is_over(scratch) {
    let mut stage = stage(scratch, 4).await;
    let stop = stage.run(quick()).await;
    let health = async |stage: &Stage| fileservers::all(stage.db()).await.unwrap().remove(1);
    stage.until("a status", async |stage| health(stage).await.seen_at.is_some()).await;
    stage.kill("fs-2");
    stage.until("offline", async |stage| health(stage).await.health == Health::Offline).await;
    assert!(health(&stage).await.counts, "it counts within its grace");
    stage.until("beyond its grace", async |stage| !health(stage).await.counts).await;
    stage.revive("fs-2");
    stage.until("online", async |stage| health(stage).await.health == Health::Online).await;
    stage.until("compared, so it counts", async |stage| health(stage).await.counts).await;
    stop.cancel();
}

async fn a_missing_copy_is_flagged_and_one_on_another_root_is_not(scratch) {
    let mut stage = stage(scratch, 3).await;
    let id = stage.repository("a/b", 3, 3).await;
    let stop = stage.run(quick()).await;
    stage
        .until("compared", async |stage| {
            fileservers::all(stage.db()).await.unwrap().iter().all(|one| one.compared_start_id.is_some())
        })
        .await;
    assert_eq!(stage.number("SELECT count(*) FROM inventory").await, 0);
    stage.lose("fs-1", id);
    let flagged = "SELECT count(*) FROM inventory WHERE found = 'missing' AND fileserver_id = 1";
    stage.until("flagged", async |stage| stage.number(flagged).await == 1).await;
    let unsynced = "SELECT count(*) FROM replicas WHERE NOT in_sync AND checksum IS NULL";
    assert_eq!(stage.number(unsynced).await, 1);
    // The disk of another one is not there: its root is another, and nothing is known to be missing.
    stage.replace_root("fs-2");
    stage
        .until("empty", async |stage| {
            let two = fileservers::all(stage.db()).await.unwrap().remove(1);
            two.empty_since.is_some() && !two.counts && two.health == Health::Online
        })
        .await;
    let asked = stage.statuses();
    stage.until("many more looks", async |stage| stage.statuses() > asked + 15).await;
    assert_eq!(stage.number("SELECT count(*) FROM inventory WHERE fileserver_id = 2").await, 0);
    stop.cancel();
}
}
