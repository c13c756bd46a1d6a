//! What tidying learns of a copy: damage to its objects, how they are packed, where a begun copy comes from.
//!
//! Damage holds at every version, so it is written without asking whether something was pushed meanwhile; a copy
//! that has it gets no checksum (see [`record`](super::replicas::record)) until it was made anew.

use super::replicas::{Packed, Recorded, guard};
use super::transaction::{Tx, retrying, within};
use super::{Database, Doing, Result};
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// A full check of a copy's objects found nothing: it counts as scrubbed now.
///
/// # Errors
/// When the engine fails.
pub async fn scrubbed(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
) -> Result<Recorded> {
    let text = "/* tidying::scrubbed */ UPDATE replicas SET scrubbed_at = (SELECT now FROM clock) \
         WHERE repository_id = $1 AND fileserver_id = $2 AND state <> 'creating'";
    retrying!(one(db, repository, fileserver, epoch, text).await)
}

/// A copy was made anew in its place: its objects are whole, whatever was said of the old ones. It is still out of
/// sync, until it was compared.
///
/// # Errors
/// When the engine fails.
pub async fn rebuilt(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
) -> Result<Recorded> {
    let text = "/* tidying::rebuilt */ UPDATE replicas SET damage = NULL, scrubbed_at = (SELECT now FROM clock) \
         WHERE repository_id = $1 AND fileserver_id = $2 AND damage IS NOT NULL";
    retrying!(one(db, repository, fileserver, epoch, text).await)
}

async fn one(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
    text: &'static str,
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    if let Err(refused) = guard(&mut tx, repository, None, epoch).await? {
        return Ok(refused);
    }
    within!(&mut tx, c => sqlx::query(text).bind(repository).bind(fileserver).execute(c).await.map(drop))
        .doing("recording what tidying saw")?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// A copy's objects are damaged: it loses its checksum, is not in sync, and keeps git's own words. What the inventory
/// flagged up to `generation` is answered by that.
///
/// # Errors
/// When the engine fails.
pub async fn damaged(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
    words: &str,
    generation: i64,
) -> Result<Recorded> {
    retrying!(try_damaged(db, repository, fileserver, epoch, words, generation).await)
}

async fn try_damaged(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
    words: &str,
    generation: i64,
) -> Result<Recorded> {
    let doing = "recording a damaged copy";
    let mut tx = Tx::begin(db).await?;
    if let Err(refused) = guard(&mut tx, repository, None, epoch).await? {
        return Ok(refused);
    }
    within!(&mut tx, c => sqlx::query(
        "/* tidying::damaged */ UPDATE replicas SET damage = $3, checksum = NULL, checksum_key = NULL, in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)), \
           verified_at = (SELECT now FROM clock), scrubbed_at = (SELECT now FROM clock) \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state <> 'creating'",
    )
    .bind(repository).bind(fileserver).bind(words).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* tidying::answered */ DELETE FROM inventory WHERE repository_id = $1 AND fileserver_id = $2 \
            AND found IN ('changed', 'missing') AND generation <= $3",
    )
    .bind(repository).bind(fileserver).bind(generation).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// How a copy's objects are packed now, and its bytes.
///
/// # Errors
/// When the engine fails.
pub async fn packed(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
    packed: &Packed,
    bytes: i64,
) -> Result<Recorded> {
    retrying!(try_packed(db, repository, fileserver, epoch, packed, bytes).await)
}

async fn try_packed(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    epoch: i64,
    packed: &Packed,
    bytes: i64,
) -> Result<Recorded> {
    let mut tx = Tx::begin(db).await?;
    if let Err(refused) = guard(&mut tx, repository, None, epoch).await? {
        return Ok(refused);
    }
    within!(&mut tx, c => sqlx::query(
        "/* tidying::packed */ UPDATE replicas SET packs = $3, loose = $4, indexed = $5, bytes = $6 \
          WHERE repository_id = $1 AND fileserver_id = $2",
    )
    .bind(repository).bind(fileserver).bind(packed.packs).bind(packed.loose).bind(packed.indexed).bind(bytes)
    .execute(c).await.map(drop))
    .doing("recording how a copy is packed")?;
    tx.commit().await?;
    Ok(Recorded::Written)
}

/// What an inventory counted of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counted {
    /// The repository.
    pub id: i64,
    /// Packs.
    pub packs: i64,
    /// Loose objects, estimated.
    pub loose: i64,
}

/// Takes over what an inventory counted, of those copies alone whose packing begins or ceases to matter: a push adds a
/// pack each time, and a row that is written for every one of them would cost as much as the push.
///
/// # Errors
/// When the engine fails.
pub async fn counted(db: &Database, fileserver: FileserverId, counts: &[Counted]) -> Result<u64> {
    if counts.is_empty() {
        return Ok(0);
    }
    retrying!(try_counted(db, fileserver, counts).await)
}

async fn try_counted(db: &Database, fileserver: FileserverId, counts: &[Counted]) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* tidying::counted, sqlite */ UPDATE replicas SET packs = c.packs, loose = c.loose \
          FROM (SELECT value->>'id' AS id, value->>'packs' AS packs, value->>'loose' AS loose FROM json_each($2)) AS c \
         WHERE replicas.repository_id = c.id AND replicas.fileserver_id = $1 \
           AND ((replicas.packs > 20) <> (c.packs > 20) OR (replicas.loose > 2000) <> (c.loose > 2000))",
        "/* tidying::counted, postgres */ UPDATE replicas SET packs = c.packs, loose = c.loose \
          FROM jsonb_to_recordset($2) AS c (id BIGINT, packs BIGINT, loose BIGINT) \
         WHERE replicas.repository_id = c.id AND replicas.fileserver_id = $1 \
           AND ((replicas.packs > 20) <> (c.packs > 20) OR (replicas.loose > 2000) <> (c.loose > 2000))",
    );
    let rows = within!(&mut tx, c => sqlx::query(text).bind(fileserver).bind(Json(counts))
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("taking over how copies are packed")?;
    tx.commit().await?;
    Ok(rows)
}

