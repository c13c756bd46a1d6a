//! Taking one replica away, in the write order: intent before the disk is touched, outcome after.
//!
//! The intent is one transaction: it locks the repository's row at the version that the other
//! copies' checksums were taken at, demands that no push is open and that as many others as are
//! wanted still count and are in sync, and marks the replica. From then on it neither reads nor
//! votes, and whoever meets it so takes it for maybe gone.
use super::replicas::{Recorded, guard};
use super::repositories::lock;
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, Doing, Result};
use crate::model::checksum::Checksum;
use crate::model::id::{FileserverId, RepositoryId};

/// What became of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The replica is marked removing.
    Marked,
    /// Something was pushed meanwhile, a push is open, or the repository was removed: nothing was written.
    Moved,
    /// The attempt's epoch is not the repository's highest any more: nothing was written.
    OldEpoch,
    /// Fewer others than are wanted are good: nothing was written.
    Needed {
        /// Others that are.
        others: i64,
        /// How many are wanted.
        wanted: u32,
    },
    /// There is no such replica, or it is not live or leaving: nothing was written.
    Gone,
}

/// Writes the intent to remove a replica. `vouching`: the others whose agents said, at this version, that they
/// hold the definitive checksum.
///
/// # Errors
/// When the engine fails.
pub async fn begin(
    db: &Database,
    repository: RepositoryId,
    from: FileserverId,
    version: i64,
    epoch: i64,
    vouching: &[FileserverId],
) -> Result<Begun> {
    let vouching = Ids(vouching.iter().filter(|id| **id != from).map(|id| id.0).collect());
    retrying!(try_begin(db, repository, from, version, epoch, &vouching).await)
}

async fn try_begin(
    db: &Database,
    repository: RepositoryId,
    from: FileserverId,
    version: i64,
    epoch: i64,
    vouching: &Ids,
) -> Result<Begun> {
    let mut tx = Tx::begin(db).await?;
    let row = match guard(&mut tx, repository, Some(version), epoch).await? {
        Ok(row) => row,
        Err(Recorded::OldEpoch) => return Ok(Begun::OldEpoch),
        Err(_) => return Ok(Begun::Moved),
    };
    let others = good(&mut tx, repository, vouching).await?;
    if others < i64::from(row.wanted) {
        return Ok(Begun::Needed { others, wanted: row.wanted });
    }
    let marked = within!(&mut tx, c => sqlx::query(
        "/* removals::begin */ UPDATE replicas SET state = 'removing', state_since = (SELECT now FROM clock) \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state IN ('live', 'leaving')",
    )
    .bind(repository).bind(from).execute(c).await.map(|done| done.rows_affected()))
    .doing("marking a replica that goes")?;
    if marked != 1 {
        return Ok(Begun::Gone);
    }
    tx.commit().await?;
    Ok(Begun::Marked)
}

/// Of these replicas, how many stay, count and are in sync, on fileservers that are there.
pub(super) async fn good(tx: &mut Tx, repository: RepositoryId, among: &Ids) -> Result<i64> {
    let text = tx.engine().text(
        "/* removals::good, sqlite */ SELECT count(*) FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE r.repository_id = $1 AND r.fileserver_id IN (SELECT value FROM json_each($2)) \
            AND r.state = 'live' AND r.in_sync AND f.counts AND f.health <> 'offline' AND f.empty_since IS NULL",
        "/* removals::good, postgres */ SELECT count(*) FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE r.repository_id = $1 AND r.fileserver_id = ANY($2) \
            AND r.state = 'live' AND r.in_sync AND f.counts AND f.health <> 'offline' AND f.empty_since IS NULL",
    );
    within!(tx, c => sqlx::query_scalar(text).bind(repository).bind(among).fetch_one(c).await)
        .doing("counting the copies that stay")
}

/// Takes an intent back whose copy still stands at its place and is needed: it is leaving, with the checksum that its
/// agent said at this version.
///
/// # Errors
/// When the engine fails.
pub async fn take_back(
    db: &Database,
    repository: RepositoryId,
    at: FileserverId,
    version: i64,
    epoch: i64,
    checksum: &Checksum,
) -> Result<Recorded> {
    retrying!(try_take_back(db, repository, at, version, epoch, checksum).await)
}

