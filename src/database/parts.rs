//! Parts and their public keys.
use super::{Database, Result};
use crate::model::grant::Part;

/// All parts that are not withdrawn, sorted by id.
///
/// # Errors
/// When the engine fails.
pub async fn list(_db: &Database) -> Result<Vec<Part>> {
    todo!()
}

/// Adds a part; refused where its id is taken by another key.
///
/// # Errors
/// When the id is taken, or the engine fails.
pub async fn add(_db: &Database, _part: &Part) -> Result<()> {
    todo!()
}

/// Says that a part has started, or is there.
///
/// # Errors
/// When the engine fails.
pub async fn seen(_db: &Database, _id: &str, _started: bool) -> Result<()> {
    todo!()
}
