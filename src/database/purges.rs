//! Unlinking copies for good: what may go is decided here, under the lock of the repository's row.
//!
//! A copy in quarantine may go while its repository has another good copy, or is gone. A copy at
//! its place may go if its repository was removed, or if no row knows it and its id has a
//! tombstone or as many good copies as are wanted. With the last copy of a removed repository
//! its row goes, too, and a tombstone stays for ever.
use super::removals::{forget, forget_flags, good};
use super::replicas::Recorded;
use super::repositories::lock;
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, Doing, Result};
use crate::model::fleet::Repository;
use crate::model::id::{FileserverId, RepositoryId};

/// One purge, as its attempt has it.
#[derive(Debug, Clone, Copy)]
pub struct Purge<'a> {
    /// The repository.
    pub repository: RepositoryId,
    /// Where.
    pub fileserver: FileserverId,
    /// The attempt's epoch.
    pub epoch: i64,
    /// The copy in quarantine; none: the one at its place.
    pub path: Option<&'a str>,
}

/// Whether it may be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It may. With the highest version that SQL knows; none: the repository is gone for good.
    Go(Option<i64>),
    /// There is nothing to purge (any more).
    Gone,
    /// It may not, in words.
    Kept(String),
    /// The attempt's epoch is not the highest any more.
    OldEpoch,
}

/// Asks whether a purge may be done. A replica of a removed repository is taken for maybe gone from now on: it no
/// longer counts as one that the repository could be brought back from.
///
/// # Errors
/// When the engine fails.
pub async fn begin(db: &Database, purge: Purge<'_>, vouching: &[FileserverId]) -> Result<Begun> {
    let vouching = Ids(vouching.iter().filter(|id| **id != purge.fileserver).map(|id| id.0).collect());
    retrying!(try_begin(db, purge, &vouching).await)
}

async fn try_begin(db: &Database, purge: Purge<'_>, vouching: &Ids) -> Result<Begun> {
    let mut tx = Tx::begin(db).await?;
    let row = lock(&mut tx, purge.repository).await?;
    let epoch = match &row {
        Some(row) => Some(row.repair_epoch),
        None => tombstone_epoch(&mut tx, purge.repository).await?,
    };
    let Some(epoch) = epoch else {
        return Ok(Begun::Kept(
            "neither a repository nor a tombstone has its number: a person decides".into(),
        ));
    };
    if epoch != purge.epoch {
        return Ok(Begun::OldEpoch);
    }
    let begun = match (purge.path, &row) {
        (Some(path), row) => of_quarantined(&mut tx, purge, path, row.as_ref()).await?,
        (None, Some(row)) if row.removed_at.is_some() => of_removed(&mut tx, purge, row).await?,
        (None, row) => of_untracked(&mut tx, purge, row.as_ref(), vouching).await?,
    };
    tx.commit().await?;
    Ok(begun)
}

async fn tombstone_epoch(tx: &mut Tx, id: RepositoryId) -> Result<Option<i64>> {
    let text = tx.engine().text(
        "/* purges::tombstone, sqlite */ SELECT repair_epoch FROM tombstones WHERE repository_id = $1",
        "/* purges::tombstone, postgres */ SELECT repair_epoch FROM tombstones WHERE repository_id = $1 FOR UPDATE",
    );
    within!(tx, c => sqlx::query_scalar(text).bind(id).fetch_optional(c).await).doing("reading a tombstone")
}

async fn of_quarantined(
    tx: &mut Tx,
    purge: Purge<'_>,
    path: &str,
    row: Option<&Repository>,
) -> Result<Begun> {
    let doing = "reading whether a copy in quarantine may go";
    let known: i64 = within!(&mut *tx, c => sqlx::query_scalar(
        "/* purges::quarantined */ SELECT count(*) FROM quarantine \
          WHERE repository_id = $1 AND fileserver_id = $2 AND path = $3",
    )
    .bind(purge.repository).bind(purge.fileserver).bind(path).fetch_one(c).await)
    .doing(doing)?;
    if known == 0 {
        return Ok(Begun::Gone);
    }
    let Some(row) = row.filter(|row| row.removed_at.is_none()) else { return Ok(Begun::Go(None)) };
    let others: i64 = within!(tx, c => sqlx::query_scalar(
        "/* purges::good */ SELECT count(*) FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE r.repository_id = $1 AND r.state IN ('live', 'leaving') AND r.in_sync \
            AND f.health <> 'offline' AND f.empty_since IS NULL",
    )
    .bind(purge.repository).fetch_one(c).await)
    .doing(doing)?;
    if others == 0 {
        return Ok(Begun::Kept("no good copy of its repository is left".into()));
    }
    Ok(Begun::Go(Some(row.version)))
}

