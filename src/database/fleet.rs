//! The fleet's own row: its id and its checksum key.
use super::{Database, Result};
use crate::model::checksum::ChecksumKey;

/// The fleet's identity.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Names it in grants and on agents' disks.
    pub fleet_id: String,
    /// The key of its checksums.
    pub checksum_key: ChecksumKey,
}

/// The fleet; made from `new` if there is none yet.
///
/// # Errors
/// When the engine fails.
pub async fn ensure(_db: &Database, _new: &Fleet) -> Result<Fleet> {
    todo!()
}
