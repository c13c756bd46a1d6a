//! Parts: who belongs to the fleet.

use super::fileservers::record;
use super::problem::{Answer, Problem};
use super::shapes::{AddPart, Enrolled};
use super::state::Api;
use crate::database::parts;
use crate::model::checksum::ChecksumKey;
use crate::model::grant::{Part, Role};
use axum::Json;
use axum::extract::State;

/// Longest name of anything that is named here.
const LONGEST_NAME: usize = 64;

/// `GET /api/v1/parts`
///
/// # Errors
/// When the engine fails.
pub async fn list(State(api): State<Api>) -> Answer<Enrolled> {
    Ok(Json(enrolled(&api, None).await?))
}

/// `POST /api/v1/parts`
///
/// # Errors
/// When the name, role or key will not do, the name is taken, or the engine fails.
pub async fn add(State(api): State<Api>, Json(ask): Json<AddPart>) -> Answer<Enrolled> {
    check_name("a part", &ask.name)?;
    if !matches!(ask.role, Role::Controller | Role::Worker | Role::Router) {
        return Err(Problem::bad_request(format!("a part of role {} is not added like this", ask.role))
            .hint("controller, worker and router are; a fileserver is added with `trued fileserver add`"));
    }
    let part = Part { id: ask.name.clone(), name: ask.name, role: ask.role, public_key: ask.public_key };
    check_key(&part)?;
    if !ask.dry_run {
        parts::add(&api.db, &part).await?;
        let detail = serde_json::json!({ "role": part.role });
        record(&api, "part.add", &part.id, ask.reason.as_deref(), detail).await?;
    }
    Ok(Json(enrolled(&api, None).await?))
}

/// What a new part must know.
///
/// # Errors
/// When the engine fails.
pub async fn enrolled(api: &Api, checksum_key: Option<ChecksumKey>) -> Result<Enrolled, Problem> {
    Ok(Enrolled { fleet: api.fleet.clone(), parts: parts::list(&api.db).await?, checksum_key })
}

/// Names of parts, fileservers and racks: short, and plain in every log, label and path.
///
/// # Errors
/// When it is not such a name.
pub fn check_name(what: &str, name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= LONGEST_NAME && name.chars().all(plain) {
        return Ok(());
    }
    Err(Problem::bad_request(format!(
        "{name:?} is not a name for {what}: lower-case letters, digits, '-', '.', '_', at most {LONGEST_NAME}"
    )))
}

/// A part's key must be one.
///
/// # Errors
/// When it is none.
pub fn check_key(part: &Part) -> Result<(), Problem> {
    match part.key() {
        Some(_) => Ok(()),
        None => Err(Problem::bad_request("the public key is not 32 bytes of an Ed25519 key as base64")),
    }
}
