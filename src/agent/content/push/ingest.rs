//! Taking a push's objects: into a directory of their own, seen by nobody, checked as a client's word deserves.
//!
//! A pack stays a pack, however small: it is whole or not there, synced with two files, and packing anew is a repair
//! of its own. Nothing that the repository holds is deleted while an ingest lives.

use super::super::objects::{broken, refused};
use super::super::{disk, opened};
use super::{connected, rejected};
use crate::agent::git::{GitCommand, RunningGit};
use crate::agent::holds::Hold;
use crate::agent::store::{Reservation, Store, Work};
use crate::model::id::RepositoryId;
use crate::model::wire::push::{IngestRequest, Ready};
use crate::model::wire::{Progress, Refusal, RefusalCode};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

/// The longest that a pack may take to be indexed after its last byte.
const INDEXING: Duration = Duration::from_hours(2);
/// `PACK`, a version, the number of objects.
const HEADER: usize = 12;

/// A push's objects on one copy; their directory goes when this does.
#[derive(Debug)]
pub struct Ingested {
    pub(super) repository: PathBuf,
    /// Where they are; none: they were moved in.
    pub(super) objects: Option<PathBuf>,
    pub(super) bytes: i64,
    room: Reservation,
    _hold: Hold,
}

impl Drop for Ingested {
    fn drop(&mut self) {
        if let Some(objects) = &self.objects {
            // What cannot be removed now is removed when the agent starts.
            let _ = fs::remove_dir_all(objects);
        }
    }
}

/// Takes a pack, or nothing, and looks which commands it makes whole.
///
/// # Errors
/// `NotFound`, `Damaged`; `Rejected` with git's words; `DiskFull`, `Cancelled`, `Failed`.
pub async fn ingest(
    store: &Store,
    id: RepositoryId,
    name: &str,
    ask: &IngestRequest,
    pack: impl AsyncRead + Send + Unpin,
    work: &Work,
) -> Result<(Ingested, Ready), Refusal> {
    let mut ingested = begin(store, id, name).await?;
    let objects = ingested.take(store, ask.most_bytes, pack, work).await?;
    say(work, "checking connectivity", ingested.bytes);
    let unfit = connected::unfit(store, &ingested, &ask.commands, &work.cancel).await?;
    if objects == 0 {
        ingested.forget().await?;
    } else {
        ingested.sync().await?;
    }
    let ready = Ready { bytes: ingested.bytes, objects, unfit };
    Ok((ingested, ready))
}

async fn begin(store: &Store, id: RepositoryId, name: &str) -> Result<Ingested, Refusal> {
    let hold = store.holds.read(id).await;
    let copy = opened::open(store, id).await?;
    let (objects, root) = (store.layout.ingest(id, name), store.layout.root().to_path_buf());
    let ingested = Ingested {
        repository: copy.path,
        objects: Some(objects.clone()),
        bytes: 0,
        room: store.reserve(0)?,
        _hold: hold,
    };
    disk::blocking(move || disk::make_directories(&root, &objects.join("pack"))).await?;
    Ok(ingested)
}

impl Ingested {
    /// The directory of its objects; none: it brought none.
    #[must_use]
    pub fn objects(&self) -> Option<&Path> {
        self.objects.as_deref()
    }

