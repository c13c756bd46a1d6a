//! Reminders: "look, there may be an attempt for you".

use std::sync::Arc;
use tokio::sync::watch;

/// Where reminders are given and heard. Clones share one queue.
#[derive(Debug, Clone)]
pub enum Reminders {
    /// Within one process: a counter that listeners watch. It cannot lose one, and it
    /// holds none either: a thousand reminders wake a listener once.
    InProcess(Arc<watch::Sender<u64>>),
}

impl Reminders {
    /// Reminders that are heard within this process only. Workers of other processes find
    /// their attempts by sweeping.
    #[must_use]
    pub fn in_process() -> Self {
        Self::InProcess(Arc::new(watch::Sender::new(0)))
    }

    /// Wakes every listener.
    pub fn remind(&self) {
        match self {
            Self::InProcess(counter) => counter.send_modify(|count| *count = count.wrapping_add(1)),
        }
    }

    /// Hears every reminder from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        match self {
            Self::InProcess(counter) => Listener::InProcess(counter.subscribe()),
        }
    }
}

/// Hears reminders.
#[derive(Debug, Clone)]
pub enum Listener {
    /// See [`Reminders::InProcess`].
    InProcess(watch::Receiver<u64>),
}

impl Listener {
    /// Waits until a reminder comes that was not heard yet; for ever when nobody can remind any more.
    pub async fn reminded(&mut self) {
        match self {
            Self::InProcess(counter) => {
                if counter.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Takes all reminders so far as heard. Called before SQL is asked, so that one which
    /// comes during the question is not lost.
    pub fn catch_up(&mut self) {
        match self {
            Self::InProcess(counter) => {
                counter.mark_unchanged();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_reminder_that_came_before_the_wait_is_heard() {
        let reminders = Reminders::in_process();
        let mut listener = reminders.listen();
        reminders.remind();
        reminders.remind();
        assert!(listener.reminded().now_or_never().is_some());
        assert!(listener.reminded().now_or_never().is_none(), "two reminders wake once");
    }

    #[tokio::test]
    async fn what_was_caught_up_with_does_not_wake_and_what_comes_later_does() {
        let reminders = Reminders::in_process();
        let mut listener = reminders.listen();
        reminders.remind();
        listener.catch_up();
        assert!(listener.reminded().now_or_never().is_none());
        reminders.remind();
        assert!(listener.reminded().now_or_never().is_some());
    }

    #[tokio::test]
    async fn every_listener_is_woken() {
        let reminders = Reminders::in_process();
        let mut listeners: Vec<_> = (0..3).map(|_| reminders.listen()).collect();
        reminders.remind();
        for listener in &mut listeners {
            assert!(listener.reminded().now_or_never().is_some());
        }
    }
}
