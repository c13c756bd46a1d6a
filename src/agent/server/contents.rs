//! What the disk holds, page by page; one repository's epochs and identity.

use super::work::{for_repair, hold};
use super::{Agent, Answer, LARGEST_BODY, body, query, repository, turn};
use crate::agent::{content, long};
use crate::model::contents::{ContentsPage, EpochsAnswer, Held};
use crate::model::grant::Action;
use crate::model::id::RepositoryId;
use crate::model::wire::{Identity, PartsList, Refusal, RefusalCode};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest page.
const LONGEST: usize = 500;
/// A page ends after this: references by the million take a while.
const WITHIN: Duration = Duration::from_secs(15);

pub(super) async fn parts(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
) -> Result<Json<PartsList>, Answer> {
    agent.admit(&headers, Action::Observe, None)?;
    Ok(Json(agent.admission.parts().list()))
}

/// Which page.
#[derive(Debug, Deserialize)]
pub(super) struct PageOf {
    #[serde(default)]
    after: i64,
    #[serde(default)]
    limit: usize,
}

pub(super) async fn contents(
    State(agent): State<Arc<Agent>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<ContentsPage>, Answer> {
    agent.admit(&headers, Action::Observe, None)?;
    let of: PageOf = query(&uri)?;
    if !agent.store.inventory.progress().1 {
        let why = "the first sweep of this start is not complete: what the disk holds is not known yet";
        return Err(Refusal::new(RefusalCode::Busy, why).into());
    }
    let _turn = turn(&agent.checks, "checks").await?;
    Ok(Json(page(&agent, RepositoryId(of.after), of.limit.clamp(1, LONGEST)).await?))
}

async fn page(agent: &Agent, after: RepositoryId, limit: usize) -> Result<ContentsPage, Refusal> {
    let began = Instant::now();
    // Everything has a generation above -1.
    let known = agent.store.inventory.page(&agent.monitor.start_id, -1, after, limit);
    let mut page = ContentsPage {
        start_id: known.start_id,
        held: Vec::new(),
        through: after,
        more: known.more,
        highest: content::highest(&agent.store).await?,
    };
    for entry in known.entries {
        if began.elapsed() > WITHIN {
            page.more = true;
            break;
        }
        page.through = entry.repository;
        if entry.present {
            page.held.push(held(agent, entry.repository, entry.bytes).await?);
        }
    }
    Ok(page)
}

async fn held(agent: &Agent, id: RepositoryId, bytes: i64) -> Result<Held, Refusal> {
    let seen = agent.epochs.seen(id).await?;
    let (checksum, problem) = match content::checksum(&agent.store, id).await {
        Ok(answer) => (Some(answer.checksum), None),
        Err(refusal) => (None, Some(refusal.message)),
    };
    let identity = content::identity_of(&agent.store, id).await?;
    let epochs = EpochsAnswer { repair: seen.repair, push: seen.highest_push() };
    Ok(Held { repository: id, identity, checksum, problem, bytes, epochs })
}

pub(super) async fn epochs(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<EpochsAnswer>, Answer> {
    let id = repository(&id)?;
    agent.admit(&headers, Action::Observe, Some(id))?;
    let seen = agent.epochs.seen(id).await?;
    Ok(Json(EpochsAnswer { repair: seen.repair, push: seen.highest_push() }))
}

pub(super) async fn identity(
    State(agent): State<Arc<Agent>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<StatusCode, Answer> {
    let (id, admitted) = for_repair(&agent, &id, &headers)?;
    let identity: Identity = body(bytes, LARGEST_BODY).await?;
    if identity.repository != id {
        return Err(Refusal::new(RefusalCode::BadRequest, "the body names another repository").into());
    }
    let held = hold(&agent, id, &admitted.grant).await?;
    let store = Arc::clone(&agent.store);
    let written = long::owned(&agent.tasks, held.1.cancel.clone(), move |_| async move {
        let _held = held;
        content::identify(&store, id, identity).await
    });
    written.await?;
    Ok(StatusCode::NO_CONTENT)
}
