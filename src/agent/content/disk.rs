//! Files and directories as the other rooms need them: synced writes, sizes, and what an I/O error means.

use crate::model::wire::{Refusal, RefusalCode};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Runs blocking work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(broken) => Err(Refusal::new(RefusalCode::Failed, format!("work on files broke off: {broken}"))),
    }
}

/// A refusal for an I/O error: a full disk is told apart, anything else is `Failed`.
pub(super) fn refusal(doing: &str, path: &Path, error: &io::Error) -> Refusal {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let code = if full { RefusalCode::DiskFull } else { RefusalCode::Failed };
    Refusal::new(code, format!("{doing} {}: {error}", path.display()))
}

/// Syncs a directory, so that the names in it last.
pub(super) fn sync_directory(path: &Path) -> Result<(), Refusal> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| refusal("cannot sync", path, &error))
}

/// Syncs every file and directory of a tree.
pub(super) fn sync_tree(path: &Path) -> Result<(), Refusal> {
    walk(path, &mut |entry, _| File::open(entry)?.sync_all())
        .map_err(|error| refusal("cannot sync", path, &error))
}

/// Bytes of all files of a tree; 0 where there is none.
pub(super) fn usage(path: &Path) -> i64 {
    let mut bytes: u64 = 0;
    // What vanishes while it is counted is not counted.
    let _ = walk(path, &mut |_, metadata| {
        bytes = bytes.saturating_add(metadata.len());
        Ok(())
    });
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Visits files, then the directory that holds them; links are passed over.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), visit)?;
        } else if kind.is_file() {
            visit(&entry.path(), &entry.metadata()?)?;
        }
    }
    visit(path, &fs::metadata(path)?)
}

/// Writes a file whole or not at all, synced with its directory.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), Refusal> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(parent)?;
        file.write_all(content)?;
        file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| refusal("cannot write", path, &error))?;
    sync_directory(parent)
}

/// Makes a directory and those above it, down from `root`, each synced into the one that holds it.
pub(super) fn make_directories(root: &Path, path: &Path) -> Result<(), Refusal> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && path != root
    {
        make_directories(root, parent)?;
        match fs::create_dir(path) {
            Ok(()) => sync_directory(parent),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(refusal("cannot make", path, &error)),
        }
    } else {
        fs::create_dir_all(path).map_err(|error| refusal("cannot make", path, &error))
    }
}

/// Renames a directory to a name that is free, and syncs both ends. `AlreadyExists` where it is not.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // This file system cannot: the caller holds the repository's lock, so nobody else makes this name.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)?;
        }
        Err(errno) => return Err(errno.into()),
    }
    for end in [to.parent(), from.parent()].into_iter().flatten() {
        File::open(end)?.sync_all()?;
    }
    Ok(())
}

/// Removes a tree, if it is there.
pub(super) fn remove_tree(path: &Path) -> Result<(), Refusal> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refusal("cannot remove", path, &error)),
        _ => Ok(()),
    }
}
