//! What a person can get wrong: one clear sentence, the right exit code, nothing half-done.

use crate::support::postgres::Server;
use crate::support::process::{Process, trued};
use crate::support::up::Up;
use std::path::{Path, PathBuf};
use std::process::Output;

fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

/// Puts a migration into a database that no version of now knows.
fn later(database: &Path) {
    let sql = "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time) VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 0)";
    let status = std::process::Command::new("python3")
        .args([
            "-c",
            "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()",
        ])
        .arg(database)
        .arg(sql)
        .status();
    assert!(status.is_ok_and(|status| status.success()));
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
    later(&database);
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

/// A database with a fleet in it, made by `migrate`; its URL.
fn database(directory: &Path) -> String {
    let url = format!("sqlite:{}", directory.join("trued.db").display());
    let output = trued().args(["migrate", "--database-url", &url]).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    url
}

/// Enrols a part in a database's fleet; its enrolment's file.
fn enrolled(directory: &Path, url: &str, role: &str) -> PathBuf {
    let output = trued()
        .args(["part", "add", role, &format!("{role}-1"), "--database-url", url])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = directory.join(format!("{role}.json"));
    std::fs::write(&path, output.stdout).expect("written");
    path
}

/// How a part is started, with its enrolment and database.
fn part(command: &str, enrolment: &Path, url: &str) -> std::process::Command {
    let mut started = trued();
    started.args([command, "--enrolment"]).arg(enrolment).args(["--database-url", url]);
    started
}

const PARTS: [(&str, &str); 3] = [("serve", "controller"), ("worker", "worker"), ("router", "router")];

#[test]
fn a_port_in_use_is_named_with_what_gave_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let up = |more: &[&str]| {
        trued()
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .args(more)
            .output()
            .expect("runs")
    };
    let hint =
        |given: &str| format!("{address} is in use by another program; give another address with {given}");
    refused(&up(&["--router-listen", &address]), 2, &[&hint("--router-listen")]);
    let file = directory.path().join("trued.toml");
    std::fs::write(&file, format!("[router]\nlisten = \"{address}\"\n")).expect("written");
    let line = format!("router.listen ({}:2)", file.display());
    refused(&up(&["--config", file.to_str().expect("text")]), 2, &[&hint(&line)]);
    assert!(!data.exists(), "ports are tried before anything is made");

    let url = database(directory.path());
    let worker = enrolled(directory.path(), &url, "worker");
    let router = enrolled(directory.path(), &url, "router");
    let serve = enrolled(directory.path(), &url, "controller");
    for (command, enrolment, variable) in [
        ("worker", &worker, "TRUED_WORKER__LISTEN"),
        ("router", &router, "TRUED_ROUTER__PAGES"),
        ("router", &router, "TRUED_ROUTER__LISTEN"),
        ("serve", &serve, "TRUED_HTTP__LISTEN"),
    ] {
        let output = part(command, enrolment, &url)
            .env("TRUED_ROUTER__LISTEN", "127.0.0.1:0")
            .env(variable, &address)
            .output()
            .expect("runs");
        refused(&output, 2, &[&hint(variable)]);
    }
    let output = part("serve", &serve, &url).args(["--listen", &address]).output().expect("runs");
    refused(&output, 2, &[&hint("--listen")]);
}

#[test]
fn an_agent_whose_port_is_in_use_is_told_of_its_flag_and_makes_nothing() {
    let mut up = Up::start(&["--fileservers", "1"]);
    up.process().signal("TERM");
    up.process().ends(crate::support::secs(15));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let root = up.directory.path().join("root");
    let output = trued()
        .args(["agent", "--listen", &address, "--enrolment"])
        .arg(up.data().join("keys/fs-1.json"))
        .arg("--root")
        .arg(&root)
        .output()
        .expect("runs");
    refused(&output, 2, &[&address, "in use", "--listen"]);
    assert!(!root.exists());
}

