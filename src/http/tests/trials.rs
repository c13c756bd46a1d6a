//! Trying a change of a goal through the API, and believing one that looks at nothing, on both engines.

use super::{Fixture, fixture_on};
use crate::database::goals::Declared;
use crate::database::scratch::Scratch;
use crate::database::{goals, repositories};
use crate::goal::library::Entry;
use crate::goal::setting::Setting;
use crate::goal::{Engine, Goal};
use crate::model::goal::SubjectKind;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const RUNNING: &str = "\
-- goal:       copies-are-many
-- summary:    Every repository asks for enough copies.
-- subject:    repository
-- repair:     re-replicate
-- brake:      1
-- population: repositories
--
-- An example.
SELECT id AS repository_id, 'few' AS reason FROM repositories WHERE wanted < 3
";

async fn fixtures() -> Vec<Fixture> {
    let mut all = vec![fixture_on(Scratch::sqlite().await.unwrap())];
    if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
        all.push(fixture_on(Scratch::postgres(&url).await.unwrap()));
    }
    all
}

fn parsed(fixture: &Fixture) -> Goal {
    let engine: Engine = fixture.api.source.engine();
    Goal::parse(Path::new("goals/copies-are-many.sql"), RUNNING, engine).unwrap()
}

/// Four repositories of ten bytes that want 2, 3, 3 and 4 copies, and the goal that runs.
async fn fleet(fixture: &mut Fixture) {
    fixture.fleet(4).await;
    for (name, wanted) in [("a", 2), ("b", 3), ("c", 3), ("d", 4)] {
        let plan = fixture.plan(name).await;
        let finish = format!("/api/v1/imports/{}/finish", plan.id);
        fixture.ask("POST", &finish, Some(Fixture::receipts(&plan, &[7, 7, 7]))).await;
        repositories::set_wanted(&fixture.api.db, plan.id, wanted).await.unwrap();
    }
    let running = Arc::new(parsed(fixture));
    fixture.api.repairs = Arc::new([("re-replicate".to_owned(), SubjectKind::Repository)].into());
    fixture.api.hooks.goals = Arc::new(move || vec![entry(&running)]);
}

fn entry(goal: &Arc<Goal>) -> Entry {
    Entry { name: goal.name.clone(), running: Some(Arc::clone(goal)), error: None, gave_way: None }
}

fn edited(text: &str) -> Value {
    json!({ "path": "edit/copies-are-many.sql", "text": text })
}

