//! Attempts: admitted, claimed, renewed, ended. Each change is a compare-and-set on state and epoch.
use super::{Database, Result};
use crate::model::Millis;
use crate::model::attempt::{Attempt, Ending, Plan};
use crate::model::finding::Finding;
use crate::model::id::{AttemptId, RepositoryId};

/// All live attempts: queued, and running ones whether or not their lease holds. Bounded by the limits.
///
/// # Errors
/// When the engine fails.
pub async fn live(_db: &Database) -> Result<Vec<Attempt>> {
    todo!()
}

/// Attempts that were started (queued) since a moment, by repair: for the limit per minute.
///
/// # Errors
/// When the engine fails.
pub async fn started_since(_db: &Database, _since: Millis) -> Result<Vec<(String, i64)>> {
    todo!()
}

/// In one transaction: an attempt queued for each plan and its finding running. Left out, and not an error: findings that
/// are no longer ready, and repositories that got another attempt meanwhile. Returns those made.
///
/// # Errors
/// When the engine fails.
pub async fn admit(_db: &Database, _admitted: &[(Finding, Plan)]) -> Result<Vec<AttemptId>> {
    todo!()
}

/// Claims up to `limit` queued attempts, best priority first, whose step is among `steps`: each gets a lease and its
/// repository's repair epoch, raised, in the same transaction.
///
/// # Errors
/// When the engine fails.
pub async fn claim(
    _db: &Database,
    _worker: &str,
    _limit: i64,
    _lease: Millis,
    _steps: &[&str],
) -> Result<Vec<Attempt>> {
    todo!()
}

/// Renews the lease and says what is being done; `false`: it is not this worker's any more.
///
/// # Errors
/// When the engine fails.
pub async fn renew(
    _db: &Database,
    _id: AttemptId,
    _epoch: i64,
    _lease: Millis,
    _progress: Option<&str>,
) -> Result<bool> {
    todo!()
}

/// Whether the attempt is still running under this epoch with a lease that holds.
///
/// # Errors
/// When the engine fails.
pub async fn holds(_db: &Database, _id: AttemptId, _epoch: i64) -> Result<bool> {
    todo!()
}

/// Ends an attempt into history and moves its finding on, in one transaction:
/// succeeded: waiting, judged by the next evaluation; failed: one more try, waiting for `backoff`; stale and
/// cancelled: ready at once or after `backoff`. `false`: it was not running under this epoch, nothing was written.
///
/// # Errors
/// When the engine fails.
pub async fn finish(
    _db: &Database,
    _id: AttemptId,
    _epoch: i64,
    _ending: &Ending,
    _backoff: Millis,
) -> Result<bool> {
    todo!()
}

/// Gives a running attempt back to the queue under the same number.
///
/// # Errors
/// When the engine fails.
pub async fn hand_back(_db: &Database, _id: AttemptId, _epoch: i64) -> Result<bool> {
    todo!()
}

/// Ends attempts whose lease ran out as lost, at most `limit`; their findings are ready at once. Returns them.
///
/// # Errors
/// When the engine fails.
pub async fn take_lost(_db: &Database, _limit: i64) -> Result<Vec<Attempt>> {
    todo!()
}

/// Cancels queued and running attempts whose finding is closed or whose destination is offline; their workers
/// notice at the next renewal. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn cancel_obsolete(_db: &Database, _limit: i64) -> Result<u64> {
    todo!()
}

/// Cancels the live attempt of a repository, if its repair is one that yields. `true` when one was cancelled.
///
/// # Errors
/// When the engine fails.
pub async fn yield_repository(_db: &Database, _id: RepositoryId, _yielding: &[&str]) -> Result<bool> {
    todo!()
}
