//! Trying and steering goals from the command line, and what exit codes say of them.

use crate::support::engine::{Engine, postgres_server};
use crate::support::process::trued;
use crate::support::up::Up;
use crate::support::{secs, until};

const LOW: &str = "-- goal: probe\n-- summary: Nothing is wrong.\n-- subject: key\n-- severity: low\n--\nSELECT 'a' AS key, 'r' AS reason WHERE 1 > 0 UNION ALL SELECT 'b', 'r' WHERE 1 > 0\n";

/// A query that errs is no success, and no finding either.
#[test]
fn a_missing_table_fails_the_check_and_findings_alone_are_three() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("probe.sql");
    std::fs::write(&file, LOW.replace("WHERE 1 > 0 UNION", "FROM nowhere UNION")).expect("written");
    let mut engines = vec![Engine::sqlite(directory.path())];
    engines.extend(postgres_server().map(|server| Engine::postgres(&server, "trials")));
    for engine in &engines {
        let migrated = trued().args(["migrate", "--database-url", &engine.url]).output().expect("runs");
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        let check =
            trued().args(["goal", "check", "--database-url", &engine.url]).arg(&file).output().expect("runs");
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert_eq!(check.status.code(), Some(1), "{said}");
        assert!(said.contains("probe.sql:6:") && said.contains("nowhere"), "{said}");
        assert!(!engine.url.starts_with("postgres") || said.contains("42P01"), "{said}");
    }
}

/// The true count, whatever the severity; and a pause, a setting, a difference, a history.
#[test]
fn a_goal_of_low_severity_counts_truly_and_is_paused_set_and_compared() {
    let up = Up::start(&[]);
    let file = up.data().join("goals/probe.sql");
    std::fs::write(&file, LOW).expect("written");
    until("two findings", secs(45), || {
        let status = up.json(&["status"]);
        let found = status["goals"].as_array().expect("goals").iter().find(|goal| goal["name"] == "probe");
        match found {
            Some(goal) if goal["findings"] == 2 && goal["state"] == "unmet" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    // The API reads the files by itself, a moment later perhaps.
    until("it returns rows", secs(30), || match up.run(&["goal", "run", "probe"]).status.code() {
        Some(3) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let history = up.json(&["goal", "history", "probe"]);
    assert_eq!(history["evaluations"][0]["findings"], 2);
    let edit = up.data().join("probe.sql");
    std::fs::write(&edit, LOW.replace("'b', 'r'", "'c', 'r'")).expect("written");
    let diff = up.json(&["goal", "diff", edit.to_str().expect("text")]);
    let signs: Vec<_> =
        diff["rows"].as_array().expect("rows").iter().map(|row| row["sign"].clone()).collect();
    assert_eq!(signs, ["-", "+"], "{diff}");
    assert_eq!(up.run(&["goal", "pause", "probe", "--reason", "night"]).status.code(), Some(2));
    assert!(up.run(&["goal", "pause", "probe", "--for", "2h", "--reason", "night"]).status.success());
    let shown = up.json(&["goal", "show", "probe"]);
    assert_eq!(shown["paused"]["reason"], "night");
    assert!(up.run(&["goal", "resume", "probe"]).status.success());
    let set = up.run(&["goal", "set", "probe", "--schedule", "*/2 * * * * *", "--reason", "soon"]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let shown = up.json(&["goal", "show", "probe"]);
    assert!(shown["settings"][0]["origin"].as_str().expect("text").contains("soon"), "{shown}");
    assert!(up.run(&["goal", "explain", "probe"]).status.success());
}

#[test]
fn fixtures_are_run_and_a_case_that_fails_prints_a_diff() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("tests")).expect("made");
    let file = directory.path().join("few.sql");
    let goal = "-- goal: few\n-- summary: No repository wants fewer than four copies.\n-- subject: repository\n--\nSELECT id AS repository_id FROM repositories WHERE wanted < 4\n";
    std::fs::write(&file, goal).expect("written");
    let run = || {
        let output = trued().args(["goal", "test"]).arg(&file).output().expect("runs");
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), said)
    };
    let (code, said) = run();
    assert!(code == Some(1) && said.contains("a case that is met and one that is unmet"), "{said}");
    let fixture = directory.path().join("tests/few.toml");
    let cases = "[[case]]\nname = \"four\"\nrepositories = [{ name = \"p\", wanted = 4 }]\nexpect = []\n[[case]]\nname = \"three\"\nrepositories = [{ name = \"q\", wanted = 3 }]\nexpect = [\"q\"]\n";
    std::fs::write(&fixture, cases).expect("written");
    let (code, said) = run();
    assert_eq!(code, Some(0), "{said}");
    std::fs::write(&fixture, cases.replace("wanted = 3", "wanted = 5")).expect("written");
    let (code, said) = run();
    assert!(code == Some(1) && said.contains("- q (expected"), "{said}");
}
