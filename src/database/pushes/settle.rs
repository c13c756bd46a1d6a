//! Rows of pushes whose router is gone: taken over by compare-and-set, closed by whoever took them over.
//!
//! A row that was taken over has a higher epoch and another lease: its old router can close nothing any
//! more. Closing always gives the next version, also where nothing stands: a copy that nobody could
//! reach may have committed, and must not look as if the database had gone back.

use super::close::{Closing, close, ids, next_version};
use super::{Place, new_checksum, places_within, raise_epoch};
use crate::database::repositories::lock;
use crate::database::transaction::{Tx, retrying, within};
use crate::database::{Database, DatabaseError, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::checksum::Checksum;
use crate::model::fleet::Repository;
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// An open push that the caller holds now.
#[derive(Debug, Clone)]
pub struct TakenOver {
    /// How it is closed. Its epoch is above every one that its routers held.
    pub closing: Closing,
    /// What the checksum would become.
    pub new: Checksum,
    /// Whose votes count.
    pub voters: Vec<FileserverId>,
    /// The repository, at the base version.
    pub repository: Repository,
    /// Its replicas.
    pub places: Vec<Place>,
}

impl TakenOver {
    /// Everything up to here is over.
    #[must_use]
    pub const fn fence(&self) -> i64 {
        self.closing.epoch - 1
    }
}

#[derive(sqlx::FromRow)]
struct OpenRow {
    id: i64,
    base_version: i64,
    new_checksum: Option<Vec<u8>>,
    checksum_key: Option<i64>,
    voters: Json<Vec<FileserverId>>,
}

/// Takes the open push of a repository over, if its lease is over by the database's clock, or if it is `own` (number
/// and epoch): its router, who does not wait for himself. None: there is none to be taken.
///
/// # Errors
/// When the engine fails, or the row lacks what settling needs.
pub async fn take_over(
    db: &Database,
    repository: RepositoryId,
    by: &str,
    own: Option<(i64, i64)>,
    lease_ms: Millis,
) -> Result<Option<TakenOver>> {
    retrying!(try_take_over(db, repository, by, own, lease_ms).await)
}

async fn try_take_over(
    db: &Database,
    repository: RepositoryId,
    by: &str,
    own: Option<(i64, i64)>,
    lease_ms: Millis,
) -> Result<Option<TakenOver>> {
    let doing = "taking over a push";
    let mut tx = Tx::begin(db).await?;
    let Some(row) = lock(&mut tx, repository).await?.filter(|row| row.removed_at.is_none()) else {
        return Ok(None);
    };
    let (id, epoch) = own.unwrap_or((-1, -1));
    let open: Option<OpenRow> = within!(&mut tx, c => sqlx::query_as(
        "/* pushes::to_take */ SELECT id, base_version, new_checksum, checksum_key, voters FROM pushes \
          WHERE repository_id = $1 AND state = 'open' \
            AND (lease_until < (SELECT now FROM clock) OR (id = $2 AND epoch = $3))",
    )
    .bind(repository).bind(id).bind(epoch).fetch_optional(c).await)
    .doing(doing)?;
    let Some(open) = open else { return Ok(None) };
    let epoch = raise_epoch(&mut tx, repository, 0).await?;
    within!(&mut tx, c => sqlx::query(
        "/* pushes::take_over */ UPDATE pushes SET epoch = $2, router = $3, lease_until = (SELECT now FROM clock) + $4 \
          WHERE id = $1",
    )
    .bind(open.id).bind(epoch).bind(by).bind(lease_ms).execute(c).await.map(drop))
    .doing(doing)?;
    let places = places_within(&mut tx, repository).await?;
    let new = new_checksum(open.new_checksum.as_deref(), open.checksum_key)?
        .ok_or_else(|| DatabaseError::Unreadable(format!("push {} has no new checksum", open.id)))?;
    tx.commit().await?;
    let closing = Closing { repository, id: open.id, epoch, base_version: open.base_version };
    Ok(Some(TakenOver { closing, new, voters: open.voters.0, repository: row, places }))
}

/// Closes what was taken over: the next version with `checksum`, the new one if it stands and the old one if not.
/// `equal`: copies that have it; all others are not in sync. `false`: somebody else has taken it over meanwhile.
///
/// # Errors
/// When the engine fails.
pub async fn close_settled(
    db: &Database,
    push: Closing,
    stands: bool,
    checksum: &Checksum,
    equal: &[FileserverId],
    by: &str,
) -> Result<bool> {
    retrying!(try_close(db, push, stands, checksum, equal, by).await)
}

async fn try_close(
    db: &Database,
    push: Closing,
    stands: bool,
    checksum: &Checksum,
    equal: &[FileserverId],
    by: &str,
) -> Result<bool> {
    let mut tx = Tx::begin(db).await?;
    let state = if stands { "committed" } else { "aborted" };
    if lock(&mut tx, push.repository).await?.is_none() || !close(&mut tx, push, state, Some(by)).await? {
        return Ok(false);
    }
    next_version(&mut tx, push, checksum, &ids(equal), 0).await?;
    tx.commit().await?;
    Ok(true)
}

/// Notes why no rule can decide a push that was taken over: it stays open, for a person.
///
/// # Errors
/// When the engine fails.
pub async fn undecided(db: &Database, push: Closing, why: &str) -> Result<bool> {
    let noted = on_writer!(db, p => sqlx::query(
        "/* pushes::undecided */ UPDATE pushes SET undecided = $3 WHERE id = $1 AND epoch = $2 AND state = 'open'",
    )
    .bind(push.id).bind(push.epoch).bind(why).execute(p).await.map(|done| done.rows_affected()))
    .doing("noting that a push needs a person")?;
    Ok(noted == 1)
}

/// Repositories whose open push may be taken over, oldest lease first.
///
/// # Errors
/// When the engine fails.
pub async fn expired(db: &Database, limit: i64) -> Result<Vec<RepositoryId>> {
    on!(db, p => sqlx::query_scalar(
        "/* pushes::expired */ SELECT u.repository_id FROM pushes u JOIN repositories p ON p.id = u.repository_id \
          WHERE u.state = 'open' AND u.lease_until < (SELECT now FROM clock) AND p.removed_at IS NULL \
          ORDER BY u.lease_until LIMIT $1",
    )
    .bind(limit).fetch_all(p).await)
    .doing("looking for pushes whose routers are gone")
}
