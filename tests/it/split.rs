//! Controller, worker and agents as processes of their own, on both engines.

use crate::support::engine::{Engine, postgres_server};
use crate::support::fleet::Fleet;
use crate::support::source::{heavy, small, try_references};
use crate::support::up::{Copy, are_whole, assert_whole};
use crate::support::{secs, until};
use std::path::Path;

/// Short leases, so that a test sees them run out; slow copies, so that a kill hits one in the middle.
const SETTINGS: &str = r#"
[goals]
schedule = "*/5 * * * * *"
[worker]
lease = "9s"
"#;

fn engines(directory: &Path, name: &str) -> Vec<Engine> {
    let mut engines = vec![Engine::sqlite(directory)];
    engines.extend(postgres_server().map(|server| Engine::postgres(&server, name)));
    engines
}

#[test]
fn a_worker_killed_in_the_middle_of_a_copy_is_taken_over() {
    let directory = tempfile::tempdir().expect("a directory");
    for (n, engine) in engines(directory.path(), "takeover").iter().enumerate() {
        let place = directory.path().join(n.to_string());
        std::fs::create_dir(&place).expect("a directory");
        let mut fleet = Fleet::start(&place, &engine.url, 4, SETTINGS);
        fleet.start_worker();
        let source = heavy(&place, "heavy", 60 << 20);
        slow_copies(&fleet);
        fleet.done(&["repo", "import", source.to_str().expect("text")]);
        fleet.met(60);
        fleet.done(&["repo", "set-replicas", "heavy", "4"]);
        until("a copy is under way", secs(60), || half_made(&fleet).map_or(Err("none".into()), |_| Ok(())));
        assert_eq!(live(&fleet), 3, "a half copy does not count");
        fleet.workers[0].kill();
        fleet.start_worker();
        fleet.met(120);
        assert_whole(&fleet.copies("heavy"), &source, 4);
        let story = fleet.done(&["why", "heavy"]);
        assert!(story.contains("lost") && story.contains("succeeded"), "{story}");
    }
}

#[test]
fn a_worker_that_wakes_after_its_lease_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (n, engine) in engines(directory.path(), "wakes").iter().enumerate() {
        let place = directory.path().join(n.to_string());
        std::fs::create_dir(&place).expect("a directory");
        let mut fleet = Fleet::start(&place, &engine.url, 4, SETTINGS);
        fleet.start_worker();
        let source = heavy(&place, "heavy", 60 << 20);
        slow_copies(&fleet);
        fleet.done(&["repo", "import", source.to_str().expect("text")]);
        fleet.met(60);
        fleet.done(&["repo", "set-replicas", "heavy", "4"]);
        until("a copy is under way", secs(60), || half_made(&fleet).map_or(Err("none".into()), |_| Ok(())));
        fleet.workers[0].signal("STOP");
        fleet.start_worker();
        fleet.met(120);
        fleet.workers[0].signal("CONT");
        fleet.workers[0].hears("nothing written", secs(30));
        fleet.met(60);
        assert_whole(&fleet.copies("heavy"), &source, 4);
    }
}

#[test]
fn the_controller_dies_again_and_again_while_copies_are_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 4, SETTINGS);
    fleet.start_worker();
    let sources = directory.path().join("sources");
    for n in 0..40 {
        small(&sources, &format!("r{n}"), 2);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    fleet.met(90);
    let mut chance = Chance(0x5eed);
    for _ in 0..50 {
        let name = format!("r{}", chance.below(40));
        let copies = fleet.copies(&name);
        // Siblings must be whole on disk, whatever SQL has noticed so far: else nothing good is left.
        if copies.iter().all(|copy| is_whole(copy, &sources.join(&name))) {
            damage(&copies[usize::try_from(chance.below(3)).expect("small")], chance.below(3));
        }
        std::thread::sleep(std::time::Duration::from_millis(chance.below(1000)));
        fleet.controller.as_mut().expect("running").kill();
        fleet.start_controller();
    }
    until("every copy is whole again", secs(180), || {
        (0..40)
            .map(|n| format!("r{n}"))
            .try_for_each(|name| are_whole(&fleet.copies(&name), &sources.join(&name)))
    });
    fleet.met(60);
    for n in 0..40 {
        let name = format!("r{n}");
        assert_whole(&fleet.copies(&name), &sources.join(&name), 3);
    }
}

fn is_whole(copy: &Copy, source: &Path) -> bool {
    copy.state == "live" && copy.in_sync && try_references(&copy.path) == try_references(source)
}

fn damage(copy: &Copy, kind: u64) {
    match kind {
        0 => drop(std::fs::remove_dir_all(&copy.path)),
        1 => drop(std::fs::remove_file(copy.path.join("packed-refs"))),
        _ => drop(std::fs::write(copy.path.join("HEAD"), "ref: refs/heads/nowhere\n")),
    }
}

/// A step away from real chance, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Copies of re-replicate move 5 MiB a second from now on.
fn slow_copies(fleet: &Fleet) {
    let file = fleet.directory.join("repairs/re-replicate.toml");
    let text = std::fs::read_to_string(&file).expect("repairs are written out at the first start");
    let slow = text
        .lines()
        .map(|line| if line.starts_with("bytes_per_second") { "bytes_per_second = \"5MiB\"" } else { line });
    std::fs::write(&file, slow.collect::<Vec<_>>().join("\n") + "\n").expect("written");
}

fn live(fleet: &Fleet) -> usize {
    fleet.copies("heavy").iter().filter(|copy| copy.state == "live").count()
}

fn half_made(fleet: &Fleet) -> Option<Copy> {
    let copy = fleet.copies("heavy").into_iter().find(|copy| copy.state == "creating")?;
    assert!(!copy.path.exists(), "a half copy is not where readers look");
    let staging = fleet.directory.join(&copy.fileserver).join("staging");
    let has_bytes = std::fs::read_dir(staging).is_ok_and(|entries| entries.count() > 0);
    has_bytes.then_some(copy)
}
