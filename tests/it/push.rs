//! Git's own clients push through a router: every kind of push, a fileserver that dies meanwhile, and one that comes back.

use crate::router::{client, clone_url, done, on_engines, said};
use crate::support::process::signal;
use crate::support::source::{git, references, small};
use crate::support::up::{Copy, Up};
use crate::support::{secs, until};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clone with a commit of its own, on a branch of that name.
pub fn work(place: &Path, url: &str, name: &str) -> PathBuf {
    done(place, &["clone", "-q", url, name]);
    let here = place.join(name);
    done(&here, &["checkout", "-q", "-b", name]);
    commit(&here, name);
    here
}

fn commit(here: &Path, what: &str) -> String {
    std::fs::write(here.join(what.replace('/', "-")), what).expect("written");
    git(here, &["add", "."]);
    git(here, &["commit", "-q", "-m", what]);
    git(here, &["rev-parse", "HEAD"])
}

/// Copies that are live and in sync, all of which have the same references.
pub fn equal(up: &Up, name: &str, at_least: usize) -> Result<String, String> {
    equal_copies(&up.copies(name), at_least)
}

/// The same of copies that were asked for.
pub fn equal_copies(copies: &[Copy], at_least: usize) -> Result<String, String> {
    let good: Vec<&Copy> = copies.iter().filter(|copy| copy.state == "live" && copy.in_sync).collect();
    if good.len() < at_least {
        return Err(format!("{} of {at_least} are good", good.len()));
    }
    let all: Vec<String> = good.iter().map(|copy| references(&copy.path)).collect();
    if all.windows(2).all(|two| two[0] == two[1]) { Ok(all[0].clone()) } else { Err(format!("{all:#?}")) }
}

/// The process of a fileserver's agent.
fn agent(up: i32, name: &str) -> i32 {
    let found = Command::new("pgrep")
        .args(["-P", &up.to_string(), "-f", &format!("{name}(\\.json)?( |$)")])
        .output()
        .expect("pgrep runs");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    found.lines().next().and_then(|line| line.parse().ok()).expect("an agent")
}

#[test]
fn every_kind_of_push_ends_the_same_on_all_copies() {
    on_engines("router_pushes", |up| {
        let source = small(&up.sources(), "thing", 5);
        up.done(&["repo", "import", source.to_str().expect("text")]);
        up.done(&["repo", "create", "fresh"]);
        let place = up.directory.path().join("clients");
        std::fs::create_dir(&place).expect("a directory");
        let url = clone_url(up, "thing");
        let here = work(&place, &url, "one");

        let text = done(&here, &["push", "origin", "one"]);
        assert!(text.contains("one -> one"), "{text}");
        assert!(equal(up, "thing", 3).expect("equal").contains("refs/heads/one"));
        git(&here, &["tag", "t1"]);
        git(&here, &["tag", "-a", "t2", "-m", "two"]);
        done(&here, &["push", "-q", "origin", "--tags"]);
        git(&here, &["commit", "-q", "--amend", "-m", "another"]);
        let stale = client(&here, &["push", "origin", "one"]);
        assert!(!stale.status.success() && said(&stale).contains("rejected"), "{}", said(&stale));
        done(&here, &["push", "-q", "--force-with-lease", "origin", "one"]);
        done(&here, &["push", "-q", "origin", "one:refs/heads/a", "one:refs/heads/b", "one:refs/heads/c/d"]);
        done(&here, &["push", "-q", "origin", ":refs/heads/a", ":refs/tags/t1"]);
        done(&here, &["push", "-q", "--atomic", "origin", "one:refs/heads/e", ":refs/heads/b"]);
        // What stands on a name cannot have names below it: atomic, nothing of the push stands.
        let mixed =
            client(&here, &["push", "--atomic", "origin", "one:refs/heads/f", "one:refs/heads/e/below"]);
        assert!(!mixed.status.success(), "{}", said(&mixed));
        // Not atomic, the other one does.
        let mixed = client(&here, &["push", "origin", "one:refs/heads/g", "one:refs/heads/e/below"]);
        assert!(!mixed.status.success(), "{}", said(&mixed));
        let all = equal(up, "thing", 3).expect("equal");
        for (name, stands) in [
            ("refs/heads/a", false),
            ("refs/heads/b", false),
            ("refs/heads/c/d", true),
            ("refs/heads/e", true),
            ("refs/heads/e/below", false),
            ("refs/heads/f", false),
            ("refs/heads/g", true),
            ("refs/tags/t1", false),
            ("refs/tags/t2", true),
        ] {
            assert_eq!(
                all.lines().any(|line| line.trim_end().ends_with(&format!(" {name}"))),
                stands,
                "{name} in {all}"
            );
        }
        for n in 0..1_000 {
            git(&here, &["update-ref", &format!("refs/heads/many/{n}"), "HEAD"]);
        }
        done(&here, &["push", "-q", "origin", "refs/heads/many/*:refs/heads/many/*"]);
        assert_eq!(equal(up, "thing", 3).expect("equal").matches("refs/heads/many/").count(), 1_000);
        done(&here, &["push", "-q", &clone_url(up, "fresh"), "one:refs/heads/main"]);
        assert!(equal(up, "fresh", 3).expect("equal").contains("refs/heads/main"));
        let again = place.join("again");
        done(&place, &["clone", "-q", "--mirror", &url, "again"]);
        // A clone has what a symbolic reference leads to, and not that it is one.
        let plain = |all: &str| -> Vec<String> {
            all.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
        };
        let (cloned, there) = (plain(&references(&again)), plain(&equal(up, "thing", 3).expect("equal")));
        assert!(up.metrics().contains("trued_pushes_total{outcome=\"committed\"}"), "they are counted");
        assert!(cloned == there, "a clone has the same {} references, not {}", there.len(), cloned.len());
    });
}

