//! What an agent says of all that its disk holds, for comparing it with SQL and for rebuilding SQL from it.

use super::checksum::Checksum;
use super::id::RepositoryId;
use super::wire::Identity;
use serde::{Deserialize, Serialize};

/// The epochs that an agent has seen of one repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochsAnswer {
    /// The highest repair epoch.
    pub repair: i64,
    /// Pushes of this epoch or lower are refused.
    pub push: i64,
}

/// One copy as it lies on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The repository.
    pub repository: RepositoryId,
    /// What stands beside it; none: nothing that can be read.
    pub identity: Option<Identity>,
    /// The checksum of its references; none: they cannot be read.
    pub checksum: Option<Checksum>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Bytes on disk, as last measured.
    pub bytes: i64,
    /// The epochs that were seen of it.
    pub epochs: EpochsAnswer,
}

/// A page of all copies, in the order of their repositories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentsPage {
    /// The start that it belongs to.
    pub start_id: String,
    /// The copies.
    pub held: Vec<Held>,
    /// The page goes as far as this repository, whether or not it is there.
    pub through: RepositoryId,
    /// Whether more follow.
    pub more: bool,
    /// The highest number of a repository that ever stood on this disk, also of those set aside: none up to it is
    /// given again.
    pub highest: RepositoryId,
}
