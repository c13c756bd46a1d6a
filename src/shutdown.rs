//! One token ends every task; tasks that are owned here are waited for, within a deadline.

mod points;

pub use points::reached;

use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The owner of a program's tasks.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// A new owner with no task.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The token that every loop watches.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Starts a task that [`Shutdown::finish`] waits for.
    #[allow(clippy::disallowed_methods, reason = "the room that this call belongs to")]
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task);
    }

    /// Asks every task to end.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Asks every task to end and waits for them; `false` when some had not by the deadline.
    pub async fn finish(&self, within: Duration) -> bool {
        self.token.cancel();
        self.tasks.close();
        tokio::time::timeout(within, self.tasks.wait()).await.is_ok()
    }
}
