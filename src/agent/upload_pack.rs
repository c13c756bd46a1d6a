//! Git's smart HTTP for readers and peers: `git upload-pack` with its pipes joined to a request and its answer.
//!
//! Nothing is buffered but a few blocks each way. A client that is gone, or takes nothing for
//! eight seconds, means that its git is gone. A git that fails has the copy flagged, to be verified.

use super::git::{GitError, RunningGit};
use super::holds::Hold;
use super::inventory::Inventory;
use super::store::Store;
use crate::model::id::RepositoryId;
use crate::model::wire::read::Filter;
use crate::model::wire::{Refusal, RefusalCode};
use crate::shutdown::Shutdown;
use axum::body::{Body, Bytes};
use flate2::write::GzDecoder;
use futures::StreamExt as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The largest request, inflated: a million wants and haves.
const LARGEST_REQUEST: u64 = 128 * 1024 * 1024;
/// A client that neither sends nor takes for this long is gone: no git is left for it after ten seconds.
const STALLED: Duration = Duration::from_secs(8);
/// A git that writes nothing for this long is ended: counting objects of a large repository is silent.
const SILENT: Duration = Duration::from_mins(10);
const BLOCK: usize = 64 * 1024;
/// What is inflated before the sum is looked at.
const PIECE: usize = 4 * 1024;
/// A read is long after this.
const LONG: Duration = Duration::from_mins(1);

/// Reads that run now.
#[derive(Debug, Default)]
pub(super) struct Reads {
    began: Mutex<Vec<(u64, Instant)>>,
}

/// One read that runs.
#[derive(Debug)]
pub(super) struct Reading {
    reads: Arc<Reads>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Reads {
    pub(super) fn begin(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Reading {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let number = began.last().map_or(0, |(number, _)| number + 1);
        began.push((number, Instant::now()));
        Reading { reads: Arc::clone(self), number, _permit: permit }
    }

    /// How many have run for over a minute.
    pub(super) fn long(&self) -> i64 {
        let began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        i64::try_from(began.iter().filter(|(_, at)| at.elapsed() > LONG).count()).unwrap_or(i64::MAX)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.reads
            .began
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(number, _)| *number != self.number);
    }
}

/// What is asked of git.
#[derive(Debug)]
pub(super) enum Ask {
    /// The list of references, or the capabilities of protocol 2.
    Advertisement,
    /// The answer to a request, which may be packed with gzip.
    Answer { request: Body, gzip: bool },
}

/// What a client may have beside: its protocol, the filters that it may ask for, and objects that are not the copy's yet.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) protocol: Option<&'static str>,
    pub(super) filters: Vec<Filter>,
    pub(super) beside: Option<PathBuf>,
}

/// A validated `Git-Protocol`: nothing else of the client's wishes reaches git.
pub(super) fn protocol(header: Option<&str>) -> Option<&'static str> {
    ["version=0", "version=1", "version=2"].into_iter().find(|known| header == Some(known))
}

