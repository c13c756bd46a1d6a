//! The sweep: looks at every repository again and again, politely, and notes what changed.
//!
//! The first sweep of a start runs without pauses, since a fileserver counts only when it is done;
//! later ones are spread over their period. A root that is not ours any more (an unmounted disk)
//! is not taken for one that lost its repositories: nothing is noted then. Locks that a killed
//! git left are removed here, when the repository's own lock shows that no git is left in it.

use super::look::{Looked, look, measure};
use super::{Inventory, Kept};
use crate::agent::epochs::Epochs;
use crate::agent::root::{self, Owner};
use crate::model::id::RepositoryId;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shorter pauses than this are added up.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// A lock of this age is not one of a git that is at work: their timeouts are 8 s, and an attempt's lease is a minute.
const OLD_LOCK: Duration = Duration::from_secs(90);

/// How often every repository is looked at.
#[derive(Debug, Clone, Copy)]
pub struct SweepSettings {
    /// The shortest time from the begin of one sweep to the next. Default: 5 s.
    pub least: Duration,
    /// Time for each repository; with 6 ms 10,000 of them take a minute. Default: 6 ms.
    pub each: Duration,
    /// The longest time that a sweep is spread over. Default: 15 minutes.
    pub most: Duration,
}

impl Default for SweepSettings {
    fn default() -> Self {
        Self { least: Duration::from_secs(5), each: Duration::from_millis(6), most: Duration::from_mins(15) }
    }
}

impl SweepSettings {
    fn period(&self, repositories: usize) -> Duration {
        let each = self.each.saturating_mul(u32::try_from(repositories).unwrap_or(u32::MAX));
        each.min(self.most).max(self.least)
    }
}

/// What a sweep needs beside the inventory.
#[derive(Debug)]
pub(in crate::agent) struct Sweeper {
    pub(in crate::agent) inventory: Arc<Inventory>,
    pub(in crate::agent) epochs: Arc<Epochs>,
    pub(in crate::agent) owner: Owner,
    pub(in crate::agent) settings: SweepSettings,
}

/// One sweep under way.
#[derive(Debug)]
struct Pass {
    number: u32,
    began: Instant,
    /// How long it is to take; none: no pauses.
    spread: Option<Duration>,
    expected: usize,
    met: usize,
}

impl Sweeper {
    /// Sweeps until it is cancelled.
    pub(in crate::agent) async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut number = 0;
        let mut first = true;
        while !cancel.is_cancelled() {
            number += 1;
            let began = Instant::now();
            let expected = self.inventory.lock().entries.len();
            let period = self.settings.period(expected);
            let spread = (!first).then_some(period);
            let pass = Pass { number, began, spread, expected, met: 0 };
            let sweep = tokio::select! {
                swept = self.sweep(pass) => swept,
                () = cancel.cancelled() => return,
            };
            let trouble = match sweep {
                Ok(trouble) => {
                    first = false;
                    self.inventory.lock().complete = true;
                    trouble
                }
                Err(error) => Some(format!("the repositories cannot be read: {error}")),
            };
            self.inventory.lock().trouble = trouble;
            tokio::select! {
                () = tokio::time::sleep_until(began + period) => {}
                () = cancel.cancelled() => {}
            }
        }
    }

    /// One sweep without pauses, as at a start.
    #[cfg(test)]
    pub(super) async fn once(self: &Arc<Self>) -> io::Result<Option<String>> {
        let expected = self.inventory.lock().entries.len();
        self.sweep(Pass { number: 1, began: Instant::now(), spread: None, expected, met: 0 }).await
    }

    /// Looks at all that is on disk, then at what was not met. Returns what could not be looked at.
    async fn sweep(self: &Arc<Self>, mut pass: Pass) -> io::Result<Option<String>> {
        let mut trouble = None;
        self.check_root().await?;
        for shard in self.shards().await? {
            let this = Arc::clone(self);
            let ids = blocking(move || this.ids_in(&shard)).await?;
            for id in ids {
                if let Err(error) = self.meet(id, &mut pass).await {
                    trouble = Some(format!("repository {id} cannot be looked at: {error}"));
                }
            }
        }
        let unmet: Vec<RepositoryId> = {
            let inner = self.inventory.lock();
            let unmet = inner.entries.iter().filter(|(_, entry)| entry.sweep != pass.number);
            unmet.map(|(id, _)| *id).collect()
        };
        for id in unmet {
            if let Err(error) = self.meet(id, &mut pass).await {
                trouble = Some(format!("repository {id} cannot be looked at: {error}"));
            }
        }
        Ok(trouble)
    }

    async fn meet(self: &Arc<Self>, id: RepositoryId, pass: &mut Pass) -> io::Result<()> {
        pass.met += 1;
        pass.pause().await;
        let (this, number) = (Arc::clone(self), pass.number);
        blocking(move || this.look_at(id, number)).await
    }

    pub(super) fn look_at(self: &Arc<Self>, id: RepositoryId, sweep: u32) -> io::Result<()> {
        let path = self.inventory.layout.repository(id);
        let Some(before) = self.inventory.begin(id, sweep) else { return Ok(()) };
        let kept = if before.known { None } else { self.inventory.kept(id) };
        let mut looked = look(&path).inspect_err(|_| {
            // One that the disk does not give is to be verified; it does not hide all others.
            self.inventory.observe(id, before, Some(&Looked::unreadable()), None, None);
        })?;
        if let Some(seen) = &looked
            && !seen.locks.is_empty()
            && self.remove_stale(id, &seen.locks, sweep == 1)
        {
            looked = look(&path)?;
        }
        if looked.is_none() {
            // Gone, or the disk is: what is not ours any more says nothing about what it held.
            self.check_owner()?;
        }
        let rest = match (&looked, kept, before.known) {
            (Some(_), Some(kept), _) => Some(kept.rest),
            (Some(seen), None, false) => Some(measure(&path)?.saturating_sub(seen.packs)),
            _ => None,
        };
        self.inventory.observe(id, before, looked.as_ref(), kept, rest);
        Ok(())
    }

    /// Removes locks that nobody holds; whether any was removed.
    fn remove_stale(self: &Arc<Self>, id: RepositoryId, locks: &[PathBuf], at_start: bool) -> bool {
        let stale: Vec<&PathBuf> =
            locks.iter().filter(|path| at_start || is_older_than(path, OLD_LOCK)).collect();
        if stale.is_empty() {
            return false;
        }
        let Some(_writer) = self.epochs.try_write(id) else { return false };
        let mut removed = 0;
        for path in stale {
            match std::fs::remove_file(path) {
                Ok(()) => {
                    removed += 1;
                    tracing::warn!(repository.id = id.0, path = %path.display(), "removed a lock that a dead git left");
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(repository.id = id.0, path = %path.display(), %error, "cannot remove a lock");
                }
            }
        }
        self.inventory.lock().locks_removed += removed;
        removed > 0
    }

    async fn check_root(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::clone(self);
        blocking(move || this.check_owner()).await
    }

    fn check_owner(&self) -> io::Result<()> {
        match root::owner(&self.inventory.layout)? {
            Some(owner) if owner == self.owner => Ok(()),
            _ => Err(io::Error::other("the root is not the one that this agent took")),
        }
    }

    async fn shards(self: &Arc<Self>) -> io::Result<Vec<PathBuf>> {
        let top = self.inventory.layout.repositories();
        blocking(move || {
            let mut shards = Vec::new();
            for high in children(&top)? {
                shards.extend(children(&high)?);
            }
            Ok(shards)
        })
        .await
    }

    /// The repositories that a shard holds, or that were there by what stands beside them.
    fn ids_in(&self, shard: &Path) -> io::Result<Vec<RepositoryId>> {
        let mut ids: Vec<RepositoryId> = children(shard)?
            .iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == "git" || ending == "seen"))
            .filter_map(|path| path.file_stem()?.to_str()?.parse().ok().map(RepositoryId))
            // Anything else in a shard is nobody's: `1.git` in the directory of 2 is not repository 1.
            .filter(|id| self.inventory.layout.repository(*id).parent() == Some(shard))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Pass {
    /// Waits until this repository's turn in the spread comes.
    async fn pause(&self) {
        let Some(spread) = self.spread else { return };
        let expected = u32::try_from(self.expected.max(1)).unwrap_or(u32::MAX);
        let met = u32::try_from(self.met).unwrap_or(u32::MAX).min(expected);
        let turn = self.began + (spread / expected).saturating_mul(met.saturating_sub(1));
        if turn > Instant::now() + SHORTEST_PAUSE {
            tokio::time::sleep_until(turn).await;
        }
    }
}

