//! Setting a copy aside: renamed, never unlinked, with a file beside it that says why.

use super::{disk, identity};
use crate::agent::store::Store;
use crate::clock;
use crate::model::Millis;
use crate::model::id::RepositoryId;
use crate::model::wire::{Identity, QuarantineAnswer, Refusal, RefusalCode};
use serde::Serialize;

/// What stands beside a copy in quarantine.
#[derive(Debug, Serialize)]
struct Note<'a> {
    repository: RepositoryId,
    at: Millis,
    reason: &'a str,
    identity: Option<Identity>,
}

/// Renames a copy into quarantine, if there is one. The note is written first: no copy lies there without one.
pub(super) async fn set_aside(
    store: &Store,
    id: RepositoryId,
    reason: &str,
) -> Result<QuarantineAnswer, Refusal> {
    let (layout, reason, now) = (store.layout.clone(), reason.to_owned(), clock::now());
    let answer = disk::blocking(move || {
        let from = layout.repository(id);
        if std::fs::symlink_metadata(&from).is_err() {
            return Ok(QuarantineAnswer { path: None, bytes: 0 });
        }
        let bytes = disk::usage(&from);
        disk::make_directories(layout.root(), &layout.quarantine())?;
        let beside = layout.identity(id);
        let note = Note { repository: id, at: now, reason: &reason, identity: identity::read(&beside) };
        let text = serde_json::to_vec_pretty(&note).map_err(|error| {
            Refusal::new(RefusalCode::Failed, format!("cannot write why a copy is set aside: {error}"))
        })?;
        let name = free_name(&layout.quarantine(), id, now);
        disk::write_whole(&layout.quarantine().join(format!("{name}.json")), &text)?;
        let to = layout.quarantine().join(format!("{name}.git"));
        disk::rename_new(&from, &to).map_err(|error| disk::refusal("cannot set aside", &from, &error))?;
        Ok(QuarantineAnswer { path: Some(format!("quarantine/{name}.git")), bytes })
    })
    .await?;
    store.touched(id).await;
    Ok(answer)
}

/// `<id>-<time>`, a millisecond later for each that is taken.
fn free_name(quarantine: &std::path::Path, id: RepositoryId, now: Millis) -> String {
    let names = (now..).map(|time| format!("{id}-{time}"));
    let mut free = names.filter(|name| !quarantine.join(format!("{name}.git")).exists());
    free.next().unwrap_or_else(|| format!("{id}-{now}"))
}
