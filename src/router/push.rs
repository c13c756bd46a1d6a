//! A push over smart HTTP, from the client's first byte to its report.
//!
//! The router receives a push once and streams it to all copies at once; opens it in SQL when enough are
//! ready; has the voters prepare; counts votes; commits where a quorum agrees; writes the outcome;
//! and only then tells the client `ok`. A client that goes away before the push is open takes it
//! along; after that it is brought to its end whoever listens. What is not known to have ended well is
//! never reported as `ok`. Who may push is judged by whoever calls this.

use crate::body::ByteStream;
use crate::config::PushConfig;
use crate::database::Database;
use crate::fleet::Agents;
use crate::model::chance::Chance;
use crate::model::checksum::ChecksumKey;
use crate::model::id::RepositoryId;
use crate::queue::Nudge;
use crate::settle::{Bounds as SettleBounds, Settler};
use crate::shutdown::Shutdown;
use crate::telemetry::PushMetrics;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

mod advertise;
mod commands;
mod fan;
mod line;
mod own;
mod pktline;
mod policy;
mod ready;
mod receive;
mod report;
mod verdict;
mod view;

pub use advertise::advertise;
pub use own::{change, populate, set_head, vacant};
pub use policy::judge::Judge;
pub use receive::receive_pack;

/// How pushes are taken.
#[derive(Debug, Clone)]
pub struct Settings {
    /// References that no client's push may change: names, or beginnings that end in `*`.
    pub protected: Vec<String>,
    /// Largest pack in bytes; 0: no bound.
    pub largest: u64,
    /// Most references that one push may change.
    pub references: usize,
    /// How long a push waits for those before it.
    pub line: Duration,
    /// How long an open push is its router's without a renewal.
    pub lease: Duration,
    /// How long a copy may take no byte that the router has for it.
    pub stall: Duration,
    /// How long a copy may take to list its references.
    pub listing: Duration,
    /// How long a short call to an agent may take.
    pub call: Duration,
    /// Longest silence of an agent that checks a pack.
    pub quiet: Duration,
    /// How long the rest is waited for once a quorum has answered.
    pub patience: Duration,
    /// How often a client that waits is shown that somebody is there.
    pub alive: Duration,
    /// How long the outcome is tried to be written while SQL is away.
    pub outcome: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protected: Vec::new(),
            largest: 10 << 30,
            references: 100_000,
            line: Duration::from_secs(30),
            lease: Duration::from_secs(20),
            stall: Duration::from_secs(10),
            listing: Duration::from_secs(30),
            call: Duration::from_secs(10),
            quiet: Duration::from_secs(15),
            patience: Duration::from_secs(2),
            alive: Duration::from_secs(5),
            outcome: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// As configured.
    #[must_use]
    pub fn of(config: &PushConfig) -> Self {
        Self {
            protected: config.protected.clone(),
            largest: u64::try_from(config.largest).unwrap_or(0),
            references: config.references,
            line: config.line,
            lease: config.lease,
            stall: config.stall,
            ..Self::default()
        }
    }
}

/// What pushes are taken with.
#[derive(Debug)]
pub struct Pushing {
    /// Where pushes are put in order.
    pub database: Database,
    /// Whom it calls, in its own name.
    pub agents: Agents,
    /// The key of checksums.
    pub checksum_key: ChecksumKey,
    /// The router's own name, for the rows of its pushes.
    pub router: String,
    /// How.
    pub settings: Settings,
    /// The operator's own judge of pushes, where there is one.
    pub judge: Option<Judge>,
    /// Wants goals evaluated, where copies were left behind.
    pub nudge: Nudge,
    /// What is counted.
    pub metrics: PushMetrics,
    /// Jitter.
    pub chance: Arc<Chance>,
    /// Owns pushes that are open: a router that stops waits for them.
    pub tasks: Shutdown,
}

impl Pushing {
    fn settler(&self) -> Settler<'_> {
        let bounds = SettleBounds { lease: self.settings.lease, ..SettleBounds::default() };
        Settler { database: &self.database, agents: &self.agents, by: &self.router, bounds }
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A push that may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// To which repository.
    pub repository: RepositoryId,
    /// By whom, as the authorizer named them.
    pub pusher: String,
}

/// An answer to be given over HTTP.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its type.
    pub content_type: &'static str,
    /// Its body. Never empty.
    pub body: ByteStream,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Answer {{ {} {} }}", self.status, self.content_type)
    }
}

impl Answer {
    fn whole(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body: Bytes = body.into();
        Self { status, content_type, body: Box::pin(futures::stream::iter([Ok(body)])) }
    }

    /// A sentence for people, where no report can be given.
    fn sentence(status: u16, why: &str) -> Self {
        Self::whole(status, "text/plain; charset=utf-8", format!("{why}\n"))
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
