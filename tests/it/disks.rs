//! Disks against the database, the database from disks alone, and damage that only reading everything finds.

use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::source::{git, references, small};
use crate::support::up::{Up, are_whole, assert_whole};
use crate::support::{secs, until};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file below a directory with what it holds, but for what an agent writes to see whether it can.
fn tree(directory: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("self-test") {
                tree(&path, into);
            }
        } else {
            let content = std::fs::read(&path).expect("a file");
            into.insert(path, content);
        }
    }
}

fn disks(fleet: &Fleet, agents: usize) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for n in 1..=agents {
        tree(&fleet.directory.join(format!("fs-{n}")), &mut all);
    }
    all
}

/// `trued inventory …` over a database, in the name of the fleet's controller.
fn inventory(fleet: &Fleet, url: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let enrolment = fleet.directory.join("ctl-1.json");
    let output = crate::support::process::trued()
        .arg("inventory")
        .args(arguments)
        .args(["--database-url", url, "--enrolment"])
        .arg(enrolment)
        .output()
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn rows(fleet: &Fleet, names: &[String]) -> Vec<String> {
    let rows = names.iter().map(|name| {
        let shown = fleet.json(&["repo", "show", name]);
        let mut on: Vec<String> = fleet.copies(name).iter().map(|copy| copy.fileserver.clone()).collect();
        on.sort();
        format!("{} {} {} {} {on:?}", shown["id"], shown["name"], shown["checksum"], shown["version"])
    });
    rows.collect()
}

#[test]
fn the_database_is_made_anew_from_six_disks_and_no_disk_is_changed() {
    const AGENTS: usize = 6;
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let settings = "[goals]\nschedule = \"*/5 * * * * *\"\n";
    let mut fleet = Fleet::start(directory.path(), &engine.url, AGENTS, settings);
    fleet.start_worker();
    let sources = directory.path().join("sources");
    let names: Vec<String> = (0..12).map(|n| format!("r{n}")).collect();
    for name in &names {
        small(&sources, name, 3);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    fleet.met(90);
    let (code, said) = inventory(&fleet, &engine.url, &["verify"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("36 copies compared on 6 fileservers, 0 differ"), "{said}");
    let before = rows(&fleet, &names);

    fleet.workers[0].kill();
    fleet.controller.as_mut().expect("running").kill();
    let held = disks(&fleet, AGENTS);
    let anew = format!("sqlite:{}", directory.path().join("anew.sqlite").display());
    let key = directory.path().join("fs-1.json");
    let mut asked = vec!["import".to_owned(), "--key-from".to_owned(), key.display().to_string()];
    for n in 1..=AGENTS {
        asked.push("--fileserver".to_owned());
        asked.push(format!("fs-{n}=rack-{n}@http://{}", fleet.address(n)));
    }
    let mut asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    asked.push("--dry-run");
    let (code, said) = inventory(&fleet, &anew, &asked);
    assert!(code == Some(0) && said.contains("12 would be made"), "{said}");
    asked.pop();
    let (code, said) = inventory(&fleet, &anew, &asked);
    assert!(
        code == Some(0) && said.contains("12 made") && said.contains("36 made, 36 of them in sync"),
        "{said}"
    );
    let (code, said) = inventory(&fleet, &anew, &asked);
    assert!(code == Some(0) && said.contains("0 made, 12 known already"), "{said}");
    assert!(held == disks(&fleet, AGENTS), "no disk is changed");

    fleet.database_url = anew.clone();
    fleet.start_controller();
    fleet.start_worker();
    until("goals are evaluated on the new tables", secs(60), || {
        let status = fleet.json(&["status"]);
        if status["goals"].as_array().is_some_and(|goals| !goals.is_empty()) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    fleet.met(90);
    assert_eq!(rows(&fleet, &names), before, "every repository, checksum and place is back");
    for name in &names {
        assert_whole(&fleet.copies(name), &sources.join(name), 3);
    }
    // Numbers are not given again, and repairs go on above the epochs that agents remember.
    let more = small(&sources, "more", 1);
    fleet.done(&["repo", "import", more.to_str().expect("text")]);
    assert!(fleet.json(&["repo", "show", "more"])["id"].as_i64() > Some(12));
    std::fs::remove_dir_all(&fleet.copies("r3")[0].path).expect("removed");
    until("a copy is mended again", secs(90), || are_whole(&fleet.copies("r3"), &sources.join("r3")));
    let copy = fleet.copies("r4").remove(0);
    git(&copy.path, &["update-ref", "-d", "refs/tags/v1"]);
    let (code, said) = inventory(&fleet, &anew, &["verify", "--fileserver", &copy.fileserver]);
    assert!(code == Some(3) && said.contains("checksum"), "{said}");
}

/// A blob of the newest commit becomes an empty loose object; the pack that held it becomes loose objects.
fn empty_an_object(copy: &Path) {
    let tree = git(copy, &["ls-tree", "main"]);
    let blob = tree.split_whitespace().nth(2).expect("a blob").to_owned();
    let (packs, aside) = (copy.join("objects/pack"), copy.with_extension("aside"));
    std::fs::rename(&packs, &aside).expect("renamed");
    std::fs::create_dir(&packs).expect("a directory");
    for pack in std::fs::read_dir(&aside).expect("packs").flatten().map(|entry| entry.path()) {
        if pack.extension().is_some_and(|ending| ending == "pack") {
            let file = std::fs::File::open(pack).expect("a pack");
            let status = std::process::Command::new("git")
                .arg("-C")
                .arg(copy)
                .args(["-c", "safe.directory=*", "unpack-objects", "-q"])
                .stdin(file)
                .status();
            assert!(status.is_ok_and(|status| status.success()));
        }
    }
    std::fs::remove_dir_all(aside).expect("removed");
    let object = copy.join(format!("objects/{}/{}", &blob[..2], &blob[2..]));
    std::fs::remove_file(&object).expect("it is loose");
    std::fs::write(object, "").expect("written");
}

/// Every copy is scrubbed all the time from now on.
fn scrub_always(up: &Up) {
    let file = up.data().join("goals/replicas-scrubbed.sql");
    let text = std::fs::read_to_string(&file).expect("a goal");
    std::fs::write(file, text.replace("age = 30d", "age = 1s")).expect("written");
}

#[test]
fn an_empty_object_is_found_by_the_scrub_and_the_copy_made_anew_from_a_good_one() {
    let up = Up::start(&[]);
    small(&up.sources(), "torn", 6);
    up.done(&["repo", "import", up.sources().to_str().expect("text")]);
    up.met(60);
    let copy = up.copies("torn").remove(1);
    empty_an_object(&copy.path);
    scrub_always(&up);
    until("the copy is whole again", secs(120), || {
        let whole = crate::support::source::git_passes(&copy.path, &["fsck", "--full"]);
        if whole {
            are_whole(&up.copies("torn"), &up.sources().join("torn"))
        } else {
            Err(up.done(&["why", "torn"]))
        }
    });
    let story = up.done(&["why", "torn"]);
    assert!(story.contains("is empty") || story.contains("damaged"), "git's own words:\n{story}");
    let root = copy.path.ancestors().nth(4).expect("a root");
    assert!(std::fs::read_dir(root.join("quarantine")).expect("it").count() > 0, "the damaged one is kept");
}

#[test]
fn damage_in_the_only_copy_is_said_and_nothing_is_removed() {
    let up = Up::start(&[]);
    let source = small(&up.sources(), "alone", 6);
    up.done(&["repo", "import", "--replicas", "1", source.to_str().expect("text")]);
    up.met(60);
    let copy = up.copies("alone").remove(0);
    empty_an_object(&copy.path);
    scrub_always(&up);
    until("a person is asked", secs(120), || {
        let story = up.done(&["why", "alone"]);
        if story.contains("unrecoverable here") { Ok(()) } else { Err(story) }
    });
    assert_eq!(references(&copy.path), references(&source), "what is left of it stays");
}

#[test]
fn a_stale_lock_on_a_reference_is_removed_and_the_copy_resynced() {
    let up = Up::start(&[]);
    small(&up.sources(), "locked", 6);
    up.done(&["repo", "import", up.sources().to_str().expect("text")]);
    up.met(60);
    let copy = up.copies("locked").remove(1);
    git(&copy.path, &["update-ref", "-d", "refs/tags/v3"]);
    let locks = ["refs/tags/v3.lock", "packed-refs.lock", "config.lock", "objects/info/commit-graph.lock"];
    for lock in locks {
        let path = copy.path.join(lock);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, "").expect("written");
    }
    until("the copy is whole again", secs(120), || {
        are_whole(&up.copies("locked"), &up.sources().join("locked"))
    });
    assert!(locks.iter().all(|lock| !copy.path.join(lock).exists()));
    until("it is counted", secs(60), || {
        let metrics = up.metrics();
        let counted = metrics
            .lines()
            .any(|line| line.starts_with("trued_fileserver_locks_removed{") && !line.ends_with(" 0"));
        if counted { Ok(()) } else { Err(metrics) }
    });
}
