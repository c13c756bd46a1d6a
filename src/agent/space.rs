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

/// What a stream of unknown length sets aside at a time. Larger pieces would keep a small repository from a nearly
/// full disk.
const PIECE: i64 = 4 * 1024 * 1024;

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
    aside: Aside,
    /// So that two copies never count on the same bytes.
    asking: Mutex<()>,
}

/// What is set aside. A capacity counts copies when they are published, so all of it is to come; the disk counts each
/// byte as it is written, so only the rest is.
#[derive(Debug, Default)]
struct Aside {
    all: AtomicI64,
    unwritten: AtomicI64,
}

/// Bytes set aside for a copy that is being made; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: i64,
    written: AtomicI64,
    space: Arc<Space>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let unwritten = self.bytes - self.written.load(Ordering::Acquire);
        self.space.aside.all.fetch_sub(self.bytes, Ordering::AcqRel);
        self.space.aside.unwritten.fetch_sub(unwritten, Ordering::AcqRel);
    }
}

impl Reservation {
    /// Bytes of it are on the disk now, which counts them itself from now on.
    pub fn wrote(&self, bytes: i64) {
        let most = |written: i64| Some(written.saturating_add(bytes.max(0)).min(self.bytes));
        let update = self.written.fetch_update(Ordering::AcqRel, Ordering::Acquire, most);
        if let Ok(before) = update {
            let more = before.saturating_add(bytes.max(0)).min(self.bytes) - before;
            self.space.aside.unwritten.fetch_sub(more, Ordering::AcqRel);
        }
    }

    /// Bytes of a stream came and are written next: more is set aside where they do not fit.
    ///
    /// # Errors
    /// [`RefusalCode::DiskFull`] with the sums.
    pub fn came(&mut self, bytes: i64) -> Result<(), Refusal> {
        while self.bytes - *self.written.get_mut() < bytes {
            self.space.take(PIECE)?;
            self.bytes += PIECE;
        }
        self.wrote(bytes);
        Ok(())
    }
}

impl Space {
    pub(super) fn new(root: PathBuf, capacity: Option<i64>, inventory: Arc<Inventory>) -> Self {
        Self { root, capacity, inventory, aside: Aside::default(), asking: Mutex::default() }
    }

    /// The sums as they are now. Asks the file system, so it may be slow on a sick disk.
    pub(super) fn sums(&self) -> io::Result<Sums> {
        Ok(self.sums_on(Disk::at(&self.root)?))
    }

    fn sums_on(&self, disk: Disk) -> Sums {
        let all = self.aside.all.load(Ordering::Acquire);
        let unwritten = self.aside.unwritten.load(Ordering::Acquire);
        disk.sums(self.capacity, self.inventory.used(), all, unwritten)
    }

    /// Sets bytes aside.
    pub(super) fn reserve(self: &Arc<Self>, bytes: i64) -> Result<Reservation, Refusal> {
        let bytes = bytes.max(0);
        self.take(bytes)?;
        Ok(Reservation { bytes, written: AtomicI64::new(0), space: Arc::clone(self) })
    }

    fn take(&self, bytes: i64) -> Result<(), Refusal> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = Disk::at(&self.root).map_err(|error| {
            Refusal::new(RefusalCode::Failed, format!("cannot ask how much space is free: {error}"))
        })?;
        let sums = self.sums_on(disk);
        if bytes > sums.free {
            return Err(Refusal::new(RefusalCode::DiskFull, disk.shortage(bytes, sums)));
        }
        self.aside.all.fetch_add(bytes, Ordering::AcqRel);
        self.aside.unwritten.fetch_add(bytes, Ordering::AcqRel);
        Ok(())
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

