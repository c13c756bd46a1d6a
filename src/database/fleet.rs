//! The fleet's own row: its id and its checksum key.
//!
//! It is made once. Two processes that start on new tables agree on the first one's.
use super::{Database, DatabaseError, Doing, Result, on, on_writer};
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
pub async fn ensure(db: &Database, new: &Fleet) -> Result<Fleet> {
    if let Some(fleet) = find(db).await? {
        return Ok(fleet);
    }
    on_writer!(db, p => sqlx::query(
        "/* fleet::ensure */ INSERT INTO fleet (id, fleet_id, checksum_key_id, checksum_key, created_at) \
         SELECT 1, $1, $2, $3, now FROM clock WHERE true ON CONFLICT (id) DO NOTHING",
    )
    .bind(&new.fleet_id).bind(new.checksum_key.id).bind(new.checksum_key.secret.to_vec())
    .execute(p).await.map(drop))
    .doing("making the fleet's row")?;
    find(db).await?.ok_or_else(|| DatabaseError::Unreadable("the fleet's row is gone".to_owned()))
}

/// The fleet, if the tables have one.
///
/// # Errors
/// When the engine fails.
pub async fn find(db: &Database) -> Result<Option<Fleet>> {
    let row: Option<(String, i64, Vec<u8>)> = on!(db, p => sqlx::query_as(
        "/* fleet::find */ SELECT fleet_id, checksum_key_id, checksum_key FROM fleet WHERE id = 1",
    )
    .fetch_optional(p).await)
    .doing("reading the fleet's row")?;
    row.map(|(fleet_id, id, secret)| {
        let secret = secret
            .try_into()
            .map_err(|_| DatabaseError::Unreadable("the checksum key is not 32 bytes long".to_owned()))?;
        Ok(Fleet { fleet_id, checksum_key: ChecksumKey { id, secret } })
    })
    .transpose()
}
