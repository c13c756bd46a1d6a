//! Removing a repository, bringing it back, another name for it.
//!
//! Removing is one transaction that touches no disk: the name is free at once, the replicas are
//! marked and serve nothing from then on. Until its retention is over (a goal's business) the
//! repository can be brought back as it was.
use super::import::refuse_taken;
use super::lock;
use crate::database::purges::bury;
use crate::database::rows::{self, RepositoryRow};
use crate::database::transaction::{Tx, retrying, within};
use crate::database::{Database, DatabaseError, Doing, Result, on};
use crate::model::Millis;
use crate::model::fleet::Repository;
use crate::model::id::RepositoryId;

/// How long after a lost purge nothing is brought back: its worker may not have noticed yet, and the grants that
/// it signed hold for a minute.
const LOST_PURGE_MS: Millis = 120_000;

/// Marks a repository removed and all its replicas with it; half-made copies are forgotten. One without any
/// replica is gone at once. Returns it as it was.
///
/// # Errors
/// When there is no such repository, or the engine fails.
pub async fn remove(db: &Database, id: RepositoryId) -> Result<Repository> {
    retrying!(try_remove(db, id).await)
}

async fn try_remove(db: &Database, id: RepositoryId) -> Result<Repository> {
    let doing = "removing a repository";
    let mut tx = Tx::begin(db).await?;
    let before = lock(&mut tx, id)
        .await?
        .filter(|row| row.removed_at.is_none())
        .ok_or_else(|| DatabaseError::Refused(format!("there is no repository {id}")))?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::remove */ UPDATE repositories SET removed_at = (SELECT now FROM clock), \
           removed_name = name, name = '@' || CAST(id AS TEXT) WHERE id = $1",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::forget_half_made */ DELETE FROM replicas WHERE repository_id = $1 AND state = 'creating'",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    // One whose removal was begun before is maybe gone: nothing is brought back from it.
    within!(&mut tx, c => sqlx::query(
        "/* repositories::maybe_gone */ UPDATE replicas SET in_sync = FALSE, checksum = NULL, checksum_key = NULL \
          WHERE repository_id = $1 AND state = 'removing'",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::remove_replicas */ UPDATE replicas SET state = 'removing', \
           state_since = (SELECT now FROM clock) WHERE repository_id = $1 AND state <> 'removing'",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    bury(&mut tx, id).await?;
    tx.commit().await?;
    Ok(before)
}

/// Brings a removed repository back under a name, with every replica that it had. Each is to be compared with its
/// disk at once; one that was being purged is out of sync until it is made new.
///
/// # Errors
/// When it is not removed, its name is taken, a copy of it is being unlinked now, none is left, or the engine fails.
pub async fn undelete(db: &Database, id: RepositoryId, name: &str) -> Result<Repository> {
    retrying!(try_undelete(db, id, name).await)
}

async fn try_undelete(db: &Database, id: RepositoryId, name: &str) -> Result<Repository> {
    let doing = "bringing a repository back";
    let mut tx = Tx::begin(db).await?;
    lock(&mut tx, id)
        .await?
        .filter(|row| row.removed_at.is_some())
        .ok_or_else(|| DatabaseError::Refused(format!("repository {id} is not removed, or is gone")))?;
    refuse_taken(&mut tx, name).await?;
    refuse_purged(&mut tx, id).await?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::undelete */ UPDATE repositories SET removed_at = NULL, removed_name = NULL, name = $2 \
          WHERE id = $1",
    )
    .bind(id).bind(name).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::undelete_replicas */ UPDATE replicas SET state = 'live', \
           state_since = (SELECT now FROM clock), \
           out_of_sync_since = CASE WHEN in_sync THEN NULL \
                                    ELSE COALESCE(out_of_sync_since, (SELECT now FROM clock)) END \
          WHERE repository_id = $1 AND state = 'removing'",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    // Nobody looked at the disks meanwhile: their inventories passed these copies over.
    within!(&mut tx, c => sqlx::query(
        "/* repositories::doubt_all */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, since) \
         SELECT r.repository_id, r.fileserver_id, 'changed', f.inventory_generation, (SELECT now FROM clock) \
           FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = $1 \
         ON CONFLICT (repository_id, fileserver_id) DO NOTHING",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    let after = lock(&mut tx, id).await?;
    tx.commit().await?;
    after.ok_or_else(|| DatabaseError::Refused(format!("repository {id} is gone")))
}

/// What is being unlinked cannot be brought back, and neither can what is gone.
async fn refuse_purged(tx: &mut Tx, id: RepositoryId) -> Result<()> {
    let (good, purging, lost): (i64, i64, i64) = within!(tx, c => sqlx::query_as(
        "/* repositories::refuse_purged */ SELECT \
            (SELECT count(*) FROM replicas WHERE repository_id = $1 AND in_sync), \
            (SELECT count(*) FROM attempts WHERE repository_id = $1 AND state = 'running'), \
            (SELECT count(*) FROM attempt_history WHERE repository_id = $1 AND step = 'purge' AND outcome = 'lost' \
                AND finished_at > (SELECT now FROM clock) - $2)",
    )
    .bind(id).bind(LOST_PURGE_MS).fetch_one(c).await)
    .doing("looking what is left of a removed repository")?;
    if good == 0 {
        return Err(DatabaseError::Refused(format!("no good copy of repository {id} is left")));
    }
    if purging + lost > 0 {
        return Err(DatabaseError::Refused(format!(
            "a copy of repository {id} is being unlinked: try again in two minutes"
        )));
    }
    Ok(())
}

/// Gives a repository another name.
///
/// # Errors
/// When there is no such repository, the name is taken, or the engine fails.
pub async fn rename(db: &Database, id: RepositoryId, name: &str) -> Result<()> {
    retrying!(try_rename(db, id, name).await)
}

async fn try_rename(db: &Database, id: RepositoryId, name: &str) -> Result<()> {
    let doing = "renaming a repository";
    let mut tx = Tx::begin(db).await?;
    lock(&mut tx, id)
        .await?
        .filter(|row| row.removed_at.is_none())
        .ok_or_else(|| DatabaseError::Refused(format!("there is no repository {id}")))?;
    refuse_taken(&mut tx, name).await?;
    let coming: i64 = within!(&mut tx, c => sqlx::query_scalar(
        "/* repositories::name_is_coming */ SELECT count(*) FROM imports WHERE name = $1",
    )
    .bind(name).fetch_one(c).await)
    .doing(doing)?;
    if coming > 0 {
        return Err(DatabaseError::Refused(format!("an import of {name} is under way")));
    }
    within!(&mut tx, c => sqlx::query("/* repositories::rename */ UPDATE repositories SET name = $2 WHERE id = $1")
        .bind(id).bind(name).execute(c).await.map(drop))
    .doing(doing)?;
    // What stands beside each copy is written anew when it is verified: the database may have to be rebuilt from it.
    within!(&mut tx, c => sqlx::query(
        "/* repositories::renamed */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, since) \
         SELECT r.repository_id, r.fileserver_id, 'changed', f.inventory_generation, (SELECT now FROM clock) \
           FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE r.repository_id = $1 AND r.state IN ('live', 'leaving') \
         ON CONFLICT (repository_id, fileserver_id) DO NOTHING",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await
}

/// Removed repositories that had this name, the last removed first, under it.
///
/// # Errors
/// When the engine fails.
pub async fn removed_by_name(db: &Database, name: &str) -> Result<Vec<Repository>> {
    let found: Vec<RepositoryRow> = on!(db, p => sqlx::query_as(
        "/* repositories::removed_by_name */ SELECT id, removed_name AS name, object_format, bytes, wanted, seats, \
                version, checksum, checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE removed_name = $1 AND removed_at IS NOT NULL ORDER BY removed_at DESC LIMIT 100",
    )
    .bind(name).fetch_all(p).await)
    .doing("looking up removed repositories")?;
    rows::all(found)
}

/// A page of removed repositories by number, after one, each under the name that it had.
///
/// # Errors
/// When the engine fails.
pub async fn removed_page(db: &Database, after: RepositoryId, limit: i64) -> Result<Vec<Repository>> {
    let found: Vec<RepositoryRow> = on!(db, p => sqlx::query_as(
        "/* repositories::removed_page */ SELECT id, COALESCE(removed_name, name) AS name, object_format, bytes, \
                wanted, seats, version, checksum, checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE removed_at IS NOT NULL AND id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after).bind(limit).fetch_all(p).await)
    .doing("listing removed repositories")?;
    rows::all(found)
}
