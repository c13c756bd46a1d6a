//! The loops over real SQL: goals become findings, findings attempts, statuses health.

use super::testing::{Stage, quick, stage};
use super::{Retention, Settings};
use crate::database::scratch::Scratch;
use crate::database::{attempts, fileservers, findings, goals, pauses, settings};
use crate::goal::setting::Setting;
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use crate::model::id::RepositoryId;
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

mod edits;
mod escalation;
mod floods;

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

/// Its exceptions are not among the suspects.
const OUTSIDE: &str = "\
-- goal: names-are-short
-- summary: Names are short.
-- subject: repository
-- schedule: * * * * * *
-- scope: suspects

SELECT p.id AS repository_id FROM repositories p
 WHERE p.name <> 'x' AND p.id IN (SELECT repository_id FROM suspect)
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
    assert!(attempt.plan.destination_id.is_some_and(|id| stage.ids[2..].contains(&id)), "in a rack that has none");
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

async fn the_audit_finds_what_is_outside_of_a_goals_scope(scratch) {
    let mut stage = stage(scratch, 3).await;
    stage.goal("names-are-short", OUTSIDE);
    stage.repository("a/b", 3, 3).await;
    let settings = Settings { audit_slice: 1, audit_period: Duration::from_millis(300), ..quick() };
    let stop = stage.run(settings).await;
    let drift = "SELECT value FROM counters WHERE name = 'audit_drift'";
    // The metric follows what is kept: a moment later.
    stage.until("drift", async |stage| stage.metrics.drift.load(Ordering::Relaxed) == 1).await;
    assert_eq!(stage.number(drift).await, 1);
    assert_eq!(stage.number("SELECT count(*) FROM suspect WHERE drift").await, 1);
    stop.cancel();
}

async fn a_count_that_went_wrong_is_mended_and_what_it_hid_is_found(scratch) {
    let mut stage = stage(scratch, 4).await;
    let hidden = MISSING_COPIES.replace("-- brake: none", "-- brake: none\n-- scope: suspects");
    let hidden = hidden.replace("p.removed_at IS NULL", "p.id IN (SELECT repository_id FROM suspect)");
    stage.goal("copies-suffice", &hidden);
    stage.repository("a/b", 3, 2).await;
    stage.write("UPDATE repositories SET replica_count = 3, rack_count = 3").await;
    let settings = Settings { audit_slice: 1, audit_period: Duration::from_millis(300), ..quick() };
    let stop = stage.run(settings).await;
    stage.until("a finding", async |stage| stage.number("SELECT count(*) FROM findings").await == 1).await;
    assert_eq!(stage.number("SELECT replica_count FROM repositories").await, 2);
    stage.until("drift", async |stage| stage.metrics.drift.load(Ordering::Relaxed) >= 1).await;
    stop.cancel();
}

async fn the_count_of_a_goal_is_true_past_its_bound(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", &NONE.replace("-- schedule", "-- max-rows: 3\n-- schedule").replace(
        "SELECT 'x' AS key WHERE 1 = 0",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1234)
         SELECT 'k' || CAST(i AS TEXT) AS key FROM n",
    ));
    let stop = stage.run(quick()).await;
    stage.until("unmet", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Unmet)).await;
    let status = goals::states(stage.db()).await.unwrap().remove(0);
    assert_eq!((status.findings, status.at_least), (1_234, false));
    assert_eq!(stage.number("SELECT count(*) FROM findings").await, 3);
    stop.cancel();
}

async fn what_breaks_off_after_row_500_changes_nothing(scratch) {
    let mut stage = stage(scratch, 1).await;
    let rows = |last: &str| {
        NONE.replace(
            "SELECT 'x' AS key WHERE 1 = 0",
            &format!(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                 SELECT 'k' || CAST(i AS TEXT) AS key, {last} AS length FROM n WHERE i <= {}",
                if last == "1" { 700 } else { 1_000 },
            ),
        )
    };
    stage.goal("nothing-is-wrong", &rows("1"));
    let stop = stage.run(quick()).await;
    let open = "SELECT count(*) FROM findings";
    stage.until("700 findings", async |stage| stage.number(open).await == 700).await;
    // Row 600 cannot be computed on either engine: too large a number.
    stage.goal("nothing-is-wrong", &rows("abs(CASE i WHEN 600 THEN -9223372036854775807 - 1 ELSE i END)"));
    stage
        .until("unknown", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Unknown))
        .await;
    assert_eq!(stage.number(open).await, 700);
    assert_eq!(stage.number("SELECT count(*) FROM finding_history").await, 0);
    stop.cancel();
}

