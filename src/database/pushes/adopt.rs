//! A person's decision where no rule has one: the wish is a row, the deed is one transaction of whoever does it.

use super::close::{Closing, ids, next_version};
use super::{HIGHEST_EPOCH, raise_epoch};
use crate::database::repositories::lock;
use crate::database::transaction::{Tx, retrying, within};
use crate::database::{Database, Doing, Result, on, on_writer};
use crate::model::checksum::Checksum;
use crate::model::fleet::Repository;
use crate::model::id::{FileserverId, RepositoryId};

/// Wishes that what the copy on a fileserver has be definitive. A wish before is forgotten.
///
/// # Errors
/// When the engine fails.
pub async fn wish_adoption(db: &Database, repository: RepositoryId, from: FileserverId) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* pushes::wish_adoption */ INSERT INTO adoptions (repository_id, fileserver_id, wished_at) \
         SELECT $1, $2, now FROM clock WHERE true \
         ON CONFLICT (repository_id) DO UPDATE SET fileserver_id = excluded.fileserver_id, wished_at = excluded.wished_at",
    )
    .bind(repository).bind(from).execute(p).await.map(drop))
    .doing("noting that a copy is to be adopted")
}

/// The copy that a person wishes to be adopted.
///
/// # Errors
/// When the engine fails.
pub async fn adoption(db: &Database, repository: RepositoryId) -> Result<Option<FileserverId>> {
    on!(db, p => sqlx::query_scalar(
        "/* pushes::adoption */ SELECT fileserver_id FROM adoptions WHERE repository_id = $1",
    )
    .bind(repository).fetch_optional(p).await)
    .doing("looking for a copy that is to be adopted")
}

/// Names of repositories of which a copy has committed more than the database knows, as a comparison of its disk or an
/// open push showed; a thousand of each at most.
///
/// # Errors
/// When the engine fails.
pub async fn history_lost(db: &Database) -> Result<Vec<String>> {
    on!(db, p => sqlx::query_scalar(
        "/* pushes::history_lost */ SELECT name FROM ( \
           SELECT * FROM (SELECT p.id, p.name FROM pushes u JOIN repositories p ON p.id = u.repository_id \
                           WHERE u.state = 'open' AND u.undecided LIKE 'HISTORY_LOST%' AND p.removed_at IS NULL \
                           LIMIT 1000) AS open \
           UNION \
           SELECT * FROM (SELECT p.id, p.name FROM lost_histories l JOIN repositories p ON p.id = l.repository_id \
                             JOIN replicas r ON r.repository_id = l.repository_id AND r.fileserver_id = l.fileserver_id \
                           WHERE p.removed_at IS NULL ORDER BY l.repository_id LIMIT 1000) AS compared \
         ) AS lost ORDER BY id",
    )
    .fetch_all(p).await)
    .doing("looking for copies that know more than the database")
}

/// Whether a copy of a repository has committed more than the database knows.
///
/// # Errors
/// When the engine fails.
pub async fn is_history_lost(db: &Database, repository: RepositoryId) -> Result<bool> {
    on!(db, p => sqlx::query_scalar(
        "/* pushes::is_history_lost */ SELECT EXISTS (SELECT 1 FROM lost_histories l JOIN replicas r \
                  ON r.repository_id = l.repository_id AND r.fileserver_id = l.fileserver_id WHERE l.repository_id = $1) \
             OR EXISTS (SELECT 1 FROM pushes WHERE repository_id = $1 AND state = 'open' \
                           AND undecided LIKE 'HISTORY_LOST%')",
    )
    .bind(repository).fetch_one(p).await)
    .doing("asking whether the database went back")
}

/// Raises a repository's push epoch to what an agent has seen, so that the next push, settlement or fence is above it:
/// after a restore of the database agents remember more than it does. Whether it was lower.
///
/// # Errors
/// When the engine fails.
pub async fn catch_up(db: &Database, repository: RepositoryId, seen: i64) -> Result<bool> {
    on_writer!(db, p => sqlx::query(
        "/* pushes::catch_up */ UPDATE repositories SET push_epoch = $2 WHERE id = $1 AND push_epoch < $2 AND $2 < $3",
    )
    .bind(repository).bind(seen).bind(HIGHEST_EPOCH).execute(p).await.map(|done| done.rows_affected() > 0))
    .doing("raising a push epoch")
}

