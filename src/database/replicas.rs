//! Replicas: copies begin, end, and are compared. Every write of a checksum locks the repository's row first
//! (`FOR NO KEY UPDATE` on PostgreSQL), demands the version that the checksums were taken at, and demands that
//! no push is open. Without that lock an outcome that commits meanwhile makes a stale copy "in sync".
use super::repositories::{lock, push_is_open};
use super::transaction::{Tx, retrying, within};
use super::values::hex;
use super::{Database, DatabaseError, Doing, Result};
use crate::model::checksum::Checksum;
use crate::model::fleet::Repository;
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// What was taken of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where.
    pub fileserver_id: FileserverId,
    /// Its checksum; none: damaged or gone.
    pub checksum: Option<Checksum>,
    /// Bytes on disk, if measured.
    pub bytes: Option<i64>,
    /// How its objects are packed, if that was counted.
    pub packs_loose: Option<Packed>,
    /// Whether this was a full verification: `verified_at` is set and inventory flags up to the generation are cleared.
    pub verified_generation: Option<i64>,
}

/// How a copy's objects are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Packs.
    pub packs: i64,
    /// Loose objects.
    pub loose: i64,
    /// Whether it has a bitmap and a commit-graph.
    pub indexed: bool,
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

/// One row of what is written, as JSON.
#[derive(serde::Serialize)]
struct TakenRow {
    fileserver_id: i64,
    checksum: Option<String>,
    checksum_key: Option<i64>,
    in_sync: bool,
    bytes: Option<i64>,
    packs: Option<i64>,
    loose: Option<i64>,
    indexed: Option<bool>,
    generation: Option<i64>,
}

impl TakenRow {
    fn new(taken: &Taken, definitive: Option<&Checksum>) -> Self {
        let checksum = taken.checksum.as_ref();
        Self {
            fileserver_id: taken.fileserver_id.0,
            checksum: checksum.map(|checksum| hex(&checksum.sum)),
            checksum_key: checksum.map(|checksum| checksum.key),
            in_sync: checksum.is_some() && checksum == definitive,
            bytes: taken.bytes,
            packs: taken.packs_loose.map(|counts| counts.packs),
            loose: taken.packs_loose.map(|counts| counts.loose),
            indexed: taken.packs_loose.map(|counts| counts.indexed),
            generation: taken.verified_generation,
        }
    }
}

/// Writes what was taken of several replicas as one act at `version`. `in_sync` and
/// `out_of_sync_since` follow from the definitive checksum; rows in state creating are left alone, and so are those
/// whose objects are damaged: the checksum of references does not make them whole.
/// A verification that found no checksum and no problem with the disk is not possible: NULL means damaged.
/// Seats rise as in [`finish_copy`].
///
/// # Errors
/// When the engine fails.
pub async fn record(
    db: &Database,
    repository: RepositoryId,
    version: i64,
    epoch: i64,
    taken: &[Taken],
) -> Result<Recorded> {
    retrying!(try_record(db, repository, version, epoch, taken).await)
}

