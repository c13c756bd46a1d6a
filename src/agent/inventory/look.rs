//! One cheap look at a repository on disk: what its fingerprint is made of, and what lies about.
//!
//! No file's content is read but names: sizes, inodes and times tell whether something was
//! changed. Objects are seen through packs and indexes alone.

use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Directories below `refs/` deeper than this are not followed: no name git accepts is that deep.
const DEEPEST: usize = 256;
/// More stale locks than this in one repository wait for the next look.
const MOST_LOCKS: usize = 1_000;

/// What a repository looks like.
pub(in crate::agent) type Print = [u8; 16];

/// What one look saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct Looked {
    pub(in crate::agent) print: Print,
    /// Bytes of packs and their indexes.
    pub(in crate::agent) packs: i64,
    /// Files that a git holds while it writes, or has left behind.
    pub(in crate::agent) locks: Vec<PathBuf>,
}

impl Looked {
    /// What stands for a repository that is there and cannot be looked at: unlike any that can.
    pub(in crate::agent) fn unreadable() -> Self {
        Self { print: [0; 16], packs: 0, locks: Vec::new() }
    }
}

/// Looks at a repository; none: it is not there.
pub(in crate::agent) fn look(repository: &Path) -> io::Result<Option<Looked>> {
    match std::fs::symlink_metadata(repository) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut eye = Eye { hasher: blake3::Hasher::new(), packs: 0, locks: Vec::new() };
    for name in ["HEAD", "packed-refs", "config", "shallow", "commondir", "objects/info/alternates"] {
        eye.file(repository, name)?;
    }
    eye.locks_in(repository)?;
    eye.locks_in(&repository.join("objects/info"))?;
    eye.locks_in(&repository.join("objects/info/commit-graphs"))?;
    eye.packs(&repository.join("objects/pack"))?;
    eye.tree(&repository.join("reftable"), 1)?;
    eye.tree(&repository.join("refs"), DEEPEST)?;
    let mut print = [0; 16];
    print.copy_from_slice(&eye.hasher.finalize().as_bytes()[..16]);
    Ok(Some(Looked { print, packs: eye.packs, locks: eye.locks }))
}

/// Bytes of everything in a repository; what vanishes meanwhile is not counted.
pub(in crate::agent) fn measure(repository: &Path) -> io::Result<i64> {
    let mut bytes = 0_i64;
    let mut open = vec![repository.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in sorted(&directory)? {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                Ok(metadata) => bytes = bytes.saturating_add(size(&metadata)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}

struct Eye {
    hasher: blake3::Hasher,
    packs: i64,
    locks: Vec<PathBuf>,
}

impl Eye {
    fn file(&mut self, repository: &Path, name: &str) -> io::Result<()> {
        match std::fs::symlink_metadata(repository.join(name)) {
            Ok(metadata) => self.record(name.as_bytes(), &metadata),
            Err(error) if is_absent(&error) => self.name(name.as_bytes()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A directory of references and all below it: names, sizes, inodes, times.
    fn tree(&mut self, directory: &Path, deepest: usize) -> io::Result<()> {
        match std::fs::symlink_metadata(directory) {
            Ok(metadata) => self.record(b"/", &metadata),
            Err(error) if is_absent(&error) => {
                self.name(b"/");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        for entry in sorted(directory)? {
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error),
            };
            self.record(entry.file_name().as_bytes(), &metadata);
            if metadata.is_dir() && deepest > 1 {
                self.tree(&entry.path(), deepest - 1)?;
            } else {
                self.lock(&entry, &metadata);
            }
        }
        self.name(b"\0");
        Ok(())
    }

    fn packs(&mut self, directory: &Path) -> io::Result<()> {
        for entry in sorted(directory)? {
            let name = entry.file_name();
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error),
            };
            if [&b".pack"[..], b".idx"].iter().any(|ending| name.as_bytes().ends_with(ending)) {
                self.name(name.as_bytes());
                self.hasher.update(&metadata.len().to_le_bytes());
                self.packs = self.packs.saturating_add(size(&metadata));
            }
            self.lock(&entry, &metadata);
        }
        Ok(())
    }

    fn locks_in(&mut self, directory: &Path) -> io::Result<()> {
        for entry in sorted(directory)? {
            if let Ok(metadata) = entry.metadata() {
                self.lock(&entry, &metadata);
            }
        }
        Ok(())
    }

    fn lock(&mut self, entry: &DirEntry, metadata: &Metadata) {
        let is_lock = metadata.is_file() && entry.file_name().as_bytes().ends_with(b".lock");
        if is_lock && self.locks.len() < MOST_LOCKS {
            self.locks.push(entry.path());
        }
    }

    fn name(&mut self, name: &[u8]) {
        self.hasher.update(&name.len().to_le_bytes()).update(name);
    }

    fn record(&mut self, name: &[u8], metadata: &Metadata) {
        self.name(name);
        // A directory's size differs between file systems that hold the same; its times say enough.
        let size = if metadata.is_dir() { 0 } else { metadata.len() };
        self.hasher.update(&size.to_le_bytes()).update(&metadata.ino().to_le_bytes());
        for part in [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()] {
            self.hasher.update(&part.to_le_bytes());
        }
        self.hasher.update(&metadata.mode().to_le_bytes());
    }
}

/// The entries of a directory in the order of their names; none where there is no directory.
fn sorted(directory: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn size(metadata: &Metadata) -> i64 {
    i64::try_from(metadata.len()).unwrap_or(i64::MAX)
}
