//! Questions about objects that only git can answer, and fetching those that are missing.

use super::disk;
use super::peer::Peer;
use crate::agent::git::{Git, GitError, GitOutput};
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// The longest walk or fetch; work that is stuck is ended by whoever waits for it.
pub(super) const LONG: Duration = Duration::from_hours(12);
/// Questions and small changes.
const SHORT: Duration = Duration::from_mins(10);
/// Objects asked for in one fetch.
const BATCH: usize = 10_000;

/// Which git, where, and until when.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) git: &'a Git,
    pub(super) repository: &'a Path,
    /// The lock file that gits which change something inherit.
    pub(super) lock: Option<&'a Path>,
    pub(super) cancel: &'a CancellationToken,
}

impl At<'_> {
    /// Runs git with this input; an exit code other than 0 is an answer.
    pub(super) async fn ask(
        &self,
        arguments: &[&str],
        input: &[u8],
        most: usize,
    ) -> Result<GitOutput, Refusal> {
        self.run(arguments.iter().map(OsString::from).collect(), input, most, SHORT).await
    }

    /// Runs git; an exit code other than 0 is `code` with git's words.
    pub(super) async fn demand(
        &self,
        arguments: Vec<OsString>,
        input: &[u8],
        code: RefusalCode,
    ) -> Result<(), Refusal> {
        let answer = self.run(arguments, input, 64 * 1024, SHORT).await?;
        if answer.ok() { Ok(()) } else { Err(refused(code, &answer)) }
    }

    async fn run(
        &self,
        arguments: Vec<OsString>,
        input: &[u8],
        most: usize,
        within: Duration,
    ) -> Result<GitOutput, Refusal> {
        let mut command = self.git.command(Some(self.repository), arguments);
        if let Some(lock) = self.lock {
            command = command.holding(lock.to_path_buf());
        }
        command.run(input, most, within, self.cancel).await.map_err(|error| broken(&error))
    }
}

/// A refusal with git's words; a full disk is told apart.
pub(super) fn refused(code: RefusalCode, answer: &GitOutput) -> Refusal {
    let words = answer.words();
    let full = words.contains("No space left on device") || words.contains("Disk quota exceeded");
    Refusal::new(if full { RefusalCode::DiskFull } else { code }, words)
}

/// A refusal for a git that did not end by itself.
pub(super) fn broken(error: &GitError) -> Refusal {
    let code = match error {
        GitError::Cancelled => RefusalCode::Cancelled,
        _ => RefusalCode::Failed,
    };
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Refusal::new(code, format!("{error}{source}"))
}

/// Which of these objects are not there. One process; objects are looked up, not opened.
pub(super) async fn missing(at: At<'_>, oids: &[String]) -> Result<Vec<String>, Refusal> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let most = oids.iter().map(|oid| oid.len() + 16).sum();
    let answer = at.ask(&["cat-file", "--batch-check=%(objectname)"], lines(oids).as_bytes(), most).await?;
    if !answer.ok() {
        return Err(refused(RefusalCode::Damaged, &answer));
    }
    let text = String::from_utf8_lossy(&answer.stdout);
    let gone = text.lines().filter_map(|line| line.strip_suffix(" missing").map(str::to_owned));
    Ok(gone.collect())
}

/// Walks everything that these objects lead to: all of it must be there.
pub(super) async fn connected(at: At<'_>, tips: &[String]) -> Result<(), Refusal> {
    // A commit-graph could answer for commits that are gone.
    let arguments = ["-c", "core.commitGraph=false", "rev-list", "--objects", "--stdin", "--quiet"];
    let answer =
        at.run(arguments.map(OsString::from).to_vec(), lines(tips).as_bytes(), 1 << 20, LONG).await?;
    if answer.ok() { Ok(()) } else { Err(refused(RefusalCode::Damaged, &answer)) }
}