async fn try_record(
    db: &Database,
    repository: RepositoryId,
    version: i64,
    epoch: i64,
    taken: &[Taken],
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    let row = match guard(&mut tx, repository, Some(version), epoch).await? {
        Ok(row) => row,
        Err(refused) => return Ok(refused),
    };
    write(&mut tx, &row, version, taken).await?;
    measure(&mut tx, repository, taken).await?;
    raise_seats(&mut tx, repository).await?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// Locks the repository and says whether a result of this epoch may be written; with a version, also whether
/// nothing was pushed since it was read and no push is open.
pub(super) async fn guard(
    tx: &mut Tx,
    id: RepositoryId,
    version: Option<i64>,
    epoch: i64,
) -> Result<std::result::Result<Repository, Recorded>> {
    let Some(row) = lock(tx, id).await?.filter(|row| row.removed_at.is_none()) else {
        return Ok(Err(Recorded::Moved));
    };
    if row.repair_epoch != epoch {
        return Ok(Err(Recorded::OldEpoch));
    }
    if let Some(version) = version
        && (row.version != version || push_is_open(tx, id).await?)
    {
        return Ok(Err(Recorded::Moved));
    }
    Ok(Ok(row))
}

async fn write(tx: &mut Tx, repository: &Repository, version: i64, taken: &[Taken]) -> Result<()> {
    let rows: Vec<TakenRow> =
        taken.iter().map(|taken| TakenRow::new(taken, repository.checksum.as_ref())).collect();
    let text = tx.engine().text(
        "/* replicas::record, sqlite */ UPDATE replicas SET checksum = unhex(t.checksum), \
           checksum_key = t.checksum_key, in_sync = t.in_sync, \
           version = CASE WHEN t.in_sync THEN $2 ELSE replicas.version END, \
           out_of_sync_since = CASE WHEN t.in_sync THEN NULL \
                                    ELSE COALESCE(replicas.out_of_sync_since, (SELECT now FROM clock)) END, \
           bytes = COALESCE(t.bytes, replicas.bytes), packs = COALESCE(t.packs, replicas.packs), \
           loose = COALESCE(t.loose, replicas.loose), indexed = COALESCE(t.indexed, replicas.indexed), \
           verified_at = CASE WHEN t.generation IS NULL THEN replicas.verified_at ELSE (SELECT now FROM clock) END \
          FROM (SELECT value->>'fileserver_id' AS fileserver_id, value->>'checksum' AS checksum, \
                       value->>'checksum_key' AS checksum_key, value->>'in_sync' AS in_sync, \
                       value->>'bytes' AS bytes, value->>'packs' AS packs, value->>'loose' AS loose, \
                       value->>'indexed' AS indexed, \
                       value->>'generation' AS generation FROM json_each($3)) AS t \
         WHERE replicas.repository_id = $1 AND replicas.fileserver_id = t.fileserver_id \
           AND replicas.state <> 'creating' AND replicas.damage IS NULL",
        "/* replicas::record, postgres */ UPDATE replicas SET checksum = decode(t.checksum, 'hex'), \
           checksum_key = t.checksum_key, in_sync = t.in_sync, \
           version = CASE WHEN t.in_sync THEN $2 ELSE replicas.version END, \
           out_of_sync_since = CASE WHEN t.in_sync THEN NULL \
                                    ELSE COALESCE(replicas.out_of_sync_since, (SELECT now FROM clock)) END, \
           bytes = COALESCE(t.bytes, replicas.bytes), packs = COALESCE(t.packs, replicas.packs), \
           loose = COALESCE(t.loose, replicas.loose), indexed = COALESCE(t.indexed, replicas.indexed), \
           verified_at = CASE WHEN t.generation IS NULL THEN replicas.verified_at ELSE (SELECT now FROM clock) END \
          FROM jsonb_to_recordset($3) AS t (fileserver_id BIGINT, checksum TEXT, checksum_key BIGINT, \
                       in_sync BOOLEAN, bytes BIGINT, packs BIGINT, loose BIGINT, indexed BOOLEAN, generation BIGINT) \
         WHERE replicas.repository_id = $1 AND replicas.fileserver_id = t.fileserver_id \
           AND replicas.state <> 'creating' AND replicas.damage IS NULL",
    );
    within!(&mut *tx, c => sqlx::query(text)
        .bind(repository.id).bind(version).bind(Json(&rows)).execute(c).await.map(drop))
    .doing("recording checksums of replicas")?;
    clear_flags(tx, repository.id, &rows).await
}

/// What was verified answers what the inventory flagged up to then; a later change keeps its flag.
async fn clear_flags(tx: &mut Tx, repository: RepositoryId, rows: &[TakenRow]) -> Result<()> {
    for (fileserver, generation) in
        rows.iter().filter_map(|row| row.generation.map(|generation| (row.fileserver_id, generation)))
    {
        within!(&mut *tx, c => sqlx::query(
            "/* replicas::clear_flags */ DELETE FROM inventory WHERE repository_id = $1 AND fileserver_id = $2 \
                AND found IN ('changed', 'missing') AND generation <= $3",
        )
        .bind(repository).bind(fileserver).bind(generation).execute(c).await.map(drop))
        .doing("clearing what was verified")?;
    }
    Ok(())
}

/// A repository's size is that of its largest copy that was measured now.
async fn measure(tx: &mut Tx, repository: RepositoryId, taken: &[Taken]) -> Result<()> {
    let whole = taken.iter().filter(|taken| taken.checksum.is_some());
    let Some(bytes) = whole.filter_map(|taken| taken.bytes).max() else { return Ok(()) };
    within!(tx, c => sqlx::query(
        "/* replicas::measure */ UPDATE repositories SET bytes = $2 WHERE id = $1 AND bytes <> $2",
    )
    .bind(repository).bind(bytes).execute(c).await.map(drop))
    .doing("recording a repository's size")
}

/// Seats rise up to wanted where more replicas are live and in sync than there are seats. Nothing else raises
/// them: not a failure, not a fileserver that comes back, not a higher number wanted by itself. The caller has
/// locked the repository's row and knows that no push is open.
pub(super) async fn raise_seats(tx: &mut Tx, repository: RepositoryId) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* replicas::raise_seats */ UPDATE repositories SET seats = CASE WHEN l.live < wanted THEN l.live ELSE wanted END \
           FROM (SELECT count(*) AS live FROM replicas \
                  WHERE repository_id = $1 AND state = 'live' AND in_sync) AS l \
          WHERE id = $1 AND seats < wanted AND l.live > seats",
    )
    .bind(repository).execute(c).await.map(drop))
    .doing("raising a repository's seats")
}

