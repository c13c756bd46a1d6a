//! Small files that are old or new after a crash, never half: written beside, synced, renamed, directory synced.

use std::fs::{File, create_dir, rename};
use std::io::{self, Write as _};
use std::path::Path;

/// Whether a write must survive a power cut, or may be lost whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// File and directory are synced before this returns.
    Durable,
    /// Only never half: what is lost is found out and made again.
    Whole,
}

/// Replaces a file. Two writers of one path must be kept apart by the caller.
pub(super) fn write(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_directories(directory)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    if sync == Sync::Durable {
        file.sync_all()?;
    }
    rename(&beside, path)?;
    if sync == Sync::Durable { sync_directory(directory) } else { Ok(()) }
}

/// Makes a directory and those above it; each new one is synced into its parent.
pub(super) fn make_directories(directory: &Path) -> io::Result<()> {
    match create_dir(directory) {
        Ok(()) => directory.parent().map_or(Ok(()), sync_directory),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_directories(directory.parent().ok_or(error)?)?;
            make_directories(directory)
        }
        Err(error) => Err(error),
    }
}

/// Syncs a directory, so that the names in it survive a power cut.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c.json");
        write(&path, b"one", Sync::Durable).unwrap();
        write(&path, b"two", Sync::Durable).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
