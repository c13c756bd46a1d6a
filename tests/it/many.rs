//! Two controllers, three workers, six agents: killed at random under damage, stopped past leases, with clocks that jump.

use crate::support::engine::{Engine, postgres_server};
use crate::support::fleet::Fleet;
use crate::support::history;
use crate::support::source::{small, try_references};
use crate::support::up::{Copy, are_whole, assert_whole};
use crate::support::{secs, until};
use std::path::Path;
use std::time::Instant;

const SETTINGS: &str = "[goals]\nschedule = \"*/5 * * * * *\"\n[worker]\nlease = \"9s\"\n";
const REPOSITORIES: u64 = 24;

/// How long parts are killed: a minute, or `TRUED_TEST_LONG` seconds.
fn how_long() -> std::time::Duration {
    secs(std::env::var("TRUED_TEST_LONG").ok().and_then(|text| text.parse().ok()).unwrap_or(60))
}

fn seed() -> u64 {
    let given = std::env::var("TRUED_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    println!("TRUED_TEST_SEED={seed}");
    seed
}

/// A step away from real chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound).expect("small")
    }
}

fn fleet(directory: &Path, engine: &Engine) -> Fleet {
    let mut fleet = Fleet::start(directory, &engine.url, 6, SETTINGS);
    fleet.add_controller("ctl-2");
    for _ in 0..3 {
        fleet.start_worker();
    }
    let sources = directory.join("sources");
    for n in 0..REPOSITORIES {
        small(&sources, &format!("r{n}"), 2);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    fleet.met(90);
    fleet
}

#[test]
fn parts_are_killed_at_random_under_damage_and_everything_converges() {
    let Some(server) = postgres_server() else {
        return eprintln!("skipped: TRUED_TEST_POSTGRES_URL is not set");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::postgres(&server, "many");
    let mut fleet = fleet(directory.path(), &engine);
    let sources = directory.path().join("sources");
    let (mut chance, began) = (Chance(seed()), Instant::now());
    let (mut killed, mut damaged) = (0, 0);
    while began.elapsed() < how_long() {
        let name = format!("r{}", chance.below(REPOSITORIES));
        // The first controller answers commands: it may have been killed a moment ago.
        let copies = fleet.copies_if_answered(&name);
        // Siblings must be whole on disk, whatever SQL has noticed so far: else nothing good is left.
        if copies.len() >= 3 && copies.iter().all(|copy| is_whole(copy, &sources.join(&name))) {
            let which = chance.below(3);
            damage(&copies[which], chance.below(2));
            damaged += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(chance.below(1500) as u64));
        match chance.below(11) {
            0 => fleet.kill_controller(0),
            1 => fleet.kill_controller(1),
            n @ 2..=4 => fleet.kill_worker(n - 2),
            n => fleet.restart_agent(n - 4),
        }
        killed += 1;
    }
    println!("{killed} parts were killed, {damaged} copies damaged");
    assert!(killed >= 10 && damaged >= 5, "{killed} kills, {damaged} damages");
    until("every copy is whole again", secs(240), || {
        let mut names = (0..REPOSITORIES).map(|n| format!("r{n}"));
        names.try_for_each(|name| {
            let copies = fleet.copies_if_answered(&name);
            if copies.len() < 3 {
                Err(format!("{name}: {copies:?}"))
            } else {
                are_whole(&copies, &sources.join(&name))
            }
        })
    });
    fleet.met(90);
    for n in 0..REPOSITORIES {
        let name = format!("r{n}");
        assert_whole(&fleet.copies(&name), &sources.join(&name), 3);
    }
    history::assert_one_at_a_time(&history::attempts(&engine.url));
    history::assert_evaluated_once_a_schedule(&engine.url, 5_000);
}

// A controller whose clock is an hour ahead, a worker whose clock is an hour behind: leases go by the database's.
#[test]
fn clocks_that_are_an_hour_off_take_nothing_over_early_and_evaluate_nothing_twice() {
    let Some(server) = postgres_server() else {
        return eprintln!("skipped: TRUED_TEST_POSTGRES_URL is not set");
    };
    let Some(library) = faketime() else { return eprintln!("skipped: libfaketime is not installed") };
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::postgres(&server, "clocks");
    let mut fleet = fleet(directory.path(), &engine);
    let shift = directory.path().join("shift");
    std::fs::write(&shift, "+0").expect("written");
    let environment = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", shift.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    fleet.environment = environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    fleet.kill_controller(1);
    fleet.kill_worker(0);
    let sources = directory.path().join("sources");
    for (n, jump) in ["+3600", "-3600", "+0"].into_iter().enumerate() {
        std::fs::write(&shift, jump).expect("written");
        let name = format!("r{n}");
        damage(&fleet.copies(&name)[0], 0);
        until(&format!("after a jump to {jump} s the copy is mended"), secs(90), || {
            are_whole(&fleet.copies(&name), &sources.join(&name))
        });
    }
    let ended = history::attempts(&engine.url);
    history::assert_one_at_a_time(&ended);
    assert!(ended.iter().all(|one| one.outcome != "lost"), "nothing is taken over early: {ended:#?}");
    history::assert_evaluated_once_a_schedule(&engine.url, 5_000);
}

fn faketime() -> Option<String> {
    let found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let path = |place: &str| format!("{place}/faketime/libfaketime.so.1");
    found.into_iter().map(path).find(|path| Path::new(path).is_file())
}

fn is_whole(copy: &Copy, source: &Path) -> bool {
    copy.state == "live" && copy.in_sync && try_references(&copy.path) == try_references(source)
}

fn damage(copy: &Copy, kind: usize) {
    match kind {
        0 => drop(std::fs::remove_dir_all(&copy.path)),
        _ => drop(std::fs::write(copy.path.join("HEAD"), "ref: refs/heads/nowhere\n")),
    }
}
