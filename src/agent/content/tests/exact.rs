//! What is imported, copied and brought back is exactly what the origin had.

use super::support::{Fileserver, Origin, assert_as_sound, git, pair, picture};
use crate::model::fleet::ObjectFormat::{self, Sha1, Sha256};
use crate::model::wire::RefusalCode;

/// Imports, copies, empties the copy of references, brings it back: the same each time.
async fn assert_exact(origin: &Origin) {
    let (one, two) = pair(origin).await;
    let wanted = picture(&origin.path);
    for copy in [&one, &two] {
        assert_eq!(picture(&copy.path()), wanted);
        assert_as_sound(&copy.path(), &origin.path);
        let verified = copy.verify().await;
        assert!(verified.checksum.is_some() && verified.problem.is_none(), "{verified:?}");
        assert!(copy.is_clean());
    }
    let checksum = one.verify().await.checksum;
    assert_eq!(two.verify().await.checksum, checksum);
    let _ = std::fs::remove_file(two.path().join("packed-refs"));
    std::fs::remove_dir_all(two.path().join("refs")).unwrap();
    std::fs::create_dir(two.path().join("refs")).unwrap();
    std::fs::write(two.path().join("HEAD"), "ref: refs/heads/nowhere\n").unwrap();
    let answer = two.resync_from(&one).await.unwrap();
    assert!(!answer.rebuilt, "{}", answer.message);
    assert_eq!(Some(answer.checksum), checksum);
    assert_eq!(picture(&two.path()), wanted);
}

#[tokio::test]
async fn an_ordinary_repository_is_exact() {
    for format in [Sha1, Sha256] {
        assert_exact(&Origin::new(format)).await;
    }
}

#[tokio::test]
async fn an_empty_repository_is_exact() {
    for format in [Sha1, Sha256] {
        let origin = Origin::empty(format);
        origin.symbolic("HEAD", "refs/heads/unborn");
        assert_exact(&origin).await;
    }
}

#[tokio::test]
async fn symbolic_references_are_exact_also_where_they_point_at_nothing() {
    let origin = Origin::new(Sha1);
    origin.symbolic("refs/remotes/origin/HEAD", "refs/heads/main");
    origin.symbolic("refs/remotes/other/HEAD", "refs/remotes/other/none");
    origin.symbolic("HEAD", "refs/heads/not/yet");
    assert_exact(&origin).await;
}

#[tokio::test]
async fn a_detached_head_that_nothing_else_leads_to_is_exact() {
    let origin = Origin::new(Sha1);
    let alone = origin.commit("alone", None);
    origin.git(&["update-ref", "--no-deref", "HEAD", &alone], b"");
    assert_exact(&origin).await;
}

#[tokio::test]
async fn references_to_tags_trees_and_blobs_are_exact() {
    let origin = Origin::new(Sha1);
    let main = origin.git(&["rev-parse", "main"], b"");
    let tree = origin.git(&["rev-parse", "main^{tree}"], b"");
    let blob = origin.blob("only a tag has this");
    for (name, object, kind) in [("one", &main, "commit"), ("two", &tree, "tree"), ("three", &blob, "blob")] {
        let text = format!("object {object}\ntype {kind}\ntag {name}\ntagger a <a@b> 1 +0000\n\nx\n");
        let tag = origin.git(&["hash-object", "-t", "tag", "-w", "--stdin"], text.as_bytes());
        origin.reference(&format!("refs/tags/{name}"), &tag);
    }
    origin.reference("refs/tags/tree", &tree);
    origin.reference("refs/tags/blob", &origin.blob("only a reference has this"));
    origin.reference("refs/notes/x", &main);
    assert_exact(&origin).await;
}

