//! The client side of agents: one signed call a function, with a deadline, and errors by kind.
//!
//! Nothing is retried here: whoever calls knows whether a second try is safe.

use crate::model::grant::{End, Enrolment};
use crate::model::id::RepositoryId;
use crate::model::wire::{
    ChecksumAnswer, ChecksumRequest, CopyAnswer, ImportAnswer, ImportRequest, InventoryPage, PackAnswer,
    PartsList, Progress, QuarantineAnswer, QuarantineRequest, Refusal, ReplicateRequest, ResyncRequest,
    Status, VerifyAnswer,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The agent answered no, and why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No connection, or it broke before or amid the answer.
    #[error("{fileserver} cannot be reached: {why}")]
    Unreachable {
        /// The fileserver's name.
        fileserver: String,
        /// What broke.
        why: String,
    },
    /// Nothing came for as long as was allowed.
    #[error("{fileserver} did not answer within {after:?}")]
    TimedOut {
        /// The fileserver's name.
        fileserver: String,
        /// How long was waited.
        after: Duration,
    },
    /// The caller's token was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// An answer that this version cannot read.
    #[error("{fileserver} answered what cannot be read: {why}")]
    Unreadable {
        /// The fileserver's name.
        fileserver: String,
        /// What was found.
        why: String,
    },
}

/// Calls agents in the name of one part.
#[derive(Debug, Clone)]
pub struct Agents {}

/// Bounds of one long call: it ends when `cancel` is cancelled, or when no line came for `quiet`.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Ends the call, and with it the work at the agent.
    pub cancel: CancellationToken,
    /// Longest silence.
    pub quiet: Duration,
    /// Told of each progress line; only the last matters.
    pub progress: tokio::sync::watch::Sender<Option<Progress>>,
}

impl Agents {
    /// A client that signs as the enrolled part.
    ///
    /// # Errors
    /// When the enrolment's key is not one.
    pub fn new(_enrolment: &Enrolment) -> anyhow::Result<Self> {
        todo!()
    }

    /// The agent's status, within `timeout`.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn status(&self, _to: &End, _timeout: Duration) -> Result<Status, CallError> {
        todo!()
    }

    /// Gives the agent a new list of parts.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn put_parts(&self, _to: &End, _parts: &PartsList) -> Result<(), CallError> {
        todo!()
    }

    /// One page of the inventory.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn inventory(
        &self,
        _to: &End,
        _since: i64,
        _after: RepositoryId,
        _limit: i64,
    ) -> Result<InventoryPage, CallError> {
        todo!()
    }

    /// A checksum, behind a fence. No epoch is needed: it changes nothing but the fence.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn checksum(
        &self,
        _to: &End,
        _id: RepositoryId,
        _ask: &ChecksumRequest,
    ) -> Result<ChecksumAnswer, CallError> {
        todo!()
    }

    /// Compares a copy with its disk.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn verify(
        &self,
        _to: &End,
        _id: RepositoryId,
        _epoch: i64,
        _ask: &ChecksumRequest,
        _watch: &Watch,
    ) -> Result<VerifyAnswer, CallError> {
        todo!()
    }

    /// Brings a copy to what `source` has.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn resync(
        &self,
        _to: &End,
        _source: &End,
        _id: RepositoryId,
        _epoch: i64,
        _ask: &ResyncRequest,
        _watch: &Watch,
    ) -> Result<CopyAnswer, CallError> {
        todo!()
    }

    /// Makes a first copy of what `source` has.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn replicate(
        &self,
        _to: &End,
        _source: &End,
        _id: RepositoryId,
        _epoch: i64,
        _ask: &ReplicateRequest,
        _watch: &Watch,
    ) -> Result<CopyAnswer, CallError> {
        todo!()
    }

    /// Sets a copy aside.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn quarantine(
        &self,
        _to: &End,
        _id: RepositoryId,
        _epoch: i64,
        _ask: &QuarantineRequest,
    ) -> Result<QuarantineAnswer, CallError> {
        todo!()
    }
}

/// Streams an import to agents under grants that the API signed.
#[derive(Debug, Clone)]
pub struct Importer {}

impl Importer {
    /// A client without a key of its own.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new() -> anyhow::Result<Self> {
        todo!()
    }

    /// Streams a pack to one agent's staging; an agent that takes nothing for `quiet` is given up.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn pack(
        &self,
        _to: &End,
        _grant: &str,
        _id: RepositoryId,
        _object_format: crate::model::fleet::ObjectFormat,
        _pack: reqwest::Body,
        _quiet: Duration,
    ) -> Result<PackAnswer, CallError> {
        todo!()
    }

    /// Finishes an import on one agent.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn finish(
        &self,
        _to: &End,
        _grant: &str,
        _id: RepositoryId,
        _ask: &ImportRequest,
    ) -> Result<ImportAnswer, CallError> {
        todo!()
    }
}
