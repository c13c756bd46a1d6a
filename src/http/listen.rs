//! Listening: loopback only, for as long as there are no tokens.
//!
//! Whoever asks for an address says what gave it (a flag, a variable, a line of a file): an error names that.

use super::state::Api;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Why an address cannot be listened on; `given`: what it was given by.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could reach it.
    #[error(
        "{given} gives {address}, which others can reach: only addresses on loopback are allowed, and tokens come with a later version"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
        /// What gave it.
        given: String,
    },
    /// Another program has the port.
    #[error("{address} is in use by another program; give another address with {given}")]
    InUse {
        /// The address.
        address: SocketAddr,
        /// What gave it.
        given: String,
    },
    /// The system refused.
    #[error("cannot listen on {address}, which {given} gives: {why}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What gave it.
        given: String,
        /// The system's words.
        why: std::io::Error,
    },
}

/// Takes an address that is on loopback.
///
/// # Errors
/// As [`ListenError`].
pub async fn bind(address: SocketAddr, given: &str) -> Result<TcpListener, ListenError> {
    if !address.ip().is_loopback() {
        return Err(ListenError::NotLoopback { address, given: given.to_owned() });
    }
    bind_anywhere(address, given).await
}

/// Takes an address that others may reach, for what knows who may.
///
/// # Errors
/// As [`ListenError`].
pub async fn bind_anywhere(address: SocketAddr, given: &str) -> Result<TcpListener, ListenError> {
    let given = || given.to_owned();
    TcpListener::bind(address).await.map_err(|why| match why.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse { address, given: given() },
        _ => ListenError::Refused { address, given: given(), why },
    })
}

/// Answers until the program stops; requests under way are finished.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, api: Api) -> std::io::Result<()> {
    let stopping = api.stopping.clone();
    axum::serve(listener, super::router(api)).with_graceful_shutdown(stopping.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_others_can_reach_is_refused() {
        let error = bind("0.0.0.0:0".parse().unwrap(), "worker.listen").await.unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("worker.listen gives 0.0.0.0:0, ") && said.contains("later version"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_in_one_sentence() {
        let taken = bind("127.0.0.1:0".parse().unwrap(), "--listen").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address, "router.pages").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{address} is in use by another program; give another address with router.pages")
        );
    }
}
