//! What is to be carried to other processes, until the carrier takes it.
//!
//! Bounded: ids of attempts up to the window, older ones first forgotten, one wish for
//! a dispatch round, and goals by name up to a thousand. Putting something in never waits and never fails. What the carrier
//! cannot deliver is gone, which does no harm: everybody looks at SQL in time.

use super::Wanted;
use crate::clock;
use crate::model::Millis;
use crate::model::id::AttemptId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// How the carrier stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// It was not heard of yet.
    Unknown,
    /// It took what it was last given.
    Here,
    /// It did not.
    Away {
        /// Since when, by this machine's clock.
        since: Millis,
        /// Its words, or the network's.
        why: String,
    },
}

/// Reminders that were carried, and those that were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Taken by the carrier.
    pub sent: u64,
    /// Forgotten: the carrier was away, or the window was full.
    pub lost: u64,
}

/// The outbox of one process. Clones share it.
#[derive(Debug, Clone)]
pub struct Post {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    window: usize,
    outbox: Mutex<Parcel>,
    filled: Notify,
    carrier: watch::Sender<Carrier>,
    sent: AtomicU64,
    lost: AtomicU64,
}

/// What is carried at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parcel {
    /// Attempts that somebody may look for.
    pub(super) ids: VecDeque<i64>,
    /// Whether a dispatch round is wanted.
    pub(super) dispatch: bool,
    /// Goals that somebody wants evaluated.
    pub(super) evaluate: Wanted,
}

impl Parcel {
    fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.dispatch && self.evaluate.is_empty()
    }
}

impl Post {
    /// An empty outbox that holds at most `window` ids.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let inner = Inner {
            window: window.max(1),
            outbox: Mutex::default(),
            filled: Notify::new(),
            carrier: watch::Sender::new(Carrier::Unknown),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How the carrier stands.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.inner.carrier.borrow().clone()
    }

    /// What was carried since the start.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Carried { sent: read(&self.inner.sent), lost: read(&self.inner.lost) }
    }

    /// Most ids that are kept, here and by the carrier.
    pub(super) fn window(&self) -> usize {
        self.inner.window
    }

    /// Puts reminders in; the oldest give way.
    pub(super) fn remind(&self, ids: &[AttemptId]) {
        let forgotten = self.put(|outbox| {
            outbox.ids.extend(ids.iter().map(|id| id.0));
            let over = outbox.ids.len().saturating_sub(self.inner.window);
            outbox.ids.drain(..over);
            over
        });
        self.count(0, forgotten);
    }

    /// Puts in the wish for a dispatch round.
    pub(super) fn dispatch(&self) {
        self.put(|outbox| outbox.dispatch = true);
    }

    /// Puts in the wish for evaluations.
    pub(super) fn evaluate(&self, wanted: &Wanted) {
        self.put(|outbox| outbox.evaluate.add(wanted));
    }

    /// Takes everything, as soon as there is anything.
    pub(super) async fn take(&self) -> Parcel {
        loop {
            let filled = self.inner.filled.notified();
            let parcel = self.put(std::mem::take);
            if !parcel.is_empty() {
                return parcel;
            }
            filled.await;
        }
    }

    /// Counts what became of reminders.
    pub(super) fn count(&self, sent: usize, lost: usize) {
        self.inner.sent.fetch_add(sent as u64, Ordering::Relaxed);
        self.inner.lost.fetch_add(lost as u64, Ordering::Relaxed);
    }

    /// Says that the carrier took something. `true`: it was not known to be there.
    pub(super) fn here(&self) -> bool {
        self.inner.carrier.send_replace(Carrier::Here) != Carrier::Here
    }

    /// Says that the carrier did not take something. `true`: that is news.
    pub(super) fn away(&self, why: &str) -> bool {
        let now = clock::now();
        self.inner.carrier.send_if_modified(|carrier| {
            let why = why.to_owned();
            if let Carrier::Away { why: last, .. } = carrier {
                // Since when stays.
                *last = why;
                return false;
            }
            *carrier = Carrier::Away { since: now, why };
            true
        })
    }

    fn put<T>(&self, change: impl FnOnce(&mut Parcel) -> T) -> T {
        let mut outbox = self.inner.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut outbox);
        if !outbox.is_empty() {
            self.inner.filled.notify_one();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn ids(range: std::ops::Range<i64>) -> Vec<AttemptId> {
        range.map(AttemptId).collect()
    }

    #[tokio::test]
    async fn what_is_put_in_is_taken_at_once_and_only_once() {
        let post = Post::new(10);
        assert!(post.take().now_or_never().is_none());
        post.remind(&ids(1..3));
        post.dispatch();
        let parcel = post.take().now_or_never().unwrap();
        assert_eq!((parcel.ids.as_slices().0, parcel.dispatch), (&[1, 2][..], true));
        assert!(post.take().now_or_never().is_none());
    }

    #[tokio::test]
    async fn past_the_window_the_oldest_give_way_and_are_counted() {
        let post = Post::new(3);
        post.remind(&ids(1..3));
        post.remind(&ids(3..6));
        assert_eq!(post.take().await.ids, [3, 4, 5]);
        assert_eq!(post.carried(), Carried { sent: 0, lost: 2 });
    }

    #[test]
    fn only_a_change_of_the_carrier_is_news_and_since_when_stays() {
        let post = Post::new(1);
        assert!(post.away("refused"));
        let Carrier::Away { since, .. } = post.carrier() else { panic!() };
        assert!(!post.away("timed out"));
        assert_eq!(post.carrier(), Carrier::Away { since, why: "timed out".into() });
        assert!(post.here() && !post.here());
    }
}
