//! Reminders: "look, there may be an attempt for you".

use super::Post;
use crate::model::id::AttemptId;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Where reminders are given and heard. Clones share one queue.
///
/// Within the process: a counter that listeners watch. It cannot lose one, and it holds
/// none either: a thousand reminders wake a listener once. To other processes they go by
/// the post, if there is one.
#[derive(Debug, Clone)]
pub struct Reminders {
    counter: Arc<watch::Sender<u64>>,
    idle: Arc<Notify>,
    post: Option<Post>,
}

impl Reminders {
    /// Reminders that are heard within this process only. Workers of other processes find
    /// their attempts by sweeping.
    #[must_use]
    pub fn in_process() -> Self {
        Self::carried_by(None)
    }

    /// Reminders that go to other processes too, by what takes them from the post.
    #[must_use]
    pub fn carried_by(post: Option<Post>) -> Self {
        Self { counter: Arc::new(watch::Sender::new(0)), idle: Arc::default(), post }
    }

    /// Wakes every listener of this process, and one elsewhere for these attempts.
    pub fn remind(&self, ids: &[AttemptId]) {
        self.ring();
        if let Some(post) = &self.post {
            post.remind(ids);
        }
    }

    /// Hears every reminder from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener { counter: self.counter.subscribe(), idle: Arc::clone(&self.idle) }
    }

    /// Wakes every listener of this process.
    pub(super) fn ring(&self) {
        self.counter.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until a listener has nothing to do.
    pub(super) async fn listened_to(&self) {
        self.idle.notified().await;
    }
}

/// Hears reminders.
#[derive(Debug, Clone)]
pub struct Listener {
    counter: watch::Receiver<u64>,
    idle: Arc<Notify>,
}

impl Listener {
    /// Waits until a reminder comes that was not heard yet; for ever when nobody can remind any more.
    pub async fn reminded(&mut self) {
        self.idle.notify_one();
        if self.counter.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Takes all reminders so far as heard. Called before SQL is asked, so that one which
    /// comes during the question is not lost.
    pub fn catch_up(&mut self) {
        self.counter.mark_unchanged();
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
        reminders.remind(&[]);
        reminders.remind(&[]);
        assert!(listener.reminded().now_or_never().is_some());
        assert!(listener.reminded().now_or_never().is_none(), "two reminders wake once");
    }

    #[tokio::test]
    async fn what_was_caught_up_with_does_not_wake_and_what_comes_later_does() {
        let reminders = Reminders::in_process();
        let mut listener = reminders.listen();
        reminders.remind(&[]);
        listener.catch_up();
        assert!(listener.reminded().now_or_never().is_none());
        reminders.remind(&[]);
        assert!(listener.reminded().now_or_never().is_some());
    }

    #[tokio::test]
    async fn every_listener_is_woken() {
        let reminders = Reminders::in_process();
        let mut listeners: Vec<_> = (0..3).map(|_| reminders.listen()).collect();
        reminders.remind(&[]);
        for listener in &mut listeners {
            assert!(listener.reminded().now_or_never().is_some());
        }
    }
}
