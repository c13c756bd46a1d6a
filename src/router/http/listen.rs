//! Connections of clients: bounded in number, in the size of a head and the time that it may take; each has an owner.

use super::{Front, handle};
use crate::shutdown::Shutdown;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time for each request that may run: most of them are idle, or wait for a refusal.
const CONNECTIONS: usize = 4;
/// A request's head.
const LARGEST_HEAD: usize = 32 * 1024;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// What the kernel keeps of an answer. Left to grow, it takes megabytes from an agent and then, for a client on a slow
/// line, nothing for longer than an agent waits for a reader.
const SEND_BUFFER: usize = 256 * 1024;

/// Takes connections until it is stopped; requests that run then may end.
pub async fn serve(listener: TcpListener, front: Arc<Front>, tasks: Shutdown) {
    let connections = Arc::new(Semaphore::new(front.settings.requests * CONNECTIONS));
    let gone_after = front.settings.gone_after;
    let routes = Router::new().fallback(handle).with_state(front);
    let stop = tasks.token();
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, gone_after, routes.clone(), permit, tasks.clone()));
            }
            Err(error) => {
                // Out of descriptors, mostly: the next accept would fail as well.
                tracing::warn!(%error, "cannot take a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    gone_after: Duration,
    routes: Router,
    permit: OwnedSemaphorePermit,
    tasks: Shutdown,
) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
    // A client that takes nothing of its answer holds a place among the requests that run.
    let _ = sockopt::set_tcp_user_timeout(&stream, u32::try_from(gone_after.as_millis()).unwrap_or(u32::MAX));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(LARGEST_HEAD)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(32 * 1024)
        .max_concurrent_streams(64)
        .keep_alive_interval(Duration::from_secs(20));
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut served = std::pin::pin!(served);
    let stop = tasks.token();
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended badly");
    }
    drop(permit);
}