async fn try_take_back(
    db: &Database,
    repository: RepositoryId,
    at: FileserverId,
    version: i64,
    epoch: i64,
    checksum: &Checksum,
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    let row = match guard(&mut tx, repository, Some(version), epoch).await? {
        Ok(row) => row,
        Err(refused) => return Ok(refused),
    };
    let in_sync = row.checksum.as_ref() == Some(checksum);
    let back = within!(&mut tx, c => sqlx::query(
        "/* removals::take_back */ UPDATE replicas SET state = 'leaving', state_since = (SELECT now FROM clock), \
           checksum = $4, checksum_key = $5, in_sync = $6, version = CASE WHEN $6 THEN $3 ELSE version END, \
           out_of_sync_since = CASE WHEN $6 THEN NULL \
                                    ELSE COALESCE(out_of_sync_since, (SELECT now FROM clock)) END \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'removing'",
    )
    .bind(repository).bind(at).bind(version).bind(checksum.sum.to_vec()).bind(checksum.key).bind(in_sync)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing("taking a removal back")?;
    if back != 1 {
        return Ok(Recorded::Moved);
    }
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// A copy that was set aside at its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Its path below the agent's root.
    pub path: String,
    /// Bytes on disk.
    pub bytes: i64,
    /// Why.
    pub reason: String,
}

/// Writes the outcome: the replica's row is gone, and what was set aside is known. `None`: nothing was there.
/// Also of a repository that was removed meanwhile.
///
/// # Errors
/// When the engine fails.
pub async fn finish(
    db: &Database,
    repository: RepositoryId,
    from: FileserverId,
    epoch: i64,
    aside: Option<&SetAside>,
) -> Result<Recorded> {
    retrying!(try_finish(db, repository, from, epoch, aside).await)
}

async fn try_finish(
    db: &Database,
    repository: RepositoryId,
    from: FileserverId,
    epoch: i64,
    aside: Option<&SetAside>,
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    match lock(&mut tx, repository).await? {
        Some(row) if row.repair_epoch == epoch => {}
        Some(_) => return Ok(Recorded::OldEpoch),
        None => return Ok(Recorded::Moved),
    }
    let gone = forget(&mut tx, repository, from).await?;
    if gone != 1 {
        return Ok(Recorded::Moved);
    }
    if let Some(aside) = aside {
        keep(&mut tx, repository, from, aside).await?;
    }
    forget_flags(&mut tx, repository, from).await?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// Deletes the row of a replica whose removal was begun; how many there were.
pub(super) async fn forget(tx: &mut Tx, repository: RepositoryId, from: FileserverId) -> Result<u64> {
    within!(tx, c => sqlx::query(
        "/* removals::forget */ DELETE FROM replicas \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'removing'",
    )
    .bind(repository).bind(from).execute(c).await.map(|done| done.rows_affected()))
    .doing("forgetting a replica that went")
}

/// Whatever an inventory said of this place was said of what stood there before.
pub(super) async fn forget_flags(tx: &mut Tx, repository: RepositoryId, from: FileserverId) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* removals::forget_flags */ DELETE FROM inventory WHERE repository_id = $1 AND fileserver_id = $2",
    )
    .bind(repository).bind(from).execute(c).await.map(drop))
    .doing("forgetting what was seen of a replica that went")
}

async fn keep(tx: &mut Tx, repository: RepositoryId, at: FileserverId, aside: &SetAside) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* removals::keep */ INSERT INTO quarantine (repository_id, fileserver_id, path, since, reason, bytes) \
         SELECT $1, $2, $3, now, $4, $5 FROM clock WHERE true ON CONFLICT DO NOTHING",
    )
    .bind(repository).bind(at).bind(&aside.path).bind(&aside.reason).bind(aside.bytes)
    .execute(c).await.map(drop))
    .doing("noting a copy that was set aside")
}
