//! Metrics of pushes, apart from those of reads: a failing write path must not hide behind many reads.

use super::{ByOutcome, keep};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVote {
    vote: String,
}

/// What a router counts of its pushes. Clones count together.
#[derive(Debug, Clone)]
pub struct PushMetrics {
    ended: Family<ByOutcome, Counter>,
    votes: Family<ByVote, Counter>,
    quorum_missed: Counter,
    bytes: Counter,
    seconds: Histogram,
}

impl Default for PushMetrics {
    /// Those that nobody reads.
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl PushMetrics {
    /// Those of a registry.
    #[must_use]
    pub fn new(to: &mut Registry) -> Self {
        Self {
            ended: keep("pushes", "Pushes that ended, by how", to, <_>::default()),
            votes: keep("push_votes", "Votes of copies on pushes", to, <_>::default()),
            quorum_missed: keep(
                "push_quorum_misses",
                "Pushes on which too few copies agreed, or that too few wrote",
                to,
                <_>::default(),
            ),
            bytes: keep("push_bytes", "Bytes of packs that were pushed", to, <_>::default()),
            // From 10 ms to about 11 minutes.
            seconds: keep(
                "push_duration_seconds",
                "How long pushes took, from the first byte to the report",
                to,
                Histogram::new(exponential_buckets(0.01, 4.0, 9)),
            ),
        }
    }

    /// A push ended: committed, refused, aborted or unknown.
    pub fn ended(&self, outcome: &str, bytes: u64, took: Duration) {
        self.ended.get_or_create(&ByOutcome { outcome: outcome.to_owned() }).inc();
        self.bytes.inc_by(bytes);
        self.seconds.observe(took.as_secs_f64());
    }

    /// So many votes were counted, strayed (not of the definitive checksum) or lost (none came).
    pub fn votes(&self, vote: &str, count: usize) {
        self.votes.get_or_create(&ByVote { vote: vote.to_owned() }).inc_by(count as u64);
    }

    /// Too few agreed, or wrote it.
    pub fn quorum_missed(&self) {
        self.quorum_missed.inc();
    }
}
