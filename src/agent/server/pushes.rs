//! Pushes: objects first, then a prepared change, a vote, a verdict; and settling one whose router is gone.

use super::work::{STALLED, same, source};
use super::{Agent, Answer, LARGEST_BODY, LARGEST_PUSH, body, repository, turn};
use crate::agent::admission::Admitted;
use crate::agent::epochs::Purpose;
use crate::agent::{content, long, push};
use crate::body::unless_silent;
use crate::model::grant::Action;
use crate::model::id::RepositoryId;
use crate::model::wire::push::{
    FenceAnswer, FenceRequest, FinishAnswer, FinishRequest, IngestAnswer, IngestRequest, PrepareRequest, Vote,
};
use crate::model::wire::{Refusal, RefusalCode, ResyncRequest};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;

/// How long the rest of a pack that was refused is read, so that its sender reads why.
const REST_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn begin(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<IngestAnswer>, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Push, Some(id))?;
    let ask: IngestRequest = body(bytes, LARGEST_PUSH).await?;
    content::directory(&agent.store, id).await?;
    let pushed = agent.epochs.seen(id).await?.highest_push();
    Ok(Json(agent.pushes.begin(id, ask, pushed)?))
}

pub(super) async fn pack(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    headers: HeaderMap,
    pack: Body,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Push, Some(id))?;
    let cancel = agent.tasks.token().child_token();
    let receiving = agent.pushes.receive(id, &ingest, &cancel)?;
    let turn = receiving.turn().await?;
    let blocks = unless_silent(pack.into_data_stream(), STALLED);
    let store = Arc::clone(&agent.store);
    Ok(long::lines(&agent.tasks, cancel, move |work| async move {
        let _turn = turn;
        let mut pack = StreamReader::new(blocks);
        match content::ingest(&store, id, &receiving.ingest, &receiving.ask, &mut pack, &work).await {
            Ok((ingested, ready)) => {
                receiving.ready(ingested);
                Ok(ready)
            }
            Err(refusal) => {
                drop(receiving);
                let _ = tokio::time::timeout(REST_WITHIN, read_on(&mut pack)).await;
                Err(refusal)
            }
        }
    }))
}

async fn read_on(pack: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(1..) = pack.read(&mut buffer).await {}
}

pub(super) async fn prepare(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<Vote>, Answer> {
    let (id, _, epoch) = under_epoch(&agent, &id, &headers, Action::Push)?;
    let ask: PrepareRequest = body(bytes, LARGEST_PUSH).await?;
    Ok(Json(push::prepare(&agent, id, &ingest, epoch, ask).await?))
}

pub(super) async fn finish(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<FinishAnswer>, Answer> {
    let (id, _, epoch) = under_epoch(&agent, &id, &headers, Action::Push)?;
    let ask: FinishRequest = body(bytes, LARGEST_BODY).await?;
    Ok(Json(push::finish(&agent, id, &ingest, epoch, &ask).await?))
}

pub(super) async fn forget(
    State(agent): State<Arc<Agent>>,
    Path((id, ingest)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Push, Some(id))?;
    agent.pushes.forget(id, &ingest)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn fence(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<FenceAnswer>, Answer> {
    let (id, _, epoch) = under_epoch(&agent, &id, &headers, Action::Settle)?;
    let ask: FenceRequest = body(bytes, LARGEST_BODY).await?;
    agent.epochs.settle(id, epoch, ask.epoch).await?;
    let _turn = turn(&agent.checks, "checks").await?;
    let found = content::checksum(&agent.store, id).await?;
    Ok(Json(FenceAnswer { checksum: found.checksum, journal_version: found.journal_version }))
}

pub(super) async fn bring(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Answer> {
    let (id, admitted, epoch) = under_epoch(&agent, &id, &headers, Action::Settle)?;
    let source = source(&admitted)?;
    let ask: ResyncRequest = body(bytes, LARGEST_BODY).await?;
    same(id, ask.identity.repository)?;
    if let Some(fence) = ask.fence {
        agent.epochs.settle(id, epoch, fence).await?;
    }
    let writer = agent.epochs.push(id, epoch, Purpose::Settle, &agent.tasks.token()).await?;
    let turn = turn(&agent.copies, "copies").await?;
    let store = Arc::clone(&agent.store);
    let held = (store.inventory.mark_writing(id), writer, turn);
    Ok(long::lines(&agent.tasks, held.1.cancel.clone(), move |work| async move {
        let _held = held;
        content::resync(&store, id, &source, &ask, &work).await
    }))
}

fn under_epoch(
    agent: &Agent,
    id: &str,
    headers: &HeaderMap,
    action: Action,
) -> Result<(RepositoryId, Admitted, i64), Refusal> {
    let id = repository(id)?;
    let admitted = agent.admit(headers, action, Some(id))?;
    let epoch = admitted.grant.epoch.ok_or_else(|| {
        Refusal::new(RefusalCode::Forbidden, format!("a grant to {action} needs the push's epoch"))
    })?;
    Ok((id, admitted, epoch))
}
