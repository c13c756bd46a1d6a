//! Nudges: "look again now", for the loops of controllers.
//!
//! A nudge carries no fact. A controller that hears none looks again by itself in time.
//! What wants a dispatch round may be in another process than the controller that
//! dispatches, so that wish is always carried. An evaluation is wanted of this process's
//! controller, as the API has one beside it; a process without one, a router, has it carried.

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
    /// One goal, or all of them.
    fn one(goal: Option<&str>) -> Self {
        Self { all: goal.is_none(), goals: goal.map(str::to_owned).into_iter().collect() }
    }

    /// These too. Past the bound of names all are wanted.
    pub(super) fn add(&mut self, more: &Self) {
        self.all |= more.all;
        for goal in &more.goals {
            if self.goals.len() < NAMES {
                self.goals.insert(goal.clone());
            } else {
                self.all |= !self.goals.contains(goal);
            }
        }
    }

    /// Whether none is.
    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.goals.is_empty()
    }

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
    /// No controller is in this process: evaluations are wanted of others.
    alone: bool,
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

    /// A bell of a process without a controller: only what takes wishes from the post hears it.
    #[must_use]
    pub fn only_carried_by(post: Option<Post>) -> Self {
        Self { inner: Arc::new(Inner { post, alone: true, ..Inner::default() }) }
    }

    /// Wants one goal evaluated now, or all of them.
    pub fn evaluate(&self, goal: Option<&str>) {
        match &self.inner.post {
            Some(post) if self.inner.alone => post.evaluate(&Wanted::one(goal)),
            _ => self.ring_evaluate(&Wanted::one(goal)),
        }
    }

    /// Wants goals evaluated by this process's controller.
    pub(super) fn ring_evaluate(&self, wanted: &Wanted) {
        self.inner.wanted.lock().unwrap_or_else(PoisonError::into_inner).add(wanted);
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
    async fn a_process_without_a_controller_has_its_wishes_carried() {
        let post = Post::new(1);
        let nudge = Nudge::only_carried_by(Some(post.clone()));
        nudge.evaluate(Some("a"));
        nudge.evaluate(Some("b"));
        assert!(nudge.wanted().now_or_never().is_none(), "nobody here evaluates");
        let wanted = post.take().await.evaluate;
        assert!(wanted.includes("a") && wanted.includes("b") && !wanted.all);
        Nudge::carried_by(Some(post.clone())).evaluate(None);
        assert!(post.take().now_or_never().is_none(), "the API has a controller beside it");
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
