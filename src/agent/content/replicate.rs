//! A first copy: files streamed into staging, checked, completed by what came since, published whole. One that was
//! broken off goes on from what had come, file by file and byte by byte, also after a restart of the agent.
//!
//! The source's references are noted before its files are listed, so the list has all that they need; they are asked
//! for again at the end, and what came between is fetched by git. Configuration, hooks, alternates and links are
//! never copied: only object files are on the list, and everything else is made here.

use super::objects::{self, At};
use super::packs::{self, Objects};
use super::peer::{self, Peer};
use super::references::References;
use super::staging::Staging;
use super::{disk, install};
use crate::agent::store::{Reservation, Source, Store, Work};
use crate::model::amount::counted;
use crate::model::checksum::Checksum;
use crate::model::wire::{CopyAnswer, Identity, Manifest, Progress, Refusal, RefusalCode, ReplicateRequest};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Files that are streamed at once.
const STREAMS: usize = 4;
/// Room that a copy may need beside its files: references, and what came since.
const MARGIN: i64 = 1024 * 1024;

/// A copy in staging that is complete and checked.
pub(super) struct Prepared {
    pub(super) staging: Staging,
    pub(super) checksum: Checksum,
    pub(super) references: i64,
    /// Bytes that came over the network.
    pub(super) moved: i64,
}

/// Makes a first copy.
pub(super) async fn replicate(
    store: &Store,
    source: &Source,
    ask: &ReplicateRequest,
    work: &Work,
) -> Result<CopyAnswer, Refusal> {
    let identity = &ask.identity;
    let place = store.layout.repository(identity.repository);
    if tokio::fs::symlink_metadata(&place).await.is_ok() {
        return Err(Refusal::new(
            RefusalCode::Exists,
            format!("repository {} is here already", identity.repository),
        ));
    }
    let prepared = prepare(store, source, identity, ask.bytes_per_second, work).await?;
    let message = format!("copied {} from {}", counted(prepared.references, "reference"), source.name);
    publish(store, identity, prepared, false, message).await
}

/// Renames a prepared copy into place and says what there is now.
pub(super) async fn publish(
    store: &Store,
    identity: &Identity,
    prepared: Prepared,
    rebuilt: bool,
    message: String,
) -> Result<CopyAnswer, Refusal> {
    let Prepared { staging, checksum, references, moved } = prepared;
    staging.publish(store, identity).await?;
    let generation = store.touched(identity.repository).await;
    let place = store.layout.repository(identity.repository);
    let bytes = disk::blocking(move || Ok(disk::usage(&place))).await?;
    Ok(CopyAnswer { checksum, moved, bytes, references_changed: references, rebuilt, generation, message })
}

/// Makes a complete, checked and synced copy in staging.
pub(super) async fn prepare(
    store: &Store,
    source: &Source,
    identity: &Identity,
    bytes_per_second: i64,
    work: &Work,
) -> Result<Prepared, Refusal> {
    let peer = Peer::new(store, source, &work.cancel);
    let (id, format) = (identity.repository, identity.object_format);
    let first = peer.references(id, format).await?;
    let manifest = peer.hold(id, format).await?;
    let mut moved = 0;
    let made = loop {
        let (staging, kept) = Staging::go_on(store, id, "copy", format, &manifest.files).await?;
        let lock = store.layout.lock(id);
        let copying = Copying {
            store,
            peer: &peer,
            identity,
            work,
            staging: &staging,
            lock,
            moved: AtomicI64::new(moved),
            kept,
            doubted: AtomicBool::new(false),
        };
        let made = copying.make(&first, &manifest, bytes_per_second).await;
        moved = copying.moved.into_inner();
        let doubted = copying.doubted.into_inner();
        match made {
            Ok(references) => {
                let checksum = references.checksum(&store.key, format);
                break Ok(Prepared { checksum, references: references.count(), moved, staging });
            }
            // What lay there may have been torn by a power cut, or come from another source: that is not this one's
            // fault, and is found out from the beginning.
            Err(_) if doubted && kept > 0 => staging.discard().await,
            Err(refusal) => {
                if doubted || !goes_on(refusal.code) {
                    staging.discard().await;
                }
                break Err(refusal);
            }
        }
    };
    peer.release(id, &manifest.hold).await;
    made
}

/// Whether what came until then is of use to the next attempt: the source or the caller went away. Of a full disk the
/// others need the room.
const fn goes_on(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::SourceFailed | RefusalCode::Cancelled | RefusalCode::Busy)
}

struct Copying<'a> {
    store: &'a Store,
    peer: &'a Peer<'a>,
    identity: &'a Identity,
    work: &'a Work,
    staging: &'a Staging,
    lock: PathBuf,
    moved: AtomicI64,
    /// Bytes that an earlier attempt had brought.
    kept: i64,
    /// Whether what lies in staging was found damaged.
    doubted: AtomicBool,
}