#[tokio::test]
async fn a_difference_says_what_would_start_move_and_be_held() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let ask = edited(&RUNNING.replace("wanted < 3", "wanted = 3"));
        let (status, diff) = fixture.ask("POST", "/api/v1/goals/diff", Some(ask)).await;
        assert_eq!(status, StatusCode::OK, "{diff}");
        assert_eq!((&diff["before"], &diff["after"]), (&json!(1), &json!(2)));
        assert_eq!((&diff["added"], &diff["removed"], &diff["changed"]), (&json!(2), &json!(1), &json!(0)));
        let name = |row: &Value| {
            let subject = format!("repository:{}", row["subject"]["repository"]);
            format!("{} {}", row["sign"].as_str().unwrap(), diff["names"][subject].as_str().unwrap())
        };
        let rows: Vec<_> = diff["rows"].as_array().unwrap().iter().map(name).collect();
        assert_eq!(rows, ["- a", "+ b", "+ c"]);
        assert_eq!((&diff["attempts"], &diff["bytes"]), (&json!(2), &json!(20)), "{diff}");
        assert!(diff["held"][0].as_str().unwrap().contains("goal:copies-are-many"), "{diff}");
        // Nothing was written: no finding, no evaluation.
        assert!(goals::states(&fixture.api.db).await.unwrap().is_empty());
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn an_edit_in_observe_mode_starts_nothing_and_a_bad_one_is_an_answer() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let text = RUNNING.replace("-- brake:      1", "-- mode:       observe").replace("< 3", "< 5");
        let (_, diff) = fixture.ask("POST", "/api/v1/goals/diff", Some(edited(&text))).await;
        assert_eq!((&diff["added"], &diff["attempts"], &diff["bytes"]), (&json!(3), &json!(0), &json!(0)));
        assert_eq!((&diff["repair"], &diff["held"]), (&Value::Null, &json!([])), "{diff}");
        let bad = edited(&RUNNING.replace("FROM repositories", "FROM repository"));
        let (status, diff) = fixture.ask("POST", "/api/v1/goals/diff", Some(bad)).await;
        let problem = diff["problem"].as_str().unwrap_or_default();
        assert_eq!(status, StatusCode::OK);
        assert!(
            problem.starts_with("edit/copies-are-many.sql:9:") && problem.contains("did you mean"),
            "{diff}"
        );
        assert_eq!(problem.contains("42P01"), fixture.api.source.engine() == Engine::Postgres, "{problem}");
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn what_is_run_shows_repositories_by_their_names() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let (_, run) = fixture.ask("GET", "/api/v1/goals/copies-are-many/run", None).await;
        assert_eq!((&run["names"]["repository:1"], &run["total"]), (&json!("a"), &json!(1)), "{run}");
        let (_, plan) = fixture.ask("GET", "/api/v1/goals/copies-are-many/explain", None).await;
        assert!(!plan["lines"].as_array().unwrap().is_empty(), "{plan}");
        let (ask, path) = (edited(RUNNING), "/api/v1/goals/check");
        let (_, checked) = fixture.ask("POST", path, Some(ask)).await;
        let of_plan = |all: &Value| {
            let all = all["remarks"].as_array().unwrap().iter();
            all.filter(|one| one["id"] == "large-scan").map(|one| one["why"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of_plan(&plan), of_plan(&checked), "the plan is told as the check tells it");
        assert_eq!(of_plan(&plan).len(), 1, "{plan}");
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn a_goal_that_rightly_looks_at_nothing_is_approved_and_asked_again() {
    for fixture in fixtures().await {
        let db = &fixture.api.db;
        let declared =
            Declared { goal: "all-well".into(), digest: Some("d".into()), file_error: None, gave_way: None };
        goals::declare(db, &[declared]).await.unwrap();
        goals::record_population(db, "all-well", Some(5)).await.unwrap();
        let approve = |dry_run| json!({ "goal": "all-well", "reason": "moved away", "dry_run": dry_run });
        let path = "/api/v1/brakes/approve";
        let (status, _) = fixture.ask("POST", path, Some(approve(false))).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "nothing holds, and it is not dead");
        goals::record_failure(db, "all-well", 1, 1, "GOAL_DEAD: it looked at nothing").await.unwrap();
        let (_, dry) = fixture.ask("POST", path, Some(approve(true))).await;
        assert_eq!(dry["changed"], false);
        assert_eq!(goals::population(db, "all-well").await.unwrap(), Some(5));
        let (status, changed) = fixture.ask("POST", path, Some(approve(false))).await;
        assert_eq!((status, &changed["changed"]), (StatusCode::OK, &json!(true)), "{changed}");
        assert_eq!(goals::population(db, "all-well").await.unwrap(), None);
        assert_eq!(*fixture.nudged.lock().unwrap(), ["all-well"]);
        fixture.scratch.close().await;
    }
}

/// What a goal with an age returns: the repositories that want fewer copies than that.
const BOUND: &str = "\
-- goal:    copies-are-many
-- summary: Every repository asks for enough copies.
-- subject: repository
-- param:   least = 3
--
SELECT id AS repository_id FROM repositories WHERE wanted < :least
";

#[tokio::test]
async fn what_is_set_holds_for_the_next_run_at_once_and_so_does_taking_it_back() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let engine = fixture.api.source.engine();
        let running = Arc::new(Goal::parse(Path::new("goals/copies-are-many.sql"), BOUND, engine).unwrap());
        fixture.api.hooks.goals = Arc::new(move || vec![entry(&running)]);
        let (path, run) = ("/api/v1/goals/copies-are-many/settings", "/api/v1/goals/copies-are-many/run");
        let total = async |fixture: &Fixture| fixture.ask("GET", run, None).await.1["total"].clone();
        assert_eq!(total(&fixture).await, json!(1));
        let set = json!({ "set": [["param.least", "9"]], "reason": "look" });
        assert_eq!(fixture.ask("PUT", path, Some(set)).await.0, StatusCode::OK);
        assert_eq!(total(&fixture).await, json!(4));
        let unset = json!({ "unset": ["param.least"], "reason": "seen" });
        assert_eq!(fixture.ask("PUT", path, Some(unset)).await.0, StatusCode::OK);
        assert_eq!(total(&fixture).await, json!(1));
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn an_answer_about_another_version_than_the_one_on_disk_says_so() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let running = Arc::new(parsed(&fixture));
        let declared = |digest: &str, gave_way: Option<&str>| Declared {
            goal: running.name.clone(),
            digest: Some(digest.to_owned()),
            file_error: gave_way.map(|_| "copies-are-many.sql:9:1: timed out after 2s".to_owned()),
            gave_way: gave_way.map(str::to_owned),
        };
        let paths = ["", "/run", "/explain"].map(|end| format!("/api/v1/goals/copies-are-many{end}"));
        let told = async |path: &str| fixture.ask("GET", path, None).await.1["other_version"].clone();
        goals::declare(&fixture.api.db, &[declared(&running.digest, None)]).await.unwrap();
        for path in &paths {
            assert_eq!(told(path).await, Value::Null, "{path}");
        }
        // Its controllers found out what this process has not heard yet.
        goals::declare(&fixture.api.db, &[declared("before", Some(&running.digest))]).await.unwrap();
        for path in &paths {
            let other = told(path).await;
            assert_eq!(
                (&other["digest"], &other["shown"]),
                (&json!("before"), &json!(false)),
                "{path} {other}"
            );
            assert!(other["since"].as_i64() > Some(1_000_000), "{other}");
            assert_eq!(other["why"], "copies-are-many.sql:9:1: timed out after 2s");
        }
        // Now it has: what is shown is what runs.
        goals::declare(&fixture.api.db, &[declared(&running.digest, Some("edit"))]).await.unwrap();
        let error = Some("copies-are-many.sql:9:1: timed out after 2s".to_owned());
        let shown = Entry { error, gave_way: Some("edit".into()), ..entry(&running) };
        fixture.api.hooks.goals = Arc::new(move || vec![shown.clone()]);
        let told = async |path: &str| fixture.ask("GET", path, None).await.1["other_version"].clone();
        for path in &paths {
            let other = told(path).await;
            assert_eq!(
                (&other["digest"], &other["shown"]),
                (&json!(running.digest), &json!(true)),
                "{other}"
            );
        }
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn what_is_set_over_no_goal_and_what_fits_none_is_a_health_code_until_it_is_gone() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let set = |goal: &str, name: &str, line: u32| Setting {
            goal: goal.into(),
            name: name.into(),
            value: "observe".into(),
            origin: format!("trued.toml:{line}"),
        };
        let good = set("copies-are-many", "mode", 2);
        let (gone, unfit) = (set("copies-are-mny", "mode", 5), set("copies-are-many", "param.age", 3));
        fixture.api.configured = Arc::new(vec![good.clone(), gone, unfit]);
        let (_, status) = fixture.ask("GET", "/api/v1/status", None).await;
        assert_eq!(status["health"]["codes"], json!(["SETTING_UNFIT"]), "{status}");
        let said = status["health"]["details"][0]["sentence"].as_str().unwrap();
        let (first, second) = said.split_once("; trued.toml:3: ").unwrap();
        assert_eq!(
            first,
            "trued.toml:5: there is no goal \"copies-are-mny\"; did you mean \"copies-are-many\"?"
        );
        assert!(
            second.starts_with("goal.copies-are-many.param.age: goal copies-are-many has no"),
            "{second}"
        );
        let (_, text) = fixture.ask("GET", "/metrics", None).await;
        assert!(text.as_str().unwrap().contains("trued_health_code{code=\"SETTING_UNFIT\"} 1"), "{text}");
        fixture.api.configured = Arc::new(vec![good]);
        let (_, status) = fixture.ask("GET", "/api/v1/status", None).await;
        assert_eq!(status["health"]["codes"], json!([]), "{status}");
        fixture.scratch.close().await;
    }
}