#[test]
fn what_is_set_over_a_goal_must_fit_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let goals = Path::new(env!("CARGO_MANIFEST_DIR")).join("goals");
    let file = directory.path().join("trued.toml");
    let write = |text: &str| {
        let head = format!("[goals]\ndirectory = \"{}\"\n", goals.display());
        std::fs::write(&file, format!("{head}{text}")).expect("written");
    };
    let check = || trued().arg("--config").arg(&file).args(["config", "check"]).output().expect("runs");
    write("[goal.replicas-suffice]\nparam.nonesuch = \"1\"\n");
    refused(
        &check(),
        2,
        &["trued.toml:4", "goal.replicas-suffice.param.nonesuch", "keys: mode", "param.patience"],
    );
    write("[goal.replicas-suffice]\nparam.patience = \"soon\"\n");
    refused(
        &check(),
        2,
        &["trued.toml:4", "goal.replicas-suffice.param.patience", "\"soon\" is not of the kind"],
    );
    write("[goal.replicas-suffice]\nparam.patience = \"7m\"\n");
    assert!(check().status.success(), "{:?}", check());

    write("[goal.replicas-sufice]\nmode = \"observe\"\n");
    let words = ["trued.toml:4", "there is no goal", "did you mean \"replicas-suffice\"?"];
    refused(&check(), 2, &words);

    // A start says it and comes up: the goal may have been removed long before a controller restarts at night.
    let mut up = Up::start(&["--config", file.to_str().expect("text")]);
    let said = up.process().said();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let health = up.json(&["status"])["health"].clone();
    assert!(health["codes"].as_array().expect("codes").contains(&"SETTING_UNFIT".into()), "{health}");
    let status = String::from_utf8(up.run(&["status"]).stdout).expect("text");
    assert!(status.contains("  SETTING_UNFIT: ") && status.contains("trued.toml:4"), "{status}");
}

#[test]
fn variables_that_are_no_keys_are_told_or_refused() {
    let check = |name: &str| trued().env(name, "20s").args(["config", "check"]).output().expect("runs");
    refused(&check("TRUED_FLEET__GRAZE"), 2, &["TRUED_FLEET__GRAZE", "did you mean fleet.grace?"]);
    refused(&check("TRUED_GRACE"), 0, &["TRUED_GRACE", "did you mean TRUED_FLEET__GRACE?"]);
    assert!(check("TRUED_TEST_GRACE").stderr.is_empty());
}

#[test]
fn a_part_of_another_fleet_is_refused_at_its_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let other = directory.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let (ours, theirs) = (database(directory.path()), database(&other));
    for (command, role) in PARTS {
        let enrolment = enrolled(&other, &theirs, role);
        let output = part(command, &enrolment, &ours)
            .env("TRUED_HTTP__LISTEN", "127.0.0.1:0")
            .env("TRUED_ROUTER__LISTEN", "127.0.0.1:0")
            .output()
            .expect("runs");
        let said = [
            enrolment.to_str().expect("text"),
            &format!("of {role} {role}-1 in fleet"),
            "do not belong together",
        ];
        refused(&output, 2, &said);
    }
    // The worker that a controller carries with it, too.
    let controller = enrolled(directory.path(), &ours, "controller");
    let output = part("serve", &controller, &ours)
        .args(["--listen", "127.0.0.1:0", "--worker", "--worker-enrolment"])
        .arg(other.join("worker.json"))
        .output()
        .expect("runs");
    refused(&output, 2, &["of worker worker-1 in fleet", "do not belong together"]);
}

#[test]
fn a_database_file_that_is_not_there_is_named_and_not_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = database(directory.path());
    let missing = directory.path().join("treud.db");
    let mistyped = format!("sqlite:{}", missing.display());
    let named = format!("there is no database file {}", missing.display());
    let refused_all = |output: &Output| {
        refused(output, 2, &[&named, "--database-url"]);
        assert!(!missing.exists());
    };
    for (command, role) in PARTS {
        let enrolment = enrolled(directory.path(), &url, role);
        let output = part(command, &enrolment, &mistyped)
            .env("TRUED_HTTP__LISTEN", "127.0.0.1:0")
            .env("TRUED_ROUTER__LISTEN", "127.0.0.1:0")
            .output()
            .expect("runs");
        refused_all(&output);
    }
    for command in [
        ["migrate", "--check", "--database-url", &mistyped].as_slice(),
        &["part", "add", "worker", "w-9", "--database-url", &mistyped],
        &["goal", "check", "goals/replicas-match.sql", "--database-url", &mistyped],
    ] {
        refused_all(&trued().args(command).output().expect("runs"));
    }
    let nowhere = format!("sqlite:{}", directory.path().join("no/such/trued.db").display());
    let output = trued().args(["migrate", "--database-url", &nowhere]).output().expect("runs");
    refused(&output, 2, &[&nowhere, "unable to open", "--database-url"]);
}

