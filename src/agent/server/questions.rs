//! Questions about the fileserver itself, new parts, and checksums.

use super::work::fence;
use super::{Agent, Answer, LARGEST_BODY, body, query, repository, turn};
use crate::agent::content;
use crate::model::grant::Action;
use crate::model::id::RepositoryId;
use crate::model::wire::{ChecksumAnswer, ChecksumRequest, InventoryPage, PartsList, Status};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use std::sync::Arc;

pub(super) async fn status(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
) -> Result<Json<Status>, Answer> {
    agent.admit(&headers, Action::Observe, None)?;
    let digest = agent.admission.parts().digest();
    Ok(Json(agent.monitor.status(&agent.store, digest, agent.reads.long(), agent.epochs.highest())))
}

pub(super) async fn parts(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<StatusCode, Answer> {
    agent.admit(&headers, Action::Configure, None)?;
    let list: PartsList = body(bytes, LARGEST_BODY).await?;
    // One small file, seldom: not worth a thread of its own.
    agent.admission.parts().replace(list)?;
    tracing::info!(digest = agent.admission.parts().digest(), "a new list of parts is believed");
    Ok(StatusCode::NO_CONTENT)
}

/// Which page of the inventory.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct PageOf {
    since: i64,
    after: RepositoryId,
    limit: usize,
}

impl Default for PageOf {
    fn default() -> Self {
        Self { since: 0, after: RepositoryId(0), limit: 1_000 }
    }
}

pub(super) async fn inventory(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<InventoryPage>, Answer> {
    agent.admit(&headers, Action::Observe, None)?;
    let of: PageOf = query(&uri)?;
    Ok(Json(agent.store.inventory.page(&agent.monitor.start_id, of.since, of.after, of.limit)))
}

pub(super) async fn checksum(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<ChecksumAnswer>, Answer> {
    let id = repository(&id)?;
    let admitted = agent.admit(&headers, Action::Verify, Some(id))?;
    let ask: ChecksumRequest = body(bytes, LARGEST_BODY).await?;
    if let Some(epoch) = admitted.grant.epoch {
        agent.epochs.check(id, epoch).await?;
    }
    fence(&agent, id, &admitted.grant, ask.fence).await?;
    let _turn = turn(&agent.checks, "checks").await?;
    Ok(Json(content::checksum(&agent.store, id).await?))
}
