//! Scrubbing finds what nothing else sees; packing changes no reference, loses no object and deletes under no reader.

use super::support::{Fileserver, ID, Origin, assert_sound, git, pair, picture, try_git};
use crate::agent::content;
use crate::model::fleet::ObjectFormat::{Sha1, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A loose object that a reference leads to, and no tip.
fn loose_blob(copy: &Path) -> PathBuf {
    let tree = String::from_utf8(git(copy, &["ls-tree", "main"], b"")).unwrap();
    let oid = tree.split_whitespace().nth(2).unwrap().to_owned();
    // Out of its pack: the object is loose from now on.
    let packs = copy.join("objects/pack");
    let aside = copy.join("aside");
    fs::rename(&packs, &aside).unwrap();
    fs::create_dir(&packs).unwrap();
    for entry in fs::read_dir(&aside).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pack") {
            git(copy, &["unpack-objects", "-q"], &fs::read(path).unwrap());
        }
    }
    fs::remove_dir_all(aside).unwrap();
    let path = copy.join(format!("objects/{}/{}", &oid[..2], &oid[2..]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

fn names(directory: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

#[tokio::test]
async fn a_whole_copy_is_found_whole_in_either_format() {
    for format in [Sha1, Sha256] {
        let (one, two) = pair(&Origin::new(format)).await;
        let seen = two.scrub().await;
        assert!(seen.deep && seen.problem.is_none(), "{seen:?}");
        assert_eq!(seen.checksum, one.verify().await.checksum);
    }
}

#[tokio::test]
async fn a_loose_object_that_is_empty_or_torn_is_found_by_the_scrub_alone() {
    for keep in [0, 9] {
        let (_one, two) = pair(&Origin::new(Sha1)).await;
        let blob = loose_blob(&two.path());
        let content = fs::read(&blob).unwrap();
        fs::write(&blob, &content[..keep]).unwrap();
        assert_eq!(two.verify().await.problem, None, "references and packs do not show it");
        let seen = two.scrub().await;
        assert!(seen.deep && seen.problem.is_some(), "{keep}: {seen:?}");
    }
}

#[tokio::test]
async fn a_bit_that_flipped_within_a_pack_is_found() {
    let (_one, two) = pair(&Origin::new(Sha1)).await;
    let packs = two.path().join("objects/pack");
    let pack = packs.join(&names(&packs, ".pack")[0]);
    let mut content = fs::read(&pack).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 4;
    fs::set_permissions(&pack, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&pack, content).unwrap();
    let problem = two.scrub().await.problem.expect("damage");
    assert!(problem.contains("pack"), "git's own words: {problem}");
}

#[tokio::test]
async fn old_sins_of_history_are_no_damage() {
    let origin = Origin::new(Sha1);
    let tree = origin.git(&["rev-parse", "main^{tree}"], b"");
    let commit = format!("tree {tree}\nauthor a <a@b> 1 +0000\n\nno committer\n");
    let commit =
        origin.git(&["hash-object", "-t", "commit", "-w", "--stdin", "--literally"], commit.as_bytes());
    origin.reference("refs/heads/odd", &commit);
    origin.symbolic("refs/s/nowhere", "refs/heads/nowhere");
    assert_ne!(try_git(&origin.path, &["fsck"], b"").0, Some(0), "git dislikes it");
    let (_one, two) = pair(&origin).await;
    assert_eq!(two.scrub().await.problem, None);
}

/// A copy in several packs, with loose objects in and out of reach.
async fn scattered() -> (Origin, Fileserver, String) {
    let origin = Origin::new(Sha1);
    let (_one, two) = pair(&origin).await;
    let copy = two.path();
    let mut parent = String::from_utf8(git(&copy, &["rev-parse", "main"], b"")).unwrap().trim().to_owned();
    for number in 0..4 {
        let tree = String::from_utf8(git(&copy, &["rev-parse", "main^{tree}"], b"")).unwrap();
        let message = format!("more {number}");
        let commit = git(&copy, &["commit-tree", "-m", &message, "-p", &parent, tree.trim()], b"");
        parent = String::from_utf8(commit).unwrap().trim().to_owned();
        git(&copy, &["update-ref", "refs/heads/more", &parent], b"");
        git(&copy, &["repack", "-q", "-d"], b"");
    }
    let lost = git(&copy, &["hash-object", "-w", "--stdin"], b"out of reach");
    (origin, two, String::from_utf8(lost).unwrap().trim().to_owned())
}

#[tokio::test]
async fn packing_leaves_one_pack_in_reach_and_what_makes_reading_cheap() {
    let (_origin, two, lost) = scattered().await;
    let (before, checksum) = (picture(&two.path()), two.verify().await.checksum);
    let done = two.repack().await;
    assert_eq!((done.packs, done.loose, done.indexed), (2, 0, true), "{}", done.message);
    assert_eq!(picture(&two.path()), before);
    assert_sound(&two.path());
    git(&two.path(), &["cat-file", "-e", &lost], b"");
    let packs = two.path().join("objects/pack");
    assert_eq!((names(&packs, ".bitmap").len(), names(&packs, ".mtimes").len()), (1, 1));
    assert!(packs.join("multi-pack-index").is_file());
    let seen = two.scrub().await;
    assert_eq!((seen.checksum, seen.problem, seen.indexed), (checksum, None, true));
    let again = two.repack().await;
    assert_eq!(again.packs, 2, "what is well packed stays: {}", again.message);
}

#[tokio::test]
async fn what_is_out_of_reach_for_two_weeks_goes_and_what_is_younger_stays() {
    let (_origin, two, young) = scattered().await;
    let old = git(&two.path(), &["hash-object", "-w", "--stdin"], b"long out of reach");
    let old = String::from_utf8(old).unwrap().trim().to_owned();
    let path = two.path().join(format!("objects/{}/{}", &old[..2], &old[2..]));
    let then = fs::metadata(&path).unwrap().modified().unwrap() - std::time::Duration::from_hours(15 * 24);
    let file = fs::File::open(&path).unwrap();
    file.set_modified(then).unwrap();
    two.repack().await;
    git(&two.path(), &["cat-file", "-e", &young], b"");
    assert_ne!(try_git(&two.path(), &["cat-file", "-e", &old], b"").0, Some(0));
}

#[tokio::test]
async fn nothing_is_deleted_while_a_copy_is_being_made() {
    let (_origin, two, _) = scattered().await;
    let manifest = content::hold(&two.store, ID).await.unwrap();
    let done = two.repack().await;
    assert!(done.message.contains("the copy was read all the while"), "{}", done.message);
    for file in &manifest.files {
        assert!(two.path().join(&file.path).is_file(), "{} is promised", file.path);
    }
    content::release(&two.store, ID, &manifest.hold).await.unwrap();
    assert_eq!(two.repack().await.packs, 2);
}

#[tokio::test]
async fn a_wrong_commit_graph_is_removed_and_written_anew() {
    let (_origin, two, _) = scattered().await;
    two.repack().await;
    let graph = two.path().join("objects/info/commit-graph");
    let mut content = fs::read(&graph).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::set_permissions(&graph, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&graph, content).unwrap();
    let seen = two.scrub().await;
    assert!(seen.problem.is_none() && !seen.indexed && !graph.exists(), "{seen:?}");
    assert!(two.repack().await.indexed && graph.exists());
}
