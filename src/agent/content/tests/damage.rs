//! Every damage is seen by a verification and healed by a resync, from the source's content and never the other way.

use super::support::{Fileserver, ID, Origin, assert_sound, git, identity, pair, picture};
use crate::agent::content;
use crate::model::fleet::ObjectFormat::Sha1;
use crate::model::wire::{CopyAnswer, RefusalCode};
use std::fs;
use std::path::{Path, PathBuf};

/// Damages a copy, checks that verify sees it and that resync heals it.
async fn healed(damage: impl FnOnce(&Path)) -> (CopyAnswer, Fileserver) {
    let origin = Origin::new(Sha1);
    let main = origin.git(&["rev-parse", "main"], b"");
    for name in ["refs/heads/a", "refs/heads/b", "refs/tags/t"] {
        origin.reference(name, &main);
    }
    healed_copy_of(&origin, damage).await
}

async fn healed_copy_of(origin: &Origin, damage: impl FnOnce(&Path)) -> (CopyAnswer, Fileserver) {
    let (one, two) = pair(origin).await;
    let right = one.verify().await.checksum;
    damage(&two.path());
    let seen = two.verify().await;
    assert_ne!(seen.checksum, right, "not seen: {seen:?}");
    assert!(seen.checksum.is_some() || seen.problem.is_some());
    let answer = two.resync_from(&one).await.unwrap();
    let after = two.verify().await;
    assert_eq!((after.checksum, after.problem), (right, None));
    assert_eq!(Some(answer.checksum), right);
    assert_eq!(picture(&two.path()), picture(&origin.path));
    assert_sound(&two.path());
    assert!(two.is_clean());
    (answer, two)
}

fn pack_of(repository: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(repository.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.extension().is_some_and(|found| found == ending)).unwrap()
}

fn truncate(path: &Path, by: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - by).unwrap();
}

#[tokio::test]
async fn a_copy_that_is_gone_is_made_new() {
    let (answer, _) = healed(|copy| fs::remove_dir_all(copy).unwrap()).await;
    assert!(answer.rebuilt && answer.message.contains("was not there"), "{}", answer.message);
}

