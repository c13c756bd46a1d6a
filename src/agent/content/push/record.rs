//! What is prepared in a repository, written down before the vote: what a death amid the commit is mended from.

use super::super::disk;
use crate::agent::store::Store;
use crate::model::checksum::Checksum;
use crate::model::id::RepositoryId;
use crate::model::wire::push::Command;
use crate::model::wire::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;

/// One prepared push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its epoch.
    pub(super) epoch: i64,
    /// The version that it builds on.
    pub(super) base_version: i64,
    /// Of the references before it.
    pub(super) before: Checksum,
    /// Of the references after it.
    pub(super) after: Checksum,
    /// What it changes.
    pub(super) commands: Vec<Command>,
}

impl Record {
    /// Writes it down, synced with its directory.
    pub(super) async fn keep(&self, store: &Store, id: RepositoryId) -> Result<(), Refusal> {
        let unwritable =
            |error| Refusal::new(RefusalCode::Failed, format!("cannot write a push down: {error}"));
        let text =
            serde_json::to_vec(self).map_err(|error: serde_json::Error| unwritable(error.to_string()))?;
        let (root, directory) = (store.layout.root().to_path_buf(), store.layout.prepared_pushes());
        let path = store.layout.prepared_push(id);
        disk::blocking(move || {
            disk::make_directories(&root, &directory)?;
            disk::write_whole(&path, &text)
        })
        .await
    }

    /// What was written down of a repository, if it can be read.
    pub(super) async fn find(store: &Store, id: RepositoryId) -> Result<Option<Self>, Refusal> {
        let path = store.layout.prepared_push(id);
        disk::blocking(move || {
            let text = fs::read(&path).ok();
            Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
        })
        .await
    }

    /// Takes it away: the push has ended. Not synced: one that comes back says what is so already.
    pub(super) async fn forget(store: &Store, id: RepositoryId) -> Result<(), Refusal> {
        let path = store.layout.prepared_push(id);
        disk::blocking(move || match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(disk::refusal("cannot remove", &path, &error))
            }
            _ => Ok(()),
        })
        .await
    }
}

/// Repositories in which an earlier agent left a push prepared. What it left half written down is removed.
///
/// # Errors
/// `Failed`.
pub async fn pushes_that_broke_off(store: &Store) -> Result<Vec<RepositoryId>, Refusal> {
    let directory = store.layout.prepared_pushes();
    disk::blocking(move || {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            match id {
                Some(id) => ids.push(RepositoryId(id)),
                None => drop(fs::remove_file(entry.path())),
            }
        }
        ids.sort_unstable();
        Ok(ids)
    })
    .await
}
