//! The feeder: takes permits, claims as many attempts, and passes them on.
//!
//! It runs in a task of its own and never drops a claim half-way, so a claim that was
//! made is either passed on or put back. A permit is taken *before* a claim and travels
//! with the attempt: nothing is claimed that could not start at once.

use crate::database::{self, Database, attempts};
use crate::model::Millis;
use crate::model::attempt::Attempt;
use crate::model::chance::Chance;
use crate::model::id::AttemptId;
use crate::queue::Listener;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// As many attempts are claimed by one statement: larger batches are no faster, and a
/// worker that starts would leave nothing to the others.
const BATCH: usize = 16;

/// The longest wait after claims that failed one after the other: a database that is back is worked with soon.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// Where claims come from and go back to. Tests have one in memory.
pub(super) trait Ledger: Send + Sync + 'static {
    /// Claims up to `limit` attempts, best first.
    fn claim(&self, limit: usize) -> BoxFuture<'_, database::Result<Vec<Attempt>>>;
    /// Puts one back.
    fn hand_back(&self, id: AttemptId, epoch: i64) -> BoxFuture<'_, database::Result<bool>>;
}

/// The ledger that SQL is.
pub(super) struct SqlLedger {
    /// Where.
    pub(super) database: Database,
    /// Who claims.
    pub(super) worker: String,
    /// For how long, before the first renewal.
    pub(super) lease: Millis,
    /// What it can do.
    pub(super) steps: Vec<&'static str>,
}

impl Ledger for SqlLedger {
    fn claim(&self, limit: usize) -> BoxFuture<'_, database::Result<Vec<Attempt>>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Box::pin(attempts::claim(&self.database, &self.worker, limit, self.lease, &self.steps))
    }

    fn hand_back(&self, id: AttemptId, epoch: i64) -> BoxFuture<'_, database::Result<bool>> {
        Box::pin(attempts::hand_back(&self.database, id, epoch))
    }
}

/// A claimed attempt that nobody has started. Dropped so, it is put back.
pub(super) struct Claimed {
    attempt: Option<Attempt>,
    permit: Option<OwnedSemaphorePermit>,
    ledger: Arc<dyn Ledger>,
    tasks: TaskTracker,
}

impl Claimed {
    /// Names it for people who read apalis's own lines: attempt and epoch.
    pub(super) fn name(&self) -> String {
        self.attempt.as_ref().map_or_else(String::new, |attempt| format!("{}-{}", attempt.id, attempt.epoch))
    }

    /// Starts it: from here on it is the caller's. The permit is held as long as the work runs.
    pub(super) fn start(mut self) -> Option<(Attempt, OwnedSemaphorePermit)> {
        Some((self.attempt.take()?, self.permit.take()?))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let (Some(attempt), Ok(runtime)) = (self.attempt.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (ledger, permit) = (Arc::clone(&self.ledger), self.permit.take());
        let back = async move {
            if let Err(error) = ledger.hand_back(attempt.id, attempt.epoch).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(attempt.id = %attempt.id, error, "an unstarted attempt is left to its lease");
            }
            drop(permit);
        };
        self.tasks.spawn_on(back, &runtime);
    }
}

/// Claims for one worker.
pub(super) struct Feeder {
    /// Where from.
    pub(super) ledger: Arc<dyn Ledger>,
    /// One permit a running attempt.
    pub(super) permits: Arc<Semaphore>,
    /// Owns the tasks that put attempts back.
    pub(super) tasks: TaskTracker,
    /// How often SQL is asked without a reminder.
    pub(super) sweep: Duration,
    /// Jitter.
    pub(super) chance: Arc<Chance>,
}

impl Feeder {
    /// Feeds until told to stop, or until nobody takes any more.
    pub(super) async fn feed(
        self,
        out: mpsc::Sender<Claimed>,
        mut listener: Listener,
        stop: CancellationToken,
    ) {
        let mut failures = 0;
        loop {
            let permits = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = out.closed() => return,
                permits = self.take_permits() => permits,
            };
            listener.catch_up();
            let wait = match self.ledger.claim(permits.len()).await {
                Ok(attempts) if attempts.is_empty() => {
                    failures = 0;
                    drop(permits);
                    self.chance.around(self.sweep)
                }
                Ok(attempts) => {
                    failures = 0;
                    if !self.pass_on(attempts, permits, &out, &stop).await {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(error = &error as &dyn std::error::Error, "claiming attempts failed");
                    drop(permits);
                    self.chance.around(LONGEST_WAIT.min(Duration::from_millis(100 << failures.min(8))))
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = out.closed() => return,
                () = listener.reminded(), if failures == 0 => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits for one permit, and takes what else is free.
    async fn take_permits(&self) -> Vec<OwnedSemaphorePermit> {
        let mut permits = Vec::with_capacity(BATCH);
        permits.extend(Arc::clone(&self.permits).acquire_owned().await);
        while permits.len() < BATCH {
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { break };
            permits.push(permit);
        }
        permits
    }

    /// Passes claims on; what cannot be passed on is put back by its guard. `false`: nobody takes them.
    async fn pass_on(
        &self,
        attempts: Vec<Attempt>,
        permits: Vec<OwnedSemaphorePermit>,
        out: &mpsc::Sender<Claimed>,
        stop: &CancellationToken,
    ) -> bool {
        let mut permits = permits.into_iter();
        // All guards are made first, so that a return in the middle puts the rest back too.
        let claims: Vec<_> = attempts
            .into_iter()
            .map(|attempt| Claimed {
                attempt: Some(attempt),
                permit: permits.next(),
                ledger: Arc::clone(&self.ledger),
                tasks: self.tasks.clone(),
            })
            .collect();
        drop(permits);
        for claim in claims {
            if stop.is_cancelled() || out.send(claim).await.is_err() {
                return false;
            }
        }
        true
    }
}