/// Makes the row of a copy that is about to be made, in state creating; one that is there in that state is kept. The
/// row says where it is copied from, so that a later attempt goes on from there.
///
/// # Errors
/// When a replica in another state is there, or the engine fails.
pub async fn begin_copy(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
) -> Result<Recorded> {
    let doing = "beginning a copy";
    let mut tx = Tx::begin(db).await?;
    if let Err(refused) = guard(&mut tx, repository, None, epoch).await? {
        return Ok(refused);
    }
    within!(&mut tx, c => sqlx::query(
        "/* replicas::begin_copy */ INSERT INTO replicas (repository_id, fileserver_id, state, state_since) \
         SELECT $1, $2, 'creating', now FROM clock WHERE true \
         ON CONFLICT (repository_id, fileserver_id) DO NOTHING",
    )
    .bind(repository).bind(fileserver).execute(c).await.map(drop))
    .doing(doing)?;
    let state: String = within!(&mut tx, c => sqlx::query_scalar(
        "/* replicas::state */ SELECT state FROM replicas WHERE repository_id = $1 AND fileserver_id = $2",
    )
    .bind(repository).bind(fileserver).fetch_one(c).await)
    .doing(doing)?;
    if state != "creating" {
        return Err(DatabaseError::Refused(format!(
            "fileserver {fileserver} has a replica of repository {repository} already, in state {state}"
        )));
    }
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// A copy is whole: its row becomes live at `version` with its checksum, verified now, in sync if that is the
/// definitive one; seats rise up to wanted where there are more live replicas in sync than seats. Where the row
/// is not in state creating any more (it was given up meanwhile) the answer is [`Recorded::Moved`].
///
/// # Errors
/// When no checksum was taken, or the engine fails.
pub async fn finish_copy(
    db: &Database,
    repository: RepositoryId,
    version: i64,
    epoch: i64,
    taken: &Taken,
) -> Result<Recorded> {
    finish_move(db, repository, version, epoch, taken, None).await
}

/// Like [`finish_copy`]; `leaves`: a live replica that this one takes the place of. It becomes leaving in the same
/// transaction, and only where the new one is in sync: at no moment do fewer count.
///
/// # Errors
/// When no checksum was taken, or the engine fails.
pub async fn finish_move(
    db: &Database,
    repository: RepositoryId,
    version: i64,
    epoch: i64,
    taken: &Taken,
    leaves: Option<FileserverId>,
) -> Result<Recorded> {
    if taken.checksum.is_none() {
        return Err(DatabaseError::Refused("a copy without a checksum is not whole".to_owned()));
    }
    retrying!(try_finish_copy(db, repository, version, epoch, taken, leaves).await)
}

async fn try_finish_copy(
    db: &Database,
    repository: RepositoryId,
    version: i64,
    epoch: i64,
    taken: &Taken,
    leaves: Option<FileserverId>,
) -> Result<Recorded> {
    let doing = "finishing a copy";
    let mut tx = Tx::begin(db).await?;
    let row = match guard(&mut tx, repository, Some(version), epoch).await? {
        Ok(row) => row,
        Err(refused) => return Ok(refused),
    };
    let made = within!(&mut tx, c => sqlx::query(
        "/* replicas::finish_copy */ UPDATE replicas SET state = 'live', version = $3, \
           state_since = (SELECT now FROM clock), verified_at = (SELECT now FROM clock) \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'creating'",
    )
    .bind(repository).bind(taken.fileserver_id).bind(version)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    if made != 1 {
        return Ok(Recorded::Moved);
    }
    write(&mut tx, &row, version, std::slice::from_ref(taken)).await?;
    // Whatever an inventory said of this place was said of what stood there before.
    within!(&mut tx, c => sqlx::query(
        "/* replicas::fresh */ DELETE FROM inventory WHERE repository_id = $1 AND fileserver_id = $2",
    )
    .bind(repository).bind(taken.fileserver_id).execute(c).await.map(drop))
    .doing(doing)?;
    measure(&mut tx, repository, std::slice::from_ref(taken)).await?;
    if let Some(leaves) = leaves.filter(|_| taken.checksum == row.checksum) {
        leave(&mut tx, repository, leaves).await?;
    }
    raise_seats(&mut tx, repository).await?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// Marks a live replica as leaving.
async fn leave(tx: &mut Tx, repository: RepositoryId, fileserver: FileserverId) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* replicas::leave */ UPDATE replicas SET state = 'leaving', state_since = (SELECT now FROM clock) \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'live'",
    )
    .bind(repository).bind(fileserver).execute(c).await.map(drop))
    .doing("marking a replica as leaving")
}

/// Forgets the row of a copy that was not finished (state creating only).
///
/// # Errors
/// When the engine fails.
pub async fn abandon_copy(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    if let Err(refused) = guard(&mut tx, repository, None, epoch).await? {
        return Ok(refused);
    }
    within!(&mut tx, c => sqlx::query(
        "/* replicas::abandon_copy */ DELETE FROM replicas \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'creating'",
    )
    .bind(repository).bind(fileserver).execute(c).await.map(drop))
    .doing("forgetting a copy that was not finished")?;
    tx.commit().await?;
    Ok(Recorded::Written)
}
