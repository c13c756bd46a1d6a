//! What this agent holds, and what changed without its own doing.
//!
//! Each repository has a fingerprint that is expected, kept on disk after every write of the
//! agent's own, and one that was last seen by the sweep. Where the two differ the entry is
//! `changed`, and stays so until a verification looked; so damage done while the agent was down
//! is noticed too. What is being written now is not judged. No file's content is read here.

mod failed;
pub(super) mod look;
mod pushed;
pub(super) mod sweep;

use super::content::identity;
use super::durable::{self, Sync};
use super::layout::Layout;
use crate::model::Millis;
use crate::model::id::RepositoryId;
use crate::model::wire::{InventoryEntry, InventoryPage};
use failed::Failed;
use look::{Looked, Print};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest page.
pub(super) const LONGEST_PAGE: usize = 5_000;

/// A look at a repository, to be accepted later as what is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    print: Option<Print>,
    /// The inventory's generation when it was taken.
    generation: i64,
}

/// All entries. Small: 80 bytes a repository.
#[derive(Debug)]
pub(super) struct Inventory {
    layout: Layout,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<RepositoryId, Entry>,
    marks: HashMap<RepositoryId, Marks>,
    generation: i64,
    complete: bool,
    /// Bytes of all entries.
    used: i64,
    trouble: Option<String>,
    locks_removed: u64,
    failed: Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    seen: Option<Print>,
    expected: Option<Print>,
    generation: i64,
    bytes: i64,
    /// Bytes beside the packs, as last measured.
    rest: i64,
    changed: bool,
    /// As it stands beside the repository; 0: not known.
    version: i64,
    /// The sweep that last met it.
    sweep: u32,
}

/// What the agent does with a repository right now: a push may write while it is verified or packed.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    writing: u32,
    looking: Option<i64>,
}

/// Says that the agent works on a repository, for as long as this lives.
#[derive(Debug)]
pub(super) struct Marked {
    inventory: Arc<Inventory>,
    id: RepositoryId,
    writes: bool,
}

/// What stands in a `.seen` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    expected: Print,
    rest: i64,
    #[serde(default)]
    version: i64,
}

impl Inventory {
    pub(super) fn new(layout: Layout) -> Arc<Self> {
        Arc::new(Self { layout, inner: Mutex::default() })
    }

    /// The agent begins to write: the sweep does not judge what it sees until the mark is gone.
    pub(super) fn mark_writing(self: &Arc<Self>, id: RepositoryId) -> Marked {
        self.lock().marks.entry(id).or_default().writing += 1;
        Marked { inventory: Arc::clone(self), id, writes: true }
    }

    /// The agent begins to verify: what is there now is to be accepted when it came to an answer, so
    /// that neither a change amid it nor a verification that was broken off is taken for verified.
    pub(super) fn mark_looking(self: &Arc<Self>, id: RepositoryId) -> io::Result<(Marked, Fingerprint)> {
        let fingerprint = self.fingerprint(id)?;
        self.lock().marks.entry(id).or_default().looking = Some(fingerprint.generation);
        Ok((Marked { inventory: Arc::clone(self), id, writes: false }, fingerprint))
    }

    /// What is there now.
    pub(super) fn fingerprint(&self, id: RepositoryId) -> io::Result<Fingerprint> {
        let generation = self.lock().generation;
        let print = look::look(&self.layout.repository(id))?.map(|looked| looked.print);
        Ok(Fingerprint { print, generation })
    }

    /// The agent itself changed this repository, or verified it: see [`super::store::Store::touched`].
    pub(super) fn touched(&self, id: RepositoryId) -> io::Result<i64> {
        let marks = self.lock().marks.get(&id).copied().unwrap_or_default();
        if let Some(generation) = marks.looking {
            // Accepted by the server, once the verification came to an answer.
            return Ok(generation);
        }
        let generation = self.lock().generation;
        let looked = look::look(&self.layout.repository(id))?;
        self.settle(id, looked.as_ref(), generation)
    }

    /// What was looked at is what is expected. Returns the generation whose flag that answers: of a
    /// change that was noticed after the look the flag stays.
    pub(super) fn accept(&self, id: RepositoryId, fingerprint: Fingerprint) -> io::Result<i64> {
        let looked = look::look(&self.layout.repository(id))?;
        let now = looked.as_ref().map(|looked| looked.print);
        // What a push wrote while this was verified is the agent's own doing.
        let own = self.lock().entries.get(&id).is_some_and(|entry| !entry.changed && entry.expected == now);
        if now == fingerprint.print || own {
            return self.settle(id, looked.as_ref(), fingerprint.generation);
        }
        let mut inner = self.lock();
        inner.entry(id, |entry| {
            entry.expected = fingerprint.print;
            entry.seen = now;
            entry.changed = true;
        });
        let entry = inner.entries.get(&id).copied().unwrap_or_default();
        drop(inner);
        self.keep(id, entry)?;
        Ok(fingerprint.generation)
    }

    /// Git failed in this repository while it served: it is to be verified.
    pub(super) fn flag(&self, id: RepositoryId) {
        let mut inner = self.lock();
        inner.failed.fail(id);
        if inner.entries.get(&id).is_some_and(|entry| entry.seen.is_some() && !entry.changed) {
            inner.entry(id, |entry| entry.changed = true);
        }
    }

