//! Fileservers: lists, one, a new one, intents.

use super::problem::{Answer, Problem, did_you_mean};
use super::shapes::{
    AddFileserver, Changed, Enrolled, Evacuate, FileserverList, FileserverRow, FileserverShown, SetIntent,
};
use super::state::Api;
use super::{drains, parts, status};
use crate::database::audit::{self, Change};
use crate::database::fileservers;
use crate::model::fleet::{Fileserver, Intent};
use crate::model::grant::{Part, Role};
use axum::Json;
use axum::extract::{Path, State};

/// `GET /api/v1/fileservers`
///
/// # Errors
/// When the engine fails.
pub async fn list(State(api): State<Api>) -> Answer<FileserverList> {
    let all = fileservers::all(&api.db).await?;
    Ok(Json(FileserverList { fileservers: status::rows(&api, &all).await? }))
}

/// `GET /api/v1/fileservers/{name}`
///
/// # Errors
/// When there is no such fileserver, or the engine fails.
pub async fn show(State(api): State<Api>, Path(name): Path<String>) -> Answer<FileserverShown> {
    let one = find(&api, &name).await?;
    Ok(Json(shown(&api, one).await?))
}

/// One fileserver with all that is known.
///
/// # Errors
/// When the engine fails.
pub async fn shown(api: &Api, one: Fileserver) -> Result<FileserverShown, Problem> {
    let row: Option<FileserverRow> = status::rows(api, std::slice::from_ref(&one)).await?.pop();
    let row = row.ok_or_else(|| Problem::failed("a fileserver went away while it was read"))?;
    Ok(FileserverShown {
        row,
        url: one.url,
        health_since: one.health_since,
        offline_ms: one.offline_ms,
        empty_since: one.empty_since,
        capacity: one.capacity,
        load: one.load,
        processes: one.processes,
        long_reads: one.long_reads,
        agent_version: one.agent_version,
        git_version: one.git_version,
        seen_at: one.seen_at,
    })
}

/// A fileserver by name or number.
///
/// # Errors
/// When there is none, with the nearest name, or the engine fails.
pub async fn find(api: &Api, name: &str) -> Result<Fileserver, Problem> {
    let all = fileservers::all(&api.db).await?;
    let number = name.parse().ok();
    if let Some(one) = all.iter().find(|one| one.name == name || Some(one.id.0) == number) {
        return Ok(one.clone());
    }
    let problem = Problem::not_found(format!("there is no fileserver {name:?}"));
    Err(match did_you_mean(name, all.iter().map(|one| one.name.as_str())) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("`trued fileserver list` names them"),
    })
}

/// `POST /api/v1/fileservers`
///
/// # Errors
/// When a name or key is not one, the name is taken, or the engine fails.
pub async fn add(State(api): State<Api>, Json(ask): Json<AddFileserver>) -> Answer<Enrolled> {
    parts::check_name("a fileserver", &ask.name)?;
    parts::check_name("a rack", &ask.rack)?;
    let url = ask.url.trim_end_matches('/');
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Err(Problem::bad_request(format!("{url:?} is not an address such as http://10.0.0.7:7100")));
    }
    let part = Part {
        id: ask.name.clone(),
        name: ask.name.clone(),
        role: Role::Agent,
        public_key: ask.public_key.clone(),
    };
    parts::check_key(&part)?;
    if !ask.dry_run {
        fileservers::add(&api.db, &ask.name, &ask.rack, url, &part).await?;
        let detail = serde_json::json!({ "rack": ask.rack, "url": url });
        record(&api, "fileserver.add", &ask.name, ask.reason.as_deref(), detail).await?;
    }
    Ok(Json(parts::enrolled(&api, Some(api.checksum_key.clone())).await?))
}

/// `PUT /api/v1/fileservers/{name}/intent`
///
/// # Errors
/// When there is no such fileserver, it cannot be as things stand (`unsafe`), or the engine fails.
pub async fn set_intent(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<SetIntent>,
) -> Answer<Changed> {
    let one = find(&api, &name).await?;
    if ask.intent == Intent::Evacuate {
        let ask = Evacuate { fileservers: vec![one.name], reason: ask.reason, dry_run: ask.dry_run };
        return Ok(Json(drains::evacuate(&api, &ask).await?));
    }
    if ask.intent == Intent::Retire {
        drains::may_retire(&api, &one).await?;
    }
    let (name, was, will) = (one.name, one.intent, ask.intent);
    if was == will {
        let message = format!("fileserver {name} is to {will} already");
        return Ok(Json(Changed { message, changed: false }));
    }
    if ask.dry_run {
        let message = format!("fileserver {name} would go from {was} to {will}");
        return Ok(Json(Changed { message, changed: false }));
    }
    fileservers::set_intent(&api.db, one.id, will).await?;
    let detail = serde_json::json!({ "was": was, "is": will });
    record(&api, &format!("fileserver.{will}"), &name, ask.reason.as_deref(), detail).await?;
    Ok(Json(Changed { message: format!("fileserver {name} goes from {was} to {will}"), changed: true }))
}

/// Keeps who changed what and why. On loopback without tokens, all that is known of who is that.
///
/// # Errors
/// When the engine fails.
pub async fn record(
    api: &Api,
    what: &str,
    subject: &str,
    reason: Option<&str>,
    detail: serde_json::Value,
) -> Result<(), Problem> {
    let change = Change { who: "local", what, subject, reason, detail };
    Ok(audit::append(&api.db, &change).await?)
}
