//! Shares of a repository's lock file: one for each of the agent's own writers, one for each git that they start.
//!
//! The first of them has it whole for a moment, which shows that no git of an earlier agent is left. As long as one
//! of ours holds a share the others need not look again: their gits are waited for by who started them.

use super::super::root::open_lock;
use super::{Slot, lock};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// How many shares this agent's writers hold.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<usize>);

/// One of them.
#[derive(Debug)]
pub(super) struct Share {
    slot: Arc<Slot>,
    _file: File,
}

impl Drop for Share {
    fn drop(&mut self) {
        *lock(&self.slot.shares.0) -= 1;
    }
}

/// Takes a share; none: a git of an earlier agent holds one.
pub(super) fn take(slot: &Arc<Slot>, path: &Path) -> io::Result<Option<Share>> {
    let mut shares = lock(&slot.shares.0);
    let file = open_lock(path)?;
    if *shares == 0 && !is_whole(&file)? {
        return Ok(None);
    }
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    *shares += 1;
    Ok(Some(Share { slot: Arc::clone(slot), _file: file }))
}

/// Takes a share only where nobody else has one.
pub(super) fn whole(slot: &Arc<Slot>, path: &Path) -> io::Result<Option<Share>> {
    if *lock(&slot.shares.0) > 0 { Ok(None) } else { take(slot, path) }
}

fn is_whole(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
