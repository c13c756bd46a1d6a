//! A copy is adopted where no rule decides. A wish is a row: a worker asks the agents.

use super::fileservers::record;
use super::problem::{Answer, Problem};
use super::repositories::find;
use super::shapes::{AdoptCopy, Changed};
use super::state::Api;
use crate::database::{fileservers, pushes, repositories};
use crate::model::fleet::ReplicaState;
use axum::Json;
use axum::extract::{Path, State};

/// `POST /api/v1/repositories/{name}/adopt`
///
/// # Errors
/// When there is no such repository or fileserver, no copy stands there, no reason is given, or the engine fails.
pub async fn adopt(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<AdoptCopy>,
) -> Answer<Changed> {
    if ask.reason.trim().is_empty() {
        return Err(Problem::bad_request("a copy is not adopted without a reason"));
    }
    let one = find(&api, &name).await?;
    if one.removed_at.is_some() {
        return Err(Problem::refused(format!("repository {} is removed", one.id)));
    }
    let all = fileservers::all(&api.db).await?;
    let from = all.iter().find(|fileserver| fileserver.name == ask.from);
    let from = from.ok_or_else(|| Problem::refused(format!("there is no fileserver {}", ask.from)))?;
    let replicas = repositories::replicas_of(&api.db, &[one.id]).await?;
    let reads = |state| matches!(state, ReplicaState::Live | ReplicaState::Leaving);
    if !replicas.iter().any(|replica| replica.fileserver_id == from.id && reads(replica.state)) {
        return Err(Problem::refused(format!("{} has no copy of {} to adopt", from.name, one.name)));
    }
    if ask.dry_run {
        let message = format!(
            "what {} has of {} would be definitive; its other copies would be brought to it, and what they have kept \
             as lists of references",
            from.name, one.name
        );
        return Ok(Json(Changed { message, changed: false }));
    }
    pushes::wish_adoption(&api.db, one.id, from.id).await?;
    let detail = serde_json::json!({ "id": one.id, "from": from.name, "version": one.version });
    record(&api, "repo.adopt", &one.name, Some(&ask.reason), detail).await?;
    (api.hooks.evaluate)(&["writes-settle".to_owned()]);
    let message = format!(
        "what {} has of {} will be definitive: a worker fences every copy first; `trued why {}` tells how it went",
        from.name, one.name, one.name
    );
    Ok(Json(Changed { message, changed: true }))
}