/// A replica of a removed repository: it counts no longer as one to bring the repository back from.
async fn of_removed(tx: &mut Tx, purge: Purge<'_>, row: &Repository) -> Result<Begun> {
    let marked = within!(tx, c => sqlx::query(
        "/* purges::maybe_gone */ UPDATE replicas SET in_sync = FALSE, checksum = NULL, checksum_key = NULL, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'removing'",
    )
    .bind(purge.repository).bind(purge.fileserver).execute(c).await.map(|done| done.rows_affected()))
    .doing("marking a copy that is purged")?;
    if marked == 1 {
        return Ok(Begun::Go(Some(row.version)));
    }
    Ok(Begun::Kept("its repository was removed and can still be brought back".into()))
}

async fn of_untracked(
    tx: &mut Tx,
    purge: Purge<'_>,
    row: Option<&Repository>,
    vouching: &Ids,
) -> Result<Begun> {
    let (untracked, tracked): (i64, i64) = within!(&mut *tx, c => sqlx::query_as(
        "/* purges::untracked */ SELECT \
            (SELECT count(*) FROM inventory WHERE repository_id = $1 AND fileserver_id = $2 AND found = 'untracked'), \
            (SELECT count(*) FROM replicas WHERE repository_id = $1 AND fileserver_id = $2)",
    )
    .bind(purge.repository).bind(purge.fileserver).fetch_one(c).await)
    .doing("reading whether a copy is untracked")?;
    if untracked == 0 || tracked > 0 {
        return Ok(Begun::Gone);
    }
    let Some(row) = row else { return Ok(Begun::Go(None)) };
    let others = good(tx, purge.repository, vouching).await?;
    if others < i64::from(row.wanted) {
        return Ok(Begun::Kept(format!(
            "{others} copies are known to be good, {} are wanted: it may be needed",
            row.wanted
        )));
    }
    Ok(Begun::Go(Some(row.version)))
}

/// Writes that it was done. With the last copy of a removed repository its row becomes a tombstone.
///
/// # Errors
/// When the engine fails.
pub async fn finish(db: &Database, purge: Purge<'_>) -> Result<Recorded> {
    retrying!(try_finish(db, purge).await)
}

async fn try_finish(db: &Database, purge: Purge<'_>) -> Result<Recorded> {
    let Purge { repository, fileserver, epoch, path } = purge;
    let mut tx = Tx::begin(db).await?;
    let row = lock(&mut tx, repository).await?;
    let highest = match &row {
        Some(row) => Some(row.repair_epoch),
        None => tombstone_epoch(&mut tx, repository).await?,
    };
    if highest != Some(epoch) {
        return Ok(Recorded::OldEpoch);
    }
    if let Some(path) = path {
        within!(&mut tx, c => sqlx::query(
            "/* purges::forget_quarantined */ DELETE FROM quarantine \
              WHERE repository_id = $1 AND fileserver_id = $2 AND path = $3",
        )
        .bind(repository).bind(fileserver).bind(path).execute(c).await.map(drop))
        .doing("forgetting a copy that was purged")?;
    } else {
        if row.is_some_and(|row| row.removed_at.is_some()) {
            forget(&mut tx, repository, fileserver).await?;
            bury(&mut tx, repository).await?;
        }
        forget_flags(&mut tx, repository, fileserver).await?;
    }
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// Makes a removed repository without a replica a tombstone.
pub(super) async fn bury(tx: &mut Tx, id: RepositoryId) -> Result<()> {
    let doing = "ending a removed repository";
    let left: i64 = within!(&mut *tx, c => sqlx::query_scalar(
        "/* purges::left */ SELECT count(*) FROM replicas WHERE repository_id = $1",
    )
    .bind(id).fetch_one(c).await)
    .doing(doing)?;
    if left > 0 {
        return Ok(());
    }
    within!(&mut *tx, c => sqlx::query(
        "/* purges::bury */ INSERT INTO tombstones (repository_id, name, removed_at, repair_epoch) \
         SELECT id, COALESCE(removed_name, name), (SELECT now FROM clock), repair_epoch \
           FROM repositories WHERE id = $1 AND removed_at IS NOT NULL ON CONFLICT DO NOTHING",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut *tx, c => sqlx::query("/* purges::no_pushes */ DELETE FROM pushes WHERE repository_id = $1")
        .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut *tx, c => sqlx::query("/* purges::no_adoption */ DELETE FROM adoptions WHERE repository_id = $1")
        .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut *tx, c => sqlx::query(
        "/* purges::no_loss */ DELETE FROM lost_histories WHERE repository_id = $1",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(tx, c => sqlx::query(
        "/* purges::end */ DELETE FROM repositories WHERE id = $1 AND removed_at IS NOT NULL",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)
}
