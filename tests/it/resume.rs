//! Copies that break off: they go on from what arrived, and a destination that falls silent is left.

use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::source::heavy;
use crate::support::up::assert_whole;
use crate::support::{secs, until};
use std::path::{Path, PathBuf};

const SIZE: u64 = 60 << 20;
const SETTINGS: &str = r#"
[goals]
schedule = "*/5 * * * * *"
[worker]
lease = "9s"
"#;

/// A fleet with one heavy repository, whose further copies move this fast.
fn fleet(directory: &Path, agents: usize, rate: &str) -> (Engine, Fleet, PathBuf) {
    let engine = Engine::sqlite(directory);
    let mut fleet = Fleet::start(directory, &engine.url, agents, SETTINGS);
    let file = directory.join("repairs/re-replicate.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text.replace("\"100MiB\"", rate)).expect("written");
    fleet.start_worker();
    let source = heavy(directory, "heavy", usize::try_from(SIZE).expect("small"));
    (engine, fleet, source)
}

/// Bytes of a copy that is being made on a fileserver.
fn arrived(fleet: &Fleet, n: usize) -> u64 {
    let staging = fleet.directory.join(format!("fs-{n}/staging"));
    let copies = std::fs::read_dir(staging).into_iter().flatten().flatten();
    copies.map(|copy| bytes(&copy.path().join("objects/pack"))).sum()
}

fn bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Bytes that a process has read, of files and from nowhere else: it listens by `recv`.
fn has_read(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("a count");
    line.parse().expect("a number")
}

#[test]
fn a_copy_goes_on_from_what_arrived_after_its_worker_and_after_its_agent_were_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_engine, mut fleet, source) = fleet(directory.path(), 4, "\"5MiB\"");
    fleet.done(&["repo", "import", source.to_str().expect("text")]);
    fleet.met(60);
    let holders: Vec<String> = fleet.copies("heavy").iter().map(|copy| copy.fileserver.clone()).collect();
    let free = (1..=4).find(|n| !holders.contains(&format!("fs-{n}"))).expect("one has no copy");
    let sources: Vec<i32> = (1..=4).filter(|n| *n != free).map(|n| fleet.agents[n - 1].pid()).collect();
    let before: u64 = sources.iter().map(|pid| has_read(*pid)).sum();

    fleet.done(&["repo", "set-replicas", "heavy", "4"]);
    let came = |fleet: &Fleet, least: u64| {
        until("a part of the copy arrived", secs(90), || match arrived(fleet, free) {
            come if come >= least => Ok(()),
            come => Err(format!("{come} bytes; {}", fleet.said())),
        });
    };
    came(&fleet, SIZE / 4);
    fleet.workers[0].kill();
    fleet.start_worker();
    came(&fleet, SIZE / 2);
    fleet.restart_agent(free);
    fleet.met(150);
    assert_whole(&fleet.copies("heavy"), &source, 4);
    let moved = sources.iter().map(|pid| has_read(*pid)).sum::<u64>() - before;
    assert!(moved >= SIZE, "the copy was read from a source: {moved}");
    assert!(moved < SIZE * 13 / 10, "{moved} bytes were read for a copy of {SIZE}");
    assert_eq!(arrived(&fleet, free), 0, "nothing is left in staging");
}

#[test]
fn a_destination_that_falls_silent_is_left_and_the_copy_is_made_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_engine, fleet, source) = fleet(directory.path(), 3, "\"2MiB\"");
    fleet.done(&["repo", "import", "--replicas", "1", source.to_str().expect("text")]);
    fleet.met(60);
    fleet.done(&["repo", "set-replicas", "heavy", "2"]);
    let mut silent = 0;
    until("a copy is under way", secs(60), || {
        silent = (1..=3).find(|n| arrived(&fleet, *n) > 1 << 20).ok_or_else(|| fleet.said())?;
        Ok(())
    });
    fleet.agents[silent - 1].signal("STOP");
    let stopped = std::time::Instant::now();
    until("its attempt is cancelled", secs(20), || {
        let story = fleet.done(&["why", "heavy"]);
        if story.contains("cancelled") { Ok(()) } else { Err(story) }
    });
    assert!(stopped.elapsed() < secs(15), "it took {:?}", stopped.elapsed());
    let story = fleet.done(&["why", "heavy"]);
    assert!(!story.contains("failed"), "no try is used up:\n{story}");
    until("the copy is begun elsewhere", secs(120), || {
        let there = (1..=3).any(|n| n != silent && arrived(&fleet, n) > 0);
        let whole = fleet.copies("heavy").iter().filter(|copy| copy.state == "live").count() == 2;
        if there || whole { Ok(()) } else { Err(fleet.done(&["why", "heavy"])) }
    });
    fleet.agents[silent - 1].signal("CONT");
    fleet.met(120);
    assert_whole(&fleet.copies("heavy"), &source, 2);
}