// A dead fileserver is nothing that a pusher notices; when it is back, it gets what it missed. Two dead are told.
#[test]
fn a_push_needs_a_majority_and_what_was_away_gets_what_it_missed() {
    let mut up = Up::start(&["--fileservers", "3", "--no-respawn", "--grace", "1h"]);
    let source = small(&up.sources(), "thing", 3);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    let place = up.directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let url = clone_url(&up, "thing");
    let here = work(&place, &url, "one");
    let pid = up.process().pid();

    let (first, second) = (agent(pid, "fs-1"), agent(pid, "fs-2"));
    signal(first, "STOP");
    let tip = {
        done(&here, &["push", "-q", "origin", "one"]);
        git(&here, &["rev-parse", "one"])
    };
    signal(second, "STOP");
    commit(&here, "more");
    let refused = client(&here, &["push", "origin", "one"]);
    assert!(!refused.status.success(), "one copy of three is no majority: {}", said(&refused));
    signal(first, "CONT");
    signal(second, "CONT");
    until("all copies have what was acknowledged, and nothing else", secs(60), || {
        let all = equal(&up, "thing", 3)?;
        if all.contains(&format!("{tip} refs/heads/one")) { Ok(()) } else { Err(all) }
    });
    until("the refused push goes through now", secs(30), || {
        let output = client(&here, &["push", "origin", "one"]);
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    });
    up.met(90);
    let tip = git(&here, &["rev-parse", "one"]);
    assert!(equal(&up, "thing", 3).expect("equal").contains(&format!("{tip} refs/heads/one")));
}

// Fileservers die while four clients push, each to branches of its own: whatever was acknowledged is everywhere in the end.
#[test]
fn what_was_acknowledged_while_fileservers_died_is_on_every_copy_in_the_end() {
    let mut up = Up::start(&["--fileservers", "4"]);
    let source = small(&up.sources(), "thing", 3);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    let place = up.directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let url = clone_url(&up, "thing");
    let clients: Vec<PathBuf> = (0..4).map(|n| work(&place, &url, &format!("c{n}"))).collect();
    let (pushes, kills) = (12, 6);
    let acknowledged: Vec<(String, String)> = std::thread::scope(|scope| {
        let pushing: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(n, here)| {
                scope.spawn(move || {
                    let push = |k: usize| {
                        let (tip, branch) =
                            (commit(here, &format!("{n}-{k}")), format!("refs/heads/c{n}/{k}"));
                        let output = client(here, &["push", "-q", "origin", &format!("HEAD:{branch}")]);
                        output.status.success().then_some((branch, tip))
                    };
                    (0..pushes).filter_map(push).collect::<Vec<_>>()
                })
            })
            .collect();
        let pid = up.process().pid();
        for k in 0..kills {
            let name = format!("fs-{}", 1 + k % 4);
            let victim = agent(pid, &name);
            signal(victim, "KILL");
            until("it is started again", secs(30), || {
                let found = Command::new("pgrep")
                    .args(["-P", &pid.to_string(), "-f", &format!("{name}(\\.json)?( |$)")])
                    .output()
                    .expect("pgrep runs");
                let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                if found.is_empty() || found == victim.to_string() { Err(found) } else { Ok(()) }
            });
        }
        pushing.into_iter().flat_map(|one| one.join().expect("a client")).collect()
    });
    println!("{} of {} pushes were acknowledged", acknowledged.len(), 4 * pushes);
    // How many go through is chance: each is killed as soon as the one before has a process, with what it missed.
    assert!(!acknowledged.is_empty(), "none went through");
    up.met(120);
    let all = equal(&up, "thing", 3).expect("equal");
    for (branch, tip) in acknowledged {
        assert!(all.contains(&format!("{tip} {branch}")), "{branch} was acknowledged and is lost: {all}");
    }
}
