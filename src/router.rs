//! The program that takes Git clients' requests and picks fileservers: a read goes to one good copy, and to the
//! next one where that fails.
//!
//! It keeps nothing: what it knows is SQL's, asked for each request, or what its own traffic taught it of fileservers.
//! Any number may run. It repairs nothing, and what it saw is an observation, never a verdict.

pub mod authorize;
pub mod choose;
pub mod detector;
pub mod hold;
pub mod http;
pub mod names;
pub mod push;
pub mod reads;
pub mod replay;
pub mod views;

use crate::database::Database;
use crate::fleet::Agents;
use crate::fleet::budget::Budget;
use crate::model::chance::Chance;
use crate::model::wire::read::Filter;
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::router::RouterMetrics;
use authorize::Authorizer;
use names::Names;
use reads::Reads;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use views::Views;

/// Retries are at most this share of requests, in percent.
const RETRIES: u32 = 20;
/// As many retries are allowed in quiet times.
const RESERVE: u32 = 200;

/// Bounds and habits of one router.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name among the fleet's parts.
    pub name: String,
    /// The rack that it stands in; empty: none.
    pub rack: String,
    /// Requests at a time.
    pub requests: usize,
    /// Longest time to the first byte of a read.
    pub deadline: Duration,
    /// Longest time of one try while there are others.
    pub patience: Duration,
    /// Load average, in thousandths, from which a fileserver comes last.
    pub overload: i64,
    /// A client that neither sends what it began nor takes what it asked for is gone after this long.
    pub gone_after: Duration,
    /// How long reads go on without SQL.
    pub sql_away: Duration,
    /// Repositories whose rows are remembered for that.
    pub remembered: usize,
    /// Filters that partial clones may ask for.
    pub filters: Vec<Filter>,
}

/// What a router is made of.
pub struct Router {
    /// Bounds and habits.
    pub settings: Settings,
    /// The fleet's memory.
    pub database: Database,
    /// Calls agents in the router's name.
    pub agents: Agents,
    /// Who may.
    pub authorizer: Authorizer,
    /// How it takes pushes.
    pub pushing: Arc<push::Pushing>,
    /// What it counts.
    pub metrics: Arc<RouterMetrics>,
    /// Spreads equals.
    pub chance: Arc<Chance>,
}

impl Router {
    /// Starts to serve, to look after fileservers that are offline, and to tell what it saw. What is
    /// returned knows whether reads go on while SQL is away.
    pub fn start(self, shutdown: &Shutdown, listener: TcpListener) -> Arc<Names> {
        let Self { settings, database, agents, authorizer, pushing, metrics, chance } = self;
        let settings = Arc::new(settings);
        let views = Arc::new(Views::new(agents.clone(), Arc::clone(&metrics)));
        let names = Arc::new(Names::new(database.clone(), &settings, Arc::clone(&metrics)));
        let authorizer = Arc::new(authorizer);
        let reads = Arc::new(Reads {
            settings: Arc::clone(&settings),
            agents,
            views: Arc::clone(&views),
            names: Arc::clone(&names),
            budget: Budget::new(RETRIES, RESERVE),
            metrics: Arc::clone(&metrics),
            chance: Arc::clone(&chance),
        });
        shutdown.spawn(views::beat(Arc::clone(&views), chance, shutdown.token()));
        let (name, rack) = (settings.name.clone(), settings.rack.clone());
        shutdown.spawn(views::report(views, database, name, rack, shutdown.token()));
        shutdown.spawn(authorize::watch(Arc::clone(&authorizer), shutdown.token()));
        let front = http::Front::new(&settings, Arc::clone(&names), authorizer, reads, pushing, metrics);
        shutdown.spawn(http::listen::serve(listener, front, shutdown.clone()));
        names
    }
}

#[cfg(test)]
mod tests;
