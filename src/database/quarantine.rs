//! What is known of copies that were set aside on disks.
use super::values::Ids;
use super::{Database, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::QuarantineEntry;
use sqlx::types::Json;

/// One copy in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Quarantined {
    /// The repository.
    pub repository_id: RepositoryId,
    /// Where.
    pub fileserver_id: FileserverId,
    /// Its path below the agent's root.
    pub path: String,
    /// When it was set aside.
    pub since: Millis,
    /// Why.
    pub reason: String,
    /// Bytes on disk.
    pub bytes: i64,
}

/// Writes down what a fileserver has in quarantine and SQL does not know of: copies that were exchanged for new
/// ones, and removals whose outcome was never written. Returns how many were new.
///
/// # Errors
/// When the engine fails.
pub async fn note(db: &Database, fileserver: FileserverId, found: &[QuarantineEntry]) -> Result<u64> {
    if found.is_empty() {
        return Ok(0);
    }
    let text = db.engine().text(
        "/* quarantine::note, sqlite */ INSERT INTO quarantine (repository_id, fileserver_id, path, since, reason, \
                bytes) \
         SELECT value->>'repository', $1, value->>'path', value->>'since', value->>'reason', value->>'bytes' \
           FROM json_each($2) WHERE true ON CONFLICT DO NOTHING",
        "/* quarantine::note, postgres */ INSERT INTO quarantine (repository_id, fileserver_id, path, since, reason, \
                bytes) \
         SELECT q.repository, $1, q.path, q.since, q.reason, q.bytes \
           FROM jsonb_to_recordset($2) AS q (repository BIGINT, path TEXT, since BIGINT, reason TEXT, bytes BIGINT) \
         ON CONFLICT DO NOTHING",
    );
    on_writer!(db, p => sqlx::query(text).bind(fileserver).bind(Json(found))
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("noting what is in quarantine")
}

/// The copies of these repositories that were set aside, the last first.
///
/// # Errors
/// When the engine fails.
pub async fn of_repositories(db: &Database, ids: &[RepositoryId]) -> Result<Vec<Quarantined>> {
    let text = db.engine().text(
        "/* quarantine::of_repositories, sqlite */ SELECT repository_id, fileserver_id, path, since, reason, bytes \
           FROM quarantine WHERE repository_id IN (SELECT value FROM json_each($1)) ORDER BY since DESC, path",
        "/* quarantine::of_repositories, postgres */ SELECT repository_id, fileserver_id, path, since, reason, bytes \
           FROM quarantine WHERE repository_id = ANY($1) ORDER BY since DESC, path",
    );
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    on!(db, p => sqlx::query_as(text).bind(&ids).fetch_all(p).await).doing("reading what is in quarantine")
}