/// Starts git and answers with what it writes; its first block is awaited, so that a git which fails
/// at once is an error and not a broken answer.
///
/// # Errors
/// `NotFound`, `BadRequest`, `Damaged`, `Failed`.
pub(super) async fn serve(
    store: &Arc<Store>,
    tasks: &Shutdown,
    id: RepositoryId,
    wish: &Wish,
    ask: Ask,
    reading: Reading,
) -> Result<Body, Refusal> {
    // A foreign setting in the copy's own configuration is undone before git reads it.
    let path = super::content::directory(store, id).await?;
    let advertisement = matches!(ask, Ask::Advertisement);
    let mut command = store.git.command(Some(&path), arguments(advertisement, &wish.filters));
    if let Some(protocol) = wish.protocol {
        command = command.env("GIT_PROTOCOL", protocol.into());
    }
    if let Some(objects) = &wish.beside {
        command = command
            .env("GIT_OBJECT_DIRECTORY", objects.into())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", path.join("objects").into());
    }
    let hold = store.holds.read(id).await;
    let mut git = command.spawn().map_err(|error| failed(&error))?;
    let (stdin, stdout) = (git.stdin.take(), git.stdout.take());
    let (Some(stdin), Some(mut stdout)) = (stdin, stdout) else {
        return Err(Refusal::new(RefusalCode::Failed, "git has no pipes"));
    };
    let pump = Pump {
        // Objects that are only beside it may go at any moment: that says nothing of the copy.
        inventory: wish.beside.is_none().then(|| Arc::clone(&store.inventory)),
        id,
        cancel: tasks.token(),
        git,
        reading,
        _hold: hold,
    };
    // Git reads all of a request before it answers, and the client sends all of it before it reads.
    if let Ask::Answer { request, gzip } = ask {
        feed(request, gzip, stdin).await?;
    } else {
        drop(stdin);
    }
    let mut first = if advertisement && wish.protocol != Some("version=2") {
        b"001e# service=git-upload-pack\n0000".to_vec()
    } else {
        Vec::new()
    };
    let read = tokio::time::timeout(SILENT, stdout.read_buf(&mut first)).await;
    if !matches!(read, Ok(Ok(1..))) {
        return Err(pump
            .ended()
            .await
            .err()
            .unwrap_or_else(|| Refusal::new(RefusalCode::Failed, "git ended without an answer")));
    }
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    // A task of its own: a client that only stops reading must not stop the clock that ends git.
    tasks.spawn(pump.run(stdout, sender));
    let first = futures::stream::once(std::future::ready(Ok(Bytes::from(first))));
    let rest = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|block| (block, receiver))
    });
    Ok(Body::from_stream(first.chain(rest)))
}

/// Upload-pack with every setting fixed that a repository's own configuration could turn.
fn arguments(advertisement: bool, filters: &[Filter]) -> Vec<OsString> {
    let allowed = |setting: String| ["-c".into(), setting.into()];
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.extend(allowed("uploadpack.allowAnySHA1InWant=true".to_owned()));
    arguments.extend(allowed(format!("uploadpack.allowFilter={}", !filters.is_empty())));
    arguments.extend(allowed("uploadpackfilter.allow=false".to_owned()));
    for filter in filters {
        arguments.extend(allowed(format!("uploadpackfilter.{filter}.allow=true")));
    }
    arguments.extend(["upload-pack".into(), "--strict".into(), "--stateless-rpc".into()]);
    if advertisement {
        arguments.push("--http-backend-info-refs".into());
    }
    arguments.push(".".into());
    arguments
}

