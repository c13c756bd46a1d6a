//! Differences between disks and SQL. What agrees is not kept: in a healthy fleet the table is empty.
use super::repositories::lock_all;
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, Doing, Result, on, on_writer};
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// Repositories in one transaction: a fileserver that lost everything must not lock the fleet.
const CHUNK: usize = 1_000;

/// The repositories that SQL believes on a fileserver (states live, leaving), in the order of their numbers, after one.
///
/// # Errors
/// When the engine fails.
pub async fn expected(
    db: &Database,
    fileserver: FileserverId,
    after: RepositoryId,
    limit: i64,
) -> Result<Vec<RepositoryId>> {
    on!(db, p => sqlx::query_scalar(
        "/* inventory::expected */ SELECT repository_id FROM replicas \
          WHERE fileserver_id = $1 AND repository_id > $2 AND state IN ('live', 'leaving') \
          ORDER BY repository_id LIMIT $3",
    )
    .bind(fileserver).bind(after).bind(limit).fetch_all(p).await)
    .doing("reading what a fileserver should hold")
}

/// Which of these repositories SQL knows on a fileserver: a replica in any state, or an import under way.
///
/// # Errors
/// When the engine fails.
pub async fn known(
    db: &Database,
    fileserver: FileserverId,
    ids: &[RepositoryId],
) -> Result<Vec<RepositoryId>> {
    let text = db.engine().text(
        "/* inventory::known, sqlite */ SELECT repository_id FROM replicas \
          WHERE fileserver_id = $1 AND repository_id IN (SELECT value FROM json_each($2)) \
         UNION SELECT id FROM imports WHERE id IN (SELECT value FROM json_each($2))",
        "/* inventory::known, postgres */ SELECT repository_id FROM replicas \
          WHERE fileserver_id = $1 AND repository_id = ANY($2) \
         UNION SELECT id FROM imports WHERE id = ANY($2)",
    );
    let ids = numbers(ids);
    on!(db, p => sqlx::query_scalar(text).bind(fileserver).bind(&ids).fetch_all(p).await)
        .doing("looking up what a fileserver holds")
}

fn numbers(ids: &[RepositoryId]) -> Ids {
    Ids(ids.iter().map(|id| id.0).collect())
}

/// Of copies on a fileserver, with the versions that its agent journalled: those above what the database knows, though
/// no push is open that could explain it. To be asked after the agent was: what it committed is then open or closed.
///
/// # Errors
/// When the engine fails.
pub async fn ahead(db: &Database, journalled: &[(RepositoryId, i64)]) -> Result<Vec<(RepositoryId, i64)>> {
    let text = db.engine().text(
        "/* inventory::ahead, sqlite */ SELECT p.id, s.value->>'version' FROM json_each($1) AS s \
           JOIN repositories p ON p.id = s.value->>'id' \
          WHERE p.version < s.value->>'version' AND p.removed_at IS NULL \
            AND NOT EXISTS (SELECT 1 FROM pushes u WHERE u.repository_id = p.id AND u.state = 'open') ORDER BY p.id",
        "/* inventory::ahead, postgres */ SELECT p.id, s.version \
           FROM jsonb_to_recordset($1) AS s (id BIGINT, version BIGINT) JOIN repositories p ON p.id = s.id \
          WHERE p.version < s.version AND p.removed_at IS NULL \
            AND NOT EXISTS (SELECT 1 FROM pushes u WHERE u.repository_id = p.id AND u.state = 'open') ORDER BY p.id",
    );
    on!(db, p => sqlx::query_as(text).bind(Json(versions(journalled))).fetch_all(p).await)
        .doing("looking for copies that know more than the database")
}

/// Flags from one comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// Believed, not there: checksum NULL, not in sync.
    pub missing: Vec<(RepositoryId, i64)>,
    /// Changed without the agent's doing, with the generation: to be verified.
    pub changed: Vec<(RepositoryId, i64)>,
    /// There, not believed.
    pub untracked: Vec<(RepositoryId, i64)>,
    /// With a journalled version that the database does not know.
    pub ahead: Vec<(RepositoryId, i64)>,
    /// Agree again: their flags 'missing' and 'untracked' go ('changed' goes by verification).
    pub agree: Vec<RepositoryId>,
}

#[derive(serde::Serialize)]
struct Seen {
    id: i64,
    generation: i64,
}

#[derive(serde::Serialize)]
struct Journalled {
    id: i64,
    version: i64,
}

