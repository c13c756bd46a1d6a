//! Copies are taken away by real processes that die in the middle of it; repositories are removed and come back.

use crate::support::engine::{Engine, postgres_server};
use crate::support::fleet::Fleet;
use crate::support::process::trued;
use crate::support::source::{git_passes, references, small, try_references};
use crate::support::up::{Copy, Up, assert_whole};
use crate::support::{secs, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Short leases, so that a test sees them run out.
const SETTINGS: &str = r#"
[goals]
schedule = "*/5 * * * * *"
directory = "GOALS"
[worker]
lease = "9s"
"#;

/// Where a removal is cut: before the intent, after it, amid the rename, after it, before the outcome.
const POINTS: [&str; 5] =
    ["removal.asked", "removal.marked", "quarantine.noted", "quarantine.renamed", "removal.renamed"];

#[test]
fn a_death_at_any_point_of_a_removal_leaves_enough_copies_and_is_tidied_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut engines = vec![Engine::sqlite(directory.path())];
    engines.extend(postgres_server().map(|server| Engine::postgres(&server, "removal")));
    for (n, engine) in engines.iter().enumerate() {
        let place = directory.path().join(n.to_string());
        std::fs::create_dir(&place).expect("a directory");
        let goals = goals_without_patience(&place);
        let settings = SETTINGS.replace("GOALS", goals.to_str().expect("text"));
        let mut fleet = Fleet::start(&place, &engine.url, 4, &settings);
        fleet.start_worker();
        for name in 0..POINTS.len() {
            let source = small(&place, &format!("r{name}"), 3);
            fleet.done(&["repo", "import", source.to_str().expect("text"), "--replicas", "4"]);
        }
        fleet.met(60);
        for (name, point) in POINTS.iter().enumerate() {
            die_at(&mut fleet, &format!("r{name}"), point);
        }
        fleet.met(60);
        for name in 0..POINTS.len() {
            let (name, source) = (format!("r{name}"), place.join(format!("r{name}")));
            assert_whole(&fleet.copies(&name), &source, 3);
        }
    }
}

/// The shipped goals, but what is too much is so at once.
fn goals_without_patience(place: &Path) -> PathBuf {
    let goals = place.join("goals");
    trued::goal::shipped::write_shipped(&goals).expect("goals are written");
    let file = goals.join("replicas-not-excess.sql");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(file, text.replace("patience = 1h", "patience = 1s")).expect("written");
    goals
}

fn die_at(fleet: &mut Fleet, name: &str, point: &str) {
    std::fs::write(fleet.points(), point).expect("written");
    fleet.done(&["repo", "set-replicas", name, "3"]);
    until(&format!("somebody died at {point}"), secs(60), || {
        if fleet.points().exists() { Err(fleet.said()) } else { Ok(()) }
    });
    assert!(stands(fleet, name).len() >= 3, "{point}: enough copies stand");
    fleet.revive();
    until(&format!("SQL and disks say the same after {point}"), secs(60), || {
        let shown = fleet.json(&["repo", "show", name]);
        let rows = shown["replicas"].as_array().map_or(0, Vec::len);
        let aside = shown["quarantined"].as_array().map_or(0, Vec::len);
        let (standing, set_aside) = (stands(fleet, name), set_aside(fleet, &shown));
        assert!(standing.len() >= 3, "{point}: {standing:?}");
        if rows == 3 && aside == 1 && standing.len() == 3 && set_aside == 1 {
            return Ok(());
        }
        Err(format!("{standing:?} {set_aside}\n{shown:#}\n{}", fleet.said()))
    });
}

