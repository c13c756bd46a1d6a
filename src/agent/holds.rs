//! Who reads a repository's objects now: nothing of them is deleted meanwhile.
//!
//! A read holds a repository as long as it lives. Deleting takes it whole, for the moment that unlinking takes; reads
//! that come in that moment wait. Copies hold a repository across requests, by the leases in `content::manifest`.

use crate::model::id::RepositoryId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All repositories that are held now.
#[derive(Debug, Default)]
pub(super) struct Holds {
    used: Mutex<HashMap<RepositoryId, Use>>,
    freed: Notify,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    Reads(usize),
    Deletion,
}

/// One read, or one deletion; over when dropped.
#[derive(Debug)]
pub(super) struct Hold {
    holds: Arc<Holds>,
    id: RepositoryId,
}

impl Holds {
    /// Holds a repository for a read; waits while something is deleted in it.
    pub(super) async fn read(self: &Arc<Self>, id: RepositoryId) -> Hold {
        loop {
            let freed = self.freed.notified();
            if self.begin(id, false) {
                return Hold { holds: Arc::clone(self), id };
            }
            freed.await;
        }
    }

    /// Takes a repository whole, to delete in it; none: somebody reads it.
    pub(super) fn delete(self: &Arc<Self>, id: RepositoryId) -> Option<Hold> {
        self.begin(id, true).then(|| Hold { holds: Arc::clone(self), id })
    }

    fn begin(&self, id: RepositoryId, deletes: bool) -> bool {
        let mut used = self.lock();
        let next = match (used.get(&id), deletes) {
            (None, true) => Use::Deletion,
            (None, false) => Use::Reads(1),
            (Some(Use::Reads(count)), false) => Use::Reads(count + 1),
            (Some(_), _) => return false,
        };
        used.insert(id, next);
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RepositoryId, Use>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut used = self.holds.lock();
        match used.get(&self.id).copied() {
            Some(Use::Reads(count)) if count > 1 => drop(used.insert(self.id, Use::Reads(count - 1))),
            _ => drop(used.remove(&self.id)),
        }
        drop(used);
        self.holds.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ID: RepositoryId = RepositoryId(7);

    #[tokio::test]
    async fn nothing_is_deleted_while_somebody_reads() {
        let holds = Arc::new(Holds::default());
        let (one, two) = (holds.read(ID).await, holds.read(ID).await);
        assert!(holds.delete(ID).is_none());
        drop(one);
        assert!(holds.delete(ID).is_none());
        assert!(holds.delete(RepositoryId(8)).is_some(), "others are not concerned");
        drop(two);
        assert!(holds.delete(ID).is_some());
        assert!(holds.lock().is_empty(), "nothing is kept of what is over");
    }

    #[tokio::test]
    async fn a_read_that_comes_amid_a_deletion_waits_for_its_end() {
        let holds = Arc::new(Holds::default());
        let deletion = holds.delete(ID).unwrap();
        let mut waiting = std::pin::pin!(holds.read(ID));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err());
        drop(deletion);
        let read = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap();
        assert!(holds.delete(ID).is_none());
        drop(read);
    }
}
