//! Clients go on pushing while seats are added, while a rack is dark, and through two routers at once.

use crate::push::{equal, work};
use crate::router::{client, client_by, clone_url, done, said};
use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::source::{git, many_references, references, small};
use crate::support::up::Up;
use crate::support::{secs, until};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where routers let everybody push.
const SETTINGS: &str =
    "[goals]\nschedule = \"*/5 * * * * *\"\n[router]\nanonymous_reads = true\nanonymous_writes = true\n";

/// A number of the environment, for runs at full size.
fn size(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A commit without a work tree: a push in two processes.
fn commit(here: &Path, parent: &str, text: &str) -> String {
    git(here, &["commit-tree", &format!("{parent}^{{tree}}"), "-p", parent, "-m", text])
}

/// Ends the clients whatever happens to the test: a scope waits for its threads.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As busy as a repository is that a robot pushes to.
const PACE: std::time::Duration = std::time::Duration::from_millis(700);

/// Pushes one commit after the other, at that pace, until told to stop; how many there were, and what failed.
fn push_on(here: &Path, url: &str, branch: &str, over: &AtomicBool) -> (usize, Vec<String>) {
    let (mut count, mut failed) = (0, Vec::new());
    let mut tip = git(here, &["rev-parse", "HEAD"]);
    while !over.load(Ordering::Relaxed) {
        tip = commit(here, &tip, &format!("{branch} {count}"));
        let output = client(here, &["push", "-q", url, &format!("{tip}:refs/heads/{branch}")]);
        if !output.status.success() {
            failed.push(said(&output));
        }
        count += 1;
        std::thread::sleep(PACE);
    }
    (count, failed)
}

#[test]
fn three_more_copies_come_while_clients_push_and_then_share_in_verdicts() {
    let up = Up::start(&["--fileservers", "6"]);
    let source = small(&up.sources(), "thing", 3);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    let place = up.directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let url = clone_url(&up, "thing");
    let here = work(&place, &url, "one");
    let over = AtomicBool::new(false);
    let (count, failed) = std::thread::scope(|scope| {
        let ended = Over(&over);
        let pushing = scope.spawn(|| push_on(&here, &url, "busy", &over));
        up.done(&["repo", "set-replicas", "thing", "6"]);
        until("six copies are live", secs(240), || {
            let copies = up.copies("thing");
            let live = copies.iter().filter(|copy| copy.state == "live").count();
            if live == 6 { Ok(()) } else { Err(format!("{copies:#?}")) }
        });
        drop(ended);
        pushing.join().expect("a client")
    });
    println!("{count} pushes meanwhile");
    assert!(failed.is_empty(), "{} of {count}: {failed:#?}", failed.len());
    assert!(count > 5, "hardly anything was pushed: {count}");
    up.met(120);
    until("six share in verdicts", secs(60), || {
        let shown = up.json(&["repo", "show", "thing"]);
        if shown["seats"] == 6 { Ok(()) } else { Err(format!("{shown:#}")) }
    });
    let all = equal(&up, "thing", 6).expect("equal");
    assert!(all.contains("refs/heads/busy"), "{all}");
}

#[test]
fn a_mirror_of_many_references_is_pushed_as_one() {
    let count = size("TRUED_TEST_REFERENCES", 2_000);
    let up = Up::start(&["--fileservers", "3"]);
    let source = many_references(&up.sources(), "many", count);
    up.done(&["repo", "create", "mirrored"]);
    // Git looks each name up among all of them before it sends the first: at 50,000 that takes it a minute or two.
    let within = secs(120 + u64::try_from(count).expect("a number") / 100);
    let url = clone_url(&up, "mirrored");
    let output = client_by(Path::new("git"), within, &source, &["push", "-q", "--mirror", &url]);
    assert!(output.status.success(), "{}", said(&output));
    let all = equal(&up, "mirrored", 3).expect("equal");
    assert_eq!(all.matches("refs/heads/topic/").count(), count);
    assert!(references(&source).contains("refs/heads/main"));
}

// Six fileservers, two in each rack.
#[test]
fn every_repository_is_read_and_pushed_to_while_a_rack_is_dark() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 0, SETTINGS);
    for n in 1..=6 {
        fleet.add_agent_in(n, 1 + (n - 1) % 3, "1GiB".to_owned());
    }
    fleet.all_online();
    fleet.start_worker();
    let sources = directory.path().join("sources");
    for n in 0..6 {
        small(&sources, &format!("r{n}"), 2);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    let (router, _) = fleet.add_router("rt-1", &[]);
    let place = directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    fleet.agents[0].kill();
    fleet.agents[3].kill();
    let mut tips = Vec::new();
    for n in 0..6 {
        let url = format!("http://{router}/r{n}.git");
        let here = work(&place, &url, &format!("c{n}"));
        done(&here, &["push", "-q", "origin", &format!("c{n}")]);
        let seen = done(&here, &["ls-remote", "-q", "origin", &format!("refs/heads/c{n}")]);
        let tip = git(&here, &["rev-parse", "HEAD"]);
        assert!(seen.starts_with(&tip), "r{n}: {seen}");
        tips.push(tip);
    }
    fleet.restart_agent(1);
    fleet.restart_agent(4);
    fleet.met(120);
    for (n, tip) in tips.iter().enumerate() {
        for copy in fleet.copies(&format!("r{n}")) {
            let has = references(&copy.path).contains(&format!("{tip} refs/heads/c{n}"));
            assert!(has, "r{n} on {}", copy.fileserver);
        }
    }
}

