//! PostgreSQL is restarted, loses its sessions, turns read-only, hangs, fails over and is slow: health says what is
//! wrong within ten seconds, and work goes on by itself soon after its return.

use crate::support::fleet::Fleet;
use crate::support::history;
use crate::support::postgres::Server;
use crate::support::postgres::slow::Proxy;
use crate::support::source::small;
use crate::support::{secs, until};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[goals]\nschedule = \"*/3 * * * * *\"\n[worker]\nlease = \"15s\"\n";

/// Health says what is wrong within this.
const NOTICED: Duration = secs(10);

/// Ten seconds, and the schedule of the goals that show it.
const GOES_ON: Duration = secs(14);

// Case 22: after a failover the service went on with read-only sessions, and its health stayed green.
#[test]
fn whatever_happens_to_postgresql_it_is_said_and_work_goes_on_without_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(mut primary) = Server::start(directory.path(), &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    let mut standby = primary.standby(directory.path(), &["hot_standby=on"]);
    let place = directory.path().join("fleet");
    std::fs::create_dir(&place).expect("a directory");
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/trued", primary.port, standby.port);
    let mut fleet = Fleet::start(&place, &url, 4, SETTINGS);
    fleet.start_worker();
    let sources = place.join("sources");
    for n in 0..6 {
        small(&sources, &format!("r{n}"), 2);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    fleet.met(60);
    says_that_pushes_are_at_risk(&fleet);

    primary.stop();
    health(&fleet, Some("read-only"));
    primary.again();
    goes_on(&fleet, "restarted", 0);

    primary.ask(
        "postgres",
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'trued'",
    );
    goes_on(&fleet, "all sessions ended", 1);

    primary.ask("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    primary.ask("postgres", "SELECT pg_reload_conf()");
    health(&fleet, Some("read-only"));
    std::thread::sleep(secs(read_only_for()));
    primary.ask("postgres", "ALTER SYSTEM RESET default_transaction_read_only");
    primary.ask("postgres", "SELECT pg_reload_conf()");
    goes_on(&fleet, "read-only for a while", 2);

    primary.pause(true);
    health(&fleet, Some("read-only"));
    primary.pause(false);
    goes_on(&fleet, "hung", 3);

    standby_has_all(&primary);
    primary.stop();
    health(&fleet, Some("read-only"));
    standby.promote();
    goes_on(&fleet, "failed over", 4);
    standby.stop();
    health(&fleet, Some("does not answer"));
    standby.again();
    goes_on(&fleet, "the other one restarted", 5);

    fleet.met(60);
    let all = history::attempts(&standby.url());
    history::assert_one_at_a_time(&all);
}

/// A minute where there is time, else long enough for everybody to notice.
fn read_only_for() -> u64 {
    std::env::var("TRUED_TEST_LONG").map_or(5, |_| 60)
}

fn says_that_pushes_are_at_risk(fleet: &Fleet) {
    until("status says that a failover may lose pushes", secs(30), || {
        let said = fleet.done_or_open(&["status"]);
        let good = said.contains("CAN BE LOST") && said.contains("synchronous_standby_names is empty");
        if good { Ok(()) } else { Err(said) }
    });
}

/// The code `SQL_AWAY` with this word in its sentence; none: it is not raised.
fn health(fleet: &Fleet, word: Option<&str>) {
    let asked = Instant::now();
    until(&format!("health says {word:?}"), NOTICED, || {
        let status = fleet.json(&["status"]);
        let details = status["health"]["details"].as_array().expect("details");
        let said =
            details.iter().find(|one| one["code"] == "SQL_AWAY").and_then(|one| one["sentence"].as_str());
        let good = match (word, said) {
            (Some(word), Some(said)) => said.contains(word),
            (None, None) => true,
            _ => false,
        };
        if good { Ok(()) } else { Err(format!("{status:#}")) }
    });
    eprintln!("health said {word:?} after {:?}", asked.elapsed());
}

/// Health is good again, a goal is evaluated, and a repair is done.
fn goes_on(fleet: &Fleet, after: &str, repository: usize) {
    let (returned, since) = (Instant::now(), trued::clock::now());
    until(&format!("{after}: goals are evaluated again"), GOES_ON, || {
        let status = fleet.json(&["status"]);
        let goals = status["goals"].as_array().expect("goals").iter();
        let latest = goals
            .filter(|goal| goal["state"] != "unknown")
            .filter_map(|goal| goal["evaluated_at"].as_i64())
            .max();
        if latest.is_some_and(|at| at > since) {
            Ok(())
        } else {
            Err(format!("{status:#}\n{}", fleet.said()))
        }
    });
    eprintln!("{after}: a goal was evaluated after {:?}", returned.elapsed());
    health(fleet, None);
    let name = format!("r{repository}");
    fleet.done(&["repo", "set-replicas", &name, "4"]);
    until(&format!("{after}: {name} has four copies"), secs(60), || {
        let copies = fleet.copies(&name);
        let good = copies.iter().filter(|copy| copy.state == "live" && copy.in_sync).count();
        if good == 4 { Ok(()) } else { Err(format!("{copies:?}\n{}", fleet.said())) }
    });
}

/// The standby is asynchronous: what it lacks would be lost, which is said elsewhere and not what is tested here.
fn standby_has_all(primary: &Server) {
    until("the standby has all", secs(20), || {
        let behind = primary.ask(
            "postgres",
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn() - 100000",
        );
        if behind == "1" { Ok(()) } else { Err(behind) }
    });
}

#[test]
fn a_slow_database_slows_dispatch_by_itself_and_the_pace_comes_back_in_steps() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(directory.path(), &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    let proxy = Proxy::before(server.port);
    let place = directory.path().join("fleet");
    std::fs::create_dir(&place).expect("a directory");
    let url = format!("postgres://postgres@127.0.0.1:{}/trued", proxy.port);
    let mut fleet = Fleet::start(&place, &url, 3, SETTINGS);
    fleet.start_worker();
    proxy.delay(200);
    let low = pace_becomes(&fleet, secs(40), |pace| pace <= 25);
    let said = fleet.done_or_open(&["status"]);
    assert!(said.contains("BRAKE       sql holds dispatch and evaluation at"), "{said}");
    proxy.delay(0);
    let back = pace_becomes(&fleet, secs(90), |pace| pace == 100);
    assert!(low.iter().any(|pace| *pace < 100), "{low:?}");
    let steps: Vec<_> = back.iter().copied().filter(|pace| *pace > 25).collect();
    assert!(steps.windows(2).all(|two| two[0] <= two[1]), "it only rises: {back:?}");
    assert!(back.len() >= 4, "in steps: {back:?}");
}

/// Distinct values of the pace until it is as wanted.
fn pace_becomes(fleet: &Fleet, within: Duration, good: impl Fn(i64) -> bool) -> Vec<i64> {
    let mut seen: Vec<i64> = Vec::new();
    until("the pace is as wanted", within, || {
        let status = fleet.json(&["status"]);
        let pace = status["pressure"]["pace"].as_i64().unwrap_or(100);
        if seen.last() != Some(&pace) {
            seen.push(pace);
        }
        if good(pace) { Ok(()) } else { Err(format!("{seen:?}\n{status:#}")) }
    });
    seen
}
