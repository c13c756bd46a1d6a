//! Repositories are removed, brought back, renamed. A wish is a row: no agent is called here.

use super::fileservers::record;
use super::imports::check_repository_name;
use super::problem::{Answer, Problem};
use super::repositories::{by_id, find};
use super::shapes::{Changed, QuarantinedShown, RemoveRepository, RenameRepository, UndeleteRepository};
use super::state::Api;
use crate::database::{quarantine, repositories};
use crate::model::amount::counted;
use crate::model::fleet::Repository;
use crate::model::id::RepositoryId;
use axum::Json;
use axum::extract::{Path, State};

/// `POST /api/v1/repositories/{name}/remove`
///
/// # Errors
/// When there is no such repository, no reason is given, or the engine fails.
pub async fn remove(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<RemoveRepository>,
) -> Answer<Changed> {
    if ask.reason.trim().is_empty() {
        return Err(Problem::bad_request("a repository is not removed without a reason"));
    }
    let one = find(&api, &name).await?;
    if one.removed_at.is_some() {
        return Err(Problem::refused(format!("repository {} is removed already", one.id)));
    }
    let copies = repositories::replicas_of(&api.db, &[one.id]).await?.len();
    if ask.dry_run {
        let message = format!(
            "repository {} ({}) would be removed: its {} would serve nothing, and be unlinked after \
             the retention",
            one.name,
            one.id,
            counted(copies, "copy")
        );
        return Ok(Json(Changed { message, changed: false }));
    }
    repositories::remove(&api.db, one.id).await?;
    let detail = serde_json::json!({ "id": one.id, "copies": copies });
    record(&api, "repo.remove", &one.name, Some(&ask.reason), detail).await?;
    let message = format!(
        "repository {} ({}) is removed, its name is free; `trued repo undelete {}` brings it back until its {} {} \
         unlinked",
        one.name,
        one.id,
        one.id,
        counted(copies, "copy"),
        if copies == 1 { "is" } else { "are" }
    );
    Ok(Json(Changed { message, changed: true }))
}

/// `POST /api/v1/repositories/{name}/undelete`
///
/// # Errors
/// When no such repository was removed, or several were; its name is taken; no copy is left; the engine fails.
pub async fn undelete(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<UndeleteRepository>,
) -> Answer<Changed> {
    let one = removed(&api, &name).await?;
    let new = ask.name.as_deref().unwrap_or(&one.name);
    check_repository_name(new)?;
    if ask.dry_run {
        let message = format!("repository {} would come back as {new}", one.id);
        return Ok(Json(Changed { message, changed: false }));
    }
    let taken = repositories::by_name(&api.db, new).await?.is_some();
    repositories::undelete(&api.db, one.id, new).await.map_err(|error| {
        let problem = Problem::from(error);
        if taken { problem.hint("--name gives it another one") } else { problem }
    })?;
    let detail = serde_json::json!({ "id": one.id, "was": one.name });
    record(&api, "repo.undelete", new, ask.reason.as_deref(), detail).await?;
    let message = format!("repository {} is back as {new}; its copies are compared with their disks", one.id);
    Ok(Json(Changed { message, changed: true }))
}

/// A removed repository by number, or by a name that only one of them had.
async fn removed(api: &Api, name: &str) -> Result<Repository, Problem> {
    let mut found = repositories::removed_by_name(&api.db, name).await?;
    if found.len() > 1 {
        let ids: Vec<_> = found.iter().map(|one| one.id.to_string()).collect();
        let message = format!("{} repositories of the name {name:?} were removed", found.len());
        return Err(Problem::refused(message).hint(format!("give the number of one: {}", ids.join(", "))));
    }
    if let Some(one) = found.pop() {
        return Ok(one);
    }
    if let Some(id) = name.parse().ok().map(RepositoryId)
        && let Some(one) = removed_by_id(api, id).await?
    {
        return Ok(one);
    }
    Err(Problem::not_found(format!("no repository {name:?} was removed, or it is gone for good"))
        .hint("`trued repo list --removed` names those that can be brought back"))
}

/// A removed repository under the name that it had.
///
/// # Errors
/// When the engine fails.
pub async fn removed_by_id(api: &Api, id: RepositoryId) -> Result<Option<Repository>, Problem> {
    let page = repositories::removed_page(&api.db, RepositoryId(id.0 - 1), 1).await?;
    Ok(page.into_iter().find(|one| one.id == id))
}

/// `PUT /api/v1/repositories/{name}/name`
///
/// # Errors
/// When there is no such repository, the new name is none or taken, or the engine fails.
pub async fn rename(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<RenameRepository>,
) -> Answer<Changed> {
    check_repository_name(&ask.name)?;
    let one = find(&api, &name).await?;
    if one.name == ask.name {
        let message = format!("repository {} has that name already", one.id);
        return Ok(Json(Changed { message, changed: false }));
    }
    if ask.dry_run {
        let message = format!("{} would be named {}", one.name, ask.name);
        return Ok(Json(Changed { message, changed: false }));
    }
    repositories::rename(&api.db, one.id, &ask.name).await?;
    let detail = serde_json::json!({ "id": one.id, "was": one.name, "is": ask.name });
    record(&api, "repo.rename", &ask.name, ask.reason.as_deref(), detail).await?;
    Ok(Json(Changed { message: format!("{} is named {} now", one.name, ask.name), changed: true }))
}

/// The copies of a repository that were set aside, the last first.
///
/// # Errors
/// When the engine fails.
pub async fn quarantined(api: &Api, id: RepositoryId) -> Result<Vec<QuarantinedShown>, Problem> {
    let fleet = by_id(api).await?;
    let rows = quarantine::of_repositories(&api.db, &[id]).await?;
    let shown = rows.into_iter().map(|row| QuarantinedShown {
        fileserver: fleet
            .get(&row.fileserver_id)
            .map_or_else(|| row.fileserver_id.to_string(), |one| one.name.clone()),
        path: row.path,
        since: row.since,
        reason: row.reason,
        bytes: row.bytes,
    });
    Ok(shown.collect())
}