/// Gives git the request, inflated within bounds; then its standard input is closed.
async fn feed(request: Body, gzip: bool, mut stdin: ChildStdin) -> Result<(), Refusal> {
    let mut blocks = request.into_data_stream();
    let mut plain = Plain::new(gzip, LARGEST_REQUEST);
    loop {
        let block = match tokio::time::timeout(STALLED, blocks.next()).await {
            Err(_) => return Err(bad("the request stalled")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(bad("the request was broken off")),
            Ok(Some(Ok(block))) => block,
        };
        for piece in block.chunks(PIECE) {
            if !write(&mut stdin, &plain.of(piece)?).await {
                return Ok(());
            }
        }
    }
    write(&mut stdin, &plain.rest()?).await;
    Ok(())
}

/// A request as git reads it.
struct Plain {
    gzip: Option<GzDecoder<Vec<u8>>>,
    taken: u64,
    most: u64,
}

impl Plain {
    fn new(gzip: bool, most: u64) -> Self {
        Self { gzip: gzip.then(|| GzDecoder::new(Vec::new())), taken: 0, most }
    }

    /// What a piece of at most [`PIECE`] bytes says: packed, it becomes a thousand times as long at most.
    fn of(&mut self, piece: &[u8]) -> Result<Vec<u8>, Refusal> {
        let plain = match &mut self.gzip {
            None => piece.to_vec(),
            Some(gzip) => {
                gzip.write_all(piece).map_err(|_| bad("the request is not gzip"))?;
                std::mem::take(gzip.get_mut())
            }
        };
        self.taken += plain.len() as u64;
        if self.taken > self.most {
            return Err(bad("the request is too large"));
        }
        Ok(plain)
    }

    fn rest(self) -> Result<Vec<u8>, Refusal> {
        let rest = self.gzip.map_or(Ok(Vec::new()), GzDecoder::finish);
        rest.map_err(|_| bad("the request's gzip is not complete"))
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, why)
}

/// Whether git still reads; one that does not has something to say on its other pipes.
async fn write(stdin: &mut ChildStdin, bytes: &[u8]) -> bool {
    matches!(tokio::time::timeout(SILENT, stdin.write_all(bytes)).await, Ok(Ok(())))
}

/// A git that serves, and what is held for it.
struct Pump {
    /// Who hears that a copy cannot be served.
    inventory: Option<Arc<Inventory>>,
    id: RepositoryId,
    cancel: CancellationToken,
    git: RunningGit,
    reading: Reading,
    _hold: Hold,
}

impl Pump {
    /// Moves what git writes to the client, until either is gone.
    async fn run(self, mut stdout: ChildStdout, sender: mpsc::Sender<Result<Bytes, std::io::Error>>) {
        loop {
            let mut block = Vec::with_capacity(BLOCK);
            let read = tokio::select! {
                read = tokio::time::timeout(SILENT, stdout.read_buf(&mut block)) => read,
                () = self.cancel.cancelled() => break,
                () = sender.closed() => return,
            };
            match read {
                Ok(Ok(0)) => {
                    if let Err(refusal) = self.ended().await
                        && refusal.code != RefusalCode::NotFound
                    {
                        let _ = sender.send(Err(std::io::Error::other(refusal))).await;
                    }
                    return;
                }
                Ok(Ok(_)) => {
                    if sender.send_timeout(Ok(block.into()), STALLED).await.is_err() {
                        break;
                    }
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
        // An answer that only stops would look complete to some clients.
        let _ = sender.try_send(Err(std::io::Error::other("broken off")));
    }

    /// How git ended. A failure that the client did not ask for has the copy flagged.
    async fn ended(self) -> Result<(), Refusal> {
        let Self { inventory, id, cancel, git, reading, _hold } = self;
        let ended = git.finish(STALLED, &cancel).await;
        drop(reading);
        match ended {
            Ok(output) if output.code == Some(0) => Ok(()),
            Ok(output) if is_asked_for(&output.stderr) => {
                Err(Refusal::new(RefusalCode::NotFound, output.stderr.trim()))
            }
            Ok(output) => {
                tracing::warn!(
                    repository.id = id.0,
                    words = output.stderr.trim(),
                    "git failed while it served"
                );
                if let Some(inventory) = inventory {
                    inventory.flag(id);
                }
                Err(Refusal::new(RefusalCode::Damaged, output.stderr.trim()))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Git's words for what the client did, not the repository.
fn is_asked_for(words: &str) -> bool {
    ["not our ref", "the remote end hung up", "protocol error", "bad line length"]
        .iter()
        .any(|known| words.contains(known))
}

fn failed(error: &GitError) -> Refusal {
    Refusal::new(RefusalCode::Failed, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(body: &[u8], most: u64) -> Result<Vec<u8>, Refusal> {
        let mut plain = Plain::new(true, most);
        let mut all = Vec::new();
        for piece in body.chunks(PIECE) {
            all.extend(plain.of(piece)?);
        }
        all.extend(plain.rest()?);
        Ok(all)
    }

    #[test]
    fn a_packed_request_is_inflated_and_a_bomb_is_bounded() {
        let request = b"0032want 0123456789012345678901234567890123456789\n".repeat(1_000);
        assert_eq!(inflate(&packed(&request), 1 << 20).unwrap(), request);
        let bomb = packed(&vec![0; 16 << 20]);
        assert!(bomb.len() < 20_000);
        assert!(inflate(&bomb, 1 << 20).unwrap_err().message.contains("too large"));
        assert!(inflate(b"not gzip at all, to be sure", 1 << 20).is_err());
        assert!(inflate(&packed(&request)[..40], 1 << 20).is_err(), "broken off");
    }

    #[test]
    fn only_known_protocols_reach_git() {
        assert_eq!(protocol(Some("version=2")), Some("version=2"));
        for other in ["version=3", "version=2:x", "version=2 ", "", "VERSION=2"] {
            assert_eq!(protocol(Some(other)), None, "{other}");
        }
        assert_eq!(protocol(None), None);
    }
}
