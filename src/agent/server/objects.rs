//! Reading a repository: references, the files of a first copy, Git's smart HTTP.

use super::deadline;
use super::{Agent, Answer, query, repository, turn, turn_within};
use crate::agent::content;
use crate::agent::upload_pack::{self, Ask, Wish};
use crate::model::grant::Action;
use crate::model::id::RepositoryId;
use crate::model::wire::read::{FILTERS_HEADER, Filter};
use crate::model::wire::{Manifest, Refusal, RefusalCode};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde::Deserialize;
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

pub(super) async fn references(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    let _turn = turn(&agent.checks, "checks").await?;
    let list = content::references(&agent.store, id).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], list).into_response())
}

pub(super) async fn hold(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Manifest>, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Read, Some(id))?;
    let manifest = content::hold(&agent.store, id).await?;
    agent.admission.remember_hold(&admitted.text, manifest.until, crate::clock::now());
    Ok(Json(manifest))
}

pub(super) async fn release(
    State(agent): State<Arc<Agent>>,
    Path((id, hold)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    content::release(&agent.store, id, &hold).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn file(
    State(agent): State<Arc<Agent>>,
    Path((id, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    let (mut file, size) = content::open_file(&agent.store, id, &path).await?;
    let asked = headers.get(header::RANGE).map(|value| value.to_str().unwrap_or_default());
    let Some((first, last)) = range(asked, size) else {
        let whole = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, whole).into_response());
    };
    let length = last.saturating_sub(first);
    file.seek(SeekFrom::Start(first))
        .await
        .map_err(|error| Answer(Refusal::new(RefusalCode::Failed, format!("cannot read {path}: {error}"))))?;
    let body = paced(&agent, Body::from_stream(ReaderStream::with_capacity(file.take(length), 128 * 1024)));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    if asked.is_none() {
        return Ok((headers, body).into_response());
    }
    let part = [(header::CONTENT_RANGE, format!("bytes {first}-{}/{size}", last.saturating_sub(1)))];
    Ok((StatusCode::PARTIAL_CONTENT, headers, part, body).into_response())
}

/// Bytes of a copy, below the rate that all copies share.
fn paced(agent: &Agent, body: Body) -> Body {
    let bandwidth = Arc::clone(&agent.store.bandwidth);
    Body::from_stream(body.into_data_stream().then(move |piece| {
        let bandwidth = Arc::clone(&bandwidth);
        async move {
            if let Ok(bytes) = &piece {
                bandwidth.pass(bytes.len()).await;
            }
            piece
        }
    }))
}

/// The first byte and the one after the last; none: the range cannot be satisfied. Only one range
/// with a first byte is known.
fn range(asked: Option<&str>, size: u64) -> Option<(u64, u64)> {
    let Some(asked) = asked else { return Some((0, size)) };
    let (first, last) = asked.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last = if last.is_empty() { size } else { last.parse::<u64>().ok()?.saturating_add(1).min(size) };
    (first < last).then_some((first, last))
}

/// Which of Git's services.
#[derive(Debug, Deserialize)]
pub(super) struct Service {
    service: String,
}

pub(super) async fn advertisement(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    advertise(&agent, id, &uri, &headers, None).await
}

/// The same, with what a push brought beside the copy: for whoever judges it.
pub(super) async fn pushed_advertisement(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    let beside = agent.pushes.objects(id, &ingest)?;
    advertise(&agent, id, &uri, &headers, beside).await
}

pub(super) async fn upload_pack(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Read, Some(id))?;
    // A grant that names a source is a copy's; a client's clone does not wait for copies.
    answer(&agent, id, &headers, request, admitted.grant.source.is_some(), None).await
}

/// The same, with what a push brought beside the copy.
pub(super) async fn pushed_upload_pack(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Read, Some(id))?;
    let beside = agent.pushes.objects(id, &ingest)?;
    answer(&agent, id, &headers, request, false, beside).await
}

async fn advertise(
    agent: &Agent,
    id: RepositoryId,
    uri: &Uri,
    headers: &HeaderMap,
    beside: Option<PathBuf>,
) -> Result<Response, Answer> {
    let asked: Service = query(uri)?;
    if asked.service != "git-upload-pack" {
        let why = "only the service git-upload-pack is served here";
        return Err(Refusal::new(RefusalCode::BadRequest, why).into());
    }
    let body = ask_git(agent, id, headers, Ask::Advertisement, beside).await?;
    Ok(git_answer("application/x-git-upload-pack-advertisement", body))
}

async fn answer(
    agent: &Agent,
    id: RepositoryId,
    headers: &HeaderMap,
    request: Body,
    is_copy: bool,
    beside: Option<PathBuf>,
) -> Result<Response, Answer> {
    let is = |name, known: &[&str]| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| known.contains(&value))
    };
    if !is(header::CONTENT_TYPE, &["application/x-git-upload-pack-request"]) {
        return Err(Refusal::new(RefusalCode::BadRequest, "this is not a request of git's").into());
    }
    let gzip = is(header::CONTENT_ENCODING, &["gzip", "x-gzip"]);
    if !gzip && headers.contains_key(header::CONTENT_ENCODING) {
        let refusal = Refusal::new(RefusalCode::BadRequest, "bodies may be packed with gzip only");
        return Ok((StatusCode::UNSUPPORTED_MEDIA_TYPE, Json(refusal)).into_response());
    }
    let body = ask_git(agent, id, headers, Ask::Answer { request, gzip }, beside).await?;
    let body = if is_copy { paced(agent, body) } else { body };
    Ok(git_answer("application/x-git-upload-pack-result", body))
}

async fn ask_git(
    agent: &Agent,
    id: RepositoryId,
    headers: &HeaderMap,
    ask: Ask,
    beside: Option<PathBuf>,
) -> Result<Body, Refusal> {
    let permit = turn_within(&agent.serving, "reads", deadline::patience(headers)).await?;
    let reading = agent.reads.begin(permit);
    let protocol = headers.get("git-protocol").and_then(|value| value.to_str().ok());
    let protocol = upload_pack::protocol(protocol);
    let filters = headers.get(FILTERS_HEADER).and_then(|value| value.to_str().ok());
    let wish = Wish { protocol, filters: Filter::split(filters.unwrap_or_default()), beside };
    upload_pack::serve(&agent.store, &agent.tasks, id, &wish, ask, reading).await
}

fn git_answer(kind: &'static str, body: Body) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_one_stretch_within_the_file() {
        assert_eq!(range(None, 10), Some((0, 10)));
        assert_eq!(range(None, 0), Some((0, 0)));
        assert_eq!(range(Some("bytes=4-"), 10), Some((4, 10)));
        assert_eq!(range(Some("bytes=4-5"), 10), Some((4, 6)));
        assert_eq!(range(Some("bytes=4-99"), 10), Some((4, 10)));
        for wrong in ["bytes=10-", "bytes=5-4", "bytes=-3", "bytes=0-1,3-4", "lines=1-2", ""] {
            assert_eq!(range(Some(wrong), 10), None, "{wrong}");
        }
    }
}