    /// A git in the repository that finds these objects too, and writes beside them alone.
    pub(super) fn git(&self, store: &Store, arguments: &[&str]) -> GitCommand {
        let arguments = arguments.iter().map(OsString::from).collect();
        let command = store.git.command(Some(&self.repository), arguments);
        match &self.objects {
            Some(objects) => command
                .env("GIT_OBJECT_DIRECTORY", objects.clone().into())
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.repository.join("objects").into())
                .env("GIT_QUARANTINE_PATH", objects.clone().into()),
            None => command,
        }
    }

    /// Streams the pack into git; how many objects it has.
    async fn take(
        &mut self,
        store: &Store,
        most: i64,
        mut pack: impl AsyncRead + Send + Unpin,
        work: &Work,
    ) -> Result<i64, Refusal> {
        let head = tokio::select! {
            biased;
            () = work.cancel.cancelled() => return Err(super::super::peer::cancelled()),
            head = header(&mut pack) => head?,
        };
        let Some(head) = head else { return Ok(0) };
        let [.., a, b, c, d] = head;
        let bound = format!("--max-input-size={}", most.max(0));
        let strict = super::faults::strict(&store.fsck);
        let arguments = ["index-pack", "--stdin", &strict, "--fix-thin", &bound];
        let mut git = self.git(store, &arguments).spawn().map_err(|error| broken(&error))?;
        let fed = tokio::select! {
            biased;
            () = work.cancel.cancelled() => Err(super::super::peer::cancelled()),
            fed = self.feed(&mut git, &head, pack, most, work) => fed,
        };
        if let Err(refusal) = fed {
            git.end().await;
            return Err(refusal);
        }
        say(work, "indexing", self.bytes);
        let answer = git.finish(INDEXING, &work.cancel).await.map_err(|error| broken(&error))?;
        if answer.ok() {
            Ok(i64::from(u32::from_be_bytes([a, b, c, d])))
        } else {
            Err(refused(RefusalCode::Rejected, &answer))
        }
    }

    async fn feed(
        &mut self,
        git: &mut RunningGit,
        head: &[u8],
        mut pack: impl AsyncRead + Send + Unpin,
        most: i64,
        work: &Work,
    ) -> Result<(), Refusal> {
        let Some(mut stdin) = git.stdin.take() else { return Ok(()) };
        let mut buffer = vec![0; 128 * 1024];
        buffer[..head.len()].copy_from_slice(head);
        let mut count = head.len();
        while count > 0 {
            let came = i64::try_from(count).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(came);
            if most > 0 && self.bytes > most {
                return Err(rejected(format!("pack exceeds maximum allowed size ({most} bytes)")));
            }
            self.room.came(came)?;
            if stdin.write_all(&buffer[..count]).await.is_err() {
                // Git has ended and says why by its exit.
                return Ok(());
            }
            say(work, "receiving", self.bytes);
            count = pack.read(&mut buffer).await.map_err(|error| gone(&error))?;
        }
        Ok(())
    }

    /// Syncs all of it before anybody is told that it is here; moving it in is then renaming.
    async fn sync(&self) -> Result<(), Refusal> {
        let Some(objects) = self.objects.clone() else { return Ok(()) };
        disk::blocking(move || disk::sync_tree(&objects)).await
    }

    /// Nothing came that is worth keeping: an empty pack.
    async fn forget(&mut self) -> Result<(), Refusal> {
        let Some(objects) = self.objects.take() else { return Ok(()) };
        disk::blocking(move || disk::remove_tree(&objects)).await
    }

    /// Moves the objects to where everybody finds them, what names them last, and syncs the directory.
    pub(super) async fn move_in(&mut self) -> Result<(), Refusal> {
        let Some(objects) = self.objects.clone() else { return Ok(()) };
        let to = self.repository.join("objects/pack");
        disk::blocking(move || {
            rename_all(&objects.join("pack"), &to)?;
            disk::sync_directory(&to)?;
            disk::remove_tree(&objects)
        })
        .await?;
        self.objects = None;
        Ok(())
    }
}

fn rename_all(from: &Path, to: &Path) -> Result<(), Refusal> {
    let entries = fs::read_dir(from).map_err(|error| disk::refusal("cannot list", from, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // A git that begins now looks for packs by their indexes.
    paths.sort_by_key(|path| path.extension().is_some_and(|ending| ending == "idx"));
    for path in paths {
        let Some(name) = path.file_name() else { continue };
        let place = to.join(name);
        // The same pack came before: its name is its content's hash.
        if fs::symlink_metadata(&place).is_err() {
            fs::rename(&path, &place).map_err(|error| disk::refusal("cannot move in", &place, &error))?;
        }
    }
    Ok(())
}

/// The first bytes of a pack; none: there is no pack.
async fn header(pack: &mut (impl AsyncRead + Unpin)) -> Result<Option<[u8; HEADER]>, Refusal> {
    let mut head = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match pack.read(&mut head[filled..]).await.map_err(|error| gone(&error))? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(rejected("eof before pack header was fully read")),
            count => filled += count,
        }
    }
    if head[..4] != *b"PACK" {
        return Err(rejected("protocol error (pack signature mismatch detected)"));
    }
    Ok(Some(head))
}

fn gone(error: &std::io::Error) -> Refusal {
    Refusal::new(RefusalCode::Cancelled, format!("the stream of the pack broke off: {error}"))
}

fn say(work: &Work, phase: &str, bytes: i64) {
    (work.progress)(Progress { phase: phase.to_owned(), bytes, total: 0 });
}
