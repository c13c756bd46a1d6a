//! What agents and their callers say to each other, as JSON unless said otherwise.
//! The server is `agent`, the client `fleet`; they share these shapes and nothing else.
//!
//! | method and path | grant | answer |
//! | --- | --- | --- |
//! | `GET /livez` | none | 200, text |
//! | `GET /v1/status` | observe | [`Status`] |
//! | `GET /v1/parts` | observe | [`PartsList`] |
//! | `PUT /v1/parts` (body [`PartsList`]) | configure | 204 |
//! | `GET /v1/inventory?since=G&after=ID&limit=N` | observe | [`InventoryPage`] |
//! | `POST /v1/repositories/{id}/checksum` (body [`ChecksumRequest`]) | verify | [`ChecksumAnswer`] |
//! | `POST /v1/repositories/{id}/verify` (body [`ChecksumRequest`]) | verify | lines of [`Line`]`<`[`VerifyAnswer`]`>` |
//! | `POST /v1/repositories/{id}/scrub` (body [`ChecksumRequest`]) | verify | lines of [`Line`]`<`[`VerifyAnswer`]`>` |
//! | `POST /v1/repositories/{id}/repack` | repair | lines of [`Line`]`<`[`RepackAnswer`]`>` |
//! | `POST /v1/repositories/{id}/resync` (body [`ResyncRequest`]) | repair, with source | lines of [`Line`]`<`[`CopyAnswer`]`>` |
//! | `POST /v1/repositories/{id}/replicate` (body [`ReplicateRequest`]) | repair, with source | lines of [`Line`]`<`[`CopyAnswer`]`>` |
//! | `POST /v1/repositories/{id}/quarantine` (body [`QuarantineRequest`]) | repair | [`QuarantineAnswer`] |
//! | `POST /v1/repositories/{id}/purge` (body [`PurgeRequest`]) | repair | lines of [`Line`]`<`[`PurgeAnswer`]`>` |
//! | `GET /v1/quarantine?after=PATH&limit=N` | observe | [`QuarantinePage`] |
//! | `PUT /v1/repositories/{id}/import/pack?object_format=F` (body: a pack; none sent for an empty repository) | import | [`PackAnswer`] |
//! | `POST /v1/repositories/{id}/import` (body [`ImportRequest`]) | import | [`ImportAnswer`] |
//! | `GET /v1/repositories/{id}/epochs` | observe | [`EpochsAnswer`](super::contents::EpochsAnswer) |
//! | `PUT /v1/repositories/{id}/identity` (body [`Identity`]) | repair | 204 |
//! | `GET /v1/contents?after=ID&limit=N` | observe | [`ContentsPage`](super::contents::ContentsPage) |
//! | `POST /v1/repositories/{id}/pushes` (body [`IngestRequest`](push::IngestRequest)) | push | [`IngestAnswer`](push::IngestAnswer) |
//! | `PUT /v1/repositories/{id}/pushes/{ingest}/pack` (body: a pack, or nothing) | push | lines of [`Line`]`<`[`Ready`](push::Ready)`>` |
//! | `POST /v1/repositories/{id}/pushes/{ingest}/prepare` (body [`PrepareRequest`](push::PrepareRequest)) | push, with epoch | [`Vote`](push::Vote) |
//! | `POST /v1/repositories/{id}/pushes/{ingest}/finish` (body [`FinishRequest`](push::FinishRequest)) | push, with epoch | [`FinishAnswer`](push::FinishAnswer) |
//! | `DELETE /v1/repositories/{id}/pushes/{ingest}` | push | 204 |
//! | `POST /v1/repositories/{id}/fence` (body [`FenceRequest`](push::FenceRequest)) | settle, with epoch | [`FenceAnswer`](push::FenceAnswer) |
//! | `POST /v1/repositories/{id}/bring` (body [`ResyncRequest`]) | settle, with source and epoch | lines of [`Line`]`<`[`CopyAnswer`]`>` |
//! | `GET /v1/repositories/{id}/references` | read | text, see below |
//! | `POST /v1/repositories/{id}/hold` | read | [`Manifest`] |
//! | `GET /v1/repositories/{id}/files/{path}` with `Range` | read | bytes of one file of the manifest |
//! | `DELETE /v1/repositories/{id}/hold/{hold}` | read | 204 |
//! | `GET /v1/repositories/{id}/git/info/refs?service=git-upload-pack`, `POST …/git/git-upload-pack` | read | Git's smart HTTP |
//!
//! **References** as text: first `HEAD <oid>` or `HEAD ref:<target>`, then a line each,
//! `<oid> <name>` or `ref:<target> <name>`, sorted by name's bytes, `\n` after each. Names are raw bytes.
//!
//! **Long work** answers 200 at once and then one JSON line at least every second
//! ([`Line`]); the last one is `done` or `error`. A stream that ends without either was
//! broken off. A caller that hangs up ends the work.
//!
//! **Deadlines**: a request may say how many milliseconds its caller still waits ([`read::DEADLINE_HEADER`]);
//! one that comes too late is refused before any work.
//!
//! **Errors** are [`Refusal`] with a status of 4xx or 5xx.

