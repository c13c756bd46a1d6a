//! The way itself: broken streams, pushes meanwhile, cancelling, bandwidth, what may be read of a copy.

use super::support::{Fileserver, ID, Origin, assert_sound, git, identity, pair, picture, work};
use crate::agent::content;
use crate::agent::store::Work;
use crate::model::fleet::ObjectFormat::Sha1;
use crate::model::wire::{RefusalCode, ReplicateRequest, ResyncRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Bytes that do not compress.
fn noise(length: usize) -> String {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + u8::try_from((state >> 33) % 90).unwrap())
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn large(bytes: usize) -> Origin {
    let origin = Origin::new(Sha1);
    origin.reference("refs/heads/large", &origin.commit(&noise(bytes), None));
    origin
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_where_it_broke() {
    let origin = large(300_000);
    let one = Fileserver::start("fs1").await;
    one.import(&origin).await.unwrap();
    let two = Fileserver::start("fs2").await;
    one.cuts.store(7, Ordering::SeqCst);
    let answer = two.replicate_from(&one).await.unwrap();
    assert!(one.cuts.load(Ordering::SeqCst) <= 0, "all breaks happened");
    assert_eq!(picture(&two.path()), picture(&origin.path));
    let files: i64 = content::hold(&one.store, ID).await.unwrap().files.iter().map(|file| file.bytes).sum();
    assert_eq!(answer.moved, files, "no byte came twice");
}

#[tokio::test]
async fn a_source_that_always_breaks_or_is_gone_is_given_up() {
    let origin = large(1000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    one.cuts.store(i64::MAX, Ordering::SeqCst);
    let refusal = two.replicate_from(&one).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::SourceFailed, "{refusal}");
    let mut gone = one.source();
    gone.url = "http://127.0.0.1:1".to_owned();
    let ask = ReplicateRequest { identity: identity(Sha1, 1), bytes_per_second: 0 };
    let refusal = content::replicate(&two.store, ID, &gone, &ask, &work()).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::SourceFailed);
    assert!(!two.path().exists());
}

#[tokio::test]
async fn what_is_pushed_while_files_stream_is_in_the_copy() {
    let origin = large(100_000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let more = origin.commit("pushed meanwhile", None);
    let pack =
        git(&origin.path, &["pack-objects", "-q", "--revs", "--stdout"], format!("{more}\n").as_bytes());
    let (path, pushed) = (one.path(), std::sync::atomic::AtomicBool::new(false));
    let progress = move |progress: crate::model::wire::Progress| {
        if progress.phase == "checking packs" && !pushed.swap(true, Ordering::SeqCst) {
            git(&path, &["unpack-objects", "-q"], &pack);
            git(&path, &["update-ref", "refs/heads/more", &more], b"");
            git(&path, &["symbolic-ref", "HEAD", "refs/heads/more"], b"");
        }
    };
    let work = Work { cancel: CancellationToken::new(), progress: Arc::new(progress) };
    let ask = ReplicateRequest { identity: identity(Sha1, 1), bytes_per_second: 0 };
    let answer = content::replicate(&two.store, ID, &one.source(), &ask, &work).await.unwrap();
    assert_eq!(picture(&two.path()), picture(&one.path()));
    assert!(picture(&two.path()).contains("refs/heads/more"));
    assert_eq!(answer.checksum, content::checksum(&one.store, ID).await.unwrap().checksum);
    assert_sound(&two.path());
}

#[tokio::test]
async fn a_copy_that_is_cancelled_is_no_copy() {
    let origin = large(200_000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let progress = Arc::new(move |_| stop.cancel());
    let ask = ReplicateRequest { identity: identity(Sha1, 1), bytes_per_second: 1000 };
    let work = Work { cancel, progress };
    let refusal = content::replicate(&two.store, ID, &one.source(), &ask, &work).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Cancelled);
    assert!(!two.path().exists());
}

/// Breaks a copy off once so many bytes have come; where they lie.
async fn break_off(one: &Fileserver, two: &Fileserver, after: i64) -> std::path::PathBuf {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let progress = Arc::new(move |now: crate::model::wire::Progress| {
        if now.bytes >= after {
            stop.cancel();
        }
    });
    let ask = ReplicateRequest { identity: identity(Sha1, 1), bytes_per_second: 400_000 };
    let refusal = content::replicate(&two.store, ID, &one.source(), &ask, &Work { cancel, progress })
        .await
        .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Cancelled);
    two.store.layout.staging().join(format!("{ID}-copy.git"))
}

fn bytes_of_packs(copy: &std::path::Path) -> i64 {
    let files = std::fs::read_dir(copy.join("objects/pack")).unwrap();
    files.map(|file| i64::try_from(file.unwrap().metadata().unwrap().len()).unwrap()).sum()
}

#[tokio::test]
async fn a_copy_that_was_broken_off_goes_on_from_what_had_come() {
    let origin = large(400_000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let staging = break_off(&one, &two, 150_000).await;
    let kept = bytes_of_packs(&staging);
    assert!(kept >= 150_000, "{kept}");
    let answer = two.replicate_from(&one).await.unwrap();
    let files: i64 = content::hold(&one.store, ID).await.unwrap().files.iter().map(|file| file.bytes).sum();
    assert_eq!(answer.moved, files - kept, "no byte came twice");
    assert_eq!(picture(&two.path()), picture(&origin.path));
    assert!(two.is_clean());
}

#[tokio::test]
async fn what_was_torn_where_it_lay_is_thrown_away_and_nobody_is_blamed() {
    let origin = large(400_000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let staging = break_off(&one, &two, 150_000).await;
    for file in std::fs::read_dir(staging.join("objects/pack")).unwrap() {
        let path = file.unwrap().path();
        let mut content = std::fs::read(&path).unwrap();
        if let Some(byte) = content.get_mut(20) {
            *byte ^= 1;
        }
        std::fs::write(&path, content).unwrap();
    }
    std::fs::create_dir_all(staging.join("hooks")).unwrap();
    std::fs::write(staging.join("hooks/post-update"), "#!/bin/sh\n").unwrap();
    let answer = two.replicate_from(&one).await.unwrap();
    assert!(answer.moved > 400_000, "it began anew: {}", answer.moved);
    assert_eq!(picture(&two.path()), picture(&origin.path));
    assert!(two.is_clean() && !two.path().join("hooks").exists());
}

#[tokio::test]
async fn a_copy_is_not_made_faster_than_allowed() {
    let origin = large(100_000);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let ask = ReplicateRequest { identity: identity(Sha1, 1), bytes_per_second: 200_000 };
    let began = std::time::Instant::now();
    let answer = content::replicate(&two.store, ID, &one.source(), &ask, &work()).await.unwrap();
    let least = Duration::from_millis(u64::try_from(answer.moved).unwrap() * 1000 / 200_000);
    assert!(began.elapsed() >= least, "{:?} for {} bytes", began.elapsed(), answer.moved);
}

#[tokio::test]
async fn loose_objects_are_copied_too() {
    let origin = Origin::new(Sha1);
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(&origin).await.unwrap();
    let more = origin.commit("loose", None);
    let pack =
        git(&origin.path, &["pack-objects", "-q", "--revs", "--stdout"], format!("{more}\n").as_bytes());
    git(&one.path(), &["unpack-objects", "-q"], &pack);
    git(&one.path(), &["update-ref", "refs/heads/loose", &more], b"");
    two.replicate_from(&one).await.unwrap();
    assert_eq!(picture(&two.path()), picture(&one.path()));
    let seen = two.verify().await;
    assert_eq!((seen.packs, seen.loose), (1, 3));

    // One whose bytes are not what they were is not passed on.
    let path = one.path().join(format!("objects/{}/{}", &more[..2], &more[2..]));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let three = Fileserver::start("fs3").await;
    assert_eq!(three.replicate_from(&one).await.unwrap_err().code, RefusalCode::SourceFailed);
    assert!(three.is_clean());
}

#[tokio::test]
async fn a_copy_is_not_made_where_something_stands_but_a_resync_may_make_it_new() {
    let origin = Origin::new(Sha1);
    let (one, two) = pair(&origin).await;
    assert_eq!(two.replicate_from(&one).await.unwrap_err().code, RefusalCode::Exists);
    let ask = ResyncRequest { identity: identity(Sha1, 1), fence: None, bytes_per_second: 0, rebuild: true };
    let answer = content::resync(&two.store, ID, &one.source(), &ask, &work()).await.unwrap();
    assert!(answer.rebuilt);
    assert_eq!(picture(&two.path()), picture(&origin.path));
}

#[tokio::test]
async fn nothing_but_object_files_can_be_read_and_holds_are_counted() {
    let (one, _) = pair(&Origin::new(Sha1)).await;
    let now = crate::clock::now();
    assert!(!content::is_held(&one.store, ID, now), "the copy gave its hold back");
    let manifest = content::hold(&one.store, ID).await.unwrap();
    assert!(content::is_held(&one.store, ID, now));
    for file in &manifest.files {
        let (_, size) = content::open_file(&one.store, ID, &file.path).await.unwrap();
        assert_eq!(i64::try_from(size).unwrap(), file.bytes);
    }
    for path in
        ["config", "HEAD", "packed-refs", "objects/pack/../../config", "../34.json", "/etc/passwd", ""]
    {
        let refusal = content::open_file(&one.store, ID, path).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::NotFound, "{path}");
    }
    content::release(&one.store, ID, &manifest.hold).await.unwrap();
    assert!(!content::is_held(&one.store, ID, now));
    assert_eq!(
        content::release(&one.store, ID, &manifest.hold).await.unwrap_err().code,
        RefusalCode::NotFound
    );
}
