//! Limits: what holds, who owns it, and setting them while everything runs.

use super::problem::{Answer, Problem, did_you_mean, reason};
use super::shapes::{Changed, LimitList, LimitRow, SetLimit};
use super::state::Api;
use crate::database::limits;
use crate::repair::limits::{Held, LimitError, Limits};
use axum::Json;
use axum::extract::{Path, State};

/// `GET /api/v1/limits`
///
/// # Errors
/// When the engine fails.
pub async fn list(State(api): State<Api>) -> Answer<LimitList> {
    Ok(Json(LimitList { limits: rows(&api).await? }))
}

/// All limits as they hold now.
pub(super) async fn rows(api: &Api) -> Result<Vec<LimitRow>, Problem> {
    let rows = limits::all(&api.db).await?;
    let set = pairs(&rows);
    let known = Limits { repairs: &api.limited.repairs, in_flight: api.limited.in_flight, set: &set };
    Ok(known.all().into_iter().map(|held| row(held, &rows)).collect())
}

/// `PUT /api/v1/limits/{name}`: sets it, or gives it back to its file (no value).
///
/// # Errors
/// When there is no such limit, its value is not within its bounds, there is no reason, or the engine fails.
pub async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<SetLimit>,
) -> Answer<Changed> {
    let reason = reason(&ask.reason)?;
    let rows = limits::all(&api.db).await?;
    let set = pairs(&rows);
    let known = Limits { repairs: &api.limited.repairs, in_flight: api.limited.in_flight, set: &set };
    let refused = |error: LimitError| refused(&error, &known);
    let held = known.held(&name).ok_or_else(|| refused(LimitError::Unknown { name: name.clone() }))?;
    let value = ask.value.map(|text| known.read(&name, &text)).transpose().map_err(refused)?;
    let owner = if value.is_some() { "run time" } else { written_in(&name) };
    let message = format!("{name} is {} ({owner}); it was {}", value.unwrap_or(held.written), held.value);
    if ask.dry_run {
        return Ok(Json(Changed { message: format!("{message}: not done"), changed: false }));
    }
    let changed = limits::set(&api.db, &name, value, "local", reason).await?;
    Ok(Json(Changed { message, changed }))
}

fn pairs(rows: &[limits::SetLimit]) -> Vec<(String, i64)> {
    rows.iter().map(|row| (row.name.clone(), row.value)).collect()
}

/// Who owns a limit that nobody set at run time.
fn written_in(name: &str) -> &'static str {
    if name == crate::repair::limits::FLEET { "configuration" } else { "file" }
}

fn row(held: Held, rows: &[limits::SetLimit]) -> LimitRow {
    let set = rows.iter().find(|row| held.set && row.name == held.name);
    LimitRow {
        owner: if held.set { "run time" } else { written_in(&held.name) }.to_owned(),
        who: set.map(|row| row.who.clone()),
        at: set.map(|row| row.at),
        reason: set.and_then(|row| row.reason.clone()),
        name: held.name,
        value: held.value,
        written: held.written,
        allowed: held.allowed,
    }
}

fn refused(error: &LimitError, known: &Limits<'_>) -> Problem {
    let LimitError::Unknown { name } = error else { return Problem::bad_request(error.to_string()) };
    let names: Vec<String> = known.all().into_iter().map(|held| held.name).collect();
    let near = did_you_mean(name, names.iter().map(String::as_str));
    Problem::not_found(error.to_string())
        .hint(near.unwrap_or_else(|| "trued limits show lists them".to_owned()))
}
