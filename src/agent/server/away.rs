//! Taking copies away: set aside, listed, unlinked. Each act has the repository to itself, under
//! an epoch that is on disk before anything is renamed.

use super::work::{for_repair, hold};
use super::{Agent, Answer, LARGEST_BODY, body, query};
use crate::agent::content;
use crate::agent::long;
use crate::model::grant::Action;
use crate::model::wire::{PurgeRequest, QuarantineAnswer, QuarantinePage, QuarantineRequest};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;

pub(super) async fn quarantine(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<QuarantineAnswer>, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let ask: QuarantineRequest = body(bytes, LARGEST_BODY).await?;
    let held = hold(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    let answer = long::owned(&agent.tasks, held.1.cancel.clone(), move |_| async move {
        let _held = held;
        content::quarantine(&store, id, &ask).await
    });
    Ok(Json(answer.await?))
}

pub(super) async fn purge(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let ask: PurgeRequest = body(bytes, LARGEST_BODY).await?;
    let held = hold(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    Ok(long::lines(&agent.tasks, held.1.cancel.clone(), move |_| async move {
        let _held = held;
        content::purge(&store, id, &ask).await
    }))
}

/// Which page of the quarantine.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct PageOf {
    after: String,
    limit: usize,
}

impl Default for PageOf {
    fn default() -> Self {
        Self { after: String::new(), limit: 1_000 }
    }
}

pub(super) async fn list(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<QuarantinePage>, Answer> {
    agent.admit(&headers, Action::Observe, None)?;
    let of: PageOf = query(&uri)?;
    Ok(Json(content::quarantined(&agent.store, of.after, of.limit).await?))
}
