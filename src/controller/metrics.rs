//! What the loops count, for whoever publishes it. Only ever rising, but for the gauges.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one process's controller.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Evaluations that finished.
    pub evaluations: AtomicU64,
    /// Evaluations that did not.
    pub evaluation_failures: AtomicU64,
    /// Times at which a goal was due while its evaluation before still ran.
    pub evaluations_skipped: AtomicU64,
    /// Dispatch rounds.
    pub rounds: AtomicU64,
    /// Length of the last round, in milliseconds.
    pub round_ms: AtomicU64,
    /// Attempts admitted.
    pub admitted: AtomicU64,
    /// Attempts taken from workers whose lease ran out.
    pub lost: AtomicU64,
    /// Attempts cancelled because nobody needs them, or their destination is away.
    pub cancelled: AtomicU64,
    /// Whether a brake holds everything now: 1 or 0.
    pub braked: AtomicU64,
    /// Brakes that hold now.
    pub brakes: AtomicU64,
    /// Findings that dispatch rounds gave to brakes.
    pub held: AtomicU64,
    /// Statuses asked for.
    pub statuses: AtomicU64,
    /// Statuses that did not come, or said that something is wrong.
    pub statuses_missed: AtomicU64,
    /// Exceptions that only the audit found, and counts that it mended.
    pub drift: AtomicU64,
    /// Rows of history pruned.
    pub pruned: AtomicU64,
    /// Inventory comparisons.
    pub comparisons: AtomicU64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Sets a gauge.
pub(super) fn set(gauge: &AtomicU64, value: u64) {
    gauge.store(value, Ordering::Relaxed);
}
