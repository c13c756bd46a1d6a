//! How its own router closes a push: one transaction that holds only while the epoch is unchanged.

use crate::database::repositories::lock;
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result};
use crate::model::checksum::Checksum;
use crate::model::id::{FileserverId, RepositoryId};

/// Which push is closed, and by whom it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// The repository.
    pub repository: RepositoryId,
    /// The push.
    pub id: i64,
    /// The epoch under which it is closed.
    pub epoch: i64,
    /// The version that it builds on.
    pub base_version: i64,
}

/// The push stands: the next version with the new checksum. `equal`: copies that have it, voters and followers alike;
/// every other one is not in sync from now on. `bytes`: of the largest of them; 0: not measured. `false`: somebody
/// has taken the push over, and nothing was written.
///
/// # Errors
/// When the engine fails.
pub async fn commit(
    db: &Database,
    push: Closing,
    new: &Checksum,
    equal: &[FileserverId],
    bytes: i64,
) -> Result<bool> {
    let equal = ids(equal);
    retrying!(try_commit(db, push, new, &equal, bytes).await)
}

async fn try_commit(db: &Database, push: Closing, new: &Checksum, equal: &Ids, bytes: i64) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    if lock(&mut tx, push.repository).await?.is_none() || !close(&mut tx, push, "committed", None).await? {
        return Ok(false);
    }
    next_version(&mut tx, push, new, equal, bytes).await?;
    tx.commit().await?;
    Ok(true)
}

/// The push does not stand, and no copy was told to commit: the version stays. `strayed`: copies whose votes showed
/// that they are not what SQL holds. `false`: somebody has taken the push over, and nothing was written.
///
/// # Errors
/// When the engine fails.
pub async fn abort(db: &Database, push: Closing, strayed: &[FileserverId]) -> Result<bool> {
    let strayed = ids(strayed);
    retrying!(try_abort(db, push, &strayed).await)
}

async fn try_abort(db: &Database, push: Closing, strayed: &Ids) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    if lock(&mut tx, push.repository).await?.is_none() || !close(&mut tx, push, "aborted", None).await? {
        return Ok(false);
    }
    let text = tx.engine().text(
        "/* pushes::stray, sqlite */ UPDATE replicas SET in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE repository_id = $1 AND state <> 'creating' AND in_sync \
            AND fileserver_id IN (SELECT value FROM json_each($2))",
        "/* pushes::stray, postgres */ UPDATE replicas SET in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE repository_id = $1 AND state <> 'creating' AND in_sync AND fileserver_id = ANY($2)",
    );
    within!(&mut tx, c => sqlx::query(text).bind(push.repository).bind(strayed).execute(c).await.map(drop))
        .doing("marking copies whose votes did not count")?;
    tx.commit().await?;
    Ok(true)
}

pub(super) fn ids(of: &[FileserverId]) -> Ids {
    Ids(of.iter().map(|id| id.0).collect())
}

/// Closes the row if it is open under this epoch. The repository's row is locked.
pub(super) async fn close(tx: &mut Tx, push: Closing, state: &str, by: Option<&str>) -> Result<bool> {
    let closed = within!(tx, c => sqlx::query(
        "/* pushes::close */ UPDATE pushes SET state = $4, closed_at = (SELECT now FROM clock), settled_by = $5, \
                undecided = NULL \
          WHERE id = $1 AND repository_id = $2 AND epoch = $3 AND state = 'open'",
    )
    .bind(push.id).bind(push.repository).bind(push.epoch).bind(state).bind(by)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing("closing a push")?;
    Ok(closed == 1)
}

/// The repository is at the next version with this checksum; copies that were in sync and are `equal` are so at that
/// version, all others are not.
pub(super) async fn next_version(
    tx: &mut Tx,
    push: Closing,
    checksum: &Checksum,
    equal: &Ids,
    bytes: i64,
) -> Result<()> {
    let doing = "recording how a push ended";
    within!(&mut *tx, c => sqlx::query(
        "/* pushes::next_version */ UPDATE repositories SET version = $2, checksum = $3, checksum_key = $4, \
           bytes = CASE WHEN $5 > 0 THEN $5 ELSE bytes END WHERE id = $1",
    )
    .bind(push.repository).bind(push.base_version + 1).bind(checksum.sum.to_vec()).bind(checksum.key).bind(bytes)
    .execute(c).await.map(drop))
    .doing(doing)?;
    let text = tx.engine().text(
        "/* pushes::left_behind, sqlite */ UPDATE replicas SET in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE repository_id = $1 AND state <> 'creating' AND in_sync \
            AND (damage IS NOT NULL OR fileserver_id NOT IN (SELECT value FROM json_each($2)))",
        "/* pushes::left_behind, postgres */ UPDATE replicas SET in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE repository_id = $1 AND state <> 'creating' AND in_sync \
            AND (damage IS NOT NULL OR fileserver_id <> ALL($2))",
    );
    within!(&mut *tx, c => sqlx::query(text).bind(push.repository).bind(equal).execute(c).await.map(drop))
        .doing(doing)?;
    // Who is still in sync is equal.
    within!(tx, c => sqlx::query(
        "/* pushes::in_step */ UPDATE replicas SET version = $2, checksum = $3, checksum_key = $4, \
           bytes = CASE WHEN $5 > 0 THEN $5 ELSE bytes END \
          WHERE repository_id = $1 AND state <> 'creating' AND in_sync",
    )
    .bind(push.repository).bind(push.base_version + 1).bind(checksum.sum.to_vec()).bind(checksum.key).bind(bytes)
    .execute(c).await.map(drop))
    .doing(doing)
}
