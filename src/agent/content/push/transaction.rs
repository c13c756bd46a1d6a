//! Git's own transaction of references, held open between `prepare` and `commit`.
//!
//! Git that loses its standard input undoes what it prepared, so a dead agent leaves no lock behind, or only until
//! that git has ended. Whoever calls has the references to himself: a lock that is in the way is a dead git's.
//!
//! What a commit renames is on disk before it does: git syncs each file, or, of many, the file system is synced once.

use super::super::hygiene;
use super::super::objects::{broken, refused};
use super::super::{disk, peer};
use super::rejected;
use crate::agent::git::{GitError, GitOutput, RunningGit};
use crate::agent::store::Store;
use crate::model::checksum::Target;
use crate::model::id::RepositoryId;
use crate::model::push::HEAD;
use crate::model::wire::push::Command;
use crate::model::wire::{Refusal, RefusalCode};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

/// What a transaction may take, and for each of its commands: whoever waits for a vote waits less.
const WITHIN: Duration = Duration::from_secs(20);
const EACH: Duration = Duration::from_millis(10);
/// More files than these are not synced one by one: ten thousand took half a minute on a slow disk, and one sync of the
/// whole file system a fraction of a second.
const MANY: usize = 64;
/// How long git may take to undo what it prepared.
const UNDOING: Duration = Duration::from_secs(5);

/// Where references are changed.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) id: RepositoryId,
    pub(super) repository: PathBuf,
    pub(super) lock: PathBuf,
}

/// A git that waits for its verdict.
#[derive(Debug)]
pub(super) struct Transaction {
    git: RunningGit,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    within: Duration,
}

/// Whether `update-ref` can do it: before 2.46 it cannot write symbolic references.
fn is_plain(command: &Command) -> bool {
    !matches!(command.new, Some(Target::Symbolic(_)))
}

/// Prepares commands; none: there is nothing for this git to do.
pub(super) async fn prepare(
    store: &Store,
    place: &Place,
    commands: &[Command],
    cancel: &CancellationToken,
) -> Result<Option<Transaction>, Refusal> {
    let plain: Vec<&Command> = commands.iter().filter(|command| is_plain(command)).collect();
    if plain.is_empty() {
        return Ok(None);
    }
    match begin(store, place, &plain, cancel).await {
        Err(refusal) if refusal.message.contains(".lock': File exists") => {
            clear_locks(store, place).await?;
            begin(store, place, &plain, cancel).await.map(Some)
        }
        ended => ended.map(Some),
    }
}

/// Prepares and commits at once.
pub(super) async fn run(store: &Store, place: &Place, commands: &[Command]) -> Result<(), Refusal> {
    let never = CancellationToken::new();
    match prepare(store, place, commands, &never).await? {
        Some(transaction) => transaction.commit().await,
        None => Ok(()),
    }
}

/// Writes symbolic references, HEAD among them: inside the same gate, after what git can do as a transaction.
pub(super) async fn symbolic(store: &Store, place: &Place, commands: &[Command]) -> Result<(), Refusal> {
    for command in commands {
        let Some(Target::Symbolic(to)) = &command.new else { continue };
        let name = OsString::from_vec(command.name.0.clone());
        let git = store.git.command(Some(&place.repository), vec!["symbolic-ref".into(), name, to.into()]);
        let never = CancellationToken::new();
        let answer = git.holding(place.lock.clone()).run(b"", 64 * 1024, WITHIN, &never).await;
        let answer = answer.map_err(|error| broken(&error))?;
        if !answer.ok() {
            return Err(refused(RefusalCode::Failed, &answer));
        }
    }
    Ok(())
}

/// Removes locks that dead gits left, and says so.
pub(super) async fn clear_locks(store: &Store, place: &Place) -> Result<(), Refusal> {
    let repository = place.repository.clone();
    let removed = disk::blocking(move || hygiene::remove_stale_locks(&repository)).await?;
    for path in &removed {
        tracing::warn!(repository.id = place.id.0, path, "removed a lock that a dead git left");
    }
    store.inventory.note_locks(removed.len());
    Ok(())
}

async fn begin(
    store: &Store,
    place: &Place,
    commands: &[&Command],
    cancel: &CancellationToken,
) -> Result<Transaction, Refusal> {
    let many = commands.len() > MANY;
    let quick = ["-c", "core.filesRefLockTimeout=0", "-c", "core.packedRefsTimeout=0"];
    let unsynced: &[&str] = if many { &["-c", "core.fsync=none"] } else { &[] };
    let verb = ["update-ref", "--no-deref", "--stdin", "-z"];
    let arguments = quick.iter().chain(unsynced).chain(&verb).map(OsString::from).collect();
    let command = store.git.command(Some(&place.repository), arguments);
    let mut git = command.holding(place.lock.clone()).spawn().map_err(|error| broken(&error))?;
    let (Some(stdin), Some(stdout)) = (git.stdin.take(), git.stdout.take()) else {
        return Err(broken(&GitError::Start(std::io::Error::other("git has no pipes"))));
    };
    let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
    let within = WITHIN + EACH.saturating_mul(count);
    let mut transaction = Transaction { git, stdin, stdout: BufReader::new(stdout), within };
    let input = text(commands);
    let asked = transaction.ask(&input, "prepare: ok");
    let answered = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(peer::cancelled()),
        answered = tokio::time::timeout(within, asked) => answered.map_err(|_| broken(&GitError::TimedOut)),
    };
    let synced = match answered {
        Ok(true) if many => sync_file_system(&place.repository).await.map(|()| true),
        answered => answered,
    };
    match synced {
        Ok(true) => Ok(transaction),
        Ok(false) => Err(transaction.words().await),
        Err(refusal) => {
            transaction.end(store, place).await;
            Err(refusal)
        }
    }
}

