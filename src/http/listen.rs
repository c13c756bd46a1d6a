//! Listening: loopback only, for as long as there are no tokens.

use super::state::Api;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Why the API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could reach it.
    #[error(
        "the API listens on loopback only, not on {0}: whoever can reach it can change the fleet, and tokens come with a later version"
    )]
    NotLoopback(SocketAddr),
    /// Another program has the port.
    #[error("{0} is in use by another program; give another address with --listen")]
    InUse(SocketAddr),
    /// The system refused.
    #[error("cannot listen on {0}: {1}")]
    Refused(SocketAddr, std::io::Error),
}

/// Takes the address.
///
/// # Errors
/// As [`ListenError`].
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    if !address.ip().is_loopback() {
        return Err(ListenError::NotLoopback(address));
    }
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse(address),
        _ => ListenError::Refused(address, error),
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
        let error = bind("0.0.0.0:0".parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("tokens come with a later version"), "{error}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_in_one_sentence() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{address} is in use by another program; give another address with --listen")
        );
    }
}
