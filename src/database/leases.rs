//! Expiring rights by name, on the database's clock.
//!
//! A lease is a row and not a session's lock: it outlives a connection, and nobody's
//! dropped connection takes it away.
use super::{Database, Doing, Result, on_writer};
use crate::model::Millis;

/// Takes or renews the lease for `ttl`; `false` when another holds it.
///
/// # Errors
/// When the engine fails.
pub async fn acquire(db: &Database, name: &str, holder: &str, ttl: Millis) -> Result<bool> {
    let taken = on_writer!(db, p => sqlx::query(
        "/* leases::acquire */ INSERT INTO leases (name, holder, until) \
         SELECT $1, $2, now + CAST($3 AS BIGINT) FROM clock WHERE true \
         ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until \
          WHERE leases.holder = excluded.holder OR leases.until < (SELECT now FROM clock)",
    )
    .bind(name).bind(holder).bind(ttl)
    .execute(p).await.map(|done| done.rows_affected()))
    .doing("taking a lease")?;
    Ok(taken == 1)
}

/// Gives it back, if it is `holder`'s.
///
/// # Errors
/// When the engine fails.
pub async fn release(db: &Database, name: &str, holder: &str) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* leases::release */ DELETE FROM leases WHERE name = $1 AND holder = $2",
    )
    .bind(name).bind(holder)
    .execute(p).await.map(drop))
    .doing("giving back a lease")
}