#[tokio::test]
async fn a_deleted_reference_comes_back() {
    let (answer, two) = healed(|copy| drop(git(copy, &["update-ref", "-d", "refs/heads/a"], b""))).await;
    assert!(!answer.rebuilt);
    assert_eq!(answer.references_changed, 1);
    let kept = walk(&two.store.layout.journal().join("overwritten"));
    assert_eq!(kept.len(), 1, "what was there is kept as a list");
    assert!(!fs::read_to_string(&kept[0]).unwrap().contains("refs/heads/a"));
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_head_that_points_elsewhere_points_back() {
    let (answer, _) = healed(|copy| drop(git(copy, &["symbolic-ref", "HEAD", "refs/heads/b"], b""))).await;
    assert!(!answer.rebuilt);
}

#[tokio::test]
async fn a_stray_reference_goes() {
    let (answer, _) = healed(|copy| {
        let main = fs::read_to_string(copy.join("packed-refs")).unwrap();
        let oid = main.lines().find(|line| line.ends_with("refs/heads/main")).unwrap();
        git(copy, &["update-ref", "refs/heads/stray/x", &oid[..40]], b"");
    })
    .await;
    assert!(!answer.rebuilt);
}

#[tokio::test]
async fn references_that_changed_kind_or_place_change_back() {
    let origin = Origin::new(Sha1);
    let main = origin.git(&["rev-parse", "main"], b"");
    origin.reference("refs/heads/a", &main);
    origin.reference("refs/heads/x/y/z", &main);
    origin.symbolic("refs/s/one", "refs/heads/a");
    origin.reference("refs/s/two", &main);
    let (answer, _) = healed_copy_of(&origin, |copy| {
        let commands = "delete refs/heads/a\ndelete refs/heads/x/y/z\noption no-deref\ndelete refs/s/one\ndelete refs/s/two\n";
        git(copy, &["update-ref", "--stdin"], commands.as_bytes());
        let commands = format!("create refs/heads/a/b/c {main}\ncreate refs/heads/x {main}\ncreate refs/s/one {main}\n");
        git(copy, &["update-ref", "--stdin"], commands.as_bytes());
        git(copy, &["symbolic-ref", "refs/s/two", "refs/heads/nowhere"], b"");
    })
    .await;
    assert!(!answer.rebuilt, "{}", answer.message);
    assert_eq!(answer.references_changed, 6);
}

#[tokio::test]
async fn packed_references_that_are_cut_off_are_restored() {
    for by in [3, 55, 10_000] {
        let (answer, _) = healed(|copy| {
            let path = copy.join("packed-refs");
            truncate(&path, by.min(fs::metadata(&path).unwrap().len()));
        })
        .await;
        assert_eq!(answer.rebuilt, by == 3 || by == 55, "{by}: {}", answer.message);
    }
}

#[tokio::test]
async fn a_pack_that_is_cut_off_is_seen_and_the_copy_is_made_new() {
    let (answer, two) = healed(|copy| truncate(&pack_of(copy, "pack"), 25)).await;
    assert!(answer.rebuilt && answer.message.contains("quarantine/"), "{}", answer.message);
    let aside = fs::read_dir(two.store.layout.quarantine()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut aside: Vec<String> = aside.map(|name| name.into_string().unwrap()).collect();
    aside.sort();
    assert_eq!(aside.len(), 2, "{aside:?}");
    let note = fs::read_to_string(two.store.layout.quarantine().join(&aside[1])).unwrap();
    assert!(note.contains("cut off"), "{note}");
}

#[tokio::test]
async fn an_index_that_is_gone_or_broken_is_seen() {
    healed(|copy| fs::remove_file(pack_of(copy, "idx")).unwrap()).await;
    healed(|copy| fs::remove_file(pack_of(copy, "pack")).unwrap()).await;
    healed(|copy| {
        let path = pack_of(copy, "idx");
        let mut bytes = fs::read(&path).unwrap();
        bytes[1100] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    })
    .await;
}

#[tokio::test]
async fn all_packs_gone_is_seen_by_the_tips() {
    let (answer, _) = healed(|copy| {
        fs::remove_dir_all(copy.join("objects/pack")).unwrap();
        fs::create_dir(copy.join("objects/pack")).unwrap();
    })
    .await;
    assert_eq!(answer.references_changed == 0, !answer.rebuilt, "objects come back, or the copy is made new");
}

#[tokio::test]
async fn a_broken_reference_or_head_is_seen() {
    healed(|copy| fs::write(copy.join("refs/heads/a"), "").unwrap()).await;
    healed(|copy| fs::write(copy.join("refs/heads/a"), "x".repeat(40)).unwrap()).await;
    healed(|copy| fs::write(copy.join("HEAD"), "").unwrap()).await;
    healed(|copy| fs::remove_file(copy.join("HEAD")).unwrap()).await;
    healed(|copy| std::os::unix::fs::symlink("/etc/passwd", copy.join("refs/heads/z")).unwrap()).await;
    healed(|copy| fs::remove_dir_all(copy.join("objects")).unwrap()).await;
}

#[tokio::test]
async fn an_object_deep_in_history_that_is_gone_is_found_by_resync() {
    let origin = Origin::new(Sha1);
    let (one, two) = pair(&origin).await;
    let pack = pack_of(&two.path(), "pack");
    let bytes = fs::read(&pack).unwrap();
    for ending in ["pack", "idx", "rev"] {
        fs::remove_file(pack.with_extension(ending)).unwrap_or_default();
    }
    git(&two.path(), &["unpack-objects", "-q"], &bytes);
    let old = origin.git(&["rev-parse", "old^{tree}"], b"");
    fs::remove_file(two.path().join(format!("objects/{}/{}", &old[..2], &old[2..]))).unwrap();
    let answer = two.resync_from(&one).await.unwrap();
    assert!(answer.rebuilt);
    assert_sound(&two.path());
}

#[tokio::test]
async fn a_copy_of_an_older_state_is_brought_forward_by_its_objects() {
    let origin = Origin::new(Sha1);
    let (_, two) = pair(&origin).await;
    let more = origin.commit("three", Some(&origin.git(&["rev-parse", "main"], b"")));
    origin.reference("refs/heads/main", &more);
    origin.reference("refs/pull/1/head", &origin.commit("apart", None));
    let three = Fileserver::start("fs3").await;
    three.import(&origin).await.unwrap();
    let answer = two.resync_from(&three).await.unwrap();
    assert!(!answer.rebuilt && answer.moved > 0, "{answer:?}");
    assert_eq!(answer.references_changed, 2);
    assert_eq!(picture(&two.path()), picture(&origin.path));
    assert_sound(&two.path());
}

#[tokio::test]
async fn locks_of_a_git_that_was_killed_do_not_freeze_a_copy() {
    let (answer, two) = healed(|copy| {
        git(copy, &["update-ref", "-d", "refs/heads/a"], b"");
        for lock in ["HEAD.lock", "packed-refs.lock", "refs/heads/a.lock", "refs/heads/b.lock", "config.lock"]
        {
            fs::write(copy.join(lock), "").unwrap();
        }
    })
    .await;
    assert!(!answer.rebuilt && answer.message.contains(".lock"), "{}", answer.message);
    assert!(!two.path().join("HEAD.lock").exists());
}

#[tokio::test]
async fn a_hostile_configuration_executes_nothing_and_is_replaced() {
    let witness = tempfile::tempdir().unwrap();
    let program = witness.path().join("program");
    let mark = witness.path().join("ran");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let hostile = |copy: &Path| {
        let (program, included) = (program.display(), witness.path().join("included"));
        let hooks = copy.join("hooks");
        fs::create_dir_all(&hooks).unwrap();
        for hook in ["reference-transaction", "post-update", "pre-auto-gc"] {
            fs::copy(witness.path().join("program"), hooks.join(hook)).unwrap();
        }
        fs::write(
            &included,
            format!("[core]\n\tfsmonitor = {program}\n\talternateRefsCommand = {program}\n"),
        )
        .unwrap();
        let text = format!(
            "[core]\n\tbare = true\n\thooksPath = {}\n\tsshCommand = {program}\n\taskPass = {program}\n\tgitProxy = {program}\n\
             [include]\n\tpath = {}\n[credential]\n\thelper = !{program}\n[uploadpack]\n\tpackObjectsHook = {program}\n\
             [url \"ext::{program} \"]\n\tinsteadOf = http://\n[protocol]\n\tallow = always\n",
            hooks.display(),
            included.display(),
        );
        fs::write(copy.join("config"), text).unwrap();
        git(copy, &["update-ref", "refs/tags/t", "refs/heads/old"], b"");
        assert!(mark.exists(), "the trap works: git itself runs the program");
        fs::remove_file(&mark).unwrap();
        fs::write(copy.join("objects/info/alternates"), "/\n").unwrap();
    };
    let (answer, two) = healed(hostile).await;
    assert!(!answer.rebuilt && answer.message.contains("alternates"), "{}", answer.message);
    assert!(!mark.exists(), "a program of the configuration ran");
    assert!(!fs::read_to_string(two.path().join("config")).unwrap().contains("hooksPath"));
    assert!(!two.path().join("hooks/post-update").exists());
}

#[tokio::test]
async fn a_source_that_borrows_objects_or_is_damaged_is_refused_and_nothing_is_left() {
    let origin = Origin::new(Sha1);
    let (one, two) = pair(&origin).await;
    let three = Fileserver::start("fs3").await;
    fs::write(one.path().join("objects/info/alternates"), two.path().join("objects").to_str().unwrap())
        .unwrap();
    let refusal = three.replicate_from(&one).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::SourceFailed);
    assert!(refusal.message.contains("borrows"), "{refusal}");
    fs::remove_file(one.path().join("objects/info/alternates")).unwrap();

    let pack = pack_of(&one.path(), "pack");
    let mut bytes = fs::read(&pack).unwrap();
    bytes[20] ^= 1;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    let refusal = three.replicate_from(&one).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::SourceFailed, "{refusal}");
    assert!(three.is_clean() && !three.path().exists());
}

