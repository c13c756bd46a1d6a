//! Whether fileservers may be stopped: a yes is a right that others see until it ends.

use super::fileservers::{find, record};
use super::problem::{Answer, Problem};
use super::shapes::{AskToStop, MayStop, Named};
use super::state::Api;
use crate::database::{fileservers, stops};
use crate::model::Millis;
use axum::Json;
use axum::extract::State;

/// The longest that a right is kept: a day.
const LONGEST: Millis = 24 * 3_600_000;

/// `POST /api/v1/stops`
///
/// # Errors
/// When there is no such fileserver, the right is asked for too long, or the engine fails. A no is an answer.
pub async fn ask(State(api): State<Api>, Json(ask): Json<AskToStop>) -> Answer<MayStop> {
    if ask.fileservers.is_empty() || !(1_000..=LONGEST).contains(&ask.keep_ms) {
        return Err(Problem::bad_request("name at least one fileserver, and a time from a second to a day"));
    }
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for name in &ask.fileservers {
        let one = find(&api, name).await?;
        ids.push(one.id);
        names.push(one.name);
    }
    let keep = if ask.dry_run { 0 } else { ask.keep_ms };
    let answer = stops::ask(&api.db, &ids, keep, ("local", ask.reason.as_deref())).await?;
    let names = names.join(", ");
    if let Some(until) = answer.until {
        let detail = serde_json::json!({ "until": until, "repositories": answer.repositories });
        record(&api, "fileserver.ok-to-stop", &names, ask.reason.as_deref(), detail).await?;
    }
    let all = fileservers::all(&api.db).await?;
    let name_of = |id| all.iter().find(|one| one.id == id).map(|one| one.name.clone());
    Ok(Json(MayStop {
        ok: answer.below == 0,
        repositories: answer.repositories,
        below: answer.below,
        one_more: answer.one_more,
        stopped_by_others: answer.reserved.into_iter().filter_map(name_of).collect(),
        until: answer.until,
    }))
}

/// `POST /api/v1/stops/release`
///
/// # Errors
/// When there is no such fileserver, or the engine fails.
pub async fn release(State(api): State<Api>, Json(ask): Json<Named>) -> Answer<super::shapes::Changed> {
    let mut ids = Vec::new();
    for name in &ask.fileservers {
        ids.push(find(&api, name).await?.id);
    }
    let given_back = stops::release(&api.db, &ids).await?;
    let names = ask.fileservers.join(", ");
    if given_back > 0 {
        record(&api, "fileserver.release", &names, None, serde_json::json!({})).await?;
    }
    let message = if given_back > 0 {
        format!("{names}: the right to stop was given back")
    } else {
        format!("{names}: there was none to give back")
    };
    Ok(Json(super::shapes::Changed { message, changed: given_back > 0 }))
}
