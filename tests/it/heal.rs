//! Damage to a copy is noticed without help and mended from the definitive content.

use crate::support::source::{git, heavy, many_references, references, small};
use crate::support::up::{Up, are_whole, assert_whole};
use crate::support::{secs, until};
use std::path::Path;

/// What is done to one copy.
type Damage = (&'static str, fn(&Path));

const DAMAGES: [Damage; 7] = [
    ("removed", |copy| std::fs::remove_dir_all(copy).expect("removed")),
    ("reference-lost", |copy| drop(git(copy, &["update-ref", "-d", "refs/tags/v3"]))),
    ("head-elsewhere", |copy| drop(git(copy, &["symbolic-ref", "HEAD", "refs/heads/other"]))),
    ("stray-reference", |copy| drop(git(copy, &["update-ref", "refs/heads/stray", "refs/heads/main"]))),
    ("packed-refs-truncated", |copy| halve(&copy.join("packed-refs"))),
    ("pack-truncated", |copy| halve(&first_pack(copy))),
    ("stale-lock", |copy| {
        std::fs::write(copy.join("HEAD.lock"), "").expect("written");
        drop(git(copy, &["update-ref", "-d", "refs/tags/v4"]));
    }),
];

#[test]
fn every_kind_of_damage_to_a_copy_is_found_and_mended() {
    let up = Up::start(&[]);
    for (name, _) in DAMAGES {
        small(&up.sources(), name, 8);
    }
    up.done(&["repo", "import", up.sources().to_str().expect("text")]);
    up.met(60);
    for (name, damage) in DAMAGES {
        let copies = up.copies(name);
        assert_whole(&copies, &up.sources().join(name), 3);
        damage(&copies[1].path);
    }
    // What SQL believes is true again only once the damage was seen: the disks are asked, not SQL.
    until("every copy is whole again", secs(120), || {
        DAMAGES.iter().try_for_each(|(name, _)| are_whole(&up.copies(name), &up.sources().join(name)))
    });
    up.met(60);
    for (name, _) in DAMAGES {
        assert_whole(&up.copies(name), &up.sources().join(name), 3);
        let story = up.done(&["why", name]);
        assert!(story.contains("succeeded"), "{name}: the story tells what was done:\n{story}");
    }
}

#[test]
fn a_repository_with_many_references_is_imported_exactly_and_gets_its_fourth_copy_on_demand() {
    let up = Up::start(&["--fileservers", "5"]);
    let source = many_references(&up.sources(), "many.git", 12_000);
    git(&source, &["symbolic-ref", "refs/heads/alias", "refs/heads/topic/2/b2"]);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    assert_whole(&up.copies("many"), &source, 3);
    up.done(&["repo", "set-replicas", "many", "4"]);
    up.met(90);
    assert_whole(&up.copies("many"), &source, 4);
    assert_eq!(up.json(&["repo", "show", "many"])["seats"], 4);
}

#[test]
fn unusual_repositories_survive_import_exactly() {
    let up = Up::start(&[]);
    let sources = up.sources();
    let detached = small(&sources, "detached", 5);
    git(&detached, &["checkout", "-q", "--detach", "HEAD~2"]);
    let sha256 = sources.join("sha256");
    std::fs::create_dir(&sha256).expect("a directory");
    git(&sha256, &["init", "-q", "--object-format=sha256", "-b", "main"]);
    git(&sha256, &["commit", "-q", "--allow-empty", "-m", "one"]);
    let empty = sources.join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    git(&empty, &["init", "-q", "--bare", "-b", "trunk"]);
    heavy(&sources, "heavy", 20 << 20);
    up.done(&["repo", "import", sources.to_str().expect("text")]);
    for name in ["detached", "sha256", "heavy"] {
        assert_whole(&up.copies(name), &sources.join(name), 3);
    }
    for copy in up.copies("empty") {
        assert_eq!(git(&copy.path, &["symbolic-ref", "HEAD"]), "refs/heads/trunk");
        assert_eq!(references(&copy.path), references(&empty));
    }
    let again = up.run(&["repo", "import", sources.to_str().expect("text")]);
    assert!(
        again.status.success(),
        "importing again skips what is there: {}",
        String::from_utf8_lossy(&again.stderr)
    );
}

#[test]
fn sources_that_cannot_be_copied_whole_are_refused_with_a_sentence() {
    let up = Up::start(&[]);
    let origin = small(&up.sources(), "origin", 6);
    let shallow = up.directory.path().join("shallow");
    let url = format!("file://{}", origin.display());
    git(up.directory.path(), &["clone", "-q", "--depth", "2", &url, shallow.to_str().expect("text")]);
    let broken = small(up.directory.path(), "broken", 6);
    halve(&first_pack(&broken.join(".git")));
    for (source, word) in [(&shallow, "shallow"), (&broken, "broken")] {
        let output = up.run(&["repo", "import", source.to_str().expect("text")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(up.json(&["repo", "list"])["repositories"].as_array().map(Vec::len), Some(0));
}

fn halve(file: &Path) {
    let bytes = std::fs::metadata(file).expect("a file").len();
    let mut mode = std::fs::metadata(file).expect("a file").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o644);
    std::fs::set_permissions(file, mode).expect("changed");
    std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|file| file.set_len(bytes / 2))
        .expect("truncated");
}

fn first_pack(repository: &Path) -> std::path::PathBuf {
    let packs = std::fs::read_dir(repository.join("objects/pack")).expect("packs");
    let is_pack = |path: &std::path::PathBuf| path.extension().is_some_and(|ending| ending == "pack");
    packs.filter_map(|entry| Some(entry.ok()?.path())).find(is_pack).expect("a pack")
}
