//! What a router counts: of reads here, of pushes apart. Labels are words of ours; never a repository, nor a client.

use super::pushes::PushMetrics;
use super::{ByOutcome, Metrics, keep};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Bounds of the time to the first byte, in seconds: an advertisement takes milliseconds, a failover seconds.
const SECONDS: [f64; 11] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0, 15.0];

/// What a router counts.
#[derive(Debug)]
pub struct RouterMetrics {
    reads: Family<ByOutcome, Counter>,
    tries: Family<ByOutcome, Counter>,
    saved: Counter,
    bytes: Counter,
    first_byte: Histogram,
    running: Gauge,
    offline: Gauge,
    without_sql: Gauge,
    pushes: PushMetrics,
}

impl RouterMetrics {
    fn new(to: &mut Registry) -> Self {
        Self {
            reads: keep("router_reads", "Reads that ended, by how", to, <_>::default()),
            tries: keep("router_read_tries", "Tries of single copies, by how they went", to, <_>::default()),
            saved: keep(
                "router_reads_saved",
                "Reads that another copy served than the one tried first",
                to,
                <_>::default(),
            ),
            bytes: keep("router_read_bytes", "Bytes of reads sent to clients", to, <_>::default()),
            first_byte: keep(
                "router_read_first_byte_seconds",
                "Time from a request to the first byte of its answer",
                to,
                Histogram::new(SECONDS),
            ),
            running: keep("router_reads_running", "Reads that run now", to, <_>::default()),
            offline: keep(
                "router_fileservers_offline",
                "Fileservers that are offline, or on probation, for this router",
                to,
                <_>::default(),
            ),
            without_sql: keep(
                "router_without_sql",
                "1 while reads go on from the last known rows, because the database is away",
                to,
                <_>::default(),
            ),
            pushes: PushMetrics::new(to),
        }
    }

    /// What it counts of pushes.
    #[must_use]
    pub fn pushes(&self) -> PushMetrics {
        self.pushes.clone()
    }

    /// Counts a read that ended.
    pub fn read(&self, outcome: &'static str) {
        self.reads.get_or_create(&ByOutcome { outcome: outcome.into() }).inc();
    }

    /// Counts a try of one copy.
    pub fn tried(&self, outcome: &'static str) {
        self.tries.get_or_create(&ByOutcome { outcome: outcome.into() }).inc();
    }

    /// Counts a read that another copy had to serve.
    pub fn saved(&self) {
        self.saved.inc();
    }

    /// Counts bytes sent.
    pub fn bytes(&self, count: usize) {
        self.bytes.inc_by(count as u64);
    }

    /// Notes how long a client waited.
    pub fn first_byte(&self, after: Duration) {
        self.first_byte.observe(after.as_secs_f64());
    }

    /// One more, or one less, runs.
    pub fn running(&self, change: i64) {
        self.running.inc_by(change);
    }

    /// Says how many fileservers are offline for this router.
    pub fn offline(&self, count: usize) {
        self.offline.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Says whether reads go on without SQL.
    pub fn without_sql(&self, without: bool) {
        self.without_sql.set(i64::from(without));
    }
}

impl Metrics {
    /// Metrics of a process with a router in it, and that router's.
    #[must_use]
    pub fn with_router() -> (Self, RouterMetrics) {
        let mut metrics = Self::default();
        let router = RouterMetrics::new(&mut metrics.registry);
        (metrics, router)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_beside_all_else() {
        let (metrics, router) = Metrics::with_router();
        router.read("served");
        router.tried("begun");
        router.bytes(10);
        router.running(1);
        router.first_byte(Duration::from_millis(3));
        let text = metrics.text().unwrap();
        for line in [
            "trued_router_reads_total{outcome=\"served\"} 1",
            "trued_router_read_bytes_total 10",
            "trued_router_reads_running 1",
            "trued_router_read_first_byte_seconds_bucket{le=\"0.005\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
