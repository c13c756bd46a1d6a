//! A copy that may be handed to git: its place is a plain repository, and its configuration is the agent's own.

use super::{disk, hygiene, identity};
use crate::agent::store::Store;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use std::path::PathBuf;

/// Where a copy is, and what it is.
#[derive(Debug)]
pub(super) struct Opened {
    /// The repository.
    pub(super) path: PathBuf,
    /// The hash its objects are named by.
    pub(super) format: ObjectFormat,
    /// What had to be put right before git may see it.
    pub(super) mended: Option<String>,
}

/// Opens a copy. Whoever wants git to run in a repository comes through here first.
pub(super) async fn open(store: &Store, id: RepositoryId) -> Result<Opened, Refusal> {
    let (path, beside) = (store.layout.repository(id), store.layout.identity(id));
    disk::blocking(move || {
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(Refusal::new(RefusalCode::Damaged, "it is a link or a file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Refusal::new(RefusalCode::NotFound, format!("repository {id} is not here")));
            }
            Err(error) => return Err(disk::refusal("cannot look at", &path, &error)),
        }
        hygiene::check_plain(&path)?;
        let format = identity::read(&beside).map_or_else(
            || hygiene::format_in(&std::fs::read_to_string(path.join("config")).unwrap_or_default()),
            |found| found.object_format,
        );
        let mended = hygiene::settle_config(&path, format)?;
        Ok(Opened { path, format, mended })
    })
    .await
}
