//! Keeping the set of suspects fresh for the goals that are asked of it alone.

use super::right::Right;
use super::{Shared, audit};
use crate::database::suspects;
use crate::database::words::sentence;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// However rarely goals are evaluated, the set is never older than this when one is.
const OLDEST: Duration = Duration::from_secs(30);
/// How long another controller's refresh is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refreshes the set, one at a time.
pub(super) struct Suspects {
    shared: Arc<Shared>,
    /// When the last refresh began.
    last: Mutex<Option<Instant>>,
}

impl Suspects {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, last: Mutex::new(None) }
    }

    /// Makes sure that the set is no older than half the period of the goal that asks (0:
    /// just made), and never than 30 s. Goals that are due together share one refresh.
    ///
    /// # Errors
    /// When it could not be refreshed; then the goal is unknown, since an old set would
    /// show fewer exceptions than there are.
    pub(super) async fn refresh(&self, period: Duration) -> Result<(), String> {
        let oldest = OLDEST.min(period / 2);
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        // One that began after we asked is fresh for us, however short the period.
        if last.is_some_and(|at| at >= asked || at.elapsed() < oldest) {
            return Ok(());
        }
        let mut right = Right::new(&self.shared.database, "suspects", &self.shared.holder, PATIENCE);
        let deadline = Instant::now() + PATIENCE;
        while !right.held().await {
            if Instant::now() >= deadline {
                return Err("suspects could not be refreshed: another controller does not end".into());
            }
            tokio::time::sleep(self.shared.chance.around(Duration::from_millis(200))).await;
        }
        let began = Instant::now();
        // The audit is not what a goal waits for in vain: where it fails, the set is refreshed all the same.
        audit::rotate(&self.shared).await;
        let refreshed = suspects::refresh(&self.shared.database).await;
        right.release().await;
        match refreshed {
            Ok(refreshed) => {
                *last = Some(began);
                tracing::debug!(refreshed.added, refreshed.removed, "suspects refreshed");
                Ok(())
            }
            Err(error) => Err(format!("suspects could not be refreshed: {}", sentence(&error))),
        }
    }
}
