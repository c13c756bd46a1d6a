//! The source of an import: a repository of this machine, looked at and read with safe settings, never changed.

use super::super::failure::{Exit, Failure};
use crate::agent::content::{self, Foreign};
use crate::agent::git::{Git, RunningGit};
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use anyhow::Context as _;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where git's HEAD points in a repository that nobody pushed to.
const UNBORN: &str = "refs/heads/main";

/// Longest wait for what git says at once.
const SOON: Duration = Duration::from_secs(30);

/// Runs git for sources, with an empty directory for hooks.
#[derive(Debug)]
pub struct Runner {
    git: Git,
    _empty: tempfile::TempDir,
}

impl Runner {
    /// Finds git.
    ///
    /// # Errors
    /// When there is none, or an old one.
    pub fn new() -> anyhow::Result<Self> {
        let empty = tempfile::tempdir().context("making an empty directory for git")?;
        Ok(Self { git: Git::find(empty.path())?, _empty: empty })
    }
}

/// HEAD and all references of a source, read at one moment.
#[derive(Debug, Clone)]
pub struct Content {
    /// The hash objects are named by.
    pub format: ObjectFormat,
    /// What HEAD points at.
    pub head: Target,
    /// HEAD and references in the text form of [`wire`](crate::model::wire).
    pub text: Vec<u8>,
    /// The objects that they name, each once.
    pub tips: Vec<String>,
}

impl Content {
    /// That of a repository that nobody pushed to.
    #[must_use]
    pub fn empty(format: ObjectFormat) -> Self {
        Self {
            format,
            head: Target::Symbolic(UNBORN.to_owned()),
            text: format!("HEAD ref:{UNBORN}\n").into_bytes(),
            tips: Vec::new(),
        }
    }
}

/// A repository that may be imported.
#[derive(Debug)]
pub struct Source {
    git: Git,
    directory: PathBuf,
    format: ObjectFormat,
    bytes: i64,
}

impl Source {
    /// Looks at a repository.
    ///
    /// # Errors
    /// With a sentence, when it is shallow, partial, a linked worktree, of a storage that is not known, or none.
    pub async fn open(runner: &Runner, path: &Path) -> anyhow::Result<Self> {
        let directory = git_directory(path)?;
        whole(&directory)?;
        let format = object_format(&runner.git, &directory).await?;
        let bytes = tree_size(&directory.join("objects"), 4);
        Ok(Self { git: runner.git.clone(), directory, format, bytes })
    }

    /// Bytes of its objects on disk: about what a copy takes.
    #[must_use]
    pub const fn bytes(&self) -> i64 {
        self.bytes
    }

    /// Reads HEAD and all references.
    ///
    /// # Errors
    /// When one of them is broken.
    pub async fn content(&self) -> anyhow::Result<Content> {
        let (directory, format) = (self.directory.clone(), self.format);
        let read = tokio::task::spawn_blocking(move || content::foreign(&directory, format)).await?;
        let Foreign { head, text, tips } =
            read.map_err(|refusal| refused(format!("it is broken: {}", refusal.message)))?;
        Ok(Content { format: self.format, head, text, tips })
    }

    /// Starts to pack everything that these objects lead to. Git refuses where an object is missing.
    ///
    /// # Errors
    /// When git cannot be started.
    pub fn pack(&self) -> anyhow::Result<RunningGit> {
        let arguments = ["pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"];
        let arguments = arguments.map(OsString::from).to_vec();
        self.git.command(Some(&self.directory), arguments).spawn().context("starting git pack-objects")
    }
}

fn refused(why: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, why)
}

/// Git's own directory of a repository.
fn git_directory(path: &Path) -> anyhow::Result<PathBuf> {
    let inner = path.join(".git");
    let directory = if inner.is_dir() {
        inner
    } else if inner.is_file() {
        let text = fs::read_to_string(&inner).with_context(|| format!("reading {}", inner.display()))?;
        let target = text
            .trim()
            .strip_prefix("gitdir: ")
            .ok_or_else(|| refused("its .git file names no directory"))?;
        path.join(target)
    } else {
        path.to_owned()
    };
    if directory.join("commondir").exists() {
        return Err(refused("it is a linked worktree: import the repository that it belongs to").into());
    }
    if !super::find::is_git_directory(&directory) {
        return Err(refused("it is not a repository").into());
    }
    fs::canonicalize(&directory).with_context(|| format!("looking at {}", directory.display()))
}

/// Refuses what has not all of its history here, or keeps references in files that are not known.
fn whole(directory: &Path) -> Result<(), Failure> {
    if fs::metadata(directory.join("shallow")).is_ok_and(|file| file.len() > 0) {
        return Err(refused("it is shallow: its history is not all here; `git fetch --unshallow` brings it"));
    }
    let packs = fs::read_dir(directory.join("objects/pack"));
    let promised = packs.is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "promisor"))
        })
    });
    let config = fs::read_to_string(directory.join("config")).unwrap_or_default().to_lowercase();
    if promised || config.contains("partialclone") || config.contains("promisor") {
        return Err(refused("it is a partial clone: some of its objects are promised and not here"));
    }
    if directory.join("reftable").exists() {
        return Err(refused("it keeps references in a reftable, which this version does not read"));
    }
    Ok(())
}

async fn object_format(git: &Git, directory: &Path) -> anyhow::Result<ObjectFormat> {
    let arguments = ["rev-parse", "--show-object-format"].map(OsString::from).to_vec();
    let never = CancellationToken::new();
    let answer = git.command(Some(directory), arguments).run(b"", 1 << 10, SOON, &never).await?;
    let word = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if answer.code != Some(0) {
        return Err(
            refused(format!("git does not take it for a repository: {}", answer.stderr.trim())).into()
        );
    }
    word.parse().map_err(|_| refused(format!("its object format {word:?} is not known")).into())
}

/// Bytes of all files of a directory to a depth; what cannot be read counts nothing, it is an estimate.
fn tree_size(directory: &Path, deeper: usize) -> i64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let mut bytes = 0_i64;
    for entry in entries.filter_map(Result::ok) {
        let Ok(data) = entry.metadata() else { continue };
        bytes += if data.is_dir() && deeper > 0 {
            tree_size(&entry.path(), deeper - 1)
        } else {
            i64::try_from(data.len()).unwrap_or_default()
        };
    }
    bytes
}

#[cfg(test)]
mod tests;
