//! The agent's HTTP: connections with bounds, the routes of [`wire`](crate::model::wire), answers and refusals.
//!
//! HTTP/1.1 and HTTP/2 without TLS. Heads and bodies are bounded, a head must come within ten
//! seconds, and every connection has an owner that ends it when the agent stops.

mod away;
mod contents;
mod deadline;
mod objects;
mod pushes;
mod questions;
mod tidy;
mod work;

use super::admission::{Admission, Admitted};
use super::epochs::Epochs;
use super::push::Pushes;
use super::status::Monitor;
use super::store::Store;
use super::upload_pack::Reads;
use crate::model::grant::{Action, GRANT_HEADER};
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use crate::shutdown::Shutdown;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections at a time; more wait in the kernel's line.
const MOST_CONNECTIONS: usize = 2_048;
/// A request's head.
const LARGEST_HEAD: usize = 32 * 1024;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Calls that are neither long work nor streams.
const CALL_WITHIN: Duration = Duration::from_mins(1);
/// What the kernel keeps of an answer. Left to grow, it takes megabytes and asks for more only when a third is free:
/// a reader on a slow line would seem to take nothing for longer than one that is gone is waited for.
const SEND_BUFFER: usize = 256 * 1024;
/// Bodies of calls.
const LARGEST_BODY: usize = 8 * 1024 * 1024;
/// The references of an import: a million long names.
const LARGEST_IMPORT: usize = 512 * 1024 * 1024;
/// The commands of a push: some hundred thousand.
const LARGEST_PUSH: usize = 64 * 1024 * 1024;
/// How long a call waits for its turn before it is refused.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// What every request works with.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) store: Arc<Store>,
    pub(super) admission: Admission,
    pub(super) epochs: Arc<Epochs>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) reads: Arc<Reads>,
    /// Owns work that outlives its request.
    pub(super) tasks: Shutdown,
    /// Copies, imports and verifications at a time.
    pub(super) copies: Arc<Semaphore>,
    /// Checksums and lists of references at a time.
    pub(super) checks: Arc<Semaphore>,
    /// Git reads at a time.
    pub(super) serving: Arc<Semaphore>,
    /// Pushes that are on their way.
    pub(super) pushes: Arc<Pushes>,
}

impl Agent {
    /// Checks the grant that a request shows.
    fn admit(
        &self,
        headers: &HeaderMap,
        action: Action,
        repository: Option<RepositoryId>,
    ) -> Result<Admitted, Refusal> {
        let mut shown = headers.get_all(GRANT_HEADER).iter();
        let text = match (shown.next(), shown.next()) {
            (Some(one), None) => one.to_str().ok(),
            _ => None,
        };
        self.admission.check(text, action, repository, crate::clock::now()).inspect_err(|refusal| {
            let repository = repository.map(|id| id.0);
            tracing::warn!(%action, repository.id = repository, why = refusal.message, "a grant was refused");
        })
    }
}

