//! Metrics of pushes, apart from those of reads: a failing write path must not hide behind many reads.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: String,
}

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
    fn default() -> Self {
        Self {
            ended: Family::default(),
            votes: Family::default(),
            quorum_missed: Counter::default(),
            bytes: Counter::default(),
            // From 10 ms to about 11 minutes.
            seconds: Histogram::new(exponential_buckets(0.01, 4.0, 9)),
        }
    }
}

impl PushMetrics {
    /// Puts them where they are read.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("pushes", "Pushes that ended, by how", self.ended.clone());
        registry.register("push_votes", "Votes of copies on pushes", self.votes.clone());
        registry.register(
            "push_quorum_misses",
            "Pushes on which too few copies agreed, or that too few wrote",
            self.quorum_missed.clone(),
        );
        registry.register("push_bytes", "Bytes of packs that were pushed", self.bytes.clone());
        registry.register(
            "push_duration_seconds",
            "How long pushes took, from the first byte to the report",
            self.seconds.clone(),
        );
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
