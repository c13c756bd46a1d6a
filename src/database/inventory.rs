//! Differences between disks and SQL.
use super::{Database, Result};
use crate::model::id::{FileserverId, RepositoryId};

/// The repositories that SQL believes on a fileserver (states live, leaving), in the order of their numbers, after one.
///
/// # Errors
/// When the engine fails.
pub async fn expected(
    _db: &Database,
    _fileserver: FileserverId,
    _after: RepositoryId,
    _limit: i64,
) -> Result<Vec<RepositoryId>> {
    todo!()
}

/// Which of these repositories SQL believes on a fileserver (any state), with whether an import of them is under way.
///
/// # Errors
/// When the engine fails.
pub async fn known(
    _db: &Database,
    _fileserver: FileserverId,
    _ids: &[RepositoryId],
) -> Result<Vec<RepositoryId>> {
    todo!()
}

/// Flags from one comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// Believed, not there: checksum NULL, not in sync.
    pub missing: Vec<(RepositoryId, i64)>,
    /// Changed without the agent's doing, with the generation: to be verified.
    pub changed: Vec<(RepositoryId, i64)>,
    /// There, not believed.
    pub untracked: Vec<(RepositoryId, i64)>,
    /// Agree again: their flags 'missing' and 'untracked' go ('changed' goes by verification).
    pub agree: Vec<RepositoryId>,
}

/// Writes them; what is flagged already is not written again. Returns how many rows changed.
///
/// # Errors
/// When the engine fails.
pub async fn record(_db: &Database, _fileserver: FileserverId, _differences: &Differences) -> Result<u64> {
    todo!()
}

/// Flags a copy as changed because a call to it failed as one of a damaged copy does.
///
/// # Errors
/// When the engine fails.
pub async fn doubt(_db: &Database, _repository: RepositoryId, _fileserver: FileserverId) -> Result<()> {
    todo!()
}
