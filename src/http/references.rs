//! HEAD and references, changed by the vote of their copies as a push changes them.

use super::fileservers::record;
use super::problem::{Answer, Problem};
use super::repositories::find;
use super::shapes::{
    ChangeReferences, Changed, ReferenceChange, ReferenceChanged, ReferencesChanged, SetHead,
};
use super::state::Api;
use crate::model::checksum::Target;
use crate::model::fleet::Repository;
use crate::model::wire::push::{Command, RefName};
use axum::Json;
use axum::extract::{Path, State};

/// What is changed at once: a push takes more.
const MOST: usize = 1_000;

/// `PUT /api/v1/repositories/{name}/head`
///
/// # Errors
/// When there is no such repository, the name is none, too few copies agree, or the engine fails.
pub async fn set_head(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<SetHead>,
) -> Answer<Changed> {
    let one = present(&api, &name).await?;
    let branch = match ask.branch.trim() {
        "" => return Err(Problem::bad_request("a branch has a name")),
        full if full.starts_with("refs/heads/") => full.to_owned(),
        other if other.starts_with("refs/") => {
            return Err(Problem::bad_request(format!("{other} is no branch: those begin with refs/heads/")));
        }
        short => format!("refs/heads/{short}"),
    };
    if ask.dry_run {
        let message = format!("HEAD of {} would point at {branch}", one.name);
        return Ok(Json(Changed { message, changed: false }));
    }
    let ended = (api.hooks.set_head)(one.id, branch.clone()).await;
    // Also where it is not known to have ended well: it may stand all the same.
    let detail = serde_json::json!({ "id": one.id, "branch": branch, "error": ended.as_ref().err() });
    record(&api, "repo.set-head", &one.name, ask.reason.as_deref(), detail).await?;
    ended.map_err(Problem::refused)?;
    let message = format!("HEAD of {} points at {branch}", one.name);
    Ok(Json(Changed { message, changed: true }))
}

/// `POST /api/v1/repositories/{name}/references`
///
/// # Errors
/// When there is no such repository, a value is none, too few copies can vote, or the engine fails.
pub async fn change(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<ChangeReferences>,
) -> Answer<ReferencesChanged> {
    let one = present(&api, &name).await?;
    if ask.changes.is_empty() || ask.changes.len() > MOST {
        let given = ask.changes.len();
        return Err(Problem::bad_request(format!("1 to {MOST} references are changed at once, not {given}")));
    }
    let commands: Vec<Command> = ask.changes.iter().map(command).collect::<Result<_, Problem>>()?;
    let ended = (api.hooks.change_references)(one.id, commands, ask.atomic).await.map(|ended| {
        let shown =
            ended.into_iter().map(|(name, refused)| ReferenceChanged { name: name.to_string(), refused });
        shown.collect::<Vec<_>>()
    });
    let (done, error) = (ended.as_ref().ok(), ended.as_ref().err());
    let detail = serde_json::json!({ "id": one.id, "asked": ask.changes, "ended": done, "error": error });
    record(&api, "repo.references", &one.name, ask.reason.as_deref(), detail).await?;
    Ok(Json(ReferencesChanged { changes: ended.map_err(Problem::refused)? }))
}

pub(super) async fn present(api: &Api, name: &str) -> Result<Repository, Problem> {
    let one = find(api, name).await?;
    match one.removed_at {
        Some(_) => Err(Problem::refused(format!("repository {} is removed", one.id))),
        None => Ok(one),
    }
}

fn command(change: &ReferenceChange) -> Result<Command, Problem> {
    let name = RefName(change.name.as_bytes().to_vec());
    Ok(Command { name, old: value(change, change.old.as_ref())?, new: value(change, change.new.as_ref())? })
}

fn value(change: &ReferenceChange, value: Option<&String>) -> Result<Option<Target>, Problem> {
    let Some(text) = value else { return Ok(None) };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.starts_with("refs/") {
        Ok(Some(Target::Symbolic(text.clone())))
    } else if [40, 64].contains(&text.len()) && text.bytes().all(is_hex) {
        Ok(Some(Target::Object(text.clone())))
    } else {
        Err(Problem::bad_request(format!(
            "{}: {text:?} is neither an object's name in hexadecimal nor a reference's full name",
            change.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: Option<&str>, new: Option<&str>) -> ReferenceChange {
        let own = |text: Option<&str>| text.map(str::to_owned);
        ReferenceChange { name: "refs/heads/x".to_owned(), old: own(old), new: own(new) }
    }

    #[test]
    fn values_are_objects_references_or_nothing() {
        let oid = "0123456789abcdef0123456789abcdef01234567";
        let read = command(&change(Some(oid), Some("refs/heads/y"))).unwrap();
        assert_eq!(read.old, Some(Target::Object(oid.to_owned())));
        assert_eq!(read.new, Some(Target::Symbolic("refs/heads/y".to_owned())));
        assert_eq!(command(&change(None, None)).unwrap().old, None);
        for wrong in ["", "main", "0123", &oid.to_uppercase()] {
            assert!(command(&change(None, Some(wrong))).is_err(), "{wrong}");
        }
    }
}
