//! What a person can get wrong: one clear sentence, the right exit code, nothing half-done.

use crate::support::process::trued;
use crate::support::up::Up;
use std::process::Output;

fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn wrong_flags_and_unknown_keys_are_refused_with_a_suggestion() {
    refused(&trued().args(["status", "--outptu", "json"]).output().expect("runs"), 2, &["--outptu"]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trued.toml");
    std::fs::write(&file, "[goals]\nscedule = \"* * * * * *\"\n").expect("written");
    let output = trued().arg("--config").arg(&file).args(["config", "check"]).output().expect("runs");
    refused(&output, 2, &["trued.toml:2", "scedule", "schedule"]);
    std::fs::write(&file, "[goals]\nschedule = \"* * * * *\"\n").expect("written");
    let output = trued().arg("--config").arg(&file).args(["config", "check"]).output().expect("runs");
    refused(&output, 2, &["schedule", "seconds"]);
}

#[test]
fn a_data_directory_of_a_newer_version_is_left_alone() {
    let mut up = Up::start(&[]);
    up.process().signal("TERM");
    up.process().ends(crate::support::secs(15));
    let database = up.data().join("trued.db");
    assert!(database.exists());
    let sql = "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time) VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 0)";
    let status = std::process::Command::new("python3")
        .args([
            "-c",
            "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()",
        ])
        .arg(&database)
        .arg(sql)
        .status();
    assert!(status.is_ok_and(|status| status.success()));
    let output =
        trued().args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(up.data()).output().expect("runs");
    refused(&output, 2, &["newer"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let directory = tempfile::tempdir().expect("a directory");
    let output = trued()
        .args(["up", "--listen", &address, "--data"])
        .arg(directory.path().join("data"))
        .output()
        .expect("runs");
    refused(&output, 2, &[&address, "in use"]);
}

#[test]
fn an_agent_refuses_a_root_that_is_anothers() {
    let mut up = Up::start(&[]);
    up.process().signal("TERM");
    up.process().ends(crate::support::secs(15));
    let output = trued()
        .args(["agent", "--listen", "127.0.0.1:0", "--enrolment"])
        .arg(up.data().join("keys/fs-1.json"))
        .arg("--root")
        .arg(up.data().join("fileservers/fs-2"))
        .output()
        .expect("runs");
    refused(&output, 2, &["fs-2", "fs-1"]);
}

#[test]
fn a_command_without_a_fleet_says_that_none_is_reached() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = trued().args(["--url", "http://127.0.0.1:9", "status"]).output().expect("runs");
    refused(&output, 5, &["127.0.0.1:9"]);
    let output = trued().arg("--data").arg(directory.path()).arg("status").output().expect("runs");
    refused(&output, 5, &[]);
}
