//! Tidying one repository: scrub and repack. Each has the repository to itself, in a task that outlives its request.

use super::work::{fence, for_repair, hold_beside, looking};
use super::{Agent, Answer, LARGEST_BODY, body, repository, turn};
use crate::agent::{content, long};
use crate::model::grant::Action;
use crate::model::wire::ChecksumRequest;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use std::sync::Arc;

pub(super) async fn scrub(
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
    Ok(long::lines(&agent.tasks, writer.cancel.clone(), move |work| async move {
        let _held = (looking, turn, writer);
        let mut answer = content::scrub(&store, id, &work).await?;
        answer.generation = store.accept(id, fingerprint).await;
        Ok(answer)
    }))
}

pub(super) async fn repack(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let held = hold_beside(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    Ok(long::lines(&agent.tasks, held.1.cancel.clone(), move |work| async move {
        let _held = held;
        content::repack(&store, id, &work).await
    }))
}
