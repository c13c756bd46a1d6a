//! What becomes of goal files on a running fleet, on both engines: whatever is wrong with one, its last good version
//! runs on, and status, log and metric say so.

use crate::support::engine::{Engine, postgres_server};
use crate::support::fleet::Fleet;
use crate::support::{secs, until};
use std::io::{Read as _, Write as _};
use std::path::Path;

const SETTINGS: &str = "schedule = \"*/2 * * * * *\"\npoll = \"2s\"\n";

/// It is unmet by one, always: that is how one sees that it runs on.
const GOOD: &str = "-- goal: probe\n-- summary: The clock stands still.\n-- subject: key\n--\nSELECT 'a' AS key, 'r' AS reason\n  FROM clock WHERE now > 0\n";

/// An edit, whether it is an error, and what the error says on SQLite and on PostgreSQL.
struct Edit {
    name: &'static str,
    make: fn(&Path),
    said: Option<[&'static [&'static str]; 2]>,
}

const EDITS: [Edit; 8] = [
    Edit {
        name: "half a file",
        make: |goals| write(goals, &GOOD[..GOOD.len() - 3]),
        said: Some([
            &["probe.sql:6:25: ", "it may be half-written; end it with"],
            &["probe.sql:6:25: ", "it may be half-written; end it with"],
        ]),
    },
    Edit {
        name: "half a query",
        make: |goals| write(goals, &GOOD.replace("> 0", ">")),
        said: Some([
            &["probe.sql:", "incomplete input (SQLite 1)"],
            &["probe.sql:", "syntax error", "(42601)"],
        ]),
    },
    Edit {
        name: "half a header",
        make: |goals| write(goals, &GOOD[..30]),
        said: Some([&["probe.sql:"], &["probe.sql:"]]),
    },
    Edit {
        name: "a link swapped",
        make: |goals| {
            let other = goals.with_file_name("other.sql");
            std::fs::write(&other, GOOD.replace("FROM clock", "FROM clocks")).expect("written");
            let link = goals.with_file_name("link");
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&other, &link).expect("linked");
            std::fs::rename(link, goals.join("probe.sql")).expect("swapped");
        },
        said: Some([
            &["probe.sql:6:8: no such table: clocks (SQLite 1)", "did you mean \"clock\"?"],
            &["probe.sql:6:8: relation \"clocks\" does not exist (42P01)", "did you mean \"clock\"?"],
        ]),
    },
    Edit {
        name: "a link to nowhere",
        make: |goals| {
            let link = goals.with_file_name("link");
            std::os::unix::fs::symlink(goals.with_file_name("nowhere.sql"), &link).expect("linked");
            std::fs::rename(link, goals.join("probe.sql")).expect("swapped");
        },
        said: Some([&["probe.sql: ", "No such file"], &["probe.sql: ", "No such file"]]),
    },
    Edit {
        name: "deleted",
        make: |goals| std::fs::remove_file(goals.join("probe.sql")).expect("removed"),
        said: Some([&["probe.sql: the file is gone"], &["probe.sql: the file is gone"]]),
    },
    Edit {
        name: "renamed",
        make: |goals| std::fs::rename(goals.join("probe.sql"), goals.join("probes.sql")).expect("renamed"),
        said: Some([&["probe.sql: the file is gone"], &["probe.sql: the file is gone"]]),
    },
    Edit {
        name: "an editor's backup files",
        make: |goals| {
            for name in
                ["probe.sql~", ".probe.sql.swp", "#probe.sql#", ".#probe.sql", "probe.sql.bak", "4913"]
            {
                std::fs::write(goals.join(name), "not SQL").expect("written");
            }
        },
        said: None,
    },
];

fn write(goals: &Path, text: &str) {
    std::fs::write(goals.join("probe.sql"), text).expect("written");
}

#[test]
fn whatever_becomes_of_a_file_its_last_good_version_runs_on_and_people_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engines = vec![Engine::sqlite(directory.path())];
    engines.extend(postgres_server().map(|server| Engine::postgres(&server, "files")));
    for (n, engine) in engines.iter().enumerate() {
        let place = directory.path().join(n.to_string());
        let goals = place.join("goals");
        std::fs::create_dir_all(&goals).expect("a directory");
        write(&goals, GOOD);
        let settings = format!("[goals]\ndirectory = \"{}\"\n{SETTINGS}", goals.display());
        let fleet = Fleet::start(&place, &engine.url, 0, &settings);
        for edit in &EDITS {
            runs_on(&fleet, edit.name);
            let evaluated = evaluated(&fleet);
            (edit.make)(&goals);
            match edit.said {
                Some(said) => is_told(&fleet, edit.name, said[n]),
                None => until("two evaluations", secs(30), || later(&fleet, evaluated + 4_000)),
            }
            runs_on(&fleet, edit.name);
            for left in ["probe.sql", "probes.sql"] {
                let _ = std::fs::remove_file(goals.join(left));
            }
            write(&goals, GOOD);
            until("all is well again", secs(30), || {
                let goals = fleet.json(&["status"])["goals"].clone();
                let one = goals.as_array().expect("goals").len() == 1;
                if one && goals[0]["file_error"].is_null() {
                    Ok(())
                } else {
                    Err(format!("{}: {goals}", edit.name))
                }
            });
        }
    }
}

/// Within 30 seconds, in status, log and metric.
fn is_told(fleet: &Fleet, name: &str, all: &[&str]) {
    let has = |text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let lacks = all.iter().find(|what| !text.contains(what.trim()));
        lacks.map_or(Ok(()), |what| Err(format!("{name}: no {what:?} in {text}")))
    };
    until("JSON, status, log and metric tell", secs(30), || {
        let status = fleet.json(&["status"]);
        let goals = status["goals"].as_array().expect("goals");
        let probe = goals.iter().find(|goal| goal["name"] == "probe").expect("the goal");
        has(probe["file_error"].as_str().unwrap_or_default())?;
        has(&String::from_utf8_lossy(&fleet.run(&["status"]).stdout))?;
        has(&fleet.said().replace("\\\"", "\""))?;
        let metrics = metrics(fleet);
        let line = "trued_goal_file_error{goal=\"probe\"} 1";
        if metrics.contains(line) { Ok(()) } else { Err(format!("{name}: no {line} in {metrics}")) }
    });
}

/// The last good version is evaluated, by an evaluation that began after now.
fn runs_on(fleet: &Fleet, name: &str) {
    let now = trued::clock::now();
    until("the last good version is evaluated", secs(30), || {
        let status = fleet.json(&["status"]);
        let goals = status["goals"].as_array().expect("goals");
        let probe = goals.iter().find(|goal| goal["name"] == "probe").ok_or("it is gone")?;
        let good = probe["state"] == "unmet" && probe["findings"] == 1;
        if good && probe["evaluated_at"].as_i64().is_some_and(|at| at > now) {
            return Ok(());
        }
        Err(format!("{name}: {probe}"))
    });
}

fn evaluated(fleet: &Fleet) -> i64 {
    fleet.json(&["status"])["goals"][0]["evaluated_at"].as_i64().expect("a moment")
}

fn later(fleet: &Fleet, moment: i64) -> Result<(), String> {
    let at = evaluated(fleet);
    if at > moment { Ok(()) } else { Err(format!("{at} and not {moment}")) }
}

fn metrics(fleet: &Fleet) -> String {
    let host = fleet.url.strip_prefix("http://").expect("plain");
    let mut stream = std::net::TcpStream::connect(host).expect("it listens");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