#[test]
fn a_data_directory_that_can_be_none_is_wrong_usage() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").expect("written");
    for (path, why) in [(file.clone(), "it is a file"), (file.join("data"), "it lies below a file")] {
        let output =
            trued().args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(&path).output().expect("runs");
        refused(&output, 2, &[path.to_str().expect("text"), why, "--data"]);
    }
}

#[test]
fn how_tables_stand_has_the_exit_codes_of_the_help() {
    let directory = tempfile::tempdir().expect("a directory");
    let empty = directory.path().join("empty.db");
    std::fs::write(&empty, "").expect("written");
    let check =
        |url: &str| trued().args(["migrate", "--check", "--database-url", url]).output().expect("runs");
    assert_eq!(check(&format!("sqlite:{}", empty.display())).status.code(), Some(1));
    let url = database(directory.path());
    assert_eq!(check(&url).status.code(), Some(0));
    later(&directory.path().join("trued.db"));
    refused(&check(&url), 2, &["newer"]);
    let help = trued().args(["migrate", "--help"]).output().expect("runs");
    let help = String::from_utf8_lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("exit code 1: migrations are missing, 2: a newer trued made them"), "{help}");
}

#[test]
fn copies_that_cannot_be_wanted_are_refused_before_anybody_is_asked() {
    let nobody = ["--url", "http://127.0.0.1:9"];
    for command in [
        ["repo", "set-replicas", "x", "0"].as_slice(),
        &["repo", "set-replicas", "x", "17"],
        &["repo", "create", "x", "--replicas", "0"],
        &["repo", "import", ".", "--replicas", "0"],
    ] {
        refused(&trued().args(nobody).args(command).output().expect("runs"), 2, &["1..=16"]);
    }
}

#[test]
fn a_start_that_takes_long_says_what_it_waits_for() {
    let up = Up::idle(&[]);
    let roots = up.data().join("fileservers");
    std::fs::create_dir_all(&roots).expect("a directory");
    std::fs::write(roots.join("fs-2"), "in the way of its root").expect("written");
    let mut command = trued();
    command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(up.data());
    let mut process = Process::start(&mut command);
    process.hears("waits for fileserver fs-2 to be online", crate::support::secs(60));
    process.hears("not ready after 2", crate::support::secs(60));
    process.hears("ready, but not all fileservers are online", crate::support::secs(60));
    process.signal("TERM");
    process.ends(crate::support::secs(30));
}

#[test]
fn a_server_that_refuses_the_password_is_unreachable_and_says_so_plainly() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(directory.path(), &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    server.ask("postgres", "CREATE ROLE asker LOGIN PASSWORD 'right'");
    server.write("pg_hba.conf", "host all asker all scram-sha-256\nhost all all all trust\n");
    server.ask("postgres", "SELECT pg_reload_conf()");
    let url = |who: &str, name: &str| format!("postgres://{who}@127.0.0.1:{}/{name}", server.port);
    crate::support::until("the new rules hold", crate::support::secs(20), || {
        let output = trued()
            .args(["migrate", "--check", "--database-url", &url("asker:wrong", "trued")])
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(1) {
            return Err(said);
        }
        refused(
            &output,
            5,
            &["password authentication failed for user \"asker\"\n", "database.password_file"],
        );
        assert!(!said.contains("at line") && !said.contains("wrong"), "{said}");
        Ok(())
    });
    let output =
        trued().args(["migrate", "--database-url", &url("postgres", "nonesuch")]).output().expect("runs");
    refused(&output, 5, &["database \"nonesuch\" does not exist", "--database-url"]);
}