/// Takes the write order from whoever has it, for a person's decision: the epoch up to whose predecessor everything is
/// over. An open push is then its router's no more. None: there is no such repository.
///
/// # Errors
/// When the engine fails.
pub async fn fence_all(db: &Database, repository: RepositoryId) -> Result<Option<i64>> {
    retrying!(try_fence_all(db, repository).await)
}

async fn try_fence_all(db: &Database, repository: RepositoryId) -> Result<Option<i64>> {
    let mut tx = Tx::begin(db).await?;
    if lock(&mut tx, repository).await?.is_none_or(|row| row.removed_at.is_some()) {
        return Ok(None);
    }
    let epoch = raise_epoch(&mut tx, repository, 0).await?;
    within!(&mut tx, c => sqlx::query(
        "/* pushes::fence_all */ UPDATE pushes SET epoch = $2 WHERE repository_id = $1 AND state = 'open'",
    )
    .bind(repository).bind(epoch).execute(c).await.map(drop))
    .doing("taking a repository's write order")?;
    tx.commit().await?;
    Ok(Some(epoch))
}

/// A person's decision, as it is written.
#[derive(Debug, Clone)]
pub struct Adoption<'a> {
    /// Of which repository.
    pub repository: RepositoryId,
    /// The epoch under which everything was fenced.
    pub epoch: i64,
    /// The version that was seen.
    pub version: i64,
    /// The version from now on: above all that any copy has journalled.
    pub next: i64,
    /// What the copy has.
    pub checksum: Checksum,
    /// Copies that have the same.
    pub equal: &'a [FileserverId],
    /// Who does it.
    pub by: &'a str,
}

/// Makes what a copy has definitive. The open push, if there is one, is over, and so is the wish. `false`: something
/// moved meanwhile, and nothing was written.
///
/// # Errors
/// When the engine fails.
pub async fn adopt(db: &Database, adoption: &Adoption<'_>) -> Result<bool> {
    retrying!(try_adopt(db, adoption).await)
}

async fn try_adopt(db: &Database, adoption: &Adoption<'_>) -> Result<bool> {
    let Adoption { repository, epoch, version, next, checksum, equal, by } = adoption;
    let doing = "adopting a copy";
    let mut tx = Tx::begin(db).await?;
    let row = lock(&mut tx, *repository).await?;
    let as_seen =
        |row: &Repository| row.removed_at.is_none() && row.version == *version && row.push_epoch == *epoch;
    if !row.as_ref().is_some_and(as_seen) {
        return Ok(false);
    }
    within!(&mut tx, c => sqlx::query(
        "/* pushes::adopt_over */ UPDATE pushes SET state = 'aborted', closed_at = (SELECT now FROM clock), \
                settled_by = $2, undecided = NULL WHERE repository_id = $1 AND state = 'open'",
    )
    .bind(repository).bind(by).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query("/* pushes::adopted */ DELETE FROM adoptions WHERE repository_id = $1")
        .bind(repository).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query("/* pushes::found_again */ DELETE FROM lost_histories WHERE repository_id = $1")
        .bind(repository).execute(c).await.map(drop))
    .doing(doing)?;
    let equal = ids(equal);
    let text = tx.engine().text(
        "/* pushes::adopt_equal, sqlite */ UPDATE replicas SET in_sync = TRUE, out_of_sync_since = NULL \
          WHERE repository_id = $1 AND state IN ('live', 'leaving') AND damage IS NULL \
            AND fileserver_id IN (SELECT value FROM json_each($2))",
        "/* pushes::adopt_equal, postgres */ UPDATE replicas SET in_sync = TRUE, out_of_sync_since = NULL \
          WHERE repository_id = $1 AND state IN ('live', 'leaving') AND damage IS NULL AND fileserver_id = ANY($2)",
    );
    within!(&mut tx, c => sqlx::query(text).bind(repository).bind(&equal).execute(c).await.map(drop))
        .doing(doing)?;
    let closing = Closing { repository: *repository, id: 0, epoch: 0, base_version: next - 1 };
    next_version(&mut tx, closing, checksum, &equal, 0).await?;
    tx.commit().await?;
    Ok(true)
}
