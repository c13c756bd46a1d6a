//! Racks, fileservers, repositories and replicas, as SQL remembers them.

use super::Millis;
use super::checksum::Checksum;
use super::id::{FileserverId, RackId, RepositoryId};
use crate::words;
use serde::{Deserialize, Serialize};

words!(
    /// What the operator wants of a fileserver. Written by people only.
    Intent, "intent" {
        /// Takes new replicas, reads and pushes.
        Serve = "serve",
        /// Nothing new: no placement, no new long read; what it holds stays and counts.
        Quiesce = "quiesce",
        /// Quiesce, and its replicas no longer count: copies are made elsewhere, then these go.
        Evacuate = "evacuate",
        /// Leave the fleet.
        Retire = "retire",
    }
);

words!(
    /// What was last seen of a fileserver. Written by observation only.
    Health, "health" {
        /// Its last status arrived.
        Online = "online",
        /// One status was missed; it is asked every second.
        Suspect = "suspect",
        /// Three were missed.
        Offline = "offline",
    }
);

words!(
    /// What a replica may do.
    ReplicaState, "replica state" {
        /// Its row exists, its copy is being made; it never reads, votes or counts.
        Creating = "creating",
        /// Reads, takes pushes, votes and counts.
        Live = "live",
        /// Reads, takes pushes and votes, but no longer counts.
        Leaving = "leaving",
        /// On its way out; it votes no more.
        Removing = "removing",
    }
);

words!(
    /// The hash that a repository's objects are named by.
    ObjectFormat, "object format" {
        /// 20 bytes; Git's default.
        Sha1 = "sha1",
        /// 32 bytes.
        Sha256 = "sha256",
    }
);

impl ObjectFormat {
    /// Length of an object's name in hexadecimal digits.
    #[must_use]
    pub const fn hex_len(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }
}

/// The fewest replicas that must agree for a push to stand: ⌊seats/2⌋ + 1.
#[must_use]
pub const fn quorum(seats: u32) -> u32 {
    seats / 2 + 1
}

/// One fileserver, as SQL remembers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fileserver {
    /// Its number.
    pub id: FileserverId,
    /// Its name, unique in the fleet.
    pub name: String,
    /// Number of the rack it stands in.
    pub rack_id: RackId,
    /// Name of that rack.
    pub rack: String,
    /// Base URL of its agent, without a slash at the end.
    pub url: String,
    /// What the operator wants of it.
    pub intent: Intent,
    /// What was last seen of it.
    pub health: Health,
    /// Since when `health` is what it is.
    pub health_since: Millis,
    /// Time spent offline, accumulated: flapping does not reset the grace.
    pub offline_ms: Millis,
    /// Whether its live replicas count towards what is wanted.
    pub counts: bool,
    /// Since when its root is known to be another than the one that held its replicas.
    pub empty_since: Option<Millis>,
    /// The agent's start whose inventory was compared last.
    pub compared_start_id: Option<String>,
    /// The agent's present start.
    pub start_id: Option<String>,
    /// The identity of the agent's root directory, made when the root was first set up.
    pub root_id: Option<String>,
    /// Where that directory is on its machine, as the agent says; for people.
    pub root: Option<String>,
    /// Bytes that the agent may use; 0 before the first status.
    pub capacity: i64,
    /// Bytes used of that.
    pub disk_used: i64,
    /// Bytes that new copies may still take.
    pub disk_free: i64,
    /// Load average over one minute, in thousandths.
    pub load: i64,
    /// Git processes that run there now.
    pub processes: i64,
    /// Reads that have run there for over a minute.
    pub long_reads: i64,
    /// Share of new replicas it is offered, in hundredths; 100 is ordinary.
    pub weight: i64,
    /// Version of the agent.
    pub agent_version: Option<String>,
    /// Version of the git it runs.
    pub git_version: Option<String>,
    /// Highest inventory generation that was compared.
    pub inventory_generation: i64,
    /// When its last status arrived.
    pub seen_at: Option<Millis>,
}

/// One repository, as SQL remembers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repository {
    /// Its number.
    pub id: RepositoryId,
    /// The name that people use.
    pub name: String,
    /// The hash its objects are named by.
    pub object_format: ObjectFormat,
    /// Bytes of one copy, as last measured.
    pub bytes: i64,
    /// How many countable replicas it ought to have.
    pub wanted: u32,
    /// How many replicas share in a push's verdict.
    pub seats: u32,
    /// Counts the pushes that stand; 1 after creation.
    pub version: i64,
    /// The definitive checksum: what its replicas ought to have.
    pub checksum: Option<Checksum>,
    /// Highest epoch given to a push.
    pub push_epoch: i64,
    /// Highest epoch given to a repair.
    pub repair_epoch: i64,
    /// Until when pushes are refused.
    pub write_lock_until: Option<Millis>,
    /// When it was removed.
    pub removed_at: Option<Millis>,
}

/// One copy of one repository on one fileserver, as SQL remembers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// The repository.
    pub repository_id: RepositoryId,
    /// The fileserver.
    pub fileserver_id: FileserverId,
    /// What it may do.
    pub state: ReplicaState,
    /// The version it was last known to have.
    pub version: Option<i64>,
    /// Its checksum when last taken; `None`: not known, or known to be damaged.
    pub checksum: Option<Checksum>,
    /// Whether that is the definitive one.
    pub in_sync: bool,
    /// Since when it is not.
    pub out_of_sync_since: Option<Millis>,
    /// Bytes on disk.
    pub bytes: i64,
    /// When it was last compared with its disk.
    pub verified_at: Option<Millis>,
    /// What git found wrong with its objects; the copy is made anew, and has no checksum until then.
    pub damage: Option<String>,
    /// In state creating: where it is copied from, so that it goes on from there.
    pub copied_from: Option<FileserverId>,
}
