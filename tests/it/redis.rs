//! Redis is flushed, killed, paused, full, and not there at all: the same findings are repaired, nothing twice,
//! and at most a sweep later.

use crate::push::work;
use crate::router::done;
use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::history::{self, Ended};
use crate::support::redis::Redis;
use crate::support::source::{references, small};
use crate::support::{secs, until};

/// A sweep that is long enough to be told from a reminder.
const SWEEP_MS: i64 = 12_000;

fn settings(redis: &Redis) -> String {
    format!(
        "[goals]\nschedule = \"*/3 * * * * *\"\n[worker]\nlease = \"15s\"\n[queue]\nsweep = \"12s\"\nredis = \"{}\"\n",
        redis.url()
    )
}

// Case 22 of the engine's list: what the queue loses, goals and sweeps find again.
#[test]
fn whatever_happens_to_redis_each_finding_is_repaired_once_and_at_most_a_sweep_later() {
    let Some(mut redis) = Redis::place() else { return eprintln!("skipped: no redis-server is installed") };
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 4, &settings(&redis));
    fleet.start_worker();
    let sources = directory.path().join("sources");
    for n in 0..7 {
        small(&sources, &format!("r{n}"), 2);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);

    redis_is_away(&fleet, true);
    let absent = one_more_copy(&fleet, "r0");
    redis.start();
    redis_is_away(&fleet, false);
    a_worker_listens(&redis);
    let reminded = one_more_copy(&fleet, "r1");
    redis.done("FLUSHALL");
    let flushed = one_more_copy(&fleet, "r2");
    redis.done("CLIENT PAUSE 6000 ALL");
    let paused = one_more_copy(&fleet, "r3");
    until("the pause is over", secs(20), || redis.ask("PING").map(drop).ok_or_else(String::new));
    redis.done("CONFIG SET maxmemory 1");
    redis_is_away(&fleet, true);
    let full = one_more_copy(&fleet, "r4");
    redis.done("CONFIG SET maxmemory 0");
    redis_is_away(&fleet, false);
    redis.kill();
    let killed = one_more_copy(&fleet, "r5");
    redis.start();
    redis_is_away(&fleet, false);
    a_worker_listens(&redis);
    let again = one_more_copy(&fleet, "r6");

    for (what, ended) in [("reminded", &reminded), ("after a restart", &again)] {
        assert!(waited(ended) < SWEEP_MS / 2, "{what}: a reminder is quicker than a sweep: {ended:?}");
    }
    for (what, ended) in
        [("absent", absent), ("flushed", flushed), ("paused", paused), ("full", full), ("killed", killed)]
    {
        assert!(waited(&ended) <= SWEEP_MS * 5 / 4 + 2_000, "{what}: at most a sweep later: {ended:?}");
    }
    fleet.met(60);
    let all = history::attempts(&engine.url);
    history::assert_one_at_a_time(&all);
    let copies: Vec<_> = all.iter().filter(|one| one.repair == "re-replicate").collect();
    assert_eq!(copies.len(), 7, "nothing twice: {copies:#?}");
    assert!(all.iter().all(|one| one.outcome != "lost"), "{all:#?}");
}

// A router is a process of its own, and the next evaluation is months away: its wish is what finds the copy.
#[test]
fn a_copy_that_missed_a_push_is_brought_up_at_once_by_the_routers_wish() {
    let Some(mut redis) = Redis::place() else { return eprintln!("skipped: no redis-server is installed") };
    redis.start();
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let settings = format!(
        "[goals]\nschedule = \"0 0 0 1 1 *\"\n[queue]\nredis = \"{}\"\n\
         [router]\nanonymous_reads = true\nanonymous_writes = true\n",
        redis.url()
    );
    let mut fleet = Fleet::start(directory.path(), &engine.url, 3, &settings);
    fleet.start_worker();
    let source = small(&directory.path().join("sources"), "thing", 2);
    fleet.done(&["repo", "import", source.to_str().expect("text")]);
    let (router, _) = fleet.add_router("rt-1", &[]);
    let place = directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let here = work(&place, &format!("http://{router}/thing.git"), "one");

    fleet.agents[2].signal("STOP");
    done(&here, &["push", "-q", "origin", "one"]);
    fleet.agents[2].signal("CONT");
    until("it has what it missed", secs(60), || {
        let copies = fleet.copies("thing");
        let behind = copies.iter().filter(|copy| !references(&copy.path).contains("refs/heads/one"));
        if behind.count() == 0 { Ok(()) } else { Err(format!("{copies:#?}\n{}", fleet.said())) }
    });
}

/// Whoever sends is back before whoever listens may be: each tries by itself, seconds apart.
fn a_worker_listens(redis: &Redis) {
    until("a worker waits for reminders", secs(20), || {
        let clients = redis.ask("INFO clients").unwrap_or_default();
        if clients.contains("blocked_clients:1") { Ok(()) } else { Err(clients) }
    });
}

fn redis_is_away(fleet: &Fleet, away: bool) {
    until(&format!("REDIS_AWAY is {away}"), secs(20), || {
        let status = fleet.json(&["status"]);
        let codes = status["health"]["codes"].as_array().expect("codes");
        let raised = codes.iter().any(|code| code == "REDIS_AWAY");
        if raised == away { Ok(()) } else { Err(format!("{status:#}")) }
    });
}

fn waited(ended: &Ended) -> i64 {
    ended.started_at.unwrap_or(ended.finished_at) - ended.queued_at
}

/// Wants a fourth copy and waits until it is made; says how that went.
fn one_more_copy(fleet: &Fleet, name: &str) -> Ended {
    let made = || {
        let ended = history::attempts(&fleet.database_url);
        ended
            .into_iter()
            .filter(|one| one.repair == "re-replicate" && one.outcome == "succeeded")
            .collect::<Vec<_>>()
    };
    let before = made().len();
    fleet.done(&["repo", "set-replicas", name, "4"]);
    until(&format!("{name} has four copies"), secs(60), || {
        let copies = fleet.copies(name);
        let good = copies.iter().filter(|copy| copy.state == "live" && copy.in_sync).count();
        if good == 4 { Ok(()) } else { Err(format!("{copies:?}\n{}", fleet.said())) }
    });
    let mut last = None;
    until("the attempt is written down", secs(20), || {
        last = made().into_iter().nth(before);
        last.as_ref().map(drop).ok_or_else(|| "none".to_owned())
    });
    last.expect("it was found")
}