/// Reads these loose objects to their ends, where their own check sums stand. `files` are paths like `objects/ab/…`.
pub(super) async fn loose_are_whole(at: At<'_>, files: &[String]) -> Result<(), Refusal> {
    if files.is_empty() {
        return Ok(());
    }
    let oids: Vec<String> =
        files.iter().map(|file| file.trim_start_matches("objects/").replacen('/', "", 1)).collect();
    let arguments = ["cat-file", "--batch", "--buffer"].map(OsString::from).to_vec();
    let mut git = at.git.command(Some(at.repository), arguments).spawn().map_err(|error| broken(&error))?;
    let (stdin, stdout) = (git.stdin.take(), git.stdout.take());
    let text = lines(&oids);
    let feed = async {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(text.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
    };
    let drain = async {
        let mut buffer = vec![0; 64 * 1024];
        if let Some(mut stdout) = stdout {
            while let Ok(1..) = stdout.read(&mut buffer).await {}
        }
    };
    tokio::select! {
        _ = async { tokio::join!(feed, drain) } => {}
        () = at.cancel.cancelled() => {}
    }
    let answer = git.finish(LONG, at.cancel).await.map_err(|error| broken(&error))?;
    if answer.ok() && answer.stderr.is_empty() { Ok(()) } else { Err(refused(RefusalCode::Damaged, &answer)) }
}

/// Fetches objects (and what they lead to) from a peer. No reference is touched.
pub(super) async fn fetch(
    at: At<'_>,
    peer: &Peer<'_>,
    id: RepositoryId,
    oids: &[String],
) -> Result<(), Refusal> {
    let fixed = [
        "fetch",
        "--quiet",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--no-tags",
        "--no-prune",
        "--no-recurse-submodules",
        "--refmap=",
        "--stdin",
        "--end-of-options",
    ];
    for batch in oids.chunks(BATCH) {
        let mut arguments: Vec<OsString> = fixed.map(OsString::from).to_vec();
        arguments.push(peer.git_url(id).into());
        let mut command = at.git.command(Some(at.repository), arguments);
        command = command.setting("http.extraHeader", peer.grant_line());
        if let Some(lock) = at.lock {
            command = command.holding(lock.to_path_buf());
        }
        let answer = command.run(lines(batch).as_bytes(), 1 << 20, LONG, at.cancel).await;
        let answer = answer.map_err(|error| broken(&error))?;
        if !answer.ok() {
            return Err(fetch_failed(&answer, peer));
        }
    }
    Ok(())
}

/// Whether it was the far side or what lies here: git says it in words only.
fn fetch_failed(answer: &GitOutput, peer: &Peer<'_>) -> Refusal {
    let mut refusal = refused(RefusalCode::SourceFailed, answer);
    let here = [
        "loose object",
        "bad object",
        "corrupt",
        "packfile",
        "bad pack",
        "did not send all necessary objects",
        "missing blob",
        "missing tree",
    ];
    let far = ["RPC failed", "unable to access", "remote error", "not our ref", "hung up", "early EOF"];
    let words = refusal.message.clone();
    if here.iter().any(|word| words.contains(word)) && !far.iter().any(|word| words.contains(word)) {
        refusal.code = RefusalCode::Damaged;
    }
    refusal.message = format!("fetching objects from {}: {words}", peer.name());
    refusal
}

fn lines(oids: &[String]) -> String {
    let mut text = String::with_capacity(oids.len() * 65);
    for oid in oids {
        text.push_str(oid);
        text.push('\n');
    }
    text
}

/// Packs loose references and notes what tags peel to.
pub(super) async fn pack_references(at: At<'_>) -> Result<(), Refusal> {
    let arguments = ["pack-refs", "--all"].map(OsString::from).to_vec();
    at.demand(arguments, b"", RefusalCode::Damaged).await?;
    let repository = at.repository.to_path_buf();
    disk::blocking(move || {
        disk::sync_tree(&repository.join("refs"))?;
        disk::sync_directory(&repository)
    })
    .await
}
