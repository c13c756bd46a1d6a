//! Work on one repository: verify, resync, replicate, import. Each has the repository
//! to itself, in a task that outlives its request.

use super::{Agent, Answer, LARGEST_BODY, LARGEST_IMPORT, body, query, repository, turn};
use crate::agent::admission::Admitted;
use crate::agent::content;
use crate::agent::epochs::Writer;
use crate::agent::inventory::Fingerprint;
use crate::agent::inventory::Marked;
use crate::agent::long;
use crate::agent::store::Source;
use crate::body::unless_silent;
use crate::model::fleet::ObjectFormat;
use crate::model::grant::{Action, Grant};
use crate::model::id::RepositoryId;
use crate::model::wire::{
    ChecksumRequest, ImportAnswer, ImportRequest, PackAnswer, Refusal, RefusalCode, ReplicateRequest,
    ResyncRequest,
};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::io::StreamReader;

/// A client that sends nothing of its pack for this long is gone: longer than it waits for the slowest of the copies,
/// or one that hangs would take the others along.
pub(super) const STALLED: Duration = Duration::from_mins(2);

pub(super) async fn verify(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Verify, Some(id))?;
    let ask: ChecksumRequest = body(bytes, LARGEST_BODY).await?;
    fence(&agent, id, &admitted.grant, ask.fence).await?;
    let writer = agent.epochs.beside(id, admitted.grant.epoch, &agent.tasks.token()).await?;
    let turn = turn(&agent.copies, "copies").await?;
    let (looking, fingerprint) = looking(&agent, id).await?;
    let store = Arc::clone(&agent.store);
    // Git failed here while it served: references and pack trailers may not show why.
    let deep = store.inventory.take_failed(id, crate::clock::now());
    Ok(long::lines(&agent.tasks, writer.cancel.clone(), move |work| async move {
        let _held = (looking, turn, writer);
        let mut answer = if deep {
            content::scrub(&store, id, &work).await?
        } else {
            content::verify(&store, id, &work).await?
        };
        answer.generation = store.accept(id, fingerprint).await;
        Ok(answer)
    }))
}

pub(super) async fn resync(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let source = source(&admitted)?;
    let ask: ResyncRequest = body(bytes, LARGEST_BODY).await?;
    same(id, ask.identity.repository)?;
    fence(&agent, id, &admitted.grant, ask.fence).await?;
    let held = hold(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    Ok(long::lines(&agent.tasks, held.1.cancel.clone(), move |work| async move {
        let _held = held;
        content::resync(&store, id, &source, &ask, &work).await
    }))
}

pub(super) async fn replicate(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let source = source(&admitted)?;
    let ask: ReplicateRequest = body(bytes, LARGEST_BODY).await?;
    same(id, ask.identity.repository)?;
    let held = hold(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    Ok(long::lines(&agent.tasks, held.1.cancel.clone(), move |work| async move {
        let _held = held;
        content::replicate(&store, id, &source, &ask, &work).await
    }))
}

/// How the objects of a pack are named.
#[derive(Debug, Deserialize)]
pub(super) struct Format {
    object_format: ObjectFormat,
}

pub(super) async fn import_pack(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    pack: Body,
) -> Result<Json<PackAnswer>, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Import, Some(id))?;
    let format: Format = query(&uri)?;
    let held = hold(&agent, id, &admitted.grant).await?;
    let blocks = unless_silent(pack.into_data_stream(), STALLED);
    let store = Arc::clone(&agent.store);
    let answer = long::owned(&agent.tasks, held.1.cancel.clone(), move |work| async move {
        let _held = held;
        let pack = StreamReader::new(blocks);
        content::import_pack(&store, id, format.object_format, pack, &work).await
    });
    Ok(Json(answer.await?))
}

pub(super) async fn import_finish(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<ImportAnswer>, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Import, Some(id))?;
    // Held before the body is read: its size times the number of copies is what it may cost.
    let held = hold(&agent, id, &admitted.grant).await?;
    let ask: ImportRequest = body(bytes, LARGEST_IMPORT).await?;
    same(id, ask.identity.repository)?;
    let store = Arc::clone(&agent.store);
    let answer = long::owned(&agent.tasks, held.1.cancel.clone(), move |_| async move {
        let _held = held;
        content::import_finish(&store, id, &ask).await
    });
    Ok(Json(answer.await?))
}

/// Says that a repository is being looked at, and what it looks like before.
pub(super) async fn looking(agent: &Agent, id: RepositoryId) -> Result<(Marked, Fingerprint), Refusal> {
    let inventory = Arc::clone(&agent.store.inventory);
    tokio::task::spawn_blocking(move || inventory.mark_looking(id))
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error| Refusal::new(RefusalCode::Failed, format!("cannot look at {id}: {error}")))
}

/// What a writer holds; dropped in this order.
pub(super) type Held = (Marked, Writer, tokio::sync::OwnedSemaphorePermit);

pub(super) async fn hold(agent: &Agent, id: RepositoryId, grant: &Grant) -> Result<Held, Refusal> {
    // In this order: a higher epoch ends the work whose turn it may need.
    let writer = agent.epochs.write(id, grant.epoch, &agent.tasks.token()).await?;
    let turn = turn(&agent.copies, "copies").await?;
    Ok((agent.store.inventory.mark_writing(id), writer, turn))
}

/// Like [`hold`], for work beside which pushes go on.
pub(super) async fn hold_beside(agent: &Agent, id: RepositoryId, grant: &Grant) -> Result<Held, Refusal> {
    let writer = agent.epochs.beside(id, grant.epoch, &agent.tasks.token()).await?;
    let turn = turn(&agent.copies, "copies").await?;
    Ok((agent.store.inventory.mark_writing(id), writer, turn))
}

/// Fences pushes before work that records what it found: a push that is over must not change it afterwards, and one
/// that is prepared is not waited for.
pub(super) async fn fence(
    agent: &Agent,
    id: RepositoryId,
    grant: &Grant,
    fence: Option<i64>,
) -> Result<(), Refusal> {
    let Some(fence) = fence else { return Ok(()) };
    if let Some(epoch) = grant.epoch {
        agent.epochs.check(id, epoch).await?;
    }
    agent.epochs.fence(id, fence).await
}

pub(super) fn for_repair(
    agent: &Agent,
    id: &str,
    headers: &HeaderMap,
) -> Result<(RepositoryId, Admitted), Refusal> {
    let id = repository(id)?;
    let admitted = agent.admit(headers, Action::Repair, Some(id))?;
    if admitted.grant.epoch.is_none() {
        return Err(Refusal::new(RefusalCode::Forbidden, "a grant for repair needs an epoch"));
    }
    Ok((id, admitted))
}

/// The source that the grant names: addresses come from grants alone.
pub(super) fn source(admitted: &Admitted) -> Result<Source, Refusal> {
    let end = admitted.grant.source.as_ref();
    let end = end.ok_or_else(|| Refusal::new(RefusalCode::Forbidden, "the grant names no source"))?;
    if end.name == admitted.grant.destination.name {
        return Err(Refusal::new(RefusalCode::BadRequest, "a copy cannot be its own source"));
    }
    Ok(Source { name: end.name.clone(), url: end.url.clone(), grant: admitted.text.clone() })
}

pub(super) fn same(path: RepositoryId, body: RepositoryId) -> Result<(), Refusal> {
    if path == body {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::BadRequest, format!("the path names {path}, the body {body}")))
}