/// Writes them; what is flagged already is not written again. Returns how many rows changed.
/// What is no replica (any more) is not flagged missing or changed, and what became one, or is being imported,
/// is not flagged untracked: the comparison may be older than the tables.
///
/// # Errors
/// When the engine fails. What was written until then stands: the next comparison does the rest.
pub async fn record(db: &Database, fileserver: FileserverId, differences: &Differences) -> Result<u64> {
    let mut rows = 0;
    for chunk in differences.missing.chunks(CHUNK) {
        rows += retrying!(missing(db, fileserver, chunk).await)?;
    }
    for chunk in differences.changed.chunks(CHUNK) {
        rows += retrying!(flag_changed(db, fileserver, chunk).await)?;
    }
    for chunk in differences.untracked.chunks(CHUNK) {
        rows += retrying!(untracked(db, fileserver, chunk).await)?;
    }
    for chunk in differences.ahead.chunks(CHUNK) {
        rows += lose(db, fileserver, chunk).await?;
    }
    for chunk in differences.agree.chunks(CHUNK) {
        rows += agree(db, fileserver, &numbers(chunk)).await?;
        rows += regain(db, fileserver, &numbers(chunk)).await?;
    }
    Ok(rows)
}

fn seen(chunk: &[(RepositoryId, i64)]) -> Vec<Seen> {
    chunk.iter().map(|&(id, generation)| Seen { id: id.0, generation }).collect()
}

fn versions(chunk: &[(RepositoryId, i64)]) -> Vec<Journalled> {
    chunk.iter().map(|&(id, version)| Journalled { id: id.0, version }).collect()
}

async fn missing(db: &Database, fileserver: FileserverId, chunk: &[(RepositoryId, i64)]) -> Result<u64> {
    let doing = "flagging missing copies";
    let ids = Ids(chunk.iter().map(|(id, _)| id.0).collect());
    let mut tx = Tx::begin(db).await?;
    lock_all(&mut tx, &ids).await?;
    let text = tx.engine().text(
        "/* inventory::missing, sqlite */ UPDATE replicas SET checksum = NULL, checksum_key = NULL, in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE fileserver_id = $1 AND repository_id IN (SELECT value FROM json_each($2)) \
            AND state IN ('live', 'leaving') AND (in_sync OR checksum IS NOT NULL)",
        "/* inventory::missing, postgres */ UPDATE replicas SET checksum = NULL, checksum_key = NULL, in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE fileserver_id = $1 AND repository_id = ANY($2) \
            AND state IN ('live', 'leaving') AND (in_sync OR checksum IS NOT NULL)",
    );
    let replicas = within!(&mut tx, c => sqlx::query(text).bind(fileserver).bind(&ids)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    let flags = flag(&mut tx, fileserver, "missing", chunk).await?;
    tx.commit().await?;
    Ok(replicas + flags)
}

async fn flag_changed(db: &Database, fileserver: FileserverId, chunk: &[(RepositoryId, i64)]) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let flags = flag(&mut tx, fileserver, "changed", chunk).await?;
    tx.commit().await?;
    Ok(flags)
}

