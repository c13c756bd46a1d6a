//! A copy that is being made: out of everybody's sight, and either published whole or removed.

use super::{disk, hygiene, identity, leavings};
use crate::agent::store::Store;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{Identity, ManifestFile, Refusal, RefusalCode};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory in staging; removed when dropped unless it was published or is to be gone on with.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    armed: bool,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.armed {
            // What cannot be removed now is removed when the next copy of this repository begins.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl Staging {
    /// An empty repository in staging. One that was left there by an agent that died is thrown away: whether its
    /// files reached the disk is not known.
    pub(super) async fn begin(
        store: &Store,
        id: RepositoryId,
        kind: &str,
        format: ObjectFormat,
    ) -> Result<Self, Refusal> {
        let staging = Self { path: place(store, id, kind), armed: true };
        let (path, root) = (staging.path.clone(), store.layout.root().to_path_buf());
        disk::blocking(move || {
            disk::remove_tree(&path)?;
            disk::make_directories(&root, &path)?;
            skeleton(&path, format)
        })
        .await?;
        Ok(staging)
    }

    /// A repository in staging with nothing in it but those of these files that came before, whole or in part; and
    /// their bytes. Whether they are what they should be is for the caller to check, once all are there. It is kept
    /// when it is dropped: whoever copies this repository next goes on from it.
    pub(super) async fn go_on(
        store: &Store,
        id: RepositoryId,
        kind: &str,
        format: ObjectFormat,
        files: &[ManifestFile],
    ) -> Result<(Self, i64), Refusal> {
        let staging = Self { path: place(store, id, kind), armed: false };
        let (path, root) = (staging.path.clone(), store.layout.root().to_path_buf());
        let wanted = files.iter().map(|file| (file.path.clone(), file.bytes)).collect();
        let kept = disk::blocking(move || {
            let kept = leavings::keep(&path, &wanted)?;
            disk::make_directories(&root, &path)?;
            skeleton(&path, format)?;
            Ok(kept)
        })
        .await?;
        Ok((staging, kept))
    }

    /// One that an earlier request kept, if it is there.
    pub(super) fn resume(store: &Store, id: RepositoryId, kind: &str) -> Option<Self> {
        let path = place(store, id, kind);
        path.is_dir().then_some(Self { path, armed: false })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it for a later request.
    pub(super) fn keep(mut self) {
        self.armed = false;
    }

    /// Syncs all of it, writes down beside it what it is, and renames it to its place. `Exists` where something is.
    pub(super) async fn publish(mut self, store: &Store, identity: &Identity) -> Result<(), Refusal> {
        self.sync().await?;
        let (from, to) = (self.path.clone(), store.layout.repository(identity.repository));
        let (root, beside) = (store.layout.root().to_path_buf(), store.layout.identity(identity.repository));
        let identity = identity.clone();
        disk::blocking(move || {
            if let Some(parent) = to.parent() {
                disk::make_directories(&root, parent)?;
            }
            if fs::symlink_metadata(&to).is_ok() {
                return Err(exists(identity.repository));
            }
            identity::write(&beside, &identity)?;
            disk::rename_new(&from, &to).map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => exists(identity.repository),
                _ => disk::refusal("cannot rename into place", &to, &error),
            })
        })
        .await?;
        self.armed = false;
        Ok(())
    }

    /// Syncs every file and directory of it.
    pub(super) async fn sync(&self) -> Result<(), Refusal> {
        let path = self.path.clone();
        disk::blocking(move || disk::sync_tree(&path)).await
    }

    /// Removes it, off the async threads.
    pub(super) async fn discard(mut self) {
        self.armed = false;
        let path = self.path.clone();
        let _ = disk::blocking(move || disk::remove_tree(&path)).await;
    }
}

fn place(store: &Store, id: RepositoryId, kind: &str) -> PathBuf {
    store.layout.staging().join(format!("{id}-{kind}.git"))
}

fn exists(id: RepositoryId) -> Refusal {
    Refusal::new(RefusalCode::Exists, format!("repository {id} is here already"))
}

fn skeleton(path: &Path, format: ObjectFormat) -> Result<(), Refusal> {
    for directory in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        let directory = path.join(directory);
        fs::create_dir_all(&directory).map_err(|error| disk::refusal("cannot make", &directory, &error))?;
    }
    let head = path.join("HEAD");
    fs::write(&head, "ref: refs/heads/main\n")
        .map_err(|error| disk::refusal("cannot write", &head, &error))?;
    hygiene::settle_config(path, format).map(drop)
}
