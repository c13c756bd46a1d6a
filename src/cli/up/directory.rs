//! The data directory of `trued up`: its format, its one owner, and where things are in it.
//!
//! ```text
//! DIR/version            format of the directory
//! DIR/lock               held by the `trued up` that runs on it
//! DIR/up.json            address of the API, while one runs
//! DIR/ports.json         port of each agent, kept over restarts
//! DIR/trued.db           the database, unless another is named
//! DIR/keys/NAME.json     enrolments of all parts
//! DIR/fileservers/NAME/  roots of agents
//! ```

use super::super::client::UpFile;
use super::super::failure::{Exit, Failure};
use crate::agent::lock_alone;
use crate::model::amount::show_size;
use anyhow::Context as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Format of the directory that this version writes.
const FORMAT: u32 = 1;

/// What a new directory's disk must have free: the database with its log, and what the agents keep free for locks and
/// journals. On a fuller one a fleet would be begun and never be ready.
const LEAST_FREE: u64 = 16 * 1024 * 1024;

/// What may lie in a directory without a version: what a start left that was broken off, what a person laid there
/// before the first one (a database from a backup, disks mounted as roots, goals, a configuration), and what a file
/// system has of its own.
const OURS: [&str; 12] = [
    "lock",
    "keys",
    "ports.json",
    "up.json",
    "trued.db",
    "trued.db-shm",
    "trued.db-wal",
    "fileservers",
    "goals",
    "repairs",
    "trued.toml",
    "lost+found",
];

/// A data directory that is ours as long as this is kept.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Makes or takes a directory.
    ///
    /// # Errors
    /// When it is of a newer version, another `trued up` has it, or it cannot be written.
    pub fn take(path: &Path) -> anyhow::Result<Self> {
        check_format(path)?;
        check_room(path)?;
        let named = path;
        fs::create_dir_all(path).map_err(unfit(named))?;
        let path = fs::canonicalize(path).map_err(unfit(named))?;
        if !path.join("version").exists() {
            check_vacant(&path)?;
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(unfit(named))?;
        if !lock_alone(&lock).with_context(|| format!("locking {}", lock_path.display()))? {
            return Err(Failure::usage(format!("another `trued up` runs on {}", path.display()))
                .hint("stop that one, or give another directory with --data")
                .into());
        }
        // Again, now that nobody else writes it.
        check_format(&path)?;
        let version = path.join("version");
        if !version.exists() {
            write_whole(&version, &format!("{FORMAT}\n"))?;
        }
        let keys = path.join("keys");
        fs::create_dir_all(&keys)
            .and_then(|()| fs::set_permissions(&keys, Permissions::from_mode(0o700)))
            .with_context(|| format!("making {}", keys.display()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The enrolment of a part.
    #[must_use]
    pub fn key(&self, name: &str) -> PathBuf {
        self.path.join("keys").join(format!("{name}.json"))
    }

    /// The root of a fileserver.
    #[must_use]
    pub fn root(&self, name: &str) -> PathBuf {
        self.path.join("fileservers").join(name)
    }

    /// The ports of agents.
    #[must_use]
    pub fn ports(&self) -> PathBuf {
        self.path.join("ports.json")
    }

    /// Tells commands where the API is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&self, up: &UpFile) -> anyhow::Result<()> {
        write_whole(&UpFile::path(&self.path), &serde_json::to_string_pretty(up)?)
    }

    /// Says that nothing runs any more.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(UpFile::path(&self.path));
    }
}

/// Why a path that was named will not do. A disk without room is another's trouble, and not the name's.
fn unfit(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => "it is a file".to_owned(),
            io::ErrorKind::NotADirectory => "it lies below a file".to_owned(),
            _ => error.to_string(),
        };
        let exit = if full { Exit::Failed } else { Exit::Usage };
        Failure::new(exit, format!("{} cannot be the data directory: {why}", path.display()))
            .hint("--data names a directory that can be made and written")
    }
}

