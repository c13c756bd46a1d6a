//! Running git: a fixed list of arguments, a cleared environment, a process group of its own, a bound on time.
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// How git is run on this fileserver.
#[derive(Debug, Clone)]
pub struct Git {}

/// One git command, with every fixed setting in place.
#[derive(Debug)]
pub struct GitCommand {}

/// What a git that ended left behind.
#[derive(Debug)]
pub struct GitOutput {
    /// Its exit code; none: a signal.
    pub code: Option<i32>,
    /// What it wrote, up to the bound.
    pub stdout: Vec<u8>,
    /// Its own words, up to 16 KiB.
    pub stderr: String,
}

/// A git that runs with pipes; its whole group is ended when this is dropped.
#[derive(Debug)]
pub struct RunningGit {
    /// To write to.
    pub stdin: Option<tokio::process::ChildStdin>,
    /// To read from.
    pub stdout: Option<tokio::process::ChildStdout>,
}

/// Why git did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It could not be started.
    #[error("cannot start git")]
    Start(#[source] std::io::Error),
    /// It was ended because the work was cancelled.
    #[error("git was cancelled")]
    Cancelled,
    /// It ran for too long.
    #[error("git took longer than allowed")]
    TimedOut,
    /// It wrote more than allowed.
    #[error("git wrote more than {0} bytes")]
    TooMuch(usize),
    /// Talking to it failed.
    #[error("talking to git failed")]
    Io(#[source] std::io::Error),
}

impl Git {
    /// Finds git on the PATH and an empty directory for hooks below `root`; refuses versions before 2.39.
    ///
    /// # Errors
    /// When there is no git, or an older one.
    pub fn find(_root: &Path) -> anyhow::Result<Self> {
        todo!()
    }

    /// Its version, for example `2.47.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        todo!()
    }

    /// How many run now.
    #[must_use]
    pub fn running(&self) -> i64 {
        todo!()
    }

    /// A command in a repository (`None`: outside of one), with fixed settings and these arguments.
    #[must_use]
    pub fn command(&self, _repository: Option<&Path>, _arguments: Vec<OsString>) -> GitCommand {
        todo!()
    }
}

impl GitCommand {
    /// Sets an allowed variable; only `GIT_PROTOCOL` (validated), `GIT_QUARANTINE_PATH`, `GIT_OBJECT_DIRECTORY` and
    /// `GIT_ALTERNATE_OBJECT_DIRECTORIES` are.
    #[must_use]
    pub fn env(self, _name: &'static str, _value: OsString) -> Self {
        todo!()
    }

    /// Lets the process (and what it starts) inherit an open lock file, so that the lock holds while any of them lives.
    #[must_use]
    pub fn holding(self, _lock: PathBuf) -> Self {
        todo!()
    }

    /// Runs to the end: `input` on its standard input, at most `most` bytes of output.
    ///
    /// # Errors
    /// As [`GitError`]; an exit code other than 0 is an answer.
    pub async fn run(
        self,
        _input: &[u8],
        _most: usize,
        _within: std::time::Duration,
        _cancel: &CancellationToken,
    ) -> Result<GitOutput, GitError> {
        todo!()
    }

    /// Starts it with pipes for the caller to stream through.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(self) -> Result<RunningGit, GitError> {
        todo!()
    }
}

impl RunningGit {
    /// Waits for its end; its standard input is closed first.
    ///
    /// # Errors
    /// As [`GitError`].
    pub async fn finish(
        self,
        _within: std::time::Duration,
        _cancel: &CancellationToken,
    ) -> Result<GitOutput, GitError> {
        todo!()
    }
}
