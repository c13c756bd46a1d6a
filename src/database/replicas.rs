//! Replicas: copies begin, end, and are compared. Every write of a checksum locks the repository's row first
//! (`WHERE id = ? AND version = ?`, `FOR NO KEY UPDATE` on PostgreSQL) and demands that no push is open.
use super::{Database, Result};
use crate::model::checksum::Checksum;
use crate::model::id::{FileserverId, RepositoryId};

/// What was taken of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where.
    pub fileserver_id: FileserverId,
    /// Its checksum; none: damaged or gone.
    pub checksum: Option<Checksum>,
    /// Bytes on disk, if measured.
    pub bytes: Option<i64>,
    /// Packs and loose objects, if counted.
    pub packs_loose: Option<(i64, i64)>,
    /// Whether this was a full verification: `verified_at` is set and inventory flags up to the generation are cleared.
    pub verified_generation: Option<i64>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Written.
    Written,
    /// The repository is at another version, has an open push, or is gone: nothing was written.
    Moved,
    /// The attempt's epoch is not the repository's highest any more: nothing was written.
    OldEpoch,
}

/// Writes what was taken of several replicas as one act at `version`. `in_sync` and
/// `out_of_sync_since` follow from the definitive checksum; rows in state creating are left alone.
/// A verification that found no checksum and no problem with the disk is not possible: NULL means damaged.
///
/// # Errors
/// When the engine fails.
pub async fn record(
    _db: &Database,
    _repository: RepositoryId,
    _version: i64,
    _epoch: i64,
    _taken: &[Taken],
) -> Result<Recorded> {
    todo!()
}

/// Makes the row of a copy that is about to be made, in state creating; one that is there in that state is kept.
///
/// # Errors
/// When a replica in another state is there, or the engine fails.
pub async fn begin_copy(
    _db: &Database,
    _repository: RepositoryId,
    _fileserver: FileserverId,
    _epoch: i64,
) -> Result<Recorded> {
    todo!()
}

/// A copy is whole: its row becomes live at `version` with its checksum, verified now, in sync if that is the
/// definitive one; seats rise up to wanted where there are more live replicas in sync than seats.
///
/// # Errors
/// When the engine fails.
pub async fn finish_copy(
    _db: &Database,
    _repository: RepositoryId,
    _version: i64,
    _epoch: i64,
    _taken: &Taken,
) -> Result<Recorded> {
    todo!()
}

/// Forgets the row of a copy that was not finished (state creating only).
///
/// # Errors
/// When the engine fails.
pub async fn abandon_copy(
    _db: &Database,
    _repository: RepositoryId,
    _fileserver: FileserverId,
    _epoch: i64,
) -> Result<Recorded> {
    todo!()
}