#[tokio::test]
async fn a_setting_is_checked_against_the_file_and_told_with_who_and_why() {
    for mut fixture in fixtures().await {
        fleet(&mut fixture).await;
        let declared = Declared {
            goal: "copies-are-many".into(),
            digest: Some("d".into()),
            file_error: None,
            gave_way: None,
        };
        goals::declare(&fixture.api.db, &[declared]).await.unwrap();
        let path = "/api/v1/goals/copies-are-many/settings";
        let wrong = json!({ "set": [["param.age", "3d"]], "reason": "look first" });
        assert_eq!(fixture.ask("PUT", path, Some(wrong)).await.0, StatusCode::BAD_REQUEST);
        let set = json!({ "set": [["mode", "observe"]], "reason": "look first" });
        let (status, changed) = fixture.ask("PUT", path, Some(set)).await;
        assert_eq!((status, &changed["changed"]), (StatusCode::OK, &json!(true)), "{changed}");
        let (_, shown) = fixture.ask("GET", "/api/v1/goals/copies-are-many", None).await;
        let one = &shown["settings"][0];
        assert_eq!((&one["name"], &one["value"]), (&json!("mode"), &json!("observe")));
        assert!(one["origin"].as_str().unwrap().ends_with(": look first"), "{shown}");
        // What is set also counts for a difference.
        let ask = edited(&RUNNING.replace("wanted < 3", "wanted = 3"));
        let (_, diff) = fixture.ask("POST", "/api/v1/goals/diff", Some(ask)).await;
        assert_eq!((&diff["added"], &diff["attempts"]), (&json!(2), &json!(0)), "{diff}");
        let wrong = json!({ "unset": ["mod"], "reason": "seen" });
        let (status, said) = fixture.ask("PUT", path, Some(wrong)).await;
        let unknown =
            "goal copies-are-many has no key \"mod\"; did you mean \"mode\"? (keys: mode, schedule, brake)";
        assert_eq!((status, &said["message"]), (StatusCode::BAD_REQUEST, &json!(unknown)), "{said}");
        let unset = json!({ "unset": ["mode"], "reason": "seen" });
        assert_eq!(fixture.ask("PUT", path, Some(unset.clone())).await.0, StatusCode::OK);
        let (status, said) = fixture.ask("PUT", path, Some(unset)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(said["message"], "mode of goal copies-are-many was not set at run time");
        fixture.scratch.close().await;
    }
}
