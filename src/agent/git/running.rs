//! A git that runs: its pipes, its end, and who buries it when its owner goes away.

use super::{GitError, Pace, Shared};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a git may take to end by itself after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of git's own words is kept.
const WORDS: usize = 16 * 1024;
/// How much output [`RunningGit::finish`] keeps when nobody took the pipe.
const REST: usize = 1024 * 1024;

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

impl GitOutput {
    /// Whether it ended with 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Git's own words, or what its exit said where it had none.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.stderr.trim(), self.code) {
            ("", Some(code)) => format!("git ended with exit code {code} and no word"),
            ("", None) => "git was ended by a signal".to_owned(),
            (words, _) => words.to_owned(),
        }
    }
}

/// A git that runs with pipes; its whole group is ended when this is dropped.
#[derive(Debug)]
pub struct RunningGit {
    /// To write to.
    pub stdin: Option<ChildStdin>,
    /// To read from.
    pub stdout: Option<ChildStdout>,
    life: Option<Life>,
}

/// The process itself, and what is kept of it.
#[derive(Debug)]
struct Life {
    child: Child,
    group: Option<Pid>,
    words: oneshot::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RunningGit {
    pub(super) fn start(mut process: Command, shared: &Arc<Shared>) -> Result<Self, GitError> {
        let mut child = process.spawn().map_err(GitError::Start)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        shared.running.fetch_add(1, Ordering::Relaxed);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (tell, words) = oneshot::channel();
        shared.reaper.spawn(async move {
            let _ = tell.send(keep_words(stderr).await);
        });
        Ok(Self { stdin, stdout, life: Some(Life { child, group, words, shared: Arc::clone(shared) }) })
    }

    /// Waits for its end; its standard input is closed first. Output that nobody took is read and kept, up to 1 MiB.
    ///
    /// # Errors
    /// As [`GitError`].
    pub async fn finish(self, within: Duration, cancel: &CancellationToken) -> Result<GitOutput, GitError> {
        self.converse(&[], REST, within, cancel).await
    }

    pub(super) async fn converse(
        mut self,
        input: &[u8],
        most: usize,
        within: Duration,
        cancel: &CancellationToken,
    ) -> Result<GitOutput, GitError> {
        let until = Instant::now() + within;
        let (stdin, stdout) = (self.stdin.take(), self.stdout.take());
        let talk = async {
            let feed = async {
                feed(stdin, input).await;
                Ok(())
            };
            tokio::try_join!(feed, gather(stdout, most)).map(|((), output)| output)
        };
        let output = match bounded(until, cancel, talk).await {
            Ok(output) => output,
            Err(error) => return Err(self.give_up(error).await),
        };
        let Some(mut life) = self.life.take() else {
            return Err(GitError::Io(std::io::Error::other("its end was already awaited")));
        };
        let waited = bounded(until, cancel, async { life.child.wait().await.map_err(GitError::Io) }).await;
        match waited {
            Ok(status) => Ok(GitOutput { code: status.code(), stdout: output, stderr: life.words().await }),
            Err(error) => {
                life.end().await;
                Err(error)
            }
        }
    }

    /// Like [`RunningGit::finish`], at a pace: it works for a while and rests for longer. `told` hears how long it
    /// has worked.
    ///
    /// # Errors
    /// As [`GitError`].
    pub async fn finish_at(
        self,
        pace: Pace,
        within: Duration,
        cancel: &CancellationToken,
        told: impl Fn(&str, Duration),
    ) -> Result<GitOutput, GitError> {
        let group = self.life.as_ref().and_then(|life| life.group);
        let signal = move |signal| {
            if let Some(group) = group {
                let _ = kill_process_group(group, signal);
            }
        };
        tokio::select! {
            // In this order: once it has ended, its number may be another's.
            biased;
            ended = self.converse(&[], REST, within, cancel) => ended,
            () = pace.keep(signal, told) => Err(GitError::Cancelled),
        }
    }

    /// Ends it and everything it started, and waits until they are gone.
    pub async fn end(mut self) {
        self.stdin = None;
        self.stdout = None;
        if let Some(life) = self.life.take() {
            life.end().await;
        }
    }

    async fn give_up(self, error: GitError) -> GitError {
        self.end().await;
        error
    }
}

impl Drop for RunningGit {
    fn drop(&mut self) {
        let Some(life) = self.life.take() else { return };
        let reaper = life.shared.reaper.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(reaper.spawn_on(life.end(), &runtime)),
            // No runtime is left to wait in: at once and without patience.
            Err(_) => life.signal(Signal::KILL),
        }
    }
}

impl Life {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails only when nobody is left to hear it.
            let _ = kill_process_group(group, signal);
        }
    }

    async fn end(mut self) {
        self.signal(Signal::TERM);
        // One that rests hears nothing.
        self.signal(Signal::CONT);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        // Its children may live on although it is gone itself: the group is told in any case.
        self.signal(Signal::KILL);
        if ended.is_err() {
            let _ = self.child.wait().await;
        }
        self.emptied().await;
    }

    /// Waits until nobody is left in the group; for a while only, as one whom nobody buries stays in it for ever.
    async fn emptied(&self) {
        let Some(group) = self.group else { return };
        for _ in 0..100 {
            if test_kill_process_group(group).is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn words(mut self) -> String {
        let words = tokio::time::timeout(PATIENCE, &mut self.words).await;
        let words = words.ok().and_then(Result::ok).unwrap_or_default();
        String::from_utf8_lossy(&words).into_owned()
    }
}

async fn bounded<T>(
    until: Instant,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(GitError::Cancelled),
        done = work => done,
        () = tokio::time::sleep_until(until) => Err(GitError::TimedOut),
    }
}

/// Writes all of it; a git that stops reading early says why by its exit.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
        let _ = stdin.shutdown().await;
    }
}

async fn gather(stdout: Option<ChildStdout>, most: usize) -> Result<Vec<u8>, GitError> {
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        stdout.take(limit).read_to_end(&mut output).await.map_err(GitError::Io)?;
    }
    if output.len() > most { Err(GitError::TooMuch(most)) } else { Ok(output) }
}

/// Keeps the first words and reads on to the end, so that a talkative git does not stall.
async fn keep_words(stderr: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut words = Vec::new();
    let Some(mut stderr) = stderr else { return words };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let room = WORDS.saturating_sub(words.len()).min(count);
        words.extend_from_slice(&buffer[..room]);
    }
    words
}