mod away;
pub mod push;
pub mod read;

pub use away::{
    PurgeAnswer, PurgeRequest, Purged, QuarantineAnswer, QuarantineEntry, QuarantinePage, QuarantineRequest,
};

use super::Millis;
use super::checksum::{Checksum, Target};
use super::fleet::ObjectFormat;
use super::grant::{Part, SignedReceipt};
use super::id::RepositoryId;
use crate::words;
use serde::{Deserialize, Serialize};

words!(
    /// Why an agent did not do what it was asked, for callers that branch on it.
    RefusalCode, "refusal code" {
        /// The grant is missing, unreadable, expired, of another fleet, or does not cover this.
        Forbidden = "forbidden",
        /// A higher epoch of this repository was seen.
        OldEpoch = "old-epoch",
        /// No such repository here.
        NotFound = "not-found",
        /// Something stands where it would be made.
        Exists = "exists",
        /// Too little space.
        DiskFull = "disk-full",
        /// As many copies or git processes run as may.
        Busy = "busy",
        /// The request cannot be understood.
        BadRequest = "bad-request",
        /// What a client pushed cannot be taken: git's words are in the message.
        Rejected = "rejected",
        /// The copy here is damaged.
        Damaged = "damaged",
        /// The source refused, was damaged, or went away.
        SourceFailed = "source-failed",
        /// Cancelled: a newer epoch took over, or the agent is stopping.
        Cancelled = "cancelled",
        /// The copy here journals a higher version than the caller's: SQL went back.
        HistoryLost = "history-lost",
        /// It came too late: its caller waits for no answer any more.
        Expired = "expired",
        /// Anything else, in the message.
        Failed = "failed",
    }
);

/// An agent's answer when it did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Refusal {
    /// What to branch on.
    pub code: RefusalCode,
    /// A sentence for people; git's own words where git spoke.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and sentence.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// One line of an answer to long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line<T> {
    /// Still working.
    Progress(Progress),
    /// Ended well.
    Done(T),
    /// Ended badly.
    Error(Refusal),
}

/// What long work has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done, for people: `copying packs`, `checking connectivity`.
    pub phase: String,
    /// Bytes moved so far.
    pub bytes: i64,
    /// Bytes expected; 0: not known.
    pub total: i64,
}

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The fileserver's name.
    pub fileserver: String,
    /// New at every start of the agent.
    pub start_id: String,
    /// Made once, when the root was set up: another disk has another one.
    pub root_id: String,
    /// Where the root is on that machine, absolute; for people.
    pub root: String,
    /// Bytes it may use.
    pub capacity: i64,
    /// Whether capacity and use are those of the disk as a whole; else of repositories alone.
    #[serde(default)]
    pub whole_disk: bool,
    /// Bytes it uses.
    pub disk_used: i64,
    /// Bytes that new copies may take.
    pub disk_free: i64,
    /// Load average over one minute, in thousandths.
    pub load: i64,
    /// Git processes that run now.
    pub processes: i64,
    /// Reads that have run for over a minute.
    pub long_reads: i64,
    /// Version of the agent.
    pub agent_version: String,
    /// Version of git.
    pub git_version: String,
    /// Rises with each change that the inventory noticed.
    pub inventory_generation: i64,
    /// Whether the first sweep of this start is complete.
    pub inventory_complete: bool,
    /// Digest of the list of parts that it believes; see [`PartsList::digest`].
    pub parts_digest: String,
    /// Locks of dead gits that it removed since it started.
    #[serde(default)]
    pub locks_removed: i64,
    /// The highest repair epoch that it has seen, of any repository.
    #[serde(default)]
    pub highest_repair_epoch: i64,
    /// The highest push epoch that it has seen, of any repository.
    #[serde(default)]
    pub highest_push_epoch: i64,
    /// What is wrong, found by the self-test: a sync that fails, a root that is gone. None: all is well.
    pub trouble: Option<String>,
}

/// The parts that agents may believe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsList {
    /// All parts that are not withdrawn, sorted by id.
    pub parts: Vec<Part>,
}

impl PartsList {
    /// A digest of the list, to see whether two are the same.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            for word in [part.id.as_str(), part.name.as_str(), part.role.as_str(), part.public_key.as_str()] {
                hasher.update(word.as_bytes());
                hasher.update(b"\0");
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// One repository as the inventory saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// The repository.
    pub repository: RepositoryId,
    /// The generation at which it last changed.
    pub generation: i64,
    /// Whether it is there.
    pub present: bool,
    /// Whether it changed without the agent's own doing since it was last verified.
    pub changed: bool,
    /// Bytes on disk, as last measured.
    pub bytes: i64,
    /// The version that was last committed here, as it stands beside the copy; 0: not known.
    #[serde(default)]
    pub version: i64,
}

