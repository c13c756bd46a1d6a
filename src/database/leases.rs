//! Expiring rights by name, on the database's clock.
use super::{Database, Result};
use crate::model::Millis;

/// Takes or renews the lease for `ttl`; `false` when another holds it.
///
/// # Errors
/// When the engine fails.
pub async fn acquire(_db: &Database, _name: &str, _holder: &str, _ttl: Millis) -> Result<bool> {
    todo!()
}

/// Gives it back, if it is `holder`'s.
///
/// # Errors
/// When the engine fails.
pub async fn release(_db: &Database, _name: &str, _holder: &str) -> Result<()> {
    todo!()
}
