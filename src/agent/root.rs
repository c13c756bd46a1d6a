//! The root directory: whose it is, and that only one agent works in it.
//!
//! A root is set up once, when it holds nothing yet, and never adopted: an agent that was
//! pointed at another's disk must refuse before it changes anything.

use super::AgentError;
use super::durable::{self, Sync};
use super::layout::Layout;
use crate::model::grant::Enrolment;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The newest form of a root that this version works with.
const FORMAT: u32 = 1;

/// How long the lock is waited for. One that was just let go may be held a moment longer: a process that is being
/// started has every descriptor of its parent until it runs its program.
const HANDOVER: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What `fleet.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) fleet: String,
    pub(super) fileserver: String,
    /// Made once: another disk has another one.
    pub(super) root_id: String,
    pub(super) format: u32,
}

/// A root that is this agent's, for as long as this lives.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) owner: Owner,
    /// Its lock ends with it.
    _lock: File,
}

/// Takes a root: checks whose it is, sets it up if it is new, and locks it. May wait for the lock as long as
/// [`HANDOVER`]: not for a thread that others need.
pub(super) fn take(layout: &Layout, enrolment: &Enrolment) -> Result<Root, AgentError> {
    let root = layout.root();
    durable::make_directories(root).map_err(AgentError::io(format!("making the root {}", root.display())))?;
    // Looked at before the lock file is made: a root that is refused stays as it was.
    let owner = checked_owner(layout, enrolment)?;
    let lock = lock(layout)?;
    let owner = match owner {
        Some(owner) => owner,
        None => match checked_owner(layout, enrolment)? {
            Some(owner) => owner,
            None => set_up(layout, enrolment)?,
        },
    };
    for directory in [layout.repositories(), layout.staging(), layout.quarantine(), layout.journal()] {
        durable::make_directories(&directory)
            .map_err(AgentError::io(format!("making {}", directory.display())))?;
    }
    Ok(Root { owner, _lock: lock })
}

/// Who a root belongs to; none: `fleet.json` is missing.
pub(super) fn owner(layout: &Layout) -> io::Result<Option<Owner>> {
    match std::fs::read(layout.fleet_file()) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn checked_owner(layout: &Layout, enrolment: &Enrolment) -> Result<Option<Owner>, AgentError> {
    let wrong = |why: String| AgentError::WrongRoot { root: layout.root().to_owned(), why };
    let found =
        owner(layout).map_err(AgentError::io(format!("reading {}", layout.fleet_file().display())))?;
    let Some(found) = found else {
        return if holds_something(layout)? {
            Err(wrong("it holds repositories but no fleet.json that says whose they are".to_owned()))
        } else {
            Ok(None)
        };
    };
    if found.format > FORMAT {
        return Err(AgentError::NewerRoot {
            root: layout.root().to_owned(),
            found: found.format,
            known: FORMAT,
        });
    }
    if found.fleet != enrolment.fleet {
        return Err(wrong(format!("it belongs to fleet {}, not to {}", found.fleet, enrolment.fleet)));
    }
    if found.fileserver != enrolment.part.name {
        let (theirs, ours) = (&found.fileserver, &enrolment.part.name);
        return Err(wrong(format!("it belongs to fileserver {theirs}, not to {ours}")));
    }
    Ok(Some(found))
}

/// Whether an agent has worked here, going by what it would have left.
fn holds_something(layout: &Layout) -> Result<bool, AgentError> {
    for directory in [layout.repositories(), layout.quarantine(), layout.journal()] {
        match std::fs::read_dir(&directory) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(AgentError::io(format!("reading {}", directory.display()))(error)),
        }
    }
    Ok(false)
}

fn lock(layout: &Layout) -> Result<File, AgentError> {
    let path = layout.root_lock();
    let file = open_lock(&path).map_err(AgentError::io(format!("opening {}", path.display())))?;
    if !lock_alone(&file).map_err(AgentError::io(format!("locking {}", path.display())))? {
        return Err(AgentError::RootInUse { root: layout.root().to_owned() });
    }
    Ok(file)
}

/// Locks a file that nobody else may have locked, for as long as it is open. `false`: somebody has, and still has
/// after [`HANDOVER`].
///
/// # Errors
/// When the file cannot be locked at all.
pub(crate) fn lock_alone(file: &File) -> io::Result<bool> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a file to lock it. Whoever has it open sees the same one: it is never removed.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        durable::make_directories(directory)?;
    }
    File::options().create(true).truncate(false).write(true).open(path)
}

fn set_up(layout: &Layout, enrolment: &Enrolment) -> Result<Owner, AgentError> {
    let owner = Owner {
        fleet: enrolment.fleet.clone(),
        fileserver: enrolment.part.name.clone(),
        root_id: fresh_id(),
        format: FORMAT,
    };
    let path = layout.fleet_file();
    serde_json::to_vec_pretty(&owner)
        .map_err(io::Error::from)
        .and_then(|text| durable::write(&path, &text, Sync::Durable))
        .map_err(AgentError::io(format!("writing {}", path.display())))?;
    Ok(owner)
}

/// A name unlike any other; no decision depends on it.
pub(super) fn fresh_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::super::testing::enrolment;
    use super::*;

    #[test]
    fn a_root_keeps_its_id_and_is_refused_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let first = take(&layout, &enrolment("fleet", "alpha")).unwrap().owner;
        let again = take(&layout, &enrolment("fleet", "alpha")).unwrap().owner;
        assert_eq!(first, again);
        for (fleet, name) in [("fleet", "beta"), ("other", "alpha")] {
            let refused = take(&layout, &enrolment(fleet, name)).unwrap_err();
            assert!(matches!(refused, AgentError::WrongRoot { .. }), "{refused}");
            assert!(refused.to_string().contains("belongs to"), "{refused}");
        }
    }

    #[test]
    fn two_agents_never_share_a_root() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let held = take(&layout, &enrolment("fleet", "alpha")).unwrap();
        let refused = take(&layout, &enrolment("fleet", "alpha")).unwrap_err();
        assert!(matches!(refused, AgentError::RootInUse { .. }), "{refused}");
        drop(held);
        take(&layout, &enrolment("fleet", "alpha")).unwrap();
    }

    #[test]
    fn a_root_that_is_let_go_a_moment_late_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let held = take(&layout, &enrolment("fleet", "alpha")).unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(LOOK_AGAIN * 5);
            drop(held);
        });
        take(&layout, &enrolment("fleet", "alpha")).unwrap();
        late.join().unwrap();
    }

    #[test]
    fn repositories_without_an_owner_are_not_adopted_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        std::fs::create_dir_all(layout.repositories().join("00/01/1.git")).unwrap();
        let refused = take(&layout, &enrolment("fleet", "alpha")).unwrap_err();
        assert!(matches!(refused, AgentError::WrongRoot { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_root_of_a_newer_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let mut owner = take(&layout, &enrolment("fleet", "alpha")).unwrap().owner;
        owner.format = FORMAT + 1;
        std::fs::write(layout.fleet_file(), serde_json::to_vec(&owner).unwrap()).unwrap();
        let refused = take(&layout, &enrolment("fleet", "alpha")).unwrap_err();
        assert!(matches!(refused, AgentError::NewerRoot { .. }), "{refused}");
    }
}
