//! Where things are below an agent's root. Paths come from numbers alone: a client's string never becomes one.
//!
//! ```text
//! ROOT/fleet.json                       fleet, fileserver, root id, format
//! ROOT/agent.lock                       held (flock) by the one agent that works here
//! ROOT/parts.json                       the parts that may ask, as the controller last said
//! ROOT/repositories/ab/cd/<id>.git      a repository; ab, cd: the two low bytes of its id, in hexadecimal
//! ROOT/repositories/ab/cd/<id>.json     what it is, for rebuilding SQL from disks: `Identity`
//! ROOT/repositories/ab/cd/<id>.seen     its fingerprint after the agent's own last write
//! ROOT/repositories/ab/cd/<id>.lock     held (flock) by the agent's work on it and by every git that runs in it
//! ROOT/staging/<id>-copy.git            a copy being made, or one that a later attempt goes on with
//! ROOT/staging/<id>-<ingest>-push       objects of a push that is not prepared yet
//! ROOT/quarantine/<id>-<time>.git       a copy set aside, `.json` beside it says why
//! ROOT/journal/ab/cd/<id>.json          the highest epoch and fence that were seen
//! ROOT/journal/highest.json             the highest of any repository
//! ROOT/journal/pushes/<id>.json         the push that is prepared in a repository, until it is finished
//! ROOT/self-test/                       what the self-test writes
//! ```
use crate::model::id::RepositoryId;
use std::path::{Path, PathBuf};

/// Paths below a root.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The paths below this root.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file that says whose root this is.
    #[must_use]
    pub fn fleet_file(&self) -> PathBuf {
        self.root.join("fleet.json")
    }

    /// The file whose lock says that an agent works here.
    #[must_use]
    pub fn root_lock(&self) -> PathBuf {
        self.root.join("agent.lock")
    }

    /// The parts that may ask.
    #[must_use]
    pub fn parts_file(&self) -> PathBuf {
        self.root.join("parts.json")
    }

    /// The directory of all repositories.
    #[must_use]
    pub fn repositories(&self) -> PathBuf {
        self.root.join("repositories")
    }

    /// The directory of copies being made.
    #[must_use]
    pub fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// The directory of copies set aside.
    #[must_use]
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// The directory of epochs and fences.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// The directory that the self-test writes to.
    #[must_use]
    pub fn self_test(&self) -> PathBuf {
        self.root.join("self-test")
    }

    /// A repository.
    #[must_use]
    pub fn repository(&self, id: RepositoryId) -> PathBuf {
        beside(&self.repositories(), id, "git")
    }

    /// What a repository is.
    #[must_use]
    pub fn identity(&self, id: RepositoryId) -> PathBuf {
        beside(&self.repositories(), id, "json")
    }

    /// What a repository looked like after the agent's own last write.
    #[must_use]
    pub fn seen(&self, id: RepositoryId) -> PathBuf {
        beside(&self.repositories(), id, "seen")
    }

    /// The lock of a repository.
    #[must_use]
    pub fn lock(&self, id: RepositoryId) -> PathBuf {
        beside(&self.repositories(), id, "lock")
    }

    /// The highest epochs of any repository.
    #[must_use]
    pub fn highest_epochs(&self) -> PathBuf {
        self.journal().join("highest.json")
    }

    /// The directory of pushes that are prepared.
    #[must_use]
    pub fn prepared_pushes(&self) -> PathBuf {
        self.journal().join("pushes")
    }

    /// The push that is prepared in a repository.
    #[must_use]
    pub fn prepared_push(&self, id: RepositoryId) -> PathBuf {
        self.prepared_pushes().join(format!("{id}.json"))
    }

    /// Where the objects of a push wait. The name is the agent's own, never a client's.
    #[must_use]
    pub fn ingest(&self, id: RepositoryId, name: &str) -> PathBuf {
        self.staging().join(format!("{id}-{name}{INGEST}"))
    }

    /// The epochs of a repository.
    #[must_use]
    pub fn journal_of(&self, id: RepositoryId) -> PathBuf {
        beside(&self.journal(), id, "json")
    }
}

/// How the directory of a push's objects ends.
pub(super) const INGEST: &str = "-push";

/// The two levels of directories keep each directory small with millions of repositories.
fn beside(directory: &Path, id: RepositoryId, ending: &str) -> PathBuf {
    let [.., high, low] = id.0.to_be_bytes();
    directory.join(format!("{high:02x}")).join(format!("{low:02x}")).join(format!("{id}.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sharded_by_the_two_low_bytes_of_the_number() {
        let layout = Layout::new("/r");
        assert_eq!(
            layout.repository(RepositoryId(0x01_ab_cd)),
            Path::new("/r/repositories/ab/cd/109517.git")
        );
        assert_eq!(layout.journal_of(RepositoryId(1)), Path::new("/r/journal/00/01/1.json"));
    }
}