/// A page of the inventory: entries with a generation above `since`, in the order of their
/// repositories, beginning after `after`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryPage {
    /// The start that it belongs to: a page of another start is not mixed in.
    pub start_id: String,
    /// The generation when the page was made.
    pub generation: i64,
    /// The entries.
    pub entries: Vec<InventoryEntry>,
    /// Whether more follow.
    pub more: bool,
}

/// Asks for a checksum, behind a fence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumRequest {
    /// Pushes of this epoch or lower are refused from now on.
    pub fence: Option<i64>,
}

/// A checksum, and what else it was cheap to see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumAnswer {
    /// The checksum.
    pub checksum: Checksum,
    /// Number of references.
    pub references: i64,
    /// The highest version that this copy journalled; 0: none.
    pub journal_version: i64,
}

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyAnswer {
    /// The checksum; none: the copy is damaged or gone, and `problem` says how.
    pub checksum: Option<Checksum>,
    /// What is wrong.
    pub problem: Option<String>,
    /// The highest version that this copy journalled; 0: none.
    pub journal_version: i64,
    /// Bytes on disk.
    pub bytes: i64,
    /// Packs.
    pub packs: i64,
    /// Loose objects.
    pub loose: i64,
    /// Whether it has a bitmap and a commit-graph.
    #[serde(default)]
    pub indexed: bool,
    /// The inventory generation whose flag this verification answers.
    pub generation: i64,
    /// Whether every object was checked. `problem` is then damage that only a new copy mends.
    #[serde(default)]
    pub deep: bool,
}

/// How a copy is packed after it was packed anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepackAnswer {
    /// Bytes on disk.
    pub bytes: i64,
    /// Packs.
    pub packs: i64,
    /// Loose objects.
    pub loose: i64,
    /// Whether it has a bitmap and a commit-graph.
    pub indexed: bool,
    /// What happened, in a sentence for people.
    pub message: String,
}

/// What a copy is to be, written beside it, enough to rebuild SQL from disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The repository.
    pub repository: RepositoryId,
    /// Its name when this was written.
    pub name: String,
    /// The hash its objects are named by.
    pub object_format: ObjectFormat,
    /// How many countable replicas it ought to have.
    pub wanted: u32,
    /// The highest version committed here.
    pub version: i64,
}

/// Bring an existing copy to what the source has. The source stands in the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResyncRequest {
    /// What the copy is.
    pub identity: Identity,
    /// Pushes of this epoch or lower are refused from now on.
    pub fence: Option<i64>,
    /// Bytes per second; 0: unlimited.
    pub bytes_per_second: i64,
    /// What SQL holds definitive, if it is known: what the copy ends with is compared by the caller.
    pub rebuild: bool,
}

/// Make a first copy of what the source has. The source stands in the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateRequest {
    /// What the copy is.
    pub identity: Identity,
    /// Bytes per second; 0: unlimited.
    pub bytes_per_second: i64,
}

/// How a copy ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAnswer {
    /// What the copy now has.
    pub checksum: Checksum,
    /// Bytes that were moved.
    pub moved: i64,
    /// Bytes on disk.
    pub bytes: i64,
    /// References created, changed or deleted.
    pub references_changed: i64,
    /// Whether the copy was set aside in quarantine and made anew.
    pub rebuilt: bool,
    /// The inventory's generation that this change got. What was flagged up to then is answered where the copy is new.
    #[serde(default)]
    pub generation: i64,
    /// What happened, in a sentence for people.
    pub message: String,
}

/// What an agent made of a streamed pack, kept in staging until the import is finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackAnswer {
    /// Bytes received.
    pub bytes: i64,
    /// Objects in it.
    pub objects: i64,
}

/// Finish an import: install HEAD and references over what was streamed, and publish the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRequest {
    /// What the copy is.
    pub identity: Identity,
    /// What HEAD points at.
    pub head: Target,
    /// All references, in the text form of this module's head, as base64 (names are bytes).
    pub references: String,
}

/// A finished import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportAnswer {
    /// The agent's word, for the API.
    pub receipt: SignedReceipt,
    /// What the copy has.
    pub checksum: Checksum,
    /// Whether it was there already, with the same content.
    pub existed: bool,
}

/// The files of a repository that a first copy takes, held against deletion for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Names the hold.
    pub hold: String,
    /// When it ends unless asked for again.
    pub until: Millis,
    /// The hash objects are named by.
    pub object_format: ObjectFormat,
    /// Packs, their indexes, loose objects and the shallow-free rest of the allow-list.
    pub files: Vec<ManifestFile>,
}

/// One file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Below the repository, for example `objects/pack/pack-….pack`.
    pub path: String,
    /// Its size.
    pub bytes: i64,
}
