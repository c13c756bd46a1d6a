//! What is done to the content of repositories: checksums, verification, copying, importing.
//!
//! Admission (grants, epochs, one writer per repository) has happened before any of this is called,
//! and the caller holds the repository's lock where it is to be changed. Copies are made out of sight and appear
//! whole; what is overwritten or damaged is set aside, never unlinked.

mod disk;
mod foreign;
mod hygiene;
pub(super) mod identity;
mod import;
mod install;
mod leavings;
mod manifest;
mod objects;
mod opened;
mod overwritten;
mod packs;
mod peer;
mod purge;
mod push;
mod quarantine;
mod references;
mod repack;
mod replicate;
mod resync;
mod scrub;
mod staging;
mod verify;

pub use self::foreign::{Foreign, foreign};
pub use self::push::{Ingested, Prepared, Unread, ingest, mend, prepare, pushes_that_broke_off, severities};

use self::references::References;
use super::store::{Source, Store, Work};
use crate::model::Millis;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{
    ChecksumAnswer, CopyAnswer, Identity, ImportAnswer, ImportRequest, Manifest, PackAnswer, PurgeAnswer,
    PurgeRequest, QuarantineAnswer, QuarantinePage, QuarantineRequest, Refusal, RefusalCode, RepackAnswer,
    ReplicateRequest, ResyncRequest, VerifyAnswer,
};
use std::path::PathBuf;
use tokio::io::AsyncRead;

/// The checksum of a repository's references.
///
/// # Errors
/// `NotFound`, `Damaged`.
pub async fn checksum(store: &Store, id: RepositoryId) -> Result<ChecksumAnswer, Refusal> {
    let copy = opened::open(store, id).await?;
    let format = copy.format;
    let beside = store.layout.identity(id);
    let (references, journal_version) = disk::blocking(move || {
        let version = identity::read(&beside).map_or(0, |found| found.version);
        Ok((References::read(&copy.path, copy.format)?, version))
    })
    .await?;
    let checksum = references.checksum(&store.key, format);
    Ok(ChecksumAnswer { checksum, references: references.count(), journal_version })
}

/// Compares a copy with its disk: checksum, pack trailers. A damaged or missing copy is an answer, not an error.
///
/// # Errors
/// `Cancelled`, `Failed`.
pub async fn verify(store: &Store, id: RepositoryId, work: &Work) -> Result<VerifyAnswer, Refusal> {
    verify::verify(store, id, work).await
}

/// Checks every object of a copy, politely. Damage is an answer, not an error.
///
/// # Errors
/// `Cancelled`, `Failed`.
pub async fn scrub(store: &Store, id: RepositoryId, work: &Work) -> Result<VerifyAnswer, Refusal> {
    scrub::scrub(store, id, work).await
}

/// Packs a copy anew: one pack, what is out of reach in another, a bitmap, a commit-graph. Nothing is deleted while
/// somebody reads the copy, and what is out of reach is kept for 14 days.
///
/// # Errors
/// `NotFound`, `Damaged`, `DiskFull`, `Busy` where it is read all the while, `Cancelled`, `Failed`.
pub async fn repack(store: &Store, id: RepositoryId, work: &Work) -> Result<RepackAnswer, Refusal> {
    repack::repack(store, id, work).await
}

/// Brings a copy to what the source has; sets it aside and makes it new where it cannot be mended.
///
/// # Errors
/// `SourceFailed`, `DiskFull`, `Cancelled`, `HistoryLost`, `Failed`.
pub async fn resync(
    store: &Store,
    id: RepositoryId,
    source: &Source,
    ask: &ResyncRequest,
    work: &Work,
) -> Result<CopyAnswer, Refusal> {
    same(id, ask.identity.repository)?;
    resync::resync(store, source, ask, work).await
}

/// Makes a first copy.
///
/// # Errors
/// `Exists`, `SourceFailed`, `DiskFull`, `Cancelled`, `Failed`.
pub async fn replicate(
    store: &Store,
    id: RepositoryId,
    source: &Source,
    ask: &ReplicateRequest,
    work: &Work,
) -> Result<CopyAnswer, Refusal> {
    same(id, ask.identity.repository)?;
    replicate::replicate(store, source, ask, work).await
}

/// Takes a copy away from its place, into quarantine. The same again is no error, and says where it went.
///
/// # Errors
/// `HistoryLost`, `Failed`.
pub async fn quarantine(
    store: &Store,
    id: RepositoryId,
    ask: &QuarantineRequest,
) -> Result<QuarantineAnswer, Refusal> {
    quarantine::take_away(store, id, ask).await
}

/// A page of the copies in quarantine.
///
/// # Errors
/// `Failed`.
pub async fn quarantined(store: &Store, after: String, limit: usize) -> Result<QuarantinePage, Refusal> {
    quarantine::page(store, after, limit).await
}

