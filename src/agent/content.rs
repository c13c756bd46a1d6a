//! What is done to the content of repositories: checksums, verification, copying, importing.
//!
//! Admission (grants, epochs, one writer per repository) has happened before any of this is called,
//! and the caller holds the repository's lock where it is to be changed.
use super::store::{Source, Store, Work};
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{
    ChecksumAnswer, CopyAnswer, ImportAnswer, ImportRequest, Manifest, PackAnswer, QuarantineAnswer, Refusal,
    ReplicateRequest, ResyncRequest, VerifyAnswer,
};
use tokio::io::AsyncRead;

/// The checksum of a repository's references.
///
/// # Errors
/// `NotFound`, `Damaged`.
pub async fn checksum(_store: &Store, _id: RepositoryId) -> Result<ChecksumAnswer, Refusal> {
    todo!()
}

/// Compares a copy with its disk: checksum, pack trailers. A damaged or missing copy is an answer, not an error.
///
/// # Errors
/// `Cancelled`, `Failed`.
pub async fn verify(_store: &Store, _id: RepositoryId, _work: &Work) -> Result<VerifyAnswer, Refusal> {
    todo!()
}

/// Brings a copy to what the source has; sets it aside and makes it new where it cannot be mended.
///
/// # Errors
/// `SourceFailed`, `DiskFull`, `Cancelled`, `HistoryLost`, `Failed`.
pub async fn resync(
    _store: &Store,
    _id: RepositoryId,
    _source: &Source,
    _ask: &ResyncRequest,
    _work: &Work,
) -> Result<CopyAnswer, Refusal> {
    todo!()
}

/// Makes a first copy.
///
/// # Errors
/// `Exists`, `SourceFailed`, `DiskFull`, `Cancelled`, `Failed`.
pub async fn replicate(
    _store: &Store,
    _id: RepositoryId,
    _source: &Source,
    _ask: &ReplicateRequest,
    _work: &Work,
) -> Result<CopyAnswer, Refusal> {
    todo!()
}

/// Sets a copy aside.
///
/// # Errors
/// `Failed`.
pub async fn quarantine(
    _store: &Store,
    _id: RepositoryId,
    _reason: &str,
) -> Result<QuarantineAnswer, Refusal> {
    todo!()
}

/// Takes a streamed pack into the staging of an import; replaces one that came before.
///
/// # Errors
/// `Exists`, `DiskFull`, `BadRequest` with git's words, `Cancelled`.
pub async fn import_pack(
    _store: &Store,
    _id: RepositoryId,
    _format: ObjectFormat,
    _pack: impl AsyncRead + Send + Unpin,
    _work: &Work,
) -> Result<PackAnswer, Refusal> {
    todo!()
}

/// Installs HEAD and references over a staged import and publishes the copy.
///
/// # Errors
/// `Exists` where another content stands, `BadRequest`, `Failed`.
pub async fn import_finish(
    _store: &Store,
    _id: RepositoryId,
    _ask: &ImportRequest,
) -> Result<ImportAnswer, Refusal> {
    todo!()
}

/// HEAD and all references, in the text form of [`wire`](crate::model::wire).
///
/// # Errors
/// `NotFound`, `Damaged`.
pub async fn references(_store: &Store, _id: RepositoryId) -> Result<Vec<u8>, Refusal> {
    todo!()
}

/// Lists what a first copy takes and holds it against deletion.
///
/// # Errors
/// `NotFound`.
pub async fn hold(_store: &Store, _id: RepositoryId) -> Result<Manifest, Refusal> {
    todo!()
}

/// Opens one file of a manifest; anything that is not on the list is `NotFound`.
///
/// # Errors
/// `NotFound`.
pub async fn open_file(
    _store: &Store,
    _id: RepositoryId,
    _path: &str,
) -> Result<(tokio::fs::File, u64), Refusal> {
    todo!()
}

/// Ends a hold.
///
/// # Errors
/// `NotFound`.
pub async fn release(_store: &Store, _id: RepositoryId, _hold: &str) -> Result<(), Refusal> {
    todo!()
}
