//! The router of `trued up`: where it listens, and what it lets anybody do.

use crate::cli::program::route;
use crate::config::{Config, Layers};
use crate::http;
use crate::router::authorize::Access;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Where the router listens: taken at once where somebody said where, for that may be refused; else at the port that the
/// fleet has had from its beginning, which is known later.
pub(super) struct FrontDoor {
    taken: Option<TcpListener>,
    given: String,
}

impl FrontDoor {
    pub(super) async fn configured(layers: &Layers, config: &Config) -> anyhow::Result<Self> {
        let given = layers.given("router.listen", Some("--router-listen"));
        let taken = if layers.is_default("router.listen") {
            None
        } else {
            Some(http::bind_anywhere(config.router.listen, &given).await?)
        };
        Ok(Self { taken, given })
    }

    pub(super) fn port(&self) -> std::io::Result<Option<u16>> {
        Ok(self.taken.as_ref().map(TcpListener::local_addr).transpose()?.map(|at| at.port()))
    }

    pub(super) async fn open(self, own: u16) -> anyhow::Result<TcpListener> {
        match self.taken {
            Some(taken) => Ok(taken),
            None => Ok(http::bind_anywhere(SocketAddr::from(([127, 0, 0, 1], own)), &self.given).await?),
        }
    }
}

/// What whoever gives no name may do. Whoever reaches this machine's own loopback is at home, unless somebody says
/// otherwise.
pub(super) fn anybody(layers: &Layers, config: &Config, listens: SocketAddr) -> Option<Access> {
    let unset = |key: &str| layers.is_default(key);
    if listens.ip().is_loopback() && unset("router.anonymous_reads") && unset("router.anonymous_writes") {
        return Some(Access::Write);
    }
    route::anonymous(&config.router)
}