    /// `held`: bytes of published copies; `all` and `unwritten`: what is set aside, and how much of it is to be written.
    fn sums(self, capacity: Option<i64>, held: i64, all: i64, unwritten: i64) -> Sums {
        let whole_disk = capacity.is_none();
        let on_disk = self.available.saturating_sub(unwritten);
        let (capacity, used, left) = match capacity {
            Some(capacity) => (capacity, held, (capacity - held).saturating_sub(all).min(on_disk)),
            None => (self.total, self.used, on_disk),
        };
        let margin = (capacity / 50).clamp(SMALLEST_MARGIN, LARGEST_MARGIN);
        Sums { capacity, used, free: left.saturating_sub(margin).max(0), reserved: all, whole_disk }
    }

    /// Why bytes do not fit. Where the disk has less left than the agent's capacity, the disk's sums are what counts.
    fn shortage(self, bytes: i64, sums: Sums) -> String {
        let (needed, free) = show_both(bytes, sums.free);
        let within_capacity = sums.capacity - sums.used - sums.reserved;
        let (used, of) = if sums.whole_disk || self.available < within_capacity {
            (self.used, format!("the disk's {}", show_size(self.total)))
        } else {
            (sums.used, format!("its capacity of {}", show_size(sums.capacity)))
        };
        let [used, reserved] = [used, sums.reserved].map(show_size);
        format!("needs {needed}, {free} free: {used} of {of} used, {reserved} set aside")
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
        let space = Arc::new(Space::new(directory.path().to_owned(), Some(10 * MIB), inventory));
        assert_eq!(space.sums().unwrap().free, 9 * MIB, "a margin is kept");
        let first = space.reserve(6 * MIB).unwrap();
        let refused = space.reserve(4 * MIB).unwrap_err();
        assert_eq!(refused.code, RefusalCode::DiskFull);
        assert!(
            refused
                .message
                .contains("needs 4 MiB, 3 MiB free: 0 B of its capacity of 10 MiB used, 6 MiB set aside"),
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
        let sums = disk.sums(Some(1_000 * MIB), 0, 0, 0);
        assert_eq!((sums.capacity, sums.used, sums.free), (1_000 * MIB, 0, 0), "the margin is 20 MiB");
        let sums = disk.sums(None, 0, MIB, MIB);
        assert_eq!((sums.capacity, sums.used, sums.free), (100 * MIB, 90 * MIB, 7 * MIB));
    }

    #[test]
    fn a_byte_that_is_written_is_not_counted_twice() {
        // Of 20 MiB set aside 15 are on the disk already, which has 10 left.
        let disk = Disk { total: 100 * MIB, used: 90 * MIB, available: 10 * MIB };
        assert_eq!(disk.sums(None, 0, 20 * MIB, 5 * MIB).free, 3 * MIB, "the margin is 2 MiB");
        assert_eq!(
            disk.sums(Some(50 * MIB), 25 * MIB, 20 * MIB, 5 * MIB).free,
            4 * MIB,
            "a capacity counts all"
        );
    }

    #[test]
    fn a_stream_sets_aside_in_pieces_what_it_did_not_write_yet() {
        let directory = tempfile::tempdir().unwrap();
        let inventory = Inventory::new(Layout::new(directory.path()));
        let space = Arc::new(Space::new(directory.path().to_owned(), Some(1 << 30), inventory));
        let aside =
            || (space.aside.all.load(Ordering::Acquire), space.aside.unwritten.load(Ordering::Acquire));
        let mut room = space.reserve(0).unwrap();
        room.came(MIB).unwrap();
        assert_eq!(aside(), (PIECE, PIECE - MIB));
        room.came(PIECE).unwrap();
        assert_eq!(aside(), (2 * PIECE, PIECE - MIB));
        room.wrote(i64::MAX);
        assert_eq!(aside(), (2 * PIECE, 0), "never more than was set aside");
        drop(room);
        assert_eq!(aside(), (0, 0));
    }

    #[test]
    fn who_is_refused_hears_whose_room_is_short() {
        let full = Disk { total: 100 * MIB, used: 99 * MIB, available: MIB };
        let sums = full.sums(Some(1 << 40), 5 * MIB, 0, 0);
        let said = full.shortage(4 * MIB, sums);
        assert_eq!(said, "needs 4 MiB, 0 B free: 99 MiB of the disk's 100 MiB used, 0 B set aside");
    }
}
