//! `router.*`: what a router is started with.

use super::Reader;
use crate::config::layers::ConfigError;
use crate::config::value;
use crate::model::wire::read::Filter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `router.*`
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// Where Git clients' requests come to.
    pub listen: SocketAddr,
    /// Address of its own pages.
    pub pages: Option<SocketAddr>,
    /// Where clients reach the routers; empty: not said.
    pub url: String,
    /// The rack that it stands in; empty: none.
    pub rack: String,
    /// Requests at a time.
    pub requests: usize,
    /// Longest time to the first byte of a read.
    pub deadline: Duration,
    /// Longest time of one try while there are others.
    pub patience: Duration,
    /// Load average from which a fileserver comes last.
    pub overload: u32,
    /// How long reads go on without SQL.
    pub sql_away: Duration,
    /// Repositories whose rows are remembered for that.
    pub remembered: usize,
    /// Filters that partial clones may ask for.
    pub filters: Vec<Filter>,
    /// Whether everybody may read.
    pub anonymous_reads: bool,
    /// Whether everybody may push, too.
    pub anonymous_writes: bool,
    /// The file of tokens.
    pub token_file: Option<PathBuf>,
    /// Who is asked; empty: nobody.
    pub authorizer: String,
    /// How long its answer is believed.
    pub authorizer_cache: Duration,
    /// How long running clones may go on when asked to stop.
    pub shutdown_grace: Duration,
}

impl Reader<'_> {
    pub(super) fn router(&self) -> Result<RouterConfig, ConfigError> {
        let text = |key: &str| self.layers.text(key);
        Ok(RouterConfig {
            listen: self.as_kind("router.listen", value::address)?,
            pages: self.maybe("router.pages", value::address)?,
            url: text("router.url").trim_end_matches('/').to_owned(),
            rack: text("router.rack"),
            requests: self.count("router.requests")? as usize,
            deadline: self.duration("router.deadline")?,
            patience: self.duration("router.patience")?,
            overload: self.count("router.overload")?,
            sql_away: self.duration("router.sql_away")?,
            remembered: self.count("router.remembered")? as usize,
            filters: self.as_kind("router.filters", value::filters)?,
            anonymous_reads: self.as_kind("router.anonymous_reads", value::switch)?,
            anonymous_writes: self.as_kind("router.anonymous_writes", value::switch)?,
            token_file: self.file("router.token_file"),
            authorizer: text("router.authorizer"),
            authorizer_cache: self.duration("router.authorizer_cache")?,
            shutdown_grace: self.duration("router.shutdown_grace")?,
        })
    }
}