#[tokio::test]
async fn odd_objects_of_old_histories_are_exact() {
    let origin = Origin::new(Sha1);
    let blob = origin.blob("x");
    let raw: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap()).collect();
    let old_tree = [&b"0100644 file\0"[..], &raw].concat();
    let odd = origin.git(&["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &old_tree);
    let text = format!("tree {odd}\nauthor a <a> b> 1 +0000\ncommitter  <> 99999999999999999999 +9999\n\nx");
    let commit =
        origin.git(&["hash-object", "-t", "commit", "--literally", "-w", "--stdin"], text.as_bytes());
    origin.reference("refs/heads/odd", &commit);
    let (one, two) = pair(&origin).await;
    for copy in [&one, &two] {
        assert_eq!(picture(&copy.path()), picture(&origin.path));
        assert_eq!(git(&copy.path(), &["cat-file", "tree", &odd], b""), old_tree);
    }
    // Fetched as objects, too: nothing judges them on that way either.
    let (_, three) = pair(&Origin::new(Sha1)).await;
    assert!(!three.resync_from(&one).await.unwrap().rebuilt);
    assert_eq!(picture(&three.path()), picture(&origin.path));
}

#[tokio::test]
async fn names_that_are_no_text_are_exact() {
    let origin = Origin::new(Sha1);
    let main = origin.git(&["rev-parse", "main"], b"");
    let mut input = b"create refs/heads/caf\xe9\0".to_vec();
    input.extend_from_slice(
        format!("{main}\0create refs/heads/Ж-'\"$(x)\0{main}\0create refs/heads/-x\0{main}\0").as_bytes(),
    );
    git(&origin.path, &["update-ref", "--stdin", "-z"], &input);
    assert_exact(&origin).await;
}

#[tokio::test]
async fn twelve_thousand_references_are_exact_and_fast() {
    let origin = Origin::new(Sha1);
    let main = origin.git(&["rev-parse", "main"], b"");
    let names =
        (0..12_000).map(|number| format!("create refs/changes/{:02}/{number}/head {main}\n", number % 100));
    origin.git(&["update-ref", "--stdin"], names.collect::<String>().as_bytes());
    origin.git(&["pack-refs", "--all"], b"");
    assert_exact(&origin).await;
}

#[tokio::test]
async fn an_import_is_done_once_and_other_content_does_not_pass() {
    let one = Fileserver::start("fs1").await;
    let origin = Origin::new(Sha1);
    let first = one.import(&origin).await.unwrap();
    assert!(!first.existed);
    let key = one.store.signer.verifying_key();
    let receipt = first.receipt.open(|name| (name == "fs1").then_some(key)).unwrap();
    assert_eq!(receipt.checksum, first.checksum);
    let again = one.import(&origin).await.unwrap_err();
    assert_eq!(again.code, RefusalCode::Exists, "the pack is not taken again");
    let again = one.finish(&origin).await.unwrap();
    assert!(again.existed && again.checksum == first.checksum);
    origin.reference("refs/heads/more", &origin.git(&["rev-parse", "main"], b""));
    assert_eq!(one.finish(&origin).await.unwrap_err().code, RefusalCode::Exists);
}

#[tokio::test]
async fn an_import_that_lacks_objects_is_refused_with_a_sentence() {
    for format in [Sha1, Sha256] {
        let one = Fileserver::start("fs1").await;
        let origin = Origin::new(format);
        let refusal = one.finish(&origin).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{refusal}");
        cut_history(&origin);
        let refusal = one.import_as_is(&origin).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{refusal}");
        assert!(!one.path().exists());
    }
}

/// Leaves only the tip's own objects in the pack.
fn cut_history(origin: &Origin) {
    let tip = origin.git(&["rev-parse", "main"], b"");
    std::fs::write(origin.path.join("shallow"), format!("{tip}\n")).unwrap();
    origin.git(&["update-ref", "-d", "refs/heads/old"], b"");
}

#[tokio::test]
async fn a_pack_that_is_none_is_refused_with_gits_words() {
    let one = Fileserver::start("fs1").await;
    let refusal = one.stream(ObjectFormat::Sha1, b"PACKnothing").await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert!(!refusal.message.is_empty());
    let mut pack = Origin::new(Sha1).pack();
    pack.truncate(pack.len() - 30);
    assert_eq!(one.stream(Sha1, &pack).await.unwrap_err().code, RefusalCode::BadRequest);
    assert!(one.is_clean());
}
