//! Fileservers and racks.
use super::{Database, Result};
use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::grant::Part;
use crate::model::id::FileserverId;
use crate::model::wire::Status;

/// All of them, by name; a few hundred rows.
///
/// # Errors
/// When the engine fails.
pub async fn all(_db: &Database) -> Result<Vec<Fileserver>> {
    todo!()
}

/// Adds a fileserver (its rack is made when it is new) with its agent's part, in one transaction.
/// An existing one of the same name, rack and key is left, its URL is changed.
///
/// # Errors
/// When the name is taken by another rack or key, or the engine fails.
pub async fn add(_db: &Database, _name: &str, _rack: &str, _url: &str, _part: &Part) -> Result<FileserverId> {
    todo!()
}

/// Changes the address of a fileserver's agent.
///
/// # Errors
/// When the engine fails.
pub async fn set_url(_db: &Database, _id: FileserverId, _url: &str) -> Result<()> {
    todo!()
}

/// Writes the intent; `counts` follows it at once where it becomes false (evacuate, retire).
///
/// # Errors
/// When the engine fails.
pub async fn set_intent(_db: &Database, _id: FileserverId, _intent: Intent) -> Result<()> {
    todo!()
}

/// Writes what a status said (start, root, disk, load, versions, trouble, `seen_at`). One row.
///
/// # Errors
/// When the engine fails.
pub async fn record_status(_db: &Database, _id: FileserverId, _status: &Status, _at: Millis) -> Result<()> {
    todo!()
}

/// What observation decided about one fileserver: one update of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The fileserver.
    pub id: FileserverId,
    /// Its health.
    pub health: Health,
    /// Since when.
    pub health_since: Millis,
    /// Accumulated offline time.
    pub offline_ms: Millis,
    /// Whether its replicas count.
    pub counts: bool,
    /// Whether its root is not the one that held its replicas.
    pub empty_since: Option<Millis>,
}

/// Writes verdicts that differ from what is there; returns how many rows changed.
///
/// # Errors
/// When the engine fails.
pub async fn record_verdicts(_db: &Database, _verdicts: &[Verdict]) -> Result<u64> {
    todo!()
}

/// Says up to which generation of which start the inventory was compared. `root_id` is adopted with it.
///
/// # Errors
/// When the engine fails.
pub async fn inventory_compared(
    _db: &Database,
    _id: FileserverId,
    _start_id: &str,
    _generation: i64,
) -> Result<()> {
    todo!()
}

/// Replica rows per fileserver (by index).
///
/// # Errors
/// When the engine fails.
pub async fn replica_counts(_db: &Database) -> Result<Vec<(FileserverId, i64)>> {
    todo!()
}
