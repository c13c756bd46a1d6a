//! The write lock of a repository: a lease that an attempt holds, so that nobody pushes between its copy and its
//! comparison.
//!
//! It is taken with the claim, renewed with the attempt's lease, given back with its end, and ends by itself where
//! nobody does. Routers refuse pushes while it holds, with its reason.
use crate::database::transaction::{Tx, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Result, on_writer};
use crate::model::Millis;
use crate::model::id::AttemptId;

/// What a pusher reads.
const REASON: &str = "its copies are being brought to the same state: attempts before this one did not last";

/// Takes it for those of the claimed attempts whose plans ask for it.
pub(super) async fn take(tx: &mut Tx, claimed: &Ids, lease: Millis) -> Result<()> {
    let text = tx.engine().text(
        "/* attempts::lock_writes, sqlite */ UPDATE repositories SET write_lock_until = (SELECT now FROM clock) + $2, \
           write_lock_reason = $3, write_lock_attempt = a.id \
          FROM attempts a WHERE a.id IN (SELECT value FROM json_each($1)) AND a.plan->>'write_lock' = 1 \
           AND repositories.id = a.repository_id",
        "/* attempts::lock_writes, postgres */ UPDATE repositories SET write_lock_until = (SELECT now FROM clock) + $2, \
           write_lock_reason = $3, write_lock_attempt = a.id \
          FROM attempts a WHERE a.id = ANY($1) AND a.plan->>'write_lock' = 'true' \
           AND repositories.id = a.repository_id",
    );
    within!(tx, c => sqlx::query(text).bind(claimed).bind(lease).bind(REASON).execute(c).await.map(drop))
        .doing("taking write locks")
}

/// Gives back what these attempts hold; they are still there.
pub(super) async fn release(tx: &mut Tx, attempts: &Ids) -> Result<()> {
    let text = tx.engine().text(
        "/* attempts::unlock_writes, sqlite */ UPDATE repositories SET write_lock_until = NULL, \
           write_lock_reason = NULL, write_lock_attempt = NULL \
          WHERE id IN (SELECT repository_id FROM attempts WHERE id IN (SELECT value FROM json_each($1))) \
            AND write_lock_attempt IN (SELECT value FROM json_each($1))",
        "/* attempts::unlock_writes, postgres */ UPDATE repositories SET write_lock_until = NULL, \
           write_lock_reason = NULL, write_lock_attempt = NULL \
          WHERE id = ANY (ARRAY(SELECT repository_id FROM attempts WHERE id = ANY($1))) \
            AND write_lock_attempt = ANY($1)",
    );
    within!(tx, c => sqlx::query(text).bind(attempts).execute(c).await.map(drop))
        .doing("giving back write locks")
}

/// Renews an attempt's write lock. `false`: it is gone, and whoever comes may push.
///
/// # Errors
/// When the engine fails.
pub async fn renew_write_lock(db: &Database, id: AttemptId, epoch: i64, lease: Millis) -> Result<bool> {
    let renewed = on_writer!(db, p => sqlx::query(
        "/* attempts::renew_write_lock */ UPDATE repositories SET write_lock_until = (SELECT now FROM clock) + $3 \
          WHERE write_lock_attempt = $1 AND write_lock_until >= (SELECT now FROM clock) \
            AND id = (SELECT repository_id FROM attempts WHERE id = $1 AND epoch = $2 AND state = 'running')",
    )
    .bind(id).bind(epoch).bind(lease).execute(p).await.map(|done| done.rows_affected()))
    .doing("renewing a write lock")?;
    Ok(renewed == 1)
}
