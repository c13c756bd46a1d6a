//! Pages of a part that has no API: whether it lives and is ready, and what it counts.

use crate::database::Database;
use crate::queue::{Carrier, Post};
use crate::telemetry::metrics::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What they are made from.
#[derive(Clone)]
pub struct Part {
    /// The fleet's memory.
    pub db: Database,
    /// What carries reminders; none: nothing does.
    pub post: Option<Post>,
    /// Cancelled when the program was asked to stop and still answers.
    pub leaving: CancellationToken,
    /// Cancelled when the program stops.
    pub stopping: CancellationToken,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// What keeps it from its work while the database cannot be worked with; none: just that.
    pub without_sql: Option<Arc<Trouble>>,
}

/// What is wrong, in a sentence; nothing, where the part goes on.
pub type Trouble = dyn Fn() -> Option<String> + Send + Sync;

/// Answers until the program stops.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, part: Part) -> std::io::Result<()> {
    let stopping = part.stopping.clone();
    let router = Router::new()
        .route("/livez", get(super::health::livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(part);
    axum::serve(listener, router).with_graceful_shutdown(stopping.cancelled_owned()).await
}

/// Ready: the database can be worked with, and nobody asked it to stop.
async fn readyz(State(part): State<Part>) -> Response {
    let trouble = part.db.standing().trouble();
    let trouble = match &part.without_sql {
        Some(goes_on) if trouble.is_some() => goes_on(),
        _ => trouble,
    };
    let stopping = part.leaving.is_cancelled().then(|| "the program is stopping".to_owned());
    match stopping.or(trouble) {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
        None => "ok\n".into_response(),
    }
}

async fn metrics(State(part): State<Part>) -> Response {
    let standing = part.db.standing();
    part.metrics.database(standing.trouble().is_none(), standing.round_trip);
    if let Some(post) = &part.post {
        part.metrics.redis(!matches!(post.carrier(), Carrier::Away { .. }));
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], part.metrics.text().unwrap_or_default()).into_response()
}
