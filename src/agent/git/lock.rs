//! Lock files that a git inherits from the agent: taken as long as either of them lives.
//!
//! `flock` belongs to the open file, not to the process: a git that was given the agent's own open file keeps it
//! locked after the agent is gone, so a restarted agent cannot take it before that git has ended.

use rustix::fs::FlockOperation;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A lock file that is taken. Given back when this and every git that inherited it are gone.
#[derive(Debug, Clone)]
pub struct GitLock {
    _file: Arc<File>,
}

/// The lock files that this process has taken, by path. Entries of dropped ones go when the next is taken.
#[derive(Debug, Default)]
pub(super) struct Locks {
    taken: Mutex<HashMap<PathBuf, Weak<File>>>,
}

impl Locks {
    /// Takes a lock; `None`: this or another process (a git left over by it) has it.
    pub(super) fn take(&self, path: &Path) -> std::io::Result<Option<GitLock>> {
        let file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let file = Arc::new(file);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, held| held.strong_count() > 0);
        taken.insert(path.to_path_buf(), Arc::downgrade(&file));
        Ok(Some(GitLock { _file: file }))
    }

    /// A descriptor for a child to inherit: of the lock that this process has, else a shared one of the child's own,
    /// else (an exclusive one is held elsewhere) just the open file.
    pub(super) fn inherit(&self, path: &Path) -> std::io::Result<OwnedFd> {
        let held = {
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.get(path).and_then(Weak::upgrade)
        };
        if let Some(held) = held {
            return Ok(held.try_clone()?.into());
        }
        let file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => Ok(file.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}