/// Flags replicas. A change that is flagged and came again gets its later generation, or a verification of the
/// first one would clear the second unseen.
async fn flag(
    tx: &mut Tx,
    fileserver: FileserverId,
    found: &str,
    chunk: &[(RepositoryId, i64)],
) -> Result<u64> {
    let text = tx.engine().text(
        "/* inventory::flag, sqlite */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, since) \
         SELECT r.repository_id, r.fileserver_id, $2, s.value->>'generation', (SELECT now FROM clock) \
           FROM json_each($3) AS s JOIN replicas r ON r.repository_id = s.value->>'id' AND r.fileserver_id = $1 \
          WHERE r.state IN ('live', 'leaving') \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET found = excluded.found, \
            generation = excluded.generation, \
            since = CASE WHEN inventory.found = excluded.found THEN inventory.since ELSE excluded.since END \
          WHERE inventory.found <> excluded.found \
             OR (excluded.found = 'changed' AND inventory.generation < excluded.generation)",
        "/* inventory::flag, postgres */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, since) \
         SELECT r.repository_id, r.fileserver_id, CAST($2 AS TEXT), s.generation, (SELECT now FROM clock) \
           FROM jsonb_to_recordset($3) AS s (id BIGINT, generation BIGINT) \
           JOIN replicas r ON r.repository_id = s.id AND r.fileserver_id = $1 \
          WHERE r.state IN ('live', 'leaving') \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET found = excluded.found, \
            generation = excluded.generation, \
            since = CASE WHEN inventory.found = excluded.found THEN inventory.since ELSE excluded.since END \
          WHERE inventory.found <> excluded.found \
             OR (excluded.found = 'changed' AND inventory.generation < excluded.generation)",
    );
    within!(tx, c => sqlx::query(text).bind(fileserver).bind(found).bind(Json(seen(chunk)))
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("flagging copies")
}

async fn untracked(db: &Database, fileserver: FileserverId, chunk: &[(RepositoryId, i64)]) -> Result<u64> {
    let text = db.engine().text(
        "/* inventory::untracked, sqlite */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, \
                since) \
         SELECT s.value->>'id', $1, 'untracked', s.value->>'generation', (SELECT now FROM clock) \
           FROM json_each($2) AS s \
          WHERE s.value->>'id' NOT IN (SELECT id FROM imports) \
            AND NOT EXISTS (SELECT 1 FROM replicas r \
                             WHERE r.repository_id = s.value->>'id' AND r.fileserver_id = $1) \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET found = excluded.found, \
            generation = excluded.generation, since = excluded.since WHERE inventory.found <> excluded.found",
        "/* inventory::untracked, postgres */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, \
                since) \
         SELECT s.id, $1, 'untracked', s.generation, (SELECT now FROM clock) \
           FROM jsonb_to_recordset($2) AS s (id BIGINT, generation BIGINT) \
          WHERE s.id NOT IN (SELECT id FROM imports) \
            AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.repository_id = s.id AND r.fileserver_id = $1) \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET found = excluded.found, \
            generation = excluded.generation, since = excluded.since WHERE inventory.found <> excluded.found",
    );
    on_writer!(db, p => sqlx::query(text).bind(fileserver).bind(Json(seen(chunk)))
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("flagging untracked copies")
}

async fn lose(db: &Database, fileserver: FileserverId, chunk: &[(RepositoryId, i64)]) -> Result<u64> {
    let text = db.engine().text(
        "/* inventory::lose, sqlite */ INSERT INTO lost_histories (repository_id, fileserver_id, version, since) \
         SELECT s.value->>'id', $1, s.value->>'version', (SELECT now FROM clock) FROM json_each($2) AS s WHERE true \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET version = excluded.version \
          WHERE lost_histories.version <> excluded.version",
        "/* inventory::lose, postgres */ INSERT INTO lost_histories (repository_id, fileserver_id, version, since) \
         SELECT s.id, $1, s.version, (SELECT now FROM clock) \
           FROM jsonb_to_recordset($2) AS s (id BIGINT, version BIGINT) \
         ON CONFLICT (repository_id, fileserver_id) DO UPDATE SET version = excluded.version \
          WHERE lost_histories.version <> excluded.version",
    );
    on_writer!(db, p => sqlx::query(text).bind(fileserver).bind(Json(versions(chunk)))
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("flagging copies that know more than the database")
}

/// Forgets, of these copies, what was lost and is known again, or was decided.
async fn regain(db: &Database, fileserver: FileserverId, ids: &Ids) -> Result<u64> {
    let text = db.engine().text(
        "/* inventory::regain, sqlite */ DELETE FROM lost_histories WHERE fileserver_id = $1 \
            AND repository_id IN (SELECT value FROM json_each($2)) \
            AND version <= COALESCE((SELECT p.version FROM repositories p WHERE p.id = lost_histories.repository_id), version)",
        "/* inventory::regain, postgres */ DELETE FROM lost_histories WHERE fileserver_id = $1 \
            AND repository_id = ANY($2) \
            AND version <= COALESCE((SELECT p.version FROM repositories p WHERE p.id = lost_histories.repository_id), version)",
    );
    on_writer!(db, p => sqlx::query(text).bind(fileserver).bind(ids)
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("forgetting what was lost and is known again")
}

async fn agree(db: &Database, fileserver: FileserverId, ids: &Ids) -> Result<u64> {
    let text = db.engine().text(
        "/* inventory::agree, sqlite */ DELETE FROM inventory WHERE fileserver_id = $1 \
            AND repository_id IN (SELECT value FROM json_each($2)) AND found IN ('missing', 'untracked')",
        "/* inventory::agree, postgres */ DELETE FROM inventory WHERE fileserver_id = $1 \
            AND repository_id = ANY($2) AND found IN ('missing', 'untracked')",
    );
    on_writer!(db, p => sqlx::query(text).bind(fileserver).bind(ids)
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("clearing flags of copies that agree")
}

/// Flags a copy as changed because a call to it failed as one of a damaged copy does. Its generation is the last
/// one compared: every verification from now on answers it.
///
/// # Errors
/// When the engine fails.
pub async fn doubt(db: &Database, repository: RepositoryId, fileserver: FileserverId) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* inventory::doubt */ INSERT INTO inventory (repository_id, fileserver_id, found, generation, since) \
         SELECT r.repository_id, r.fileserver_id, 'changed', f.inventory_generation, (SELECT now FROM clock) \
           FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE r.repository_id = $1 AND r.fileserver_id = $2 AND r.state IN ('live', 'leaving') \
         ON CONFLICT (repository_id, fileserver_id) DO NOTHING",
    )
    .bind(repository).bind(fileserver).execute(p).await.map(drop))
    .doing("flagging a doubtful copy")
}

/// Untracked copies of repositories that neither a row nor a tombstone knows, counted by fileserver.
///
/// # Errors
/// When the engine fails.
pub async fn unknown(db: &Database) -> Result<Vec<(String, i64)>> {
    on!(db, p => sqlx::query_as(
        "/* inventory::unknown */ SELECT f.name, count(*) FROM inventory i JOIN fileservers f ON f.id = i.fileserver_id \
          WHERE i.found = 'untracked' AND NOT EXISTS (SELECT 1 FROM repositories p WHERE p.id = i.repository_id) \
            AND NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.repository_id = i.repository_id) \
          GROUP BY f.name ORDER BY f.name",
    )
    .fetch_all(p).await)
    .doing("counting copies that nothing knows of")
}