#[tokio::test]
async fn a_copy_with_a_higher_version_than_the_callers_is_not_overwritten() {
    let origin = Origin::new(Sha1);
    let (one, two) = pair(&origin).await;
    content::identity::write(&two.store.layout.identity(ID), &identity(Sha1, 7)).unwrap();
    let refusal = two.resync_from(&one).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::HistoryLost);
    assert_eq!(two.verify().await.journal_version, 7);
}

#[tokio::test]
async fn many_references_that_went_back_go_forward_at_once() {
    let origin = Origin::new(Sha1);
    let [main, old] = ["main", "old"].map(|name| origin.git(&["rev-parse", name], b""));
    let all = |verb: &str, oid: &str| {
        (0..600).map(|n| format!("{verb} refs/many/{n} {oid}")).collect::<Vec<_>>().join("\n") + "\n"
    };
    origin.git(&["update-ref", "--stdin"], all("create", &main).as_bytes());
    origin.symbolic("refs/many/symbolic", "refs/many/1");
    let (answer, two) = healed_copy_of(&origin, |copy| {
        git(copy, &["update-ref", "--stdin"], all("update", &old).as_bytes());
        git(copy, &["update-ref", "refs/heads/stray", &old], b"");
    })
    .await;
    assert!(!answer.rebuilt, "{}", answer.message);
    assert_eq!(answer.references_changed, 601);
    assert!(!two.path().join("refs/many/1").exists() && two.path().join("refs/many/symbolic").exists());
}