/// Unlinks a copy for good.
///
/// # Errors
/// `BadRequest` for a path that is none, `HistoryLost`, `Failed`.
pub async fn purge(store: &Store, id: RepositoryId, ask: &PurgeRequest) -> Result<PurgeAnswer, Refusal> {
    purge::purge(store, id, ask).await
}

/// Takes a streamed pack into the staging of an import; replaces one that came before.
///
/// # Errors
/// `Exists`, `DiskFull`, `BadRequest` with git's words, `Cancelled`.
pub async fn import_pack(
    store: &Store,
    id: RepositoryId,
    format: ObjectFormat,
    pack: impl AsyncRead + Send + Unpin,
    work: &Work,
) -> Result<PackAnswer, Refusal> {
    import::pack(store, id, format, pack, work).await
}

/// Installs HEAD and references over a staged import and publishes the copy.
///
/// # Errors
/// `Exists` where another content stands, `BadRequest`, `Failed`.
pub async fn import_finish(
    store: &Store,
    id: RepositoryId,
    ask: &ImportRequest,
) -> Result<ImportAnswer, Refusal> {
    import::finish(store, id, ask).await
}

/// What stands beside a repository; none: nothing that can be read.
///
/// # Errors
/// `Failed`.
pub async fn identity_of(store: &Store, id: RepositoryId) -> Result<Option<Identity>, Refusal> {
    let beside = store.layout.identity(id);
    disk::blocking(move || Ok(identity::read(&beside))).await
}

/// Writes down anew what a copy is, as after a rename. The highest version that was committed here stays.
///
/// # Errors
/// `NotFound`, `Failed`.
pub async fn identify(store: &Store, id: RepositoryId, new: Identity) -> Result<(), Refusal> {
    opened::open(store, id).await?;
    let beside = store.layout.identity(id);
    disk::blocking(move || {
        let before = identity::read(&beside);
        let version = before.as_ref().map_or(new.version, |before| before.version);
        let new = Identity { version, ..new };
        if before.as_ref() == Some(&new) { Ok(()) } else { identity::write(&beside, &new) }
    })
    .await
}

/// The highest number of a repository that ever stood here, also of those set aside.
///
/// # Errors
/// `Failed`.
pub async fn highest(store: &Store) -> Result<RepositoryId, Refusal> {
    let (quarantine, known) = (store.layout.quarantine(), store.inventory.highest());
    disk::blocking(move || {
        let names =
            std::fs::read_dir(quarantine).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let ids = names.filter_map(|name| name.to_str()?.split_once('-')?.0.parse().ok().map(RepositoryId));
        Ok(ids.chain([known]).max().unwrap_or(known))
    })
    .await
}

/// HEAD and all references, in the text form of [`wire`](crate::model::wire).
///
/// # Errors
/// `NotFound`, `Damaged`.
pub async fn references(store: &Store, id: RepositoryId) -> Result<Vec<u8>, Refusal> {
    let copy = opened::open(store, id).await?;
    disk::blocking(move || Ok(References::read(&copy.path, copy.format)?.to_text())).await
}

/// Lists what a first copy takes and holds it against deletion.
///
/// # Errors
/// `NotFound`.
pub async fn hold(store: &Store, id: RepositoryId) -> Result<Manifest, Refusal> {
    manifest::hold(store, id).await
}

/// Opens one file of a manifest; anything that is not on the list is `NotFound`.
///
/// # Errors
/// `NotFound`.
pub async fn open_file(
    store: &Store,
    id: RepositoryId,
    path: &str,
) -> Result<(tokio::fs::File, u64), Refusal> {
    manifest::open_file(store, id, path).await
}

/// Ends a hold.
///
/// # Errors
/// `NotFound`.
#[allow(clippy::unused_async, reason = "holds lie in memory today; callers need not know")]
pub async fn release(store: &Store, id: RepositoryId, hold: &str) -> Result<(), Refusal> {
    manifest::release(store, id, hold)
}

/// Whether a copy is being made from this repository now: nothing of it may be deleted then.
#[must_use]
pub fn is_held(store: &Store, id: RepositoryId, now: Millis) -> bool {
    manifest::is_held(store, id, now)
}

/// The directory of a repository that is fit to be handed to git, for serving reads: it is plain, and its `config` is
/// the agent's own (a foreign one is replaced first, for git would obey it).
///
/// # Errors
/// `NotFound`, `Damaged`.
pub async fn directory(store: &Store, id: RepositoryId) -> Result<PathBuf, Refusal> {
    Ok(opened::open(store, id).await?.path)
}

fn same(path: RepositoryId, asked: RepositoryId) -> Result<(), Refusal> {
    if path == asked {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::BadRequest, "the request names another repository than its path"))
}

#[cfg(test)]
mod tests;