    /// Whether git failed in it since every object was last checked: then they are to be checked again, but not more
    /// often than once an hour, whatever its readers ask for.
    pub(super) fn take_failed(&self, id: RepositoryId, now: Millis) -> bool {
        self.lock().failed.take(id, now)
    }

    /// Entries above a generation, in the order of repositories, after one of them.
    pub(super) fn page(
        &self,
        start_id: &str,
        since: i64,
        after: RepositoryId,
        limit: usize,
    ) -> InventoryPage {
        let limit = limit.clamp(1, LONGEST_PAGE);
        let inner = self.lock();
        let mut page = InventoryPage {
            start_id: start_id.to_owned(),
            generation: inner.generation,
            entries: Vec::new(),
            more: false,
        };
        if since >= inner.generation {
            return page;
        }
        let rest = inner.entries.range((Bound::Excluded(after), Bound::Unbounded));
        for (id, entry) in rest.filter(|(_, entry)| entry.generation > since) {
            if page.entries.len() == limit {
                page.more = true;
                break;
            }
            page.entries.push(InventoryEntry {
                repository: *id,
                generation: entry.generation,
                present: entry.seen.is_some(),
                changed: entry.changed,
                bytes: entry.bytes,
                version: entry.version,
            });
        }
        page
    }

    /// The generation, and whether the first sweep is complete.
    pub(super) fn progress(&self) -> (i64, bool) {
        let inner = self.lock();
        (inner.generation, inner.complete)
    }

    /// Locks of dead gits that were removed since this start.
    pub(super) fn locks_removed(&self) -> i64 {
        i64::try_from(self.lock().locks_removed).unwrap_or(i64::MAX)
    }

    /// Notes locks of dead gits that were removed in passing.
    pub(super) fn note_locks(&self, removed: usize) {
        self.lock().locks_removed += removed as u64;
    }

    /// The highest number of all entries.
    pub(super) fn highest(&self) -> RepositoryId {
        self.lock().entries.keys().next_back().copied().unwrap_or(RepositoryId(0))
    }

    /// Bytes of one repository, as last measured.
    pub(super) fn bytes(&self, id: RepositoryId) -> i64 {
        self.lock().entries.get(&id).map_or(0, |entry| entry.bytes)
    }

    /// Bytes of all repositories.
    pub(super) fn used(&self) -> i64 {
        self.lock().used
    }

    /// What kept the last sweep from seeing all.
    pub(super) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// What is there is what is expected from now on, unless something was noticed after `looked_at`.
    fn settle(&self, id: RepositoryId, looked: Option<&Looked>, looked_at: i64) -> io::Result<i64> {
        let bytes = match looked {
            Some(_) => look::measure(&self.layout.repository(id))?,
            None => 0,
        };
        let version = self.version_beside(id);
        let mut inner = self.lock();
        let later = inner.entries.get(&id).is_some_and(|entry| entry.changed && entry.generation > looked_at);
        let print = looked.map(|looked| looked.print);
        let generation = inner.entry(id, |entry| {
            entry.expected = print;
            entry.seen = print;
            entry.changed = later;
            entry.bytes = bytes;
            entry.version = version;
            entry.rest = looked.map_or(0, |looked| bytes.saturating_sub(looked.packs));
        });
        let entry = inner.entries.get(&id).copied().unwrap_or_default();
        drop(inner);
        self.keep(id, entry)?;
        Ok(if entry.changed { looked_at } else { generation })
    }

    /// Keeps what is expected. Not synced: what a power cut loses is only verified once more.
    fn keep(&self, id: RepositoryId, entry: Entry) -> io::Result<()> {
        let path = self.layout.seen(id);
        let Some(expected) = entry.expected else {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let text = serde_json::to_vec(&Kept { expected, rest: entry.rest, version: entry.version })?;
        durable::write(&path, &text, Sync::Whole)
    }

    /// The version that was last committed in it, by what stands beside it; 0: nothing readable does.
    fn version_beside(&self, id: RepositoryId) -> i64 {
        identity::read(&self.layout.identity(id)).map_or(0, |identity| identity.version)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether the agent writes in it now.
    fn is_written(&self, id: RepositoryId) -> bool {
        self.marks.get(&id).is_some_and(|marks| marks.writing > 0)
    }

    /// Changes an entry, under a new generation, and keeps the sum of bytes.
    fn entry(&mut self, id: RepositoryId, change: impl FnOnce(&mut Entry)) -> i64 {
        self.generation += 1;
        let entry = self.entries.entry(id).or_default();
        self.used -= entry.bytes;
        change(entry);
        entry.generation = self.generation;
        self.used += entry.bytes;
        self.generation
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut inner = self.inventory.lock();
        let Some(marks) = inner.marks.get_mut(&self.id) else { return };
        if self.writes {
            marks.writing = marks.writing.saturating_sub(1);
        } else {
            marks.looking = None;
        }
        if marks.writing == 0 && marks.looking.is_none() {
            inner.marks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests;
