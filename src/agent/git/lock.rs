//! Lock files that a git inherits: taken as long as it, or anything that it started, lives.
//!
//! `flock` belongs to the open file, not to the process. Each git gets an open file of its own with a shared lock on
//! it; whoever writes holds a shared one too, after having had it whole for a moment. So an agent that was restarted
//! cannot have it whole before the gits of its predecessor have ended.

use rustix::fs::FlockOperation;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A descriptor for a git to inherit, with a shared lock on the file. Fails where somebody holds it whole: then the
/// caller, who must hold a share of it, does not.
pub(super) fn share(path: &Path) -> std::io::Result<OwnedFd> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(file.into())
}