/// A directory that holds something else is not begun in: `--data /home` is a slip.
fn check_vacant(path: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(path).map_err(unfit(path))? {
        let name = entry.map_err(unfit(path))?.file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            let name = name.to_string_lossy();
            let said = format!("{} holds no fleet, but other files, as {name}", path.display());
            return Err(Failure::usage(said).hint("--data names a new or an empty directory").into());
        }
    }
    Ok(())
}

/// Before anything is made: a new fleet on a full disk is refused. One that is there is started, since a person may
/// look at it and make room.
fn check_room(path: &Path) -> anyhow::Result<()> {
    if path.join("version").exists() {
        return Ok(());
    }
    let absolute = std::path::absolute(path).map_err(unfit(path))?;
    let Some(there) = absolute.ancestors().find(|one| one.exists()) else { return Ok(()) };
    let Ok(stat) = rustix::fs::statvfs(there) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // What counts no blocks, as /proc, is no disk.
    if free >= LEAST_FREE || stat.f_blocks == 0 {
        return Ok(());
    }
    let [needed, free] = [LEAST_FREE, free].map(|bytes| show_size(i64::try_from(bytes).unwrap_or(i64::MAX)));
    let said = format!(
        "{} cannot be the data directory: its disk has {free} free, a new fleet needs {needed}",
        path.display()
    );
    Err(Failure::new(Exit::Failed, said).hint("make room, or give another directory with --data").into())
}

fn check_format(path: &Path) -> anyhow::Result<()> {
    let Ok(text) = fs::read_to_string(path.join("version")) else { return Ok(()) };
    match text.trim().parse::<u32>() {
        Ok(found) if found <= FORMAT => Ok(()),
        Ok(found) => Err(Failure::usage(format!(
            "{} is of format {found}, made by a newer trued; this one knows up to {FORMAT}",
            path.display()
        ))
        .into()),
        Err(_) => {
            Err(Failure::usage(format!("{}: {text:?} is not a version", path.join("version").display()))
                .into())
        }
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let next = path.with_extension("next");
    fs::write(&next, text)
        .and_then(|()| File::open(&next)?.sync_all())
        .and_then(|()| fs::rename(&next, path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::exit_of;
    use super::*;

    #[test]
    fn a_directory_of_a_newer_version_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("version"), "2\n").unwrap();
        let error = DataDirectory::take(directory.path()).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        assert!(error.to_string().contains("made by a newer trued"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_can_be_no_data_directory_is_wrong_usage() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "mine").unwrap();
        // Nobody makes a directory in /proc, not even root.
        for (path, why) in [
            (file.clone(), "it is a file"),
            (file.join("data"), "it lies below a file"),
            ("/proc/trued".into(), ""),
        ] {
            let error = DataDirectory::take(&path).unwrap_err();
            assert_eq!(exit_of(&error), Exit::Usage, "{error}");
            let said = format!("{} cannot be the data directory: {why}", path.display());
            assert!(error.to_string().starts_with(&said), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        let full = unfit(Path::new("/data"))(io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit, Exit::Failed);
    }

    #[test]
    fn only_one_may_run_on_a_directory_and_the_next_may_when_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/data");
        let first = DataDirectory::take(&path).unwrap();
        let error = DataDirectory::take(&path).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        assert!(error.to_string().starts_with("another `trued up` runs on "), "{error}");
        drop(first);
        DataDirectory::take(&path).unwrap();
    }

    #[test]
    fn a_directory_with_other_files_is_not_begun_in() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("goals")).unwrap();
        fs::create_dir(directory.path().join("fileservers")).unwrap();
        fs::write(directory.path().join("thesis.tex"), "mine").unwrap();
        let error = DataDirectory::take(directory.path()).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        assert!(error.to_string().ends_with("holds no fleet, but other files, as thesis.tex"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "nothing was laid beside them");
        fs::remove_file(directory.path().join("thesis.tex")).unwrap();
        DataDirectory::take(directory.path()).unwrap();
    }
}
