//! The story of one subject: open findings, attempts with their words, findings that closed.

use super::super::{Database, DatabaseError, Result, on};
use super::backlog::{BacklogRow, Selected};
use crate::model::Millis;
use crate::model::id::{FileserverId, RepositoryId};
use serde::{Deserialize, Serialize};

/// What a story is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A repository, its replicas included.
    Repository(RepositoryId),
    /// A repository on a fileserver.
    Replica(RepositoryId, FileserverId),
    /// A fileserver.
    Fileserver(FileserverId),
}

impl About {
    /// Repository and fileserver as bound values: 0 leaves nothing out.
    const fn bound(self) -> (i64, i64) {
        match self {
            Self::Repository(repository) => (repository.0, 0),
            Self::Replica(repository, fileserver) => (repository.0, fileserver.0),
            Self::Fileserver(fileserver) => (0, fileserver.0),
        }
    }
}

/// One attempt, live or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct AttemptRow {
    /// Its number.
    pub id: i64,
    /// The goal it is for.
    pub goal: String,
    /// What it is about.
    pub subject: String,
    /// The repair.
    pub repair: String,
    /// The step.
    pub step: String,
    /// Which try of its finding.
    pub number: i32,
    /// `queued`, `running`, or how it ended.
    pub state: String,
    /// Name of the fileserver that is copied from.
    pub source: Option<String>,
    /// Name of the fileserver that is changed.
    pub destination: Option<String>,
    /// The worker that has or had it.
    pub worker: Option<String>,
    /// Bytes to be moved, or that were.
    pub bytes: i64,
    /// When it was admitted.
    pub queued_at: Millis,
    /// When it was claimed.
    pub started_at: Option<Millis>,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// What was seen, or what it is doing.
    pub message: Option<String>,
}

/// One finding that closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct ClosedRow {
    /// Its number.
    pub id: i64,
    /// The goal that was not met.
    pub goal: String,
    /// What it was about.
    pub subject: String,
    /// Name of the fileserver.
    pub fileserver: Option<String>,
    /// The remedy.
    pub repair: Option<String>,
    /// The goal's words.
    pub reason: Option<String>,
    /// When it was first returned.
    pub opened_at: Millis,
    /// When it was no longer returned.
    pub closed_at: Millis,
    /// Attempts that failed.
    pub tries: i32,
}

/// What an inventory says about one copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct FlagRow {
    /// Name of the fileserver.
    pub fileserver: String,
    /// `missing`, `changed`, `untracked`, or which version it has that the database does not know.
    pub found: String,
    /// Since when.
    pub since: Millis,
}

/// Open findings about it, most urgent first; at most `limit`.
///
/// # Errors
/// When the engine fails, or a row cannot be read.
pub async fn open(db: &Database, about: About, limit: i64) -> Result<Vec<BacklogRow>> {
    let (repository, fileserver) = about.bound();
    let replica = matches!(about, About::Replica(..));
    let rows: Vec<Selected> = if repository > 0 {
        on!(db, p => sqlx::query_as(
            "/* report::story::open, of a repository */
             SELECT n.id, n.goal, n.subject, r.name AS repository, f.name AS fileserver, n.repair, n.state, n.priority,
                    n.reason, CAST(n.deferral AS TEXT) AS deferral, n.opened_at, n.tries, n.ineffective, n.next_at,
                    a.progress
               FROM findings n
               LEFT JOIN repositories r ON r.id = n.repository_id
               LEFT JOIN fileservers f ON f.id = n.fileserver_id
               LEFT JOIN attempts a ON a.finding_id = n.id
              WHERE n.repository_id = $1 AND ($2 = 0 OR n.fileserver_id = $2 OR n.fileserver_id IS NULL)
              ORDER BY n.priority DESC, n.id LIMIT $3",
        )
        .bind(repository)
        .bind(if replica { fileserver } else { 0 })
        .bind(limit)
        .fetch_all(p)
        .await)
    } else {
        on!(db, p => sqlx::query_as(
            "/* report::story::open, of a fileserver */
             SELECT n.id, n.goal, n.subject, r.name AS repository, f.name AS fileserver, n.repair, n.state, n.priority,
                    n.reason, CAST(n.deferral AS TEXT) AS deferral, n.opened_at, n.tries, n.ineffective, n.next_at,
                    a.progress
               FROM findings n
               LEFT JOIN repositories r ON r.id = n.repository_id
               LEFT JOIN fileservers f ON f.id = n.fileserver_id
               LEFT JOIN attempts a ON a.finding_id = n.id
              WHERE n.fileserver_id = $1
              ORDER BY n.priority DESC, n.id LIMIT $2",
        )
        .bind(fileserver)
        .bind(limit)
        .fetch_all(p)
        .await)
    }
    .map_err(|source| DatabaseError::Sql { doing: "reading open findings of a subject", source })?;
    rows.into_iter().map(Selected::read).collect()
}

