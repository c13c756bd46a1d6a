//! The repairs of a directory, and the ones that are shipped in the binary.
//!
//! A directory is read whole or not at all: one bad file refuses the set, and every
//! bad file is named, so that a half-edited directory never runs half of its limits.

use super::file::{FileError, Repair};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest repair file that is read.
const MAX_BYTES: u64 = 64 << 10;
/// The most repair files in a directory.
const MAX_FILES: usize = 1_000;

/// Name and text of each shipped repair.
const SHIPPED: &[(&str, &str)] = &[
    ("evacuate", include_str!("../../repairs/evacuate.toml")),
    ("purge", include_str!("../../repairs/purge.toml")),
    ("re-replicate", include_str!("../../repairs/re-replicate.toml")),
    ("repack", include_str!("../../repairs/repack.toml")),
    ("resume", include_str!("../../repairs/resume.toml")),
    ("rebalance", include_str!("../../repairs/rebalance.toml")),
    ("resync", include_str!("../../repairs/resync.toml")),
    ("scrub", include_str!("../../repairs/scrub.toml")),
    ("settle", include_str!("../../repairs/settle.toml")),
    ("trim", include_str!("../../repairs/trim.toml")),
    ("verify", include_str!("../../repairs/verify.toml")),
];

/// All repairs, by name.
#[derive(Debug, Clone, Default)]
pub struct Repairs {
    /// By name.
    pub by_name: BTreeMap<String, Arc<Repair>>,
}

/// Why a set of repairs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The directory, or a file in it, cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: std::io::Error,
    },
    /// The directory holds more than a person would have written.
    #[error("{} holds more than {MAX_FILES} repair files", path.display())]
    Many {
        /// The directory.
        path: PathBuf,
    },
    /// Files that do not say what a repair must say, one message a line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Files(Vec<FileError>),
}

impl Repairs {
    /// The repair of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Repair> {
        self.by_name.get(name).map(AsRef::as_ref)
    }

    /// Names of the repairs that yield to a more urgent finding.
    #[must_use]
    pub fn yielding(&self) -> Vec<&str> {
        self.by_name.values().filter(|repair| repair.yields()).map(|repair| repair.name.as_str()).collect()
    }
}

/// The repairs that come with the program.
///
/// # Errors
/// When a shipped file is not a repair, which a test rules out.
pub fn shipped() -> Result<Repairs, LibraryError> {
    let texts = SHIPPED
        .iter()
        .map(|(name, text)| ((*name).to_owned(), format!("repairs/{name}.toml"), (*text).to_owned()));
    parse_all(texts)
}

/// The repairs of a directory: every `*.toml` in it whose name does not begin with a dot.
///
/// # Errors
/// When the directory or a file cannot be read, or any file is not a repair.
pub fn load(directory: &Path) -> Result<Repairs, LibraryError> {
    let mut texts = Vec::new();
    for path in files_of(directory)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = read(&path).map_err(|source| LibraryError::Read { path: path.clone(), source })?;
        texts.push((name, path.display().to_string(), text));
    }
    parse_all(texts)
}

/// Writes the shipped files that a directory does not have, makes the directory if need be, and
/// touches nothing else. Returns what was written.
///
/// # Errors
/// When the directory cannot be made or a file cannot be written.
pub fn write_shipped(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)?;
    let mut written = Vec::new();
    for (name, text) in SHIPPED {
        let path = directory.join(format!("{name}.toml"));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        // Whole or not at all: a reader that comes in between must not see half a file.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        readable_by_all(file.as_file())?;
        match file.persist_noclobber(&path) {
            Ok(_) => written.push(path),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error),
        }
    }
    Ok(written)
}

fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

/// The repair files of a directory, by name.
///
/// # Errors
/// When it cannot be read, or holds too many.
pub fn files_of(directory: &Path) -> Result<Vec<PathBuf>, LibraryError> {
    let failed = |source| LibraryError::Read { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if hidden || path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        if paths.len() == MAX_FILES {
            return Err(LibraryError::Many { path: directory.to_owned() });
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

/// The text of one repair file.
///
/// # Errors
/// When it cannot be read, is no file, or is longer than anybody writes by hand.
pub fn read(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

fn parse_all(texts: impl IntoIterator<Item = (String, String, String)>) -> Result<Repairs, LibraryError> {
    let (mut repairs, mut errors) = (Repairs::default(), Vec::new());
    for (name, file, text) in texts {
        match Repair::parse(&name, &file, &text) {
            Ok(repair) => drop(repairs.by_name.insert(name, Arc::new(repair))),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(repairs) } else { Err(LibraryError::Files(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_repairs_are_repairs_and_those_that_read_or_tidy_yield() {
        let repairs = shipped().unwrap();
        assert!(SHIPPED.iter().all(|(name, _)| repairs.by_name.contains_key(*name)));
        assert_eq!(repairs.by_name.len(), SHIPPED.len());
        assert_eq!(repairs.yielding(), ["repack", "scrub", "verify"]);
    }

    #[test]
    fn what_is_written_is_what_is_shipped_and_what_was_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("verify.toml");
        std::fs::write(&kept, "mine").unwrap();
        assert_eq!(write_shipped(directory.path()).unwrap().len(), SHIPPED.len() - 1);
        assert_eq!(write_shipped(directory.path()).unwrap().len(), 0);
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "mine");
        std::fs::remove_file(&kept).unwrap();
        write_shipped(directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap().by_name, shipped().unwrap().by_name);
    }

    #[test]
    fn one_bad_file_refuses_the_set_and_every_bad_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        write_shipped(directory.path()).unwrap();
        std::fs::write(directory.path().join("a.toml"), "summary = 1").unwrap();
        std::fs::write(directory.path().join("b.toml"), "\nstep =").unwrap();
        let message = load(directory.path()).unwrap_err().to_string();
        assert!(message.contains("a.toml:1: "), "{message}");
        assert!(message.contains("b.toml:2: "), "{message}");
    }

    #[test]
    fn editors_leavings_are_not_repairs() {
        let directory = tempfile::tempdir().unwrap();
        for name in [".verify.toml", ".#verify.toml", "verify.toml~", "verify.toml.swp", "README.md"] {
            std::fs::write(directory.path().join(name), "{{{").unwrap();
        }
        assert!(load(directory.path()).unwrap().by_name.is_empty());
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error_and_not_an_empty_set() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none");
        assert!(matches!(load(&missing), Err(LibraryError::Read { .. })));
    }

    #[test]
    fn a_file_without_an_end_is_not_read_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("big.toml"), "#".repeat(70_000)).unwrap();
        assert!(matches!(load(directory.path()), Err(LibraryError::Read { .. })));
    }
}
