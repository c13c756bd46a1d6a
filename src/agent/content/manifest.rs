//! The source's side of a first copy: the list of object files, held against deletion, and the files themselves.
//!
//! A hold is a lease in memory: an agent that restarts deletes nothing before copies had time to ask again.

use super::{disk, opened, packs};
use crate::agent::store::Store;
use crate::clock;
use crate::model::Millis;
use crate::model::id::RepositoryId;
use crate::model::wire::{Manifest, Refusal, RefusalCode};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How long a hold lasts unless it is asked for again.
const LEASE: Millis = 15 * 60 * 1000;
/// Holds at once: more than any limit on copies allows.
const MOST: usize = 10_000;

/// Holds by repository's path and name, with their ends.
static HOLDS: Mutex<BTreeMap<(PathBuf, String), Millis>> = Mutex::new(BTreeMap::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Lists what a first copy takes, and holds it.
pub(super) async fn hold(store: &Store, id: RepositoryId) -> Result<Manifest, Refusal> {
    let copy = opened::open(store, id).await?;
    let now = clock::now();
    let hold = format!("{now:x}-{:x}", NUMBER.fetch_add(1, Ordering::Relaxed));
    {
        // Not amid a deletion: what is listed then would be gone.
        let _reading = store.holds.read(id).await;
        note(&copy.path, &hold, now)?;
    }
    let path = copy.path.clone();
    let listed = disk::blocking(move || {
        if std::fs::symlink_metadata(path.join("objects/info/alternates")).is_ok() {
            let message = "it borrows objects from another repository: a copy of it would not stand alone";
            return Err(Refusal::new(RefusalCode::Damaged, message));
        }
        packs::scan(&path)
    })
    .await;
    match listed {
        Ok(objects) => {
            Ok(Manifest { hold, until: now + LEASE, object_format: copy.format, files: objects.files })
        }
        Err(refusal) => {
            holds().remove(&(copy.path, hold));
            Err(refusal)
        }
    }
}

fn note(path: &std::path::Path, hold: &str, now: Millis) -> Result<(), Refusal> {
    let mut holds = holds();
    holds.retain(|_, until| *until > now);
    if holds.len() >= MOST {
        return Err(Refusal::new(RefusalCode::Busy, "too many copies are being made from here"));
    }
    holds.insert((path.to_path_buf(), hold.to_owned()), now + LEASE);
    Ok(())
}

fn holds() -> std::sync::MutexGuard<'static, BTreeMap<(PathBuf, String), Millis>> {
    HOLDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody copies from this repository now: nothing of it may be deleted.
pub(super) fn is_held(store: &Store, id: RepositoryId, now: Millis) -> bool {
    let path = store.layout.repository(id);
    holds().iter().any(|((held, _), until)| *held == path && *until > now)
}

/// Opens one file. Whoever reads files is copying: holds of the repository go on.
pub(super) async fn open_file(
    store: &Store,
    id: RepositoryId,
    path: &str,
) -> Result<(tokio::fs::File, u64), Refusal> {
    let not_found =
        || Refusal::new(RefusalCode::NotFound, format!("repository {id} has no file {path:?} to copy"));
    if !packs::is_object_path(path) {
        return Err(not_found());
    }
    let repository = store.layout.repository(id);
    let full = repository.join(path);
    renew(&repository, clock::now());
    let is_file = tokio::fs::symlink_metadata(&full).await.is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err(not_found());
    }
    let file = tokio::fs::File::open(&full).await.map_err(|_| not_found())?;
    let size = file.metadata().await.map_err(|error| disk::refusal("cannot read", &full, &error))?.len();
    Ok((file, size))
}

fn renew(repository: &std::path::Path, now: Millis) {
    for ((held, _), until) in holds().iter_mut() {
        if held == repository && *until > now {
            *until = now + LEASE;
        }
    }
}

/// Ends a hold.
pub(super) fn release(store: &Store, id: RepositoryId, hold: &str) -> Result<(), Refusal> {
    let key = (store.layout.repository(id), hold.to_owned());
    match holds().remove(&key) {
        Some(_) => Ok(()),
        None => Err(Refusal::new(RefusalCode::NotFound, format!("there is no hold {hold:?}"))),
    }
}
