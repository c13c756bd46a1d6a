//! Epochs and the one writer of a repository.
//!
//! The highest epochs of repairs and pushes and the highest push fence of a repository are on disk
//! before anything is done under them, so lower ones are refused after a restart too. A higher epoch
//! ends running work of lower ones of its own kind and begins when that is gone; a repair and a push
//! wait for each other, as their numbers say nothing of one another. The repository's lock file is
//! held (flock) while a writer works, and by every git that it started: one that outlived an earlier
//! agent makes the next writer wait.

mod pushing;
mod share;

pub(super) use pushing::Purpose;

use super::durable::{self, Sync};
use super::layout::Layout;
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long work of a lower epoch may take to end, its git included (TERM, 2 s, KILL).
const ENDING: Duration = Duration::from_secs(30);
/// How long a git that outlived an earlier agent is waited for.
const ORPHANS: Duration = Duration::from_secs(15);

/// What was seen of a repository's epochs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The highest repair epoch.
    #[serde(default)]
    pub(super) repair: i64,
    /// Pushes of this epoch or lower are refused.
    #[serde(default)]
    pub(super) push: i64,
    /// The highest epoch under which a push was prepared or settled; lower ones are refused.
    #[serde(default)]
    pub(super) pushed: i64,
}

impl Seen {
    /// The highest epoch of a push that was heard of.
    pub(super) fn highest_push(self) -> i64 {
        self.push.max(self.pushed)
    }
}

/// All repositories' epochs and writers.
#[derive(Debug)]
pub(super) struct Epochs {
    layout: Layout,
    numbers: AtomicU64,
    slots: Mutex<HashMap<RepositoryId, Arc<Slot>>>,
    /// The highest of any repository.
    highest: Mutex<Seen>,
}

/// One repository in which something is asked for or runs; gone when nothing is.
#[derive(Debug, Default)]
struct Slot {
    /// Held while the journal is read and raised.
    journal: tokio::sync::Mutex<()>,
    /// Held by whoever repairs or checks.
    gate: Arc<tokio::sync::Mutex<()>>,
    holder: Mutex<Option<Holder>>,
    /// Held by whoever may change references, or the place as a whole: one push, or one repair that
    /// holds the gate as well.
    references: Arc<tokio::sync::Mutex<()>>,
    pushing: pushing::Pushing,
    shares: share::Shares,
}

/// Who writes, or is next to.
#[derive(Debug)]
struct Holder {
    number: u64,
    epoch: Option<i64>,
    cancel: CancellationToken,
}

/// The right to write to one repository; given back when dropped.
#[derive(Debug)]
pub(super) struct Writer {
    /// Cancelled by a higher epoch, or with the parent.
    pub(super) cancel: CancellationToken,
    // Dropped in this order: the lock file first, the place in `slots` last.
    _lock: share::Share,
    _references: Option<Held>,
    _gate: Option<Held>,
    _place: Place,
}

type Held = tokio::sync::OwnedMutexGuard<()>;

/// A slot in use, and the holder in it that is ours.
#[derive(Debug)]
struct Place {
    epochs: Arc<Epochs>,
    id: RepositoryId,
    slot: Arc<Slot>,
    number: Option<u64>,
    /// The same of a push.
    push: Option<u64>,
}

impl Epochs {
    pub(super) fn new(layout: Layout) -> Arc<Self> {
        let highest = std::fs::read(layout.highest_epochs()).ok();
        let highest = highest.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let (numbers, slots) = (AtomicU64::new(1), Mutex::default());
        Arc::new(Self { layout, numbers, slots, highest: Mutex::new(highest) })
    }

    /// The highest epochs that were seen of any repository.
    pub(super) fn highest(&self) -> Seen {
        *lock(&self.highest)
    }

    /// What was seen of one repository.
    ///
    /// # Errors
    /// `Failed` when it cannot be read.
    pub(super) async fn seen(self: &Arc<Self>, id: RepositoryId) -> Result<Seen, Refusal> {
        let place = self.place(id);
        let _journal = place.slot.journal.lock().await;
        self.read(id).await
    }

    /// Takes the right to write, under a repair epoch or (an import) under none. Work of lower
    /// epochs is ended and waited for; a push that is prepared is waited for.
    ///
    /// # Errors
    /// `OldEpoch`; `Busy` when work of this very epoch runs or earlier work does not end;
    /// `Cancelled` when `parent` or a higher epoch ends the wait; `Failed`.
    pub(super) async fn write(
        self: &Arc<Self>,
        id: RepositoryId,
        epoch: Option<i64>,
        parent: &CancellationToken,
    ) -> Result<Writer, Refusal> {
        self.repair(id, epoch, true, parent).await
    }

    /// Like [`Epochs::write`], for work that changes no reference and takes no object away that a
    /// push may need: pushes go on beside it.
    ///
    /// # Errors
    /// As [`Epochs::write`].
    pub(super) async fn beside(
        self: &Arc<Self>,
        id: RepositoryId,
        epoch: Option<i64>,
        parent: &CancellationToken,
    ) -> Result<Writer, Refusal> {
        self.repair(id, epoch, false, parent).await
    }

    async fn repair(
        self: &Arc<Self>,
        id: RepositoryId,
        epoch: Option<i64>,
        whole: bool,
        parent: &CancellationToken,
    ) -> Result<Writer, Refusal> {
        let mut place = self.place(id);
        let cancel = parent.child_token();
        self.take_over(&mut place, epoch, &cancel).await?;
        let why = "earlier work on it does not end";
        let gate = wait_for(&place.slot.gate, ENDING, &cancel, why).await?;
        let references =
            if whole { Some(wait_for(&place.slot.references, ENDING, &cancel, why).await?) } else { None };
        let lock = self.lock_file(&place.slot, id, &cancel).await?;
        Ok(Writer { cancel, _lock: lock, _references: references, _gate: Some(gate), _place: place })
    }