async fn sync_file_system(path: &Path) -> Result<(), Refusal> {
    let path = path.to_path_buf();
    disk::blocking(move || {
        let synced = std::fs::File::open(&path).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(|error| disk::refusal("cannot sync the file system of", &path, &error))
    })
    .await
}

impl Transaction {
    /// Commits; on an error some of it may be done. It is not cancelled: a fence waits for its end.
    pub(super) async fn commit(mut self) -> Result<(), Refusal> {
        let within = self.within;
        match tokio::time::timeout(within, self.ask(b"commit\0", "commit: ok")).await {
            Ok(true) => {}
            Ok(false) => return Err(self.words().await),
            Err(_) => {
                self.git.end().await;
                return Err(broken(&GitError::TimedOut));
            }
        }
        let ended = self.ended(within).await?;
        if ended.ok() { Ok(()) } else { Err(refused(RefusalCode::Failed, &ended)) }
    }

    /// Undoes what was prepared, and waits until git is gone.
    pub(super) async fn abort(mut self, store: &Store, place: &Place) {
        let told = tokio::time::timeout(UNDOING, self.ask(b"abort\0", "abort: ok")).await;
        if !told.unwrap_or(false) || self.ended(UNDOING).await.is_err() {
            let _ = clear_locks(store, place).await;
        }
    }

    /// Ends git with what it prepared; its locks go with it.
    async fn end(self, store: &Store, place: &Place) {
        drop(self.stdin);
        self.git.end().await;
        let _ = clear_locks(store, place).await;
    }

    /// Sends commands and reads to the line that says that they were done; `false`: git ended before.
    async fn ask(&mut self, input: &[u8], done: &str) -> bool {
        // Git that has ended reads no more, and says why by its exit.
        let _ = self.stdin.write_all(input).await;
        let _ = self.stdin.flush().await;
        let mut line = String::new();
        while matches!(self.stdout.read_line(&mut line).await, Ok(1..)) {
            if line.trim_end() == done {
                return true;
            }
            line.clear();
        }
        false
    }

    async fn words(self) -> Refusal {
        match self.ended(UNDOING).await {
            Ok(answer) => match refused(RefusalCode::Rejected, &answer) {
                refusal if refusal.code == RefusalCode::DiskFull => refusal,
                refusal => rejected(refusal.message),
            },
            Err(refusal) => refusal,
        }
    }

    async fn ended(self, within: Duration) -> Result<GitOutput, Refusal> {
        drop(self.stdin);
        let never = CancellationToken::new();
        self.git.finish(within, &never).await.map_err(|error| broken(&error))
    }
}

/// The input of `update-ref --stdin -z`, up to its preparation.
fn text(commands: &[&Command]) -> Vec<u8> {
    let mut text = b"start\0".to_vec();
    for command in commands {
        let name = &command.name.0[..];
        // Of symbolic ones git compares no old value: that was done by whoever holds the gate.
        let old = match &command.old {
            Some(Target::Object(oid)) => oid.as_bytes(),
            _ => b"",
        };
        match (&command.old, &command.new) {
            (None, Some(Target::Object(new))) if name != HEAD => {
                push(&mut text, b"create ", &[name, new.as_bytes()]);
            }
            (_, Some(Target::Object(new))) => push(&mut text, b"update ", &[name, new.as_bytes(), old]),
            _ => push(&mut text, b"delete ", &[name, old]),
        }
    }
    text.extend_from_slice(b"prepare\0");
    text
}

fn push(text: &mut Vec<u8>, verb: &[u8], words: &[&[u8]]) {
    text.extend_from_slice(verb);
    for word in words {
        text.extend_from_slice(word);
        text.push(0);
    }
}

/// Directories whose names change with these commands, deepest first: git syncs files, and never a directory.
pub(super) fn sync_directories(repository: &Path, commands: &[Command]) -> Result<(), Refusal> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut directories = std::collections::BTreeSet::new();
    for command in commands {
        let names = crate::model::refname::above(&command.name.0);
        directories.extend(names.map(|name| repository.join(std::ffi::OsStr::from_bytes(name))));
    }
    for directory in directories.iter().rev() {
        // Git removes directories that have become empty.
        if directory.is_dir() {
            disk::sync_directory(directory)?;
        }
    }
    let tables = repository.join("reftable");
    if tables.is_dir() {
        disk::sync_directory(&tables)?;
    }
    disk::sync_directory(repository)
}
