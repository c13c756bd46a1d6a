//! Taking copies away: set aside, listed, unlinked.

use crate::model::Millis;
use crate::model::id::RepositoryId;
use serde::{Deserialize, Serialize};

/// Set a copy aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineRequest {
    /// Why, for people.
    pub reason: String,
    /// What SQL knows as the highest version: a copy that committed a higher one is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// Where a copy was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineAnswer {
    /// Its path below the root. Where nothing stands at its place: that of the last one that was set aside before,
    /// so that the same request may be made again; none: there is none.
    pub path: Option<String>,
    /// Bytes on disk.
    pub bytes: i64,
}

/// One copy in quarantine, from the note beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// The repository.
    pub repository: RepositoryId,
    /// Where it is, below the root.
    pub path: String,
    /// When it was set aside.
    pub since: Millis,
    /// Why.
    pub reason: String,
    /// Bytes on disk then.
    pub bytes: i64,
}

/// A page of what is in quarantine, in the order of paths' bytes, beginning after a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinePage {
    /// The entries.
    pub entries: Vec<QuarantineEntry>,
    /// Whether more follow.
    pub more: bool,
}

/// Unlink a copy for good. Nothing brings it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeRequest {
    /// Which one.
    pub what: Purged,
    /// What SQL knows as the highest version: a copy that committed a higher one is not touched. None: its
    /// repository is gone for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// Which copy is unlinked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purged {
    /// The one at its place; it goes to quarantine first, so that no half of it is ever there.
    Place {
        /// Why, for people.
        reason: String,
    },
    /// One that was set aside, by its path below the root.
    Quarantined {
        /// The path.
        path: String,
    },
}

/// What was unlinked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeAnswer {
    /// Whether anything was there.
    pub existed: bool,
    /// Bytes that were given free.
    pub bytes: i64,
}
