//! Whether a program is one that nobody but its operator can change.
//!
//! Asked before every run, of the file and of each directory above it, links resolved: whoever
//! can write there would run what they like with this process's rights.

use rustix::process::geteuid;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Writable by the group or by others.
const SHARED: u32 = 0o022;
/// In such a directory only the owner of a file can replace it.
const STICKY: u32 = 0o1000;
const EXECUTABLE: u32 = 0o111;

/// The real path of a program that may be run.
///
/// # Errors
/// In words, when it may not.
pub fn checked(path: &str) -> Result<PathBuf, String> {
    let real = Path::new(path).canonicalize().map_err(|error| format!("{path}: {error}"))?;
    let about = metadata(&real)?;
    if !about.is_file() || about.mode() & EXECUTABLE == 0 {
        return Err(format!("{} is not a program", real.display()));
    }
    ours(&real, &about, false)?;
    for directory in real.ancestors().skip(1) {
        ours(directory, &metadata(directory)?, true)?;
    }
    Ok(real)
}

fn metadata(path: &Path) -> Result<Metadata, String> {
    path.metadata().map_err(|error| format!("{}: {error}", path.display()))
}

fn ours(path: &Path, about: &Metadata, directory: bool) -> Result<(), String> {
    let owner = about.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return Err(format!(
            "{} belongs to user {owner}: neither to root nor to who runs this",
            path.display()
        ));
    }
    let guarded = directory && about.mode() & STICKY != 0;
    if about.mode() & SHARED != 0 && !guarded {
        return Err(format!("{} can be written by others than its owner", path.display()));
    }
    Ok(())
}