/// Copies that stand at their places, whole.
fn stands(fleet: &Fleet, name: &str) -> Vec<PathBuf> {
    let source = fleet.directory.join(name);
    let id = fleet.json(&["repo", "show", name])["id"].as_i64().expect("a number");
    let place = format!("repositories/{:02x}/{:02x}/{id}.git", (id >> 8) & 255, id & 255);
    let places = (1..=4).map(|n| fleet.directory.join(format!("fs-{n}")).join(&place));
    let whole = |path: &PathBuf| {
        path.is_dir()
            && git_passes(path, &["fsck", "--connectivity-only"])
            && try_references(path) == Some(references(&source))
    };
    places.filter(whole).collect()
}

/// How many whole copies of it lie in quarantine.
fn set_aside(fleet: &Fleet, shown: &Value) -> usize {
    let id = shown["id"].as_i64().expect("a number");
    let mut found = 0;
    for n in 1..=4 {
        let Ok(entries) = std::fs::read_dir(fleet.directory.join(format!("fs-{n}/quarantine"))) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let own = name.starts_with(&format!("{id}-")) && path.is_dir();
            found += usize::from(own && git_passes(&path, &["fsck", "--connectivity-only"]));
        }
    }
    found
}

/// All files of a copy with their bytes.
fn picture(copy: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![copy.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                files.insert(
                    path.strip_prefix(copy).expect("below").to_owned(),
                    std::fs::read(&path).expect("read"),
                );
            }
        }
    }
    files
}

fn pictures(copies: &[Copy]) -> Vec<BTreeMap<PathBuf, Vec<u8>>> {
    copies.iter().map(|copy| picture(&copy.path)).collect()
}

#[test]
fn a_removed_repository_comes_back_byte_for_byte_and_its_name_was_free_meanwhile() {
    let up = Up::start(&[]);
    let source = small(&up.sources(), "kept", 4);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    up.met(60);
    let copies = up.copies("kept");
    let before = pictures(&copies);
    let id = up.json(&["repo", "show", "kept"])["id"].to_string();

    let refused =
        trued().arg("--data").arg(up.data()).args(["repo", "remove", "kept", "--reason", "over"]).output();
    let refused = refused.expect("the program runs");
    assert_eq!(refused.status.code(), Some(4), "nothing was typed back");
    assert_eq!(up.run(&["repo", "remove", "kept", "--yes"]).status.code(), Some(2), "no reason, no removal");
    let dry = up.done(&["repo", "remove", "kept", "--reason", "over", "--dry-run"]);
    assert!(dry.contains("would be removed"), "{dry}");
    assert_eq!(up.copies("kept").len(), 3);

    up.done(&["repo", "remove", "kept", "--reason", "over", "--yes"]);
    assert_eq!(up.run(&["repo", "show", "kept"]).status.code(), Some(2), "the name leads nowhere");
    let listed = up.done(&["repo", "list", "--removed"]);
    assert!(listed.contains("kept"), "{listed}");
    up.done(&["repo", "create", "kept"]);
    up.met(60);
    assert_eq!(pictures(&copies), before, "no disk is touched within the retention");

    let taken = up.run(&["repo", "undelete", "kept"]);
    assert!(!taken.status.success() && String::from_utf8_lossy(&taken.stderr).contains("--name"));
    up.done(&["repo", "undelete", &id, "--name", "back"]);
    up.met(60);
    assert_whole(&up.copies("back"), &source, 3);
    assert_eq!(pictures(&up.copies("back")), before, "byte for byte");

    up.done(&["repo", "rename", "back", "kept-again"]);
    let copies = up.copies("kept-again");
    assert_eq!(copies.len(), 3);
    // What stands beside a copy has its name: the database may have to be rebuilt from it.
    until("each copy is told", secs(60), || {
        let beside =
            |copy: &Copy| std::fs::read_to_string(copy.path.with_extension("json")).unwrap_or_default();
        let old: Vec<_> = copies.iter().filter(|copy| !beside(copy).contains("kept-again")).collect();
        if old.is_empty() { Ok(()) } else { Err(format!("{old:#?}")) }
    });
    assert_eq!(up.run(&["repo", "show", "back"]).status.code(), Some(2));
}