    /// Takes the right to write only if nobody has it now and no git is left in the repository.
    pub(super) fn try_write(self: &Arc<Self>, id: RepositoryId) -> Option<Writer> {
        let place = self.place(id);
        let gate = Arc::clone(&place.slot.gate).try_lock_owned().ok()?;
        let references = Arc::clone(&place.slot.references).try_lock_owned().ok()?;
        let lock = share::whole(&place.slot, &self.layout.lock(id)).ok()??;
        let cancel = CancellationToken::new();
        Some(Writer { cancel, _lock: lock, _references: Some(references), _gate: Some(gate), _place: place })
    }

    /// Checks an epoch without taking the right to write.
    pub(super) async fn check(self: &Arc<Self>, id: RepositoryId, epoch: i64) -> Result<(), Refusal> {
        let place = self.place(id);
        let _journal = place.slot.journal.lock().await;
        refuse_lower("repair epoch", epoch, self.read(id).await?.repair)
    }

    /// Raises the epoch and becomes the holder, ending the one before.
    async fn take_over(
        &self,
        place: &mut Place,
        epoch: Option<i64>,
        cancel: &CancellationToken,
    ) -> Result<(), Refusal> {
        let slot = Arc::clone(&place.slot);
        let _journal = slot.journal.lock().await;
        if let Some(epoch) = epoch {
            let seen = self.read(place.id).await?;
            refuse_lower("repair epoch", epoch, seen.repair)?;
            if epoch > seen.repair {
                self.keep(place.id, Seen { repair: epoch, ..seen }).await?;
            }
        }
        let mut holder = lock(&slot.holder);
        if let Some(before) = &*holder {
            if epoch <= before.epoch {
                return Err(busy("the same is being done already"));
            }
            before.cancel.cancel();
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        *holder = Some(Holder { number, epoch, cancel: cancel.clone() });
        place.number = Some(number);
        Ok(())
    }

    async fn lock_file(
        &self,
        slot: &Arc<Slot>,
        id: RepositoryId,
        cancel: &CancellationToken,
    ) -> Result<share::Share, Refusal> {
        let path = self.layout.lock(id);
        let until = tokio::time::Instant::now() + ORPHANS;
        loop {
            let (path, slot) = (path.clone(), Arc::clone(slot));
            match blocking(move || share::take(&slot, &path)).await? {
                Some(share) => return Ok(share),
                None if tokio::time::Instant::now() > until => {
                    return Err(busy("a git that an earlier agent started still runs in it"));
                }
                None => tokio::select! {
                    () = cancel.cancelled() => return Err(cancelled()),
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                },
            }
        }
    }

    async fn read(&self, id: RepositoryId) -> Result<Seen, Refusal> {
        let path = self.layout.journal_of(id);
        blocking(move || match std::fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Seen::default()),
            Err(error) => Err(error),
        })
        .await
    }

    async fn keep(&self, id: RepositoryId, seen: Seen) -> Result<(), Refusal> {
        let path = self.layout.journal_of(id);
        let raised = {
            let mut highest = lock(&self.highest);
            let before = *highest;
            highest.repair = highest.repair.max(seen.repair);
            highest.push = highest.push.max(seen.highest_push());
            (*highest != before).then_some(*highest)
        };
        let beside = self.layout.highest_epochs();
        blocking(move || {
            if let Some(raised) = raised {
                // For people and for a comparison with SQL: what refuses is the journal of each repository.
                durable::write(&beside, &serde_json::to_vec(&raised)?, Sync::Whole)?;
            }
            durable::write(&path, &serde_json::to_vec(&seen)?, Sync::Durable)
        })
        .await
    }

    fn place(self: &Arc<Self>, id: RepositoryId) -> Place {
        let slot = Arc::clone(lock(&self.slots).entry(id).or_default());
        Place { epochs: Arc::clone(self), id, slot, number: None, push: None }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut holder = lock(&self.slot.holder);
        if self.number.is_some() && holder.as_ref().map(|holder| holder.number) == self.number {
            *holder = None;
        }
        drop(holder);
        if let Some(number) = self.push {
            self.slot.pushing.leave(number);
        }
        let mut slots = lock(&self.epochs.slots);
        // The map's and ours: nobody else can take it up while the map is locked.
        if Arc::strong_count(&self.slot) == 2 {
            slots.remove(&self.id);
        }
    }
}

/// Waits for a place of which there is one.
async fn wait_for(
    place: &Arc<tokio::sync::Mutex<()>>,
    within: Duration,
    cancel: &CancellationToken,
    why: &str,
) -> Result<Held, Refusal> {
    tokio::select! {
        held = Arc::clone(place).lock_owned() => Ok(held),
        () = cancel.cancelled() => Err(cancelled()),
        () = tokio::time::sleep(within) => Err(busy(why)),
    }
}

fn refuse_lower(what: &str, asked: i64, seen: i64) -> Result<(), Refusal> {
    if asked < seen {
        return Err(Refusal::new(
            RefusalCode::OldEpoch,
            format!("{what} {asked} is over: {seen} was seen here"),
        ));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(RefusalCode::Failed, format!("the repository's journal or lock: {error}"))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

fn busy(why: &str) -> Refusal {
    Refusal::new(RefusalCode::Busy, format!("the repository is busy: {why}"))
}

fn cancelled() -> Refusal {
    Refusal::new(RefusalCode::Cancelled, "ended before it began")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