/// What was known of a repository before it was looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    known: bool,
    generation: i64,
    sweep: u32,
}

impl Inventory {
    /// Notes that the sweep met it; none: it is being written, and not looked at.
    fn begin(&self, id: RepositoryId, sweep: u32) -> Option<Before> {
        let mut inner = self.lock();
        let writing = inner.is_written(id);
        let known = inner.entries.get_mut(&id).map(|entry| {
            entry.sweep = sweep;
            entry.generation
        });
        let generation = known.unwrap_or_default();
        (!writing).then_some(Before { known: known.is_some(), generation, sweep })
    }

    /// Notes what the sweep saw, unless the agent wrote since.
    fn observe(
        &self,
        id: RepositoryId,
        before: Before,
        looked: Option<&Looked>,
        kept: Option<Kept>,
        rest: Option<i64>,
    ) {
        let mut inner = self.lock();
        let now = inner.entries.get(&id).map(|entry| entry.generation);
        let moved_on = now.unwrap_or_default() != before.generation;
        if moved_on || inner.is_written(id) {
            return;
        }
        let old = inner.entries.get(&id).copied().unwrap_or_default();
        let print = looked.map(|looked| looked.print);
        if before.known && old.seen == print {
            return;
        }
        inner.entry(id, |entry| {
            if !before.known {
                entry.expected = kept.map(|kept| kept.expected);
                entry.version = kept.map_or(0, |kept| kept.version);
            }
            entry.sweep = before.sweep;
            entry.seen = print;
            entry.rest = rest.unwrap_or(entry.rest);
            entry.bytes = looked.map_or(0, |looked| looked.packs.saturating_add(entry.rest));
            entry.changed = entry.changed || entry.expected != print;
        });
    }

    /// What was expected when this agent, or one before it, last wrote.
    pub(super) fn kept(&self, id: RepositoryId) -> Option<Kept> {
        let text = std::fs::read(self.layout.seen(id)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = match std::fs::read_dir(directory) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    paths.sort_unstable();
    Ok(paths)
}

/// Ages go by the file system's clock and this machine's; a clock that went back makes nothing old.
fn is_older_than(path: &Path, age: Duration) -> bool {
    let now = u64::try_from(crate::clock::now()).unwrap_or_default();
    std::fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|at| at + age < SystemTime::UNIX_EPOCH + Duration::from_millis(now))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