/// Says where a copy in state creating comes from.
///
/// # Errors
/// When the engine fails.
pub async fn copied_from(
    db: &Database,
    repository: RepositoryId,
    fileserver: FileserverId,
    source: FileserverId,
) -> Result<()> {
    super::on_writer!(db, p => sqlx::query(
        "/* tidying::copied_from */ UPDATE replicas SET copied_from = $3 \
          WHERE repository_id = $1 AND fileserver_id = $2 AND state = 'creating' \
            AND copied_from IS DISTINCT FROM $3",
    )
    .bind(repository).bind(fileserver).bind(source).execute(p).await.map(drop))
    .doing("noting where a copy comes from")
}

/// Raises a repository's repair epoch to what an agent has seen, so that the next claim's is above it: after a
/// restore of the database the agents remember more than it does.
///
/// # Errors
/// When the engine fails.
pub async fn raise_epoch(db: &Database, repository: RepositoryId, seen: i64) -> Result<bool> {
    super::on_writer!(db, p => sqlx::query(
        "/* tidying::raise_epoch */ UPDATE repositories SET repair_epoch = $2 WHERE id = $1 AND repair_epoch < $2",
    )
    .bind(repository).bind(seen).execute(p).await.map(|done| done.rows_affected() > 0))
    .doing("raising a repair epoch")
}

/// Locks of dead gits that each fileserver's agent removed since it started, by name.
///
/// # Errors
/// When the engine fails.
pub async fn locks_removed(db: &Database) -> Result<Vec<(String, i64)>> {
    super::on!(db, p => sqlx::query_as(
        "/* tidying::locks_removed */ SELECT name, locks_removed FROM fileservers ORDER BY name",
    )
    .fetch_all(p).await)
    .doing("reading how many locks were removed")
}
