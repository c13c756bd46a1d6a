//! Where things are below an agent's root. Paths come from numbers alone: a client's string never becomes one.
//!
//! ```text
//! ROOT/fleet.json                       fleet, fileserver, root id
//! ROOT/repositories/ab/cd/<id>.git      a repository; ab, cd: the two low bytes of its id, in hexadecimal
//! ROOT/repositories/ab/cd/<id>.json     what it is, for rebuilding SQL from disks: `Identity`, and its fingerprint
//! ROOT/repositories/ab/cd/<id>.lock     held (flock) by the agent's work on it and by every git that runs in it
//! ROOT/staging/<id>-<epoch>.git         a copy being made
//! ROOT/quarantine/<id>-<time>.git       a copy set aside, `.json` beside it says why
//! ROOT/journal/<id>.json                epochs, fences
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

    /// A repository.
    #[must_use]
    pub fn repository(&self, id: RepositoryId) -> PathBuf {
        self.beside(id, "git")
    }

    /// What a repository is.
    #[must_use]
    pub fn identity(&self, id: RepositoryId) -> PathBuf {
        self.beside(id, "json")
    }

    /// The lock of a repository.
    #[must_use]
    pub fn lock(&self, id: RepositoryId) -> PathBuf {
        self.beside(id, "lock")
    }

    fn beside(&self, id: RepositoryId, ending: &str) -> PathBuf {
        let [.., high, low] = id.0.to_be_bytes();
        self.repositories()
            .join(format!("{high:02x}"))
            .join(format!("{low:02x}"))
            .join(format!("{id}.{ending}"))
    }
}