// Each round, two routers get another next commit for one branch at the same time: one of them wins, or none, never both.
#[test]
fn of_two_pushes_at_once_through_two_routers_one_stands() {
    let rounds = size("TRUED_TEST_ROUNDS", 25);
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 3, SETTINGS);
    fleet.start_worker();
    let source = small(&directory.path().join("sources"), "thing", 2);
    fleet.done(&["repo", "import", source.to_str().expect("text")]);
    let routers = ["rt-1", "rt-2"].map(|name| fleet.add_router(name, &[]).0);
    let urls = routers.map(|router| format!("http://{router}/thing.git"));
    let place = directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let here = work(&place, &urls[0], "one");
    let (mut tip, mut neither) = (git(&here, &["rev-parse", "HEAD"]), 0);
    done(&here, &["push", "-q", "origin", &format!("{tip}:refs/heads/shared")]);
    for round in 0..rounds {
        let mine = ["a", "b"].map(|who| commit(&here, &tip, &format!("{round} by {who}")));
        let outcome: Vec<(bool, String)> = std::thread::scope(|scope| {
            let pushing: Vec<_> = (0..2)
                .map(|n| {
                    let (here, url, commit) = (&here, &urls[n], &mine[n]);
                    scope.spawn(move || {
                        client(here, &["push", "-q", url, &format!("{commit}:refs/heads/shared")])
                    })
                })
                .collect();
            let outputs = pushing.into_iter().map(|one| one.join().expect("a client"));
            outputs.map(|output| (output.status.success(), said(&output))).collect()
        });
        let won: Vec<&String> =
            mine.iter().zip(&outcome).filter(|(_, one)| one.0).map(|(tip, _)| tip).collect();
        assert!(won.len() <= 1, "round {round}: both stand: {outcome:?}");
        let now = done(&here, &["ls-remote", "-q", &urls[round % 2], "refs/heads/shared"]);
        if let Some(won) = won.first() {
            assert!(now.starts_with(*won), "round {round}: {now} is not {won}: {outcome:?}");
            tip.clone_from(won);
        } else {
            neither += 1;
            // One whose outcome nobody knew may stand all the same.
            now[..tip.len()].clone_into(&mut tip);
        }
    }
    println!("{rounds} rounds, {neither} of them won by neither");
    fleet.met(60);
    let all: Vec<String> = fleet.copies("thing").iter().map(|copy| references(&copy.path)).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:#?}");
    assert!(all[0].contains(&format!("{tip} refs/heads/shared")), "{}", all[0]);
}
