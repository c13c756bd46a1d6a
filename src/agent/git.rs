//! Running git: a fixed list of arguments, a cleared environment, a process group of its own, a bound on time.
//!
//! Nothing of the machine's, the user's or the caller's configuration reaches a git that is started here, no hook
//! runs, and nothing but HTTP is spoken. A git that is cancelled, takes too long, or whose owner goes away is ended
//! with everything that it started: TERM, two seconds, KILL. What it leaves (`*.lock` files) is the caller's to
//! clear, and so is a repository's own configuration, which git reads before anything else.

mod lock;
mod pace;
mod running;

pub use pace::Pace;
pub(super) use pace::load;
pub use running::{GitOutput, RunningGit};

use anyhow::Context as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The oldest git that does what is asked here.
const OLDEST: (u32, u32) = (2, 39);

/// Settings that every git gets on its command line, where no file can overrule them.
const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "core.fsync=committed,loose-object,reference",
    "core.filesRefLockTimeout=8000",
    "core.packedRefsTimeout=8000",
    "core.logAllRefUpdates=false",
    "core.useReplaceRefs=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.autogc=false",
    "transfer.advertiseSID=false",
    // What was accepted once is not judged again when it is copied: old histories hold odd objects.
    "transfer.fsckObjects=false",
    "fetch.fsckObjects=false",
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "protocol.version=2",
    "protocol.allow=never",
    "protocol.http.allow=always",
    "protocol.https.allow=always",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
    "credential.helper=",
    // Repositories are the agent's own, whoever the files' owner is on a moved disk.
    "safe.directory=*",
];

/// How git is run on this fileserver.
#[derive(Debug, Clone)]
pub struct Git {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    version: String,
    empty: PathBuf,
    path: OsString,
    running: AtomicI64,
    reaper: TaskTracker,
}

