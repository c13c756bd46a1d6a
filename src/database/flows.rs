//! Bytes under way, by fileserver: what is derived from attempts and replicas whenever it is asked for.
//!
//! There is no counter that could drift: the view `fileserver_flows` sums what is there, by indexes that
//! hold little else.
use super::{Database, Doing, Result, on};
use crate::model::id::FileserverId;

/// What is under way to and from one fileserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct Flow {
    /// The fileserver.
    pub fileserver_id: FileserverId,
    /// Bytes of copies that live attempts make there.
    pub arriving: i64,
    /// Bytes of copies that were finished there and that its last status does not show yet.
    pub landed: i64,
    /// Bytes of copies that no longer count, and of those that live attempts move away.
    pub leaving: i64,
}

/// Of every fileserver; a few hundred rows.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<Flow>> {
    on!(db, p => sqlx::query_as(
        "/* flows::all */ SELECT fileserver_id, arriving, landed, leaving \
           FROM fileserver_flows ORDER BY fileserver_id",
    )
    .fetch_all(p).await)
    .doing("summing what is under way")
}
