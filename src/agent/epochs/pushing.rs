//! Pushes and their fence: who prepares or settles one, and how it is ended.
//!
//! A fence and the beginning of a push exclude each other, so that a push either is refused or is seen, ended and
//! waited for.

use super::{ENDING, Epochs, Place, Seen, Writer, busy, lock, refuse_lower, wait_for};
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a push waits for what changes the references before it.
const TURN: Duration = Duration::from_secs(15);

/// What a push is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Purpose {
    /// To prepare and finish it: its epoch must be above the fence.
    Prepare,
    /// To bring a copy to where others are: the fence was set under this very epoch.
    Settle,
}

/// Who pushes in one repository, or waits to.
#[derive(Debug, Default)]
pub(super) struct Pushing {
    holders: Mutex<Vec<Holder>>,
    left: Notify,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    epoch: i64,
    cancel: CancellationToken,
}

impl Pushing {
    /// One of them is gone.
    pub(super) fn leave(&self, number: u64) {
        lock(&self.holders).retain(|holder| holder.number != number);
        self.left.notify_waiters();
    }

    /// Ends those of this epoch or lower.
    fn end(&self, epoch: i64) {
        for holder in lock(&self.holders).iter().filter(|holder| holder.epoch <= epoch) {
            holder.cancel.cancel();
        }
    }

    /// Waits until none of this epoch or lower is left.
    async fn ended(&self, epoch: i64) {
        loop {
            let left = self.left.notified();
            let mut left = std::pin::pin!(left);
            left.as_mut().enable();
            if !lock(&self.holders).iter().any(|holder| holder.epoch <= epoch) {
                return;
            }
            left.await;
        }
    }
}

impl Epochs {
    /// Takes the right to change references for a push. One of a lower epoch is ended and waited for; a repair that
    /// changes references is waited for, for a while.
    ///
    /// # Errors
    /// `OldEpoch` behind a fence or a higher epoch; `Busy`; `Cancelled`; `Failed`.
    pub(in crate::agent) async fn push(
        self: &Arc<Self>,
        id: RepositoryId,
        epoch: i64,
        purpose: Purpose,
        parent: &CancellationToken,
    ) -> Result<Writer, Refusal> {
        let mut place = self.place(id);
        let cancel = parent.child_token();
        self.begin_push(&mut place, epoch, purpose, &cancel).await?;
        let why = "its references are being changed";
        let references = wait_for(&place.slot.references, TURN, &cancel, why).await?;
        let lock = self.lock_file(&place.slot, id, &cancel).await?;
        Ok(Writer { cancel, _lock: lock, _references: Some(references), _gate: None, _place: place })
    }

    /// Refuses pushes of this epoch or lower from now on, ends those that run, and waits until they are gone.
    ///
    /// # Errors
    /// `OldEpoch` when a higher fence stands; `Busy` when a push does not end; `Failed` when it cannot be kept.
    pub(in crate::agent) async fn fence(
        self: &Arc<Self>,
        id: RepositoryId,
        push: i64,
    ) -> Result<(), Refusal> {
        let place = self.place(id);
        {
            let _journal = place.slot.journal.lock().await;
            let seen = self.read(id).await?;
            refuse_lower("push epoch", push, seen.push)?;
            if push > seen.push {
                self.keep(id, Seen { push, ..seen }).await?;
            }
            place.slot.pushing.end(push);
        }
        gone(&place, push).await
    }

    /// Like [`Epochs::fence`], in the name of one who settles under an epoch of his own: whoever settled under a
    /// lower one brings nothing here any more.
    ///
    /// # Errors
    /// As [`Epochs::fence`]; `OldEpoch` also when a higher epoch was seen.
    pub(in crate::agent) async fn settle(
        self: &Arc<Self>,
        id: RepositoryId,
        epoch: i64,
        fence: i64,
    ) -> Result<(), Refusal> {
        let place = self.place(id);
        let over = fence.max(epoch.saturating_sub(1));
        {
            let _journal = place.slot.journal.lock().await;
            let seen = self.read(id).await?;
            refuse_lower("push epoch", epoch, seen.pushed)?;
            refuse_lower("push epoch", fence, seen.push)?;
            let now = Seen { push: fence, pushed: epoch, ..seen };
            if now != seen {
                self.keep(id, now).await?;
            }
            place.slot.pushing.end(over);
        }
        gone(&place, over).await
    }

    async fn begin_push(
        &self,
        place: &mut Place,
        epoch: i64,
        purpose: Purpose,
        cancel: &CancellationToken,
    ) -> Result<(), Refusal> {
        let slot = Arc::clone(&place.slot);
        let _journal = slot.journal.lock().await;
        let seen = self.read(place.id).await?;
        refuse_lower("push epoch", epoch, seen.highest_push())?;
        if purpose == Purpose::Prepare && epoch <= seen.push {
            return Err(Refusal::new(
                RefusalCode::OldEpoch,
                format!("push epoch {epoch} is over: it was fenced"),
            ));
        }
        if lock(&slot.pushing.holders).iter().any(|holder| holder.epoch >= epoch) {
            return Err(busy("the same push is being done already"));
        }
        if epoch > seen.pushed {
            self.keep(place.id, Seen { pushed: epoch, ..seen }).await?;
        }
        slot.pushing.end(epoch);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&slot.pushing.holders).push(Holder { number, epoch, cancel: cancel.clone() });
        place.push = Some(number);
        Ok(())
    }
}

/// Waits until no push of this epoch or lower is left.
async fn gone(place: &Place, epoch: i64) -> Result<(), Refusal> {
    let ended = tokio::time::timeout(ENDING, place.slot.pushing.ended(epoch)).await;
    ended.map_err(|_| busy("a push that is over does not end"))
}
