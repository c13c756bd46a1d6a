//! Nudges: "look again now", for the loops of controllers.
//!
//! A nudge carries no fact. A controller that hears none looks again by itself in time.
//! What wants a dispatch round may be in another process than the controller that
//! dispatches, so that wish is carried; evaluations are wanted of this process alone, for
//! the API always has a controller beside it.

use super::Post;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// As many goals are remembered by name; past it a nudge means all of them.
const NAMES: usize = 1_000;

/// Which goals somebody wants evaluated now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All of them.
    pub all: bool,
    /// These.
    pub goals: BTreeSet<String>,
}

impl Wanted {
    /// Whether this goal is among them.
    #[must_use]
    pub fn includes(&self, goal: &str) -> bool {
        self.all || self.goals.contains(goal)
    }
}

/// Wakes the loops of controllers. Clones share one bell.
#[derive(Debug, Clone, Default)]
pub struct Nudge {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wanted: Mutex<Wanted>,
    evaluate: Notify,
    dispatch: Notify,
    post: Option<Post>,
}

impl Nudge {
    /// A bell that nobody has rung.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A bell that is heard in other processes too, by what takes wishes from the post.
    #[must_use]
    pub fn carried_by(post: Option<Post>) -> Self {
        Self { inner: Arc::new(Inner { post, ..Inner::default() }) }
    }

    /// Wants one goal evaluated now, or all of them.
    pub fn evaluate(&self, goal: Option<&str>) {
        {
            let mut wanted = self.inner.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            match goal {
                Some(goal) if wanted.goals.len() < NAMES => {
                    wanted.goals.insert(goal.to_owned());
                }
                _ => wanted.all = true,
            }
        }
        self.inner.evaluate.notify_one();
    }

    /// Wants a dispatch round now, of whichever controller dispatches.
    pub fn dispatch(&self) {
        self.ring_dispatch();
        if let Some(post) = &self.inner.post {
            post.dispatch();
        }
    }

    /// Wants a dispatch round of this process's controller.
    pub(super) fn ring_dispatch(&self) {
        self.inner.dispatch.notify_one();
    }

    /// Waits until some goal is wanted, and takes all that are.
    pub async fn wanted(&self) -> Wanted {
        self.inner.evaluate.notified().await;
        std::mem::take(&mut *self.inner.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a dispatch round is wanted.
    pub async fn dispatch_wanted(&self) {
        self.inner.dispatch.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn wishes_add_up_until_they_are_taken() {
        let nudge = Nudge::new();
        nudge.evaluate(Some("a"));
        nudge.evaluate(Some("b"));
        let wanted = nudge.wanted().await;
        assert!(wanted.includes("a") && wanted.includes("b") && !wanted.includes("c"));
        assert!(nudge.wanted().now_or_never().is_none());
        nudge.evaluate(None);
        assert!(nudge.wanted().await.includes("c"));
    }

    #[tokio::test]
    async fn memory_is_bounded_past_it_all_goals_are_wanted() {
        let nudge = Nudge::new();
        for n in 0..=NAMES {
            nudge.evaluate(Some(&format!("goal-{n}")));
        }
        let wanted = nudge.wanted().await;
        assert!(wanted.all && wanted.goals.len() == NAMES);
    }
}
