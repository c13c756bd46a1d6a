//! Space: what the disk has, what the agent may use of it, and what is set aside for copies being made.
//!
//! With a capacity, several agents can share one disk: each counts its own repositories. What is
//! free is never said to be more than the disk has.

use super::inventory::Inventory;
use crate::model::amount::{show_both, show_size};
use crate::model::wire::{Refusal, RefusalCode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Kept free on top of what is asked for: a fiftieth, within these bounds, for journals and locks.
const SMALLEST_MARGIN: i64 = 1024 * 1024;
const LARGEST_MARGIN: i64 = 256 * 1024 * 1024;

/// The sums, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) capacity: i64,
    pub(super) used: i64,
    /// What new copies may take: neither used, nor set aside, nor the margin.
    pub(super) free: i64,
    pub(super) reserved: i64,
    /// Whether these are the disk's, with all that is on it.
    pub(super) whole_disk: bool,
}

/// Keeps account.
#[derive(Debug)]
pub(super) struct Space {
    root: PathBuf,
    capacity: Option<i64>,
    inventory: Arc<Inventory>,
    reserved: Arc<AtomicI64>,
    /// So that two copies never count on the same bytes.
    asking: Mutex<()>,
}

/// Bytes set aside for a copy that is being made; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: i64,
    reserved: Arc<AtomicI64>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Space {
    pub(super) fn new(root: PathBuf, capacity: Option<i64>, inventory: Arc<Inventory>) -> Self {
        Self { root, capacity, inventory, reserved: Arc::default(), asking: Mutex::default() }
    }

    /// The sums as they are now. Asks the file system, so it may be slow on a sick disk.
    pub(super) fn sums(&self) -> io::Result<Sums> {
        let disk = Disk::at(&self.root)?;
        Ok(disk.sums(self.capacity, self.inventory.used(), self.reserved.load(Ordering::Acquire)))
    }

    /// Sets bytes aside.
    pub(super) fn reserve(&self, bytes: i64) -> Result<Reservation, Refusal> {
        let bytes = bytes.max(0);
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = self.sums().map_err(|error| {
            Refusal::new(RefusalCode::Failed, format!("cannot ask how much space is free: {error}"))
        })?;
        if bytes > sums.free {
            let (needed, free) = show_both(bytes, sums.free);
            let [used, capacity, reserved] = [sums.used, sums.capacity, sums.reserved].map(show_size);
            return Err(Refusal::new(
                RefusalCode::DiskFull,
                format!("needs {needed}, {free} free: {used} of {capacity} used, {reserved} set aside"),
            ));
        }
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
        Ok(Reservation { bytes, reserved: Arc::clone(&self.reserved) })
    }
}

#[derive(Debug, Clone, Copy)]
struct Disk {
    total: i64,
    used: i64,
    available: i64,
}

impl Disk {
    fn at(root: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(root)?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
        let used = bytes(stat.f_blocks.saturating_sub(stat.f_bfree));
        Ok(Self { total: bytes(stat.f_blocks), used, available: bytes(stat.f_bavail) })
    }

    fn sums(self, capacity: Option<i64>, held: i64, reserved: i64) -> Sums {
        let bounded = capacity.is_some();
        let (capacity, used, left) = match capacity {
            Some(capacity) => (capacity, held, (capacity - held).min(self.available)),
            None => (self.total, self.used, self.available),
        };
        let margin = (capacity / 50).clamp(SMALLEST_MARGIN, LARGEST_MARGIN);
        let free = left.saturating_sub(reserved).saturating_sub(margin).max(0);
        Sums { capacity, used, free, reserved, whole_disk: !bounded }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;

    const MIB: i64 = 1024 * 1024;

    #[test]
    fn what_is_set_aside_is_refused_to_others_until_it_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let inventory = Inventory::new(Layout::new(directory.path()));
        let space = Space::new(directory.path().to_owned(), Some(10 * MIB), inventory);
        assert_eq!(space.sums().unwrap().free, 9 * MIB, "a margin is kept");
        let first = space.reserve(6 * MIB).unwrap();
        let refused = space.reserve(4 * MIB).unwrap_err();
        assert_eq!(refused.code, RefusalCode::DiskFull);
        assert!(
            refused.message.contains("needs 4 MiB, 3 MiB free: 0 B of 10 MiB used, 6 MiB set aside"),
            "{refused}"
        );
        drop(first);
        let all = space.reserve(9 * MIB).unwrap();
        assert_eq!(space.sums().unwrap().free, 0);
        drop(all);
    }

    #[test]
    fn free_is_never_more_than_the_disk_has() {
        let disk = Disk { total: 100 * MIB, used: 90 * MIB, available: 10 * MIB };
        let sums = disk.sums(Some(1_000 * MIB), 0, 0);
        assert_eq!((sums.capacity, sums.used, sums.free), (1_000 * MIB, 0, 0), "the margin is 20 MiB");
        let sums = disk.sums(None, 0, MIB);
        assert_eq!((sums.capacity, sums.used, sums.free), (100 * MIB, 90 * MIB, 7 * MIB));
    }
}