async fn history_is_pruned_by_age(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", NONE);
    stage
        .write(
            "INSERT INTO finding_history (id, goal, subject, priority, evidence, opened_at, closed_at, tries, ineffective) \
             SELECT n.id, 'x', 'key:x', 1, '{}', 1, CASE n.id WHEN 1 THEN 2 ELSE now END, 0, 0 \
               FROM clock, (SELECT 1 AS id UNION ALL SELECT 2) AS n",
        )
        .await;
    let retention = Retention { period: Duration::from_millis(100), ..Retention::default() };
    let stop = stage.run(Settings { retention, ..quick() }).await;
    stage
        .until("pruned", async |stage| stage.number("SELECT count(*) FROM finding_history").await == 1)
        .await;
    stage.until("its count", async |stage| stage.metrics.pruned.load(Ordering::Relaxed) == 1).await;
    assert!(stage.number("SELECT count(*) FROM leases WHERE name = 'prune'").await <= 1);
    stop.cancel();
}

async fn a_goal_that_looks_at_nothing_any_more_is_unknown_and_never_met(scratch) {
    let mut stage = stage(scratch, 1).await;
    stage.goal("nothing-is-wrong", &NONE.replace("-- subject:", "-- population: repositories\n-- subject:"));
    stage.repository("a/b", 1, 1).await;
    let stop = stage.run(quick()).await;
    stage.until("met", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Met)).await;
    stage
        .until("what it looked at is remembered", async |stage| {
            goals::population(stage.db(), "nothing-is-wrong").await.unwrap() == Some(1)
        })
        .await;
    let count = "UPDATE counters SET value = 0 WHERE name = 'repositories' RETURNING value";
    assert_eq!(stage.number(count).await, 0);
    stage
        .until("unknown, again and again", async |stage| {
            let one = goals::states(stage.db()).await.unwrap().remove(0);
            one.failures >= 3 && one.error.is_some_and(|error| error.starts_with("GOAL_DEAD: "))
        })
        .await;
    // A person says that it is rightly empty.
    goals::record_population(stage.db(), "nothing-is-wrong", None).await.unwrap();
    stage.until("met", async |stage| state(stage, "nothing-is-wrong").await == Some(GoalState::Met)).await;
    stage
        .until("the new population is remembered", async |stage| {
            goals::population(stage.db(), "nothing-is-wrong").await.unwrap() == Some(0)
        })
        .await;
    stop.cancel();
}

async fn a_database_that_is_away_makes_its_goal_unknown_and_no_other(scratch) {
    let mut stage = stage(scratch, 1).await;
    let forge = tempfile::tempdir().unwrap();
    let path = forge.path().join("forge.db");
    stage.databases.push(("forge".into(), format!("sqlite:{}", path.display())));
    stage.goal("nothing-is-wrong", NONE);
    let text = "-- goal: forge-is-empty\n-- summary: X.\n-- subject: key\n-- schedule: * * * * * *\n-- mode: observe\n\
                -- database: forge\n--\nSELECT name AS key FROM projects\n";
    stage.goal("forge-is-empty", text);
    let stop = stage.run(quick()).await;
    stage
        .until("unknown, and the other met", async |stage| {
            let states = goals::states(stage.db()).await.unwrap();
            let forge = states.iter().find(|one| one.goal == "forge-is-empty");
            forge.is_some_and(|one| one.state == GoalState::Unknown && one.failures > 1)
                && state(stage, "nothing-is-wrong").await == Some(GoalState::Met)
        })
        .await;
    let made = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(made).await.unwrap();
    sqlx::query("CREATE TABLE projects (name TEXT)").execute(&pool).await.unwrap();
    sqlx::query("INSERT INTO projects (name) VALUES ('a')").execute(&pool).await.unwrap();
    pool.close().await;
    stage.until("its finding", async |stage| state(stage, "forge-is-empty").await == Some(GoalState::Unmet)).await;
    assert_eq!(stage.number("SELECT count(*) FROM findings WHERE goal = 'forge-is-empty'").await, 1);
    stop.cancel();
}
}