/// Live attempts about it; a repository has one at most, a fileserver as many as its limits allow.
///
/// # Errors
/// When the engine fails.
pub async fn live(db: &Database, about: About, limit: i64) -> Result<Vec<AttemptRow>> {
    let (repository, fileserver) = about.bound();
    on!(db, p => sqlx::query_as(
        "/* report::story::live */
         SELECT a.id, a.goal, a.subject, a.repair, a.step, a.number, a.state, s.name AS source,
                d.name AS destination, a.worker, a.bytes, a.queued_at, a.started_at,
                CAST(NULL AS BIGINT) AS finished_at, a.progress AS message
           FROM attempts a
           LEFT JOIN fileservers s ON s.id = a.source_id
           LEFT JOIN fileservers d ON d.id = a.destination_id
          WHERE ($1 = 0 OR a.repository_id = $1) AND ($2 = 0 OR a.source_id = $2 OR a.destination_id = $2)
          ORDER BY a.id LIMIT $3",
    )
    .bind(repository)
    .bind(fileserver)
    .bind(limit)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading live attempts of a subject", source })
}

/// Attempts that ended, latest first. Of a fileserver: among the last thousand that ended anywhere.
///
/// # Errors
/// When the engine fails.
pub async fn ended(db: &Database, about: About, limit: i64) -> Result<Vec<AttemptRow>> {
    let (repository, fileserver) = about.bound();
    if repository > 0 {
        on!(db, p => sqlx::query_as(
            "/* report::story::ended, of a repository */
             SELECT a.id, a.goal, a.subject, a.repair, a.step, a.number, a.outcome AS state, s.name AS source,
                    d.name AS destination, a.worker, a.bytes, a.queued_at, a.started_at, a.finished_at, a.message
               FROM attempt_history a
               LEFT JOIN fileservers s ON s.id = a.source_id
               LEFT JOIN fileservers d ON d.id = a.destination_id
              WHERE a.repository_id = $1 AND ($2 = 0 OR a.source_id = $2 OR a.destination_id = $2)
              ORDER BY a.finished_at DESC, a.id DESC LIMIT $3",
        )
        .bind(repository)
        .bind(fileserver)
        .bind(limit)
        .fetch_all(p)
        .await)
    } else {
        on!(db, p => sqlx::query_as(
            "/* report::story::ended, of a fileserver */
             SELECT a.id, a.goal, a.subject, a.repair, a.step, a.number, a.outcome AS state, s.name AS source,
                    d.name AS destination, a.worker, a.bytes, a.queued_at, a.started_at, a.finished_at, a.message
               FROM (SELECT * FROM attempt_history ORDER BY finished_at DESC LIMIT 1000) a
               LEFT JOIN fileservers s ON s.id = a.source_id
               LEFT JOIN fileservers d ON d.id = a.destination_id
              WHERE a.source_id = $1 OR a.destination_id = $1
              ORDER BY a.finished_at DESC, a.id DESC LIMIT $2",
        )
        .bind(fileserver)
        .bind(limit)
        .fetch_all(p)
        .await)
    }
    .map_err(|source| DatabaseError::Sql { doing: "reading ended attempts of a subject", source })
}

/// Findings that closed, latest first. Of a fileserver: among the last thousand that closed anywhere.
///
/// # Errors
/// When the engine fails.
pub async fn closed(db: &Database, about: About, limit: i64) -> Result<Vec<ClosedRow>> {
    let (repository, fileserver) = about.bound();
    if repository > 0 {
        on!(db, p => sqlx::query_as(
            "/* report::story::closed, of a repository */
             SELECT h.id, h.goal, h.subject, f.name AS fileserver, h.repair, h.reason, h.opened_at, h.closed_at, h.tries
               FROM finding_history h LEFT JOIN fileservers f ON f.id = h.fileserver_id
              WHERE h.repository_id = $1 AND ($2 = 0 OR h.fileserver_id = $2 OR h.fileserver_id IS NULL)
              ORDER BY h.closed_at DESC, h.id DESC LIMIT $3",
        )
        .bind(repository)
        .bind(fileserver)
        .bind(limit)
        .fetch_all(p)
        .await)
    } else {
        on!(db, p => sqlx::query_as(
            "/* report::story::closed, of a fileserver */
             SELECT h.id, h.goal, h.subject, f.name AS fileserver, h.repair, h.reason, h.opened_at, h.closed_at, h.tries
               FROM (SELECT * FROM finding_history ORDER BY closed_at DESC LIMIT 1000) h
               JOIN fileservers f ON f.id = h.fileserver_id
              WHERE h.fileserver_id = $1
              ORDER BY h.closed_at DESC, h.id DESC LIMIT $2",
        )
        .bind(fileserver)
        .bind(limit)
        .fetch_all(p)
        .await)
    }
    .map_err(|source| DatabaseError::Sql { doing: "reading closed findings of a subject", source })
}

/// What inventories say about a repository's copies, where disks and SQL differ.
///
/// # Errors
/// When the engine fails.
pub async fn flags(db: &Database, repository: RepositoryId) -> Result<Vec<FlagRow>> {
    on!(db, p => sqlx::query_as(
        "/* report::story::flags */
         SELECT f.name AS fileserver, i.found, i.since
           FROM inventory i JOIN fileservers f ON f.id = i.fileserver_id WHERE i.repository_id = $1
         UNION ALL
         SELECT f.name, 'at version ' || CAST(l.version AS TEXT) || ', which the database does not know,', l.since
           FROM lost_histories l JOIN fileservers f ON f.id = l.fileserver_id WHERE l.repository_id = $1
          ORDER BY 1",
    )
    .bind(repository.0)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading what inventories say of a repository", source })
}