/// One git command, with every fixed setting in place.
#[derive(Debug)]
pub struct GitCommand {
    git: Git,
    repository: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    settings: Vec<(String, String)>,
    lock: Option<PathBuf>,
    refused: Option<std::io::Error>,
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
    pub fn find(root: &Path) -> anyhow::Result<Self> {
        let empty = empty_directory(root)?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let version = version_on(&path)?;
        let number =
            parse_version(&version).with_context(|| format!("cannot read git's version {version:?}"))?;
        if number < OLDEST {
            anyhow::bail!("git {version} is too old: {}.{} or newer is needed", OLDEST.0, OLDEST.1);
        }
        let shared = Shared { version, empty, path, running: AtomicI64::new(0), reaper: TaskTracker::new() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Its version, for example `2.47.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.shared.version
    }

    /// How many run now.
    #[must_use]
    pub fn running(&self) -> i64 {
        self.shared.running.load(Ordering::Relaxed)
    }

    /// A command in a repository (`None`: outside of one), with fixed settings and these arguments. Git's working
    /// directory is the repository, so `.` names it, also after it was renamed.
    #[must_use]
    pub fn command(&self, repository: Option<&Path>, arguments: Vec<OsString>) -> GitCommand {
        GitCommand {
            git: self.clone(),
            repository: repository.map(Path::to_path_buf),
            arguments,
            variables: Vec::new(),
            settings: Vec::new(),
            lock: None,
            refused: None,
        }
    }

    /// Waits until no git that was left to itself runs any more.
    pub async fn settled(&self) {
        self.shared.reaper.close();
        self.shared.reaper.wait().await;
        self.shared.reaper.reopen();
    }

    fn process(&self) -> std::process::Command {
        let mut process = std::process::Command::new("git");
        process.env_clear();
        process.env("PATH", &self.shared.path);
        process.env("HOME", &self.shared.empty);
        process.env("LANG", "C").env("LC_ALL", "C");
        process.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        process.env("GIT_ATTR_NOSYSTEM", "1").env("GIT_NO_REPLACE_OBJECTS", "1");
        process.env("GIT_TERMINAL_PROMPT", "0");
        let mut hooks = OsString::from("core.hooksPath=");
        hooks.push(&self.shared.empty);
        process.arg("-c").arg(hooks);
        for setting in SETTINGS {
            process.arg("-c").arg(setting);
        }
        process
    }
}

impl GitCommand {
    /// Sets an allowed variable; only `GIT_PROTOCOL` (validated), `GIT_QUARANTINE_PATH`, `GIT_OBJECT_DIRECTORY` and
    /// `GIT_ALTERNATE_OBJECT_DIRECTORIES` are. Any other makes the start fail.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: OsString) -> Self {
        let allowed = match name {
            "GIT_PROTOCOL" => is_protocol(&value),
            "GIT_QUARANTINE_PATH" | "GIT_OBJECT_DIRECTORY" | "GIT_ALTERNATE_OBJECT_DIRECTORIES" => true,
            _ => false,
        };
        if allowed {
            self.variables.push((name.into(), value));
        } else {
            self.refused =
                Some(std::io::Error::other(format!("{name} may not have the value {}", value.display())));
        }
        self
    }

    /// Adds one setting through the environment, where a list of processes does not show it: for secrets.
    #[must_use]
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// Lets the process (and what it starts) inherit a shared lock on this file, so that nobody can have it whole while
    /// any of them lives.
    #[must_use]
    pub fn holding(mut self, lock: PathBuf) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Runs to the end: `input` on its standard input, at most `most` bytes of output.
    ///
    /// # Errors
    /// As [`GitError`]; an exit code other than 0 is an answer.
    pub async fn run(
        self,
        input: &[u8],
        most: usize,
        within: std::time::Duration,
        cancel: &CancellationToken,
    ) -> Result<GitOutput, GitError> {
        self.spawn()?.converse(input, most, within, cancel).await
    }

    /// Starts it with pipes for the caller to stream through.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(self) -> Result<RunningGit, GitError> {
        if let Some(refused) = self.refused {
            return Err(GitError::Start(refused));
        }
        let mut process = self.git.process();
        if let Some(repository) = &self.repository {
            process.current_dir(repository).arg("--git-dir=.");
        } else {
            process.current_dir(&self.git.shared.empty);
        }
        process.args(&self.arguments);
        process.envs(self.variables.iter().map(|(name, value)| (name, value)));
        set_settings(&mut process, &self.settings);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut process, 0);
        let mut process = tokio::process::Command::from(process);
        if let Some(lock) = &self.lock {
            let held = lock::share(lock).map_err(GitError::Start)?;
            command_fds::CommandFdExt::preserved_fds(&mut process, vec![held]);
        }
        RunningGit::start(process, &self.git.shared)
    }
}

fn set_settings(process: &mut std::process::Command, settings: &[(String, String)]) {
    if settings.is_empty() {
        return;
    }
    process.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (number, (key, value)) in settings.iter().enumerate() {
        process.env(format!("GIT_CONFIG_KEY_{number}"), key);
        process.env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
}

/// `version=0` to `version=2`: nothing else of a client's wishes reaches git.
fn is_protocol(value: &std::ffi::OsStr) -> bool {
    matches!(value.as_encoded_bytes(), b"version=0" | b"version=1" | b"version=2")
}

/// A directory that stays empty: where git looks for hooks, and what it takes for a home.
fn empty_directory(root: &Path) -> anyhow::Result<PathBuf> {
    let empty = root.join("empty");
    std::fs::create_dir_all(&empty).with_context(|| format!("cannot make {}", empty.display()))?;
    let empty = empty.canonicalize().with_context(|| format!("cannot find {}", empty.display()))?;
    let stranger = std::fs::read_dir(&empty)?.next();
    if let Some(Ok(stranger)) = stranger {
        anyhow::bail!("{} must stay empty, but something stands there", stranger.path().display());
    }
    Ok(empty)
}

fn version_on(path: &std::ffi::OsStr) -> anyhow::Result<String> {
    let output = std::process::Command::new("git")
        .arg("version")
        .env_clear()
        .env("PATH", path)
        .output()
        .context("cannot run git: is it installed and on the PATH?")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("git version ").unwrap_or_default();
    Ok(version.split_whitespace().next().unwrap_or_default().to_owned())
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
