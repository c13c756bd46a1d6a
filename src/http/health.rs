//! Whether the program lives, is ready, and how the fleet is, for machines that ask often.

use super::problem::Problem;
use super::shapes::Status;
use super::state::Api;
use crate::database::SchemaState;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Write as _;

/// The process answers.
pub async fn livez() -> &'static str {
    "ok\n"
}

/// The database answers and its tables are this program's, and the program was not asked to stop.
///
/// # Errors
/// When they do not.
pub async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    if api.leaving.is_cancelled() {
        return Err(Problem::unavailable("the program is stopping"));
    }
    if let Some(trouble) = api.db.standing().trouble() {
        return Err(Problem::unavailable(trouble));
    }
    match api.db.schema().await? {
        SchemaState::Current | SchemaState::Ahead { .. } => Ok("ok\n"),
        SchemaState::Behind(count) => Err(Problem::unavailable(format!("{count} migrations are missing"))),
        SchemaState::Newer { found, known } => {
            Err(Problem::unavailable(format!("tables are of version {found}, this program knows {known}")))
        }
    }
}

/// How the fleet is: 200 while nothing is at risk, else 503; with `?verbose` a line per code.
///
/// # Errors
/// When the engine fails.
pub async fn healthz(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let Status { health, .. } = super::status::read(&api).await?;
    let code = if health.level == "HEALTH_ERR" { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut text = format!("{}\n", health.level);
    if query.is_some_and(|query| query.split('&').any(|one| one.starts_with("verbose"))) {
        for one in health.details {
            let _ = writeln!(text, "{}: {} ({})", one.code, one.sentence, one.hint);
        }
    }
    Ok((code, text).into_response())
}

/// All metrics, as OpenMetrics text.
///
/// # Errors
/// When the engine fails.
pub async fn metrics(State(api): State<Api>) -> Result<Response, Problem> {
    let text = api.sampler.text(&api).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
