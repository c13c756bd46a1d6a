//! Goal files are edited on a running fleet, well and badly.

use crate::support::up::Up;
use crate::support::{secs, until};

/// A bad text, and what the error must name.
const BAD: [(&str, &str, &str); 7] = [
    ("half", "-- goal: probe\n-- summary: Some", "probe.sql:"),
    (
        "syntax",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nSELEC id FROM repositories\n",
        "probe.sql:5:1",
    ),
    (
        "column",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nSELECT r.repo_idd AS repository_id\n  FROM replicas r\n",
        "probe.sql:5:",
    ),
    (
        "delete",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nDELETE FROM replicas\n",
        "probe.sql:5:1",
    ),
    (
        "two",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nSELECT id AS repository_id FROM repositories; DELETE FROM replicas\n",
        "probe.sql:5:",
    ),
    (
        "sleep",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nSELECT id AS repository_id FROM repositories WHERE pg_sleep(9) IS NULL\n",
        "probe.sql:5:",
    ),
    (
        "now",
        "-- goal: probe\n-- summary: Nothing.\n-- subject: repository\n--\nSELECT id AS repository_id FROM repositories WHERE created_at > now()\n",
        "probe.sql:5:",
    ),
];

const GOOD: &str = "-- goal: probe\n-- summary: No repository is called forbidden.\n-- subject: repository\n--\nSELECT id AS repository_id FROM repositories WHERE name = 'forbidden'\n";
const ENDLESS: &str = "-- goal: probe\n-- summary: Endless.\n-- subject: repository\n-- timeout: 2s\n--\nWITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS repository_id FROM n WHERE i < 0\n";

#[test]
fn a_bad_edit_keeps_the_last_good_version_and_is_named_by_file_line_and_column() {
    let up = Up::start(&[]);
    let file = up.data().join("goals/probe.sql");
    std::fs::write(&file, GOOD).expect("written");
    state_becomes(&up, |goal| goal["state"] == "met" && goal["error"].is_null());
    for (name, text, place) in BAD {
        std::fs::write(&file, text).expect("written");
        state_becomes(&up, |goal| {
            goal["error"].as_str().is_some_and(|error| error.contains(place)) && goal["state"] == "met"
        });
        let check = up.run(&["goal", "check", file.to_str().expect("text")]);
        let said =
            format!("{}{}", String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
        assert_eq!(check.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains(place), "{name}: {said}");
        std::fs::write(&file, GOOD).expect("written");
        state_becomes(&up, |goal| goal["error"].is_null());
    }
}

#[test]
fn an_endless_edit_gives_way_to_the_version_that_ran_before_until_it_is_another_text() {
    let up = Up::start(&[]);
    let file = up.data().join("goals/probe.sql");
    std::fs::write(&file, GOOD).expect("written");
    state_becomes(&up, |goal| goal["state"] == "met" && goal["error"].is_null());
    std::fs::write(&file, ENDLESS).expect("written");
    state_becomes(&up, |goal| {
        let error = goal["error"].as_str().unwrap_or_default();
        goal["state"] == "met" && error.contains("probe.sql:6:1: timed out after 2s")
    });
    let first = evaluated(&up);
    until("the version before is evaluated again", secs(20), || {
        let at = |all: &[(String, i64)]| all.iter().find(|(name, _)| name == "probe").map(|(_, at)| *at);
        let now = evaluated(&up);
        if at(&now) > at(&first) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    until("what runs is shown, and that it is another text", secs(20), || {
        let shown = up.json(&["goal", "show", "probe"]);
        let sql = shown["sql"].as_str().unwrap_or_default();
        let is_told = shown["other_version"]["shown"] == true && shown["other_version"]["since"].is_i64();
        if is_told && sql.contains("forbidden") { Ok(()) } else { Err(format!("{shown}")) }
    });
    for verb in ["run", "explain"] {
        let said = String::from_utf8(up.run(&["goal", verb, "probe"]).stderr).expect("text");
        let words = ["probe runs another text than the one on disk since", "timed out after 2s"];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    std::fs::write(&file, GOOD.replace("forbidden", "other")).expect("written");
    state_becomes(&up, |goal| goal["state"] == "met" && goal["error"].is_null());
}

#[test]
fn an_endless_goal_is_unknown_while_the_others_are_on_time() {
    let up = Up::start(&[]);
    std::fs::write(up.data().join("goals/probe.sql"), ENDLESS).expect("written");
    state_becomes(&up, |goal| {
        goal["state"] == "unknown"
            && goal["error"].as_str().is_some_and(|error| error.contains("2s") || error.contains("timeout"))
    });
    let first = evaluated(&up);
    until("the others are evaluated again and again", secs(20), || {
        let now = evaluated(&up);
        let moved = first.iter().zip(&now).all(|((name, a), (_, b))| name == "probe" || b > a);
        if moved { Ok(()) } else { Err(format!("{first:?} {now:?}")) }
    });
    assert_eq!(up.run(&["status"]).status.code(), Some(7));
}

fn state_becomes(up: &Up, good: impl Fn(&serde_json::Value) -> bool) {
    until("the goal probe is as expected", secs(45), || {
        let status = up.json(&["status"]);
        let found = status["goals"].as_array().expect("goals").iter().find(|goal| goal["name"] == "probe");
        match found {
            Some(goal) if good(goal) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn evaluated(up: &Up) -> Vec<(String, i64)> {
    let status = up.json(&["status"]);
    let goals = status["goals"].as_array().expect("goals").iter();
    goals
        .map(|goal| {
            (goal["name"].as_str().expect("a name").to_owned(), goal["evaluated_at"].as_i64().unwrap_or(0))
        })
        .collect()
}
