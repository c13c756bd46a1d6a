//! Repositories: looking up, planning and finishing imports, wanted copies.
use super::{Database, Result};
use crate::model::checksum::Checksum;
use crate::model::fleet::{ObjectFormat, Replica, Repository};
use crate::model::id::{FileserverId, RepositoryId};

/// One by its name.
///
/// # Errors
/// When the engine fails.
pub async fn by_name(_db: &Database, _name: &str) -> Result<Option<Repository>> {
    todo!()
}

/// Those with these ids, in no order; missing ones are left out. At most 10,000 ids a call.
///
/// # Errors
/// When the engine fails.
pub async fn by_ids(_db: &Database, _ids: &[RepositoryId]) -> Result<Vec<Repository>> {
    todo!()
}

/// A page by name, after a name.
///
/// # Errors
/// When the engine fails.
pub async fn page(_db: &Database, _after: &str, _limit: i64, _behind_only: bool) -> Result<Vec<Repository>> {
    todo!()
}

/// All replica rows of these repositories.
///
/// # Errors
/// When the engine fails.
pub async fn replicas_of(_db: &Database, _ids: &[RepositoryId]) -> Result<Vec<Replica>> {
    todo!()
}

/// Changes how many copies are wanted, and lowers the seats where fewer are wanted than there are seats
/// (only with no push open). Returns the repository as it then is.
///
/// # Errors
/// When a push is open, the name is unknown, or the engine fails.
pub async fn set_wanted(_db: &Database, _id: RepositoryId, _wanted: u32) -> Result<Repository> {
    todo!()
}

/// A creation under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The repository's future number.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// The hash objects are named by.
    pub object_format: ObjectFormat,
    /// Wanted copies.
    pub wanted: u32,
    /// Bytes, as estimated.
    pub bytes: i64,
    /// Where the copies are made.
    pub fileservers: Vec<FileserverId>,
}

/// Keeps a plan for a new repository under a fresh id and returns it; where one of that name is under way,
/// that one is returned unchanged. Refused where a repository of that name exists.
///
/// # Errors
/// When the name is taken, or the engine fails.
pub async fn plan_import(
    _db: &Database,
    _name: &str,
    _format: ObjectFormat,
    _wanted: u32,
    _bytes: i64,
    _fileservers: &[FileserverId],
) -> Result<Import> {
    todo!()
}

/// Chooses other fileservers for an import under way.
///
/// # Errors
/// When there is none, or the engine fails.
pub async fn replan_import(_db: &Database, _id: RepositoryId, _fileservers: &[FileserverId]) -> Result<()> {
    todo!()
}

/// An import under way, by the repository's future id.
///
/// # Errors
/// When the engine fails.
pub async fn import(_db: &Database, _id: RepositoryId) -> Result<Option<Import>> {
    todo!()
}

/// Forgets an import that will not be finished.
///
/// # Errors
/// When the engine fails.
pub async fn abandon_import(_db: &Database, _id: RepositoryId) -> Result<()> {
    todo!()
}

/// One transaction: the repository at version 1 with its checksum and seats, a live replica in sync and
/// verified for each of `holders` (with bytes), and the import's row gone. `bytes` of the repository is
/// the largest of theirs.
///
/// # Errors
/// When there is no such import, fewer than a quorum of its seats are given, or the engine fails.
pub async fn finish_import(
    _db: &Database,
    _id: RepositoryId,
    _checksum: &Checksum,
    _holders: &[(FileserverId, i64)],
) -> Result<Repository> {
    todo!()
}