/// Waits for one of a bounded number of turns.
async fn turn(turns: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Refusal> {
    turn_within(turns, what, TURN_WITHIN).await
}

/// As [`turn`], for a caller that waits so long at most.
async fn turn_within(
    turns: &Arc<Semaphore>,
    what: &str,
    within: Duration,
) -> Result<OwnedSemaphorePermit, Refusal> {
    match tokio::time::timeout(within, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => {
            Err(Refusal::new(RefusalCode::Busy, format!("as many {what} run here as may")))
        }
    }
}

/// Takes connections until it is cancelled; those that are open then may end what they do.
pub(super) async fn serve(listener: TcpListener, agent: Arc<Agent>, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let routes = routes(&agent);
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                agent.tasks.spawn(connection(stream, routes.clone(), permit, stop.clone()));
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
    routes: Router,
    permit: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
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

fn routes(agent: &Arc<Agent>) -> Router {
    let calls = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/v1/status", get(questions::status))
        .route("/v1/parts", put(questions::parts).get(contents::parts))
        .route("/v1/contents", get(contents::contents))
        .route("/v1/repositories/{id}/epochs", get(contents::epochs))
        .route("/v1/repositories/{id}/identity", put(contents::identity))
        .route("/v1/inventory", get(questions::inventory))
        .route("/v1/quarantine", get(away::list))
        .route("/v1/repositories/{id}/references", get(objects::references))
        .route("/v1/repositories/{id}/hold", post(objects::hold))
        .route("/v1/repositories/{id}/hold/{hold}", delete(objects::release))
        .layer(middleware::from_fn(in_time));
    let long = Router::new()
        .route("/v1/repositories/{id}/checksum", post(questions::checksum))
        .route("/v1/repositories/{id}/verify", post(work::verify))
        .route("/v1/repositories/{id}/scrub", post(tidy::scrub))
        .route("/v1/repositories/{id}/repack", post(tidy::repack))
        .route("/v1/repositories/{id}/resync", post(work::resync))
        .route("/v1/repositories/{id}/replicate", post(work::replicate))
        .route("/v1/repositories/{id}/quarantine", post(away::quarantine))
        .route("/v1/repositories/{id}/purge", post(away::purge))
        .route("/v1/repositories/{id}/import", post(work::import_finish))
        .route("/v1/repositories/{id}/import/pack", put(work::import_pack))
        .route("/v1/repositories/{id}/pushes", post(pushes::begin))
        .route("/v1/repositories/{id}/pushes/{ingest}", delete(pushes::forget))
        .route("/v1/repositories/{id}/pushes/{ingest}/pack", put(pushes::pack))
        .route("/v1/repositories/{id}/pushes/{ingest}/prepare", post(pushes::prepare))
        .route("/v1/repositories/{id}/pushes/{ingest}/finish", post(pushes::finish))
        .route("/v1/repositories/{id}/fence", post(pushes::fence))
        .route("/v1/repositories/{id}/bring", post(pushes::bring))
        .route("/v1/repositories/{id}/files/{*path}", get(objects::file))
        .route("/v1/repositories/{id}/git/info/refs", get(objects::advertisement))
        .route("/v1/repositories/{id}/git/git-upload-pack", post(objects::upload_pack))
        .route("/v1/repositories/{id}/pushes/{ingest}/git/info/refs", get(objects::pushed_advertisement))
        .route(
            "/v1/repositories/{id}/pushes/{ingest}/git/git-upload-pack",
            post(objects::pushed_upload_pack),
        );
    calls
        .merge(long)
        .fallback(async || Answer(Refusal::new(RefusalCode::NotFound, "no such path")))
        .method_not_allowed_fallback(async || {
            let refusal = Refusal::new(RefusalCode::BadRequest, "no such method for this path");
            (StatusCode::METHOD_NOT_ALLOWED, axum::Json(refusal))
        })
        .layer(middleware::from_fn(deadline::in_time))
        .with_state(Arc::clone(agent))
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(CALL_WITHIN, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            Answer(Refusal::new(RefusalCode::Failed, "the answer took longer than a minute")).into_response()
        }
    }
}

/// A refusal as an answer.
#[derive(Debug)]
struct Answer(Refusal);

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            RefusalCode::Forbidden => StatusCode::FORBIDDEN,
            RefusalCode::NotFound => StatusCode::NOT_FOUND,
            RefusalCode::OldEpoch | RefusalCode::Exists | RefusalCode::HistoryLost => StatusCode::CONFLICT,
            RefusalCode::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            RefusalCode::Busy | RefusalCode::Cancelled | RefusalCode::Expired => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            RefusalCode::BadRequest => StatusCode::BAD_REQUEST,
            RefusalCode::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalCode::SourceFailed => StatusCode::BAD_GATEWAY,
            RefusalCode::Damaged | RefusalCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, axum::Json(self.0)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        }
        response
    }
}

/// A repository's number as a path says it: decimal, as we would write it, and never a path itself.
fn repository(text: &str) -> Result<RepositoryId, Refusal> {
    match text.parse::<i64>() {
        Ok(number) if number > 0 && number.to_string() == text => Ok(RepositoryId(number)),
        _ => Err(Refusal::new(RefusalCode::NotFound, "no such repository")),
    }
}

/// A JSON body. Read after the grant was checked, so that strangers fill no memory.
async fn body<T: DeserializeOwned>(body: Body, most: usize) -> Result<T, Refusal> {
    let bad = |why: String| Refusal::new(RefusalCode::BadRequest, format!("the body cannot be read: {why}"));
    let bytes = tokio::time::timeout(CALL_WITHIN, axum::body::to_bytes(body, most))
        .await
        .map_err(|_| bad("it did not come within a minute".to_owned()))?
        .map_err(|error| bad(format!("{error}; at most {most} bytes are taken")))?;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

/// What stands behind the question mark.
fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let Query(query) =
        Query::try_from_uri(uri).map_err(|error| Refusal::new(RefusalCode::BadRequest, error.body_text()))?;
    Ok(query)
}

#[cfg(test)]
mod tests;