impl Copying<'_> {
    async fn make(&self, first: &References, manifest: &Manifest, rate: i64) -> Result<References, Refusal> {
        let total: i64 = manifest.files.iter().map(|file| file.bytes).fold(0, i64::saturating_add);
        let room = self.store.reserve(total.saturating_sub(self.kept).saturating_add(MARGIN))?;
        self.stream(manifest, total, rate, &room).await?;
        self.say("checking packs", total);
        self.check_files().await?;
        let last = self.peer.references(self.identity.repository, self.identity.object_format).await?;
        self.say("checking connectivity", total);
        self.complete(first, &last).await?;
        self.say("installing references", total);
        install::fresh(self.at(), &last, self.identity.object_format).await?;
        self.staging.sync().await?;
        Ok(last)
    }

    fn at(&self) -> At<'_> {
        let lock = Some(self.lock.as_path());
        At { git: &self.store.git, repository: self.staging.path(), lock, cancel: &self.work.cancel }
    }

    fn say(&self, phase: &str, total: i64) {
        let bytes = self.kept.saturating_add(self.moved.load(Ordering::Relaxed));
        (self.work.progress)(Progress { phase: phase.to_owned(), bytes, total });
    }

    /// Streams all files, a few at a time, not faster than `rate` bytes a second.
    async fn stream(
        &self,
        manifest: &Manifest,
        total: i64,
        rate: i64,
        room: &Reservation,
    ) -> Result<(), Refusal> {
        let began = Instant::now();
        let took = |count: usize| {
            let bytes = i64::try_from(count).unwrap_or(0);
            room.wrote(bytes);
            let moved = bytes + self.moved.fetch_add(bytes, Ordering::Relaxed);
            self.say("copying packs", total);
            let due = pace(moved, rate);
            async move {
                if let Some(due) = due {
                    tokio::time::sleep_until(began + due).await;
                }
                self.store.bandwidth.pass(count).await;
            }
        };
        let files = manifest.files.iter().map(|file| {
            let (id, took) = (self.identity.repository, &took);
            self.peer.file(id, file, self.staging.path(), took).boxed()
        });
        // Boxed: the compiler cannot see through the closures above that all of it may move between threads.
        let streams = futures::stream::iter(files).buffer_unordered(STREAMS).try_collect::<()>().boxed();
        tokio::select! {
            biased;
            () = self.work.cancel.cancelled() => Err(peer::cancelled()),
            done = streams => done,
        }
    }

    /// Every byte of packs is hashed, loose objects are read to their ends: a bit that flipped on the way is seen.
    async fn check_files(&self) -> Result<(), Refusal> {
        let (path, format) = (self.staging.path().to_path_buf(), self.identity.object_format);
        let objects: Objects =
            disk::blocking(move || packs::check_copied(&path, format)).await.map_err(|r| self.blame(r))?;
        let loose =
            objects.files.iter().map(|file| &file.path).filter(|path| !path.starts_with("objects/pack/"));
        let loose: Vec<String> = loose.cloned().collect();
        objects::loose_are_whole(self.at(), &loose).await.map_err(|refusal| self.blame(refusal))
    }

    /// Fetches what came since the files were listed, and walks all of it.
    async fn complete(&self, first: &References, last: &References) -> Result<(), Refusal> {
        let tips = last.tips();
        let missing = objects::missing(self.at(), &tips).await?;
        if !missing.is_empty() {
            if first == last {
                return Err(self.blame(damaged(&format!(
                    "it has no object {}, though a reference names it",
                    missing[0]
                ))));
            }
            objects::fetch(self.at(), self.peer, self.identity.repository, &missing).await?;
        }
        objects::connected(self.at(), &tips).await.map_err(|refusal| self.blame(refusal))
    }

    /// All that lies in staging came from the source: damage here is damage there, unless some of it lay here before.
    fn blame(&self, refusal: Refusal) -> Refusal {
        if refusal.code == RefusalCode::Damaged {
            self.doubted.store(true, Ordering::Relaxed);
            let message = format!("what source {} gave is damaged: {}", self.peer.name(), refusal.message);
            return Refusal::new(RefusalCode::SourceFailed, message);
        }
        refusal
    }
}

fn damaged(what: &str) -> Refusal {
    Refusal::new(RefusalCode::Damaged, what)
}

/// When so many bytes may have been moved, counted from the beginning.
fn pace(moved: i64, rate: i64) -> Option<Duration> {
    let millis = u64::try_from(i128::from(moved) * 1000 / i128::from((rate > 0).then_some(rate)?)).ok()?;
    Some(Duration::from_millis(millis))
}
