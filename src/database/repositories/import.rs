//! Imports: an id and fileservers are chosen, copies are made, and one transaction makes the repository.
//!
//! Until that transaction no goal sees anything of it: an import that is left alone leaves
//! a row here and staging on disks, and can be taken up again.
use super::{MOST_WANTED, lock};
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::{small, word};
use crate::database::{Database, DatabaseError, Doing, Result, on, on_writer};
use crate::model::checksum::Checksum;
use crate::model::fleet::{ObjectFormat, Repository, quorum};
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;
use std::collections::BTreeMap;

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

#[derive(sqlx::FromRow)]
struct ImportRow {
    id: RepositoryId,
    name: String,
    object_format: String,
    wanted: i64,
    bytes: i64,
    fileserver_ids: Json<Vec<FileserverId>>,
}

impl TryFrom<ImportRow> for Import {
    type Error = DatabaseError;

    fn try_from(row: ImportRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            name: row.name,
            object_format: word(&row.object_format)?,
            wanted: small(row.wanted, "wanted copies")?,
            bytes: row.bytes,
            fileservers: row.fileserver_ids.0,
        })
    }
}

/// Keeps a plan for a new repository under a fresh id and returns it; where one of that name is under way,
/// that one is returned unchanged. Refused where a repository of that name exists.
///
/// # Errors
/// When the name is taken, the wanted number is out of bounds, or the engine fails.
pub async fn plan_import(
    db: &Database,
    name: &str,
    format: ObjectFormat,
    wanted: u32,
    bytes: i64,
    fileservers: &[FileserverId],
) -> Result<Import> {
    if wanted == 0 || wanted > MOST_WANTED {
        return Err(DatabaseError::Refused(format!(
            "from 1 to {MOST_WANTED} copies can be wanted, not {wanted}"
        )));
    }
    let doing = "planning an import";
    let mut tx = Tx::begin(db).await?;
    // The counter's row is the lock: two plans for one name come one after the other. A database that went back
    // has an old counter: no id is given that a tombstone or any disk knows.
    let text = tx.engine().text(
        "/* repositories::next_id, sqlite */ UPDATE counters SET value = 1 + max(value, (SELECT max(known.id) FROM \
                 (SELECT 0 AS id UNION ALL SELECT max(id) FROM repositories \
                  UNION ALL SELECT max(repository_id) FROM tombstones \
                  UNION ALL SELECT max(repository_id) FROM quarantine \
                  UNION ALL SELECT max(repository_id) FROM inventory) AS known)) \
           WHERE name = 'repository_id' RETURNING value",
        "/* repositories::next_id, postgres */ UPDATE counters SET value = 1 + GREATEST(value, (SELECT max(known.id) FROM \
                 (SELECT max(id) AS id FROM repositories \
                  UNION ALL SELECT max(repository_id) FROM tombstones \
                  UNION ALL SELECT max(repository_id) FROM quarantine \
                  UNION ALL SELECT max(repository_id) FROM inventory) AS known)) \
           WHERE name = 'repository_id' RETURNING value",
    );
    let id: RepositoryId = within!(&mut tx, c => sqlx::query_scalar(text).fetch_one(c).await).doing(doing)?;
    let under_way: Option<ImportRow> = within!(&mut tx, c => sqlx::query_as(
        "/* repositories::import_of_name */ SELECT id, name, object_format, wanted, bytes, fileserver_ids \
           FROM imports WHERE name = $1",
    )
    .bind(name).fetch_optional(c).await)
    .doing(doing)?;
    if let Some(row) = under_way {
        return Import::try_from(row);
    }
    refuse_taken(&mut tx, name).await?;
    within!(&mut tx, c => sqlx::query(
        "/* repositories::plan_import */ INSERT INTO imports \
           (id, name, object_format, wanted, bytes, fileserver_ids, created_at) \
         SELECT $1, $2, $3, $4, $5, $6, now FROM clock",
    )
    .bind(id).bind(name).bind(format.as_str()).bind(i64::from(wanted)).bind(bytes).bind(Json(fileservers))
    .execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await?;
    let fileservers = fileservers.to_vec();
    Ok(Import { id, name: name.to_owned(), object_format: format, wanted, bytes, fileservers })
}

pub(super) async fn refuse_taken(tx: &mut Tx, name: &str) -> Result<()> {
    let taken: i64 = within!(tx, c => sqlx::query_scalar(
        "/* repositories::name_is_taken */ SELECT count(*) FROM repositories WHERE name = $1",
    )
    .bind(name).fetch_one(c).await)
    .doing("looking whether a name is taken")?;
    if taken > 0 {
        Err(DatabaseError::Refused(format!("a repository {name} exists already")))
    } else {
        Ok(())
    }
}

/// Chooses other fileservers for an import under way.
///
/// # Errors
/// When there is none, or the engine fails.
pub async fn replan_import(db: &Database, id: RepositoryId, fileservers: &[FileserverId]) -> Result<()> {
    let changed = on_writer!(db, p => sqlx::query(
        "/* repositories::replan_import */ UPDATE imports SET fileserver_ids = $2 WHERE id = $1",
    )
    .bind(id).bind(Json(fileservers)).execute(p).await.map(|done| done.rows_affected()))
    .doing("choosing other fileservers for an import")?;
    if changed == 1 { Ok(()) } else { Err(none(id)) }
}

fn none(id: RepositoryId) -> DatabaseError {
    DatabaseError::Refused(format!("no import of repository {id} is under way"))
}

/// An import under way, by the repository's future id.
///
/// # Errors
/// When the engine fails.
pub async fn import(db: &Database, id: RepositoryId) -> Result<Option<Import>> {
    let row: Option<ImportRow> = on!(db, p => sqlx::query_as(
        "/* repositories::import */ SELECT id, name, object_format, wanted, bytes, fileserver_ids \
           FROM imports WHERE id = $1",
    )
    .bind(id).fetch_optional(p).await)
    .doing("reading an import")?;
    row.map(Import::try_from).transpose()
}

/// Forgets an import that will not be finished.
///
/// # Errors
/// When the engine fails.
pub async fn abandon_import(db: &Database, id: RepositoryId) -> Result<()> {
    on_writer!(db, p => sqlx::query("/* repositories::abandon_import */ DELETE FROM imports WHERE id = $1")
        .bind(id).execute(p).await.map(drop))
    .doing("forgetting an import")
}

/// One transaction: the repository at version 1 with its checksum and seats, a live replica in sync and
/// verified for each of `holders` (with bytes), and the import's row gone. `bytes` of the repository is
/// the largest of theirs.
///
/// # Errors
/// When there is no such import, fewer than a quorum of its seats are given, or the engine fails.
pub async fn finish_import(
    db: &Database,
    id: RepositoryId,
    checksum: &Checksum,
    holders: &[(FileserverId, i64)],
) -> Result<Repository> {
    let holders: BTreeMap<FileserverId, i64> = holders.iter().copied().collect();
    retrying!(try_finish(db, id, checksum, &holders).await)
}

async fn try_finish(
    db: &Database,
    id: RepositoryId,
    checksum: &Checksum,
    holders: &BTreeMap<FileserverId, i64>,
) -> Result<Repository> {
    let doing = "finishing an import";
    let mut tx = Tx::begin(db).await?;
    let row: Option<ImportRow> = within!(&mut tx, c => sqlx::query_as(
        "/* repositories::end_import */ DELETE FROM imports WHERE id = $1 \
         RETURNING id, name, object_format, wanted, bytes, fileserver_ids",
    )
    .bind(id).fetch_optional(c).await)
    .doing(doing)?;
    let import = Import::try_from(row.ok_or_else(|| none(id))?)?;
    let needed = quorum(import.wanted);
    if holders.len() < needed as usize {
        return Err(DatabaseError::Refused(format!(
            "{} of {} copies are whole, and {needed} must be before {} exists",
            holders.len(),
            import.wanted,
            import.name
        )));
    }
    refuse_taken(&mut tx, &import.name).await?;
    let bytes = holders.values().copied().max().unwrap_or_default();
    within!(&mut tx, c => sqlx::query(
        "/* repositories::create */ INSERT INTO repositories \
           (id, name, object_format, bytes, wanted, seats, version, checksum, checksum_key, created_at) \
         SELECT $1, $2, $3, $4, $5, $5, 1, $6, $7, now FROM clock",
    )
    .bind(id).bind(&import.name).bind(import.object_format.as_str()).bind(bytes)
    .bind(i64::from(import.wanted)).bind(checksum.sum.to_vec()).bind(checksum.key)
    .execute(c).await.map(drop))
    .doing(doing)?;
    insert_copies(&mut tx, id, checksum, holders).await?;
    let made = lock(&mut tx, id).await?.ok_or_else(|| none(id))?;
    tx.commit().await?;
    Ok(made)
}

/// The first copies, and no flag of what an inventory saw of them before they were known.
async fn insert_copies(
    tx: &mut Tx,
    id: RepositoryId,
    checksum: &Checksum,
    holders: &BTreeMap<FileserverId, i64>,
) -> Result<()> {
    let doing = "finishing an import";
    let holders: Vec<_> =
        holders.iter().map(|(id, bytes)| serde_json::json!({ "id": id, "bytes": bytes })).collect();
    let text = tx.engine().text(
        "/* repositories::first_copies, sqlite */ INSERT INTO replicas (repository_id, fileserver_id, state, \
                version, checksum, checksum_key, in_sync, bytes, verified_at, state_since) \
         SELECT $1, value->>'id', 'live', 1, $3, $4, TRUE, value->>'bytes', now, now \
           FROM json_each($2), clock",
        "/* repositories::first_copies, postgres */ INSERT INTO replicas (repository_id, fileserver_id, state, \
                version, checksum, checksum_key, in_sync, bytes, verified_at, state_since) \
         SELECT $1, h.id, 'live', 1, $3, $4, TRUE, h.bytes, now, now \
           FROM jsonb_to_recordset($2) AS h (id BIGINT, bytes BIGINT), clock",
    );
    within!(&mut *tx, c => sqlx::query(text)
        .bind(id).bind(Json(&holders)).bind(checksum.sum.to_vec()).bind(checksum.key)
        .execute(c).await.map(drop))
    .doing(doing)?;
    within!(tx, c => sqlx::query(
        "/* repositories::no_flags */ DELETE FROM inventory WHERE repository_id = $1",
    )
    .bind(id).execute(c).await.map(drop))
    .doing(doing)
}
