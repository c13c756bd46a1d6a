//! Unlinking a copy for good.
//!
//! Only what is in quarantine is ever unlinked; a copy at its place goes there first, by a
//! rename, so that no half of one is ever at a place that readers look at. The note goes
//! last: a copy whose unlinking was cut short still says what it was, and is unlinked anew.

use super::{disk, quarantine};
use crate::agent::store::Store;
use crate::model::id::RepositoryId;
use crate::model::wire::{PurgeAnswer, PurgeRequest, Purged, Refusal, RefusalCode};

/// Unlinks what is asked for. What is not there (any more) is no error: the wish is fulfilled.
pub(super) async fn purge(
    store: &Store,
    id: RepositoryId,
    ask: &PurgeRequest,
) -> Result<PurgeAnswer, Refusal> {
    let path = match &ask.what {
        Purged::Quarantined { path } => Some(path.clone()),
        Purged::Place { reason } => {
            quarantine::refuse_newer(&store.layout, id, ask.version)?;
            quarantine::set_aside(store, id, reason).await?.path
        }
    };
    let layout = store.layout.clone();
    let answer = disk::blocking(move || {
        quarantine::forget_identity(&layout, id)?;
        let Some(path) = path else { return Ok(PurgeAnswer { existed: false, bytes: 0 }) };
        let name = quarantine::name_of(&path, id).ok_or_else(|| {
            let message = format!("{path:?} is not a copy of repository {id} in quarantine");
            Refusal::new(RefusalCode::BadRequest, message)
        })?;
        let copy = layout.quarantine().join(name);
        let existed = std::fs::symlink_metadata(&copy).is_ok();
        let bytes = if existed { disk::usage(&copy) } else { 0 };
        disk::remove_tree(&copy)?;
        let note = copy.with_extension("json");
        match std::fs::remove_file(&note) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(disk::refusal("cannot remove", &note, &error));
            }
            _ => {}
        }
        if existed {
            disk::sync_directory(&layout.quarantine())?;
        }
        Ok(PurgeAnswer { existed, bytes })
    })
    .await?;
    store.touched(id).await;
    Ok(answer)
}
