//! The client side of agents: one signed call a function, with a deadline, and errors by kind.
//!
//! Nothing is retried here: whoever calls knows whether a second try is safe. Each call carries a grant of its own,
//! signed for this agent, this action and (for changes) this epoch. Long calls have no bound on the whole, only on
//! silence; hanging up ends the work at the agent.

mod away;
pub mod budget;
mod call;
mod class;
mod import;
mod lines;
mod push;
mod read;
mod references;

pub use class::Class;
pub use import::Importer;
pub use push::PushedObjects;
pub use read::{Blocks, GitRead};

use crate::clock;
use crate::model::Millis;
use crate::model::contents::{ContentsPage, EpochsAnswer};
use crate::model::grant::{Action, End, Enrolment, Grant};
use crate::model::id::RepositoryId;
use crate::model::wire::{
    ChecksumAnswer, ChecksumRequest, CopyAnswer, Identity, InventoryPage, PartsList, Progress, Refusal,
    RepackAnswer, ReplicateRequest, ResyncRequest, Status, VerifyAnswer,
};
use anyhow::Context as _;
use call::Call;
use reqwest::Method;
use std::sync::Arc;
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

/// How long a grant for a short call holds: the call's own time, and clocks that differ a little.
const SHORT_GRANT: Millis = 60_000;
/// How long a grant for a copy holds: the source is shown it again for every file.
const LONG_GRANT: Millis = 12 * 60 * 60 * 1000;
/// The longest that a short call may take.
const SHORT: Duration = Duration::from_secs(30);
/// Checksums list every reference; setting aside measures the copy.
const MEASURING: Duration = Duration::from_mins(2);

/// Calls agents in the name of one part.
#[derive(Clone)]
pub struct Agents {
    http: reqwest::Client,
    fleet: Arc<str>,
    part: Arc<str>,
    key: Arc<ed25519_dalek::SigningKey>,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agents {{ fleet: {}, part: {}, key: … }}", self.fleet, self.part)
    }
}

/// What is asked for, apart from where.
struct Wish<'a> {
    action: Action,
    repository: Option<RepositoryId>,
    source: Option<&'a End>,
    epoch: Option<i64>,
    holds_for: Millis,
}

impl Wish<'_> {
    const fn about(action: Action, repository: Option<RepositoryId>) -> Self {
        Self { action, repository, source: None, epoch: None, holds_for: SHORT_GRANT }
    }
}

/// Bounds of one long call: it ends when `cancel` is cancelled, or when no line came for `quiet`.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Ends the call, and with it the work at the agent.
    pub cancel: CancellationToken,
    /// Longest silence once it has begun to answer.
    pub quiet: Duration,
    /// Told of each progress line; only the last matters.
    pub progress: tokio::sync::watch::Sender<Option<Progress>>,
}

impl Agents {
    /// A client that signs as the enrolled part.
    ///
    /// # Errors
    /// When the enrolment's key is not one.
    pub fn new(enrolment: &Enrolment) -> anyhow::Result<Self> {
        let key = enrolment.signing_key().context("the enrolment's secret key is not a key")?;
        Ok(Self {
            http: call::client()?,
            fleet: enrolment.fleet.as_str().into(),
            part: enrolment.part.id.as_str().into(),
            key: Arc::new(key),
        })
    }

    /// The agent's status, within `timeout`.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn status(&self, to: &End, timeout: Duration) -> Result<Status, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, None));
        self.call(to, &grant, Method::GET, "/v1/status").answer(timeout).await
    }

    /// Gives the agent a new list of parts.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn put_parts(&self, to: &End, parts: &PartsList) -> Result<(), CallError> {
        let grant = self.sign(to, &Wish::about(Action::Configure, None));
        self.call(to, &grant, Method::PUT, "/v1/parts").json(parts).done(SHORT).await
    }

    /// One page of the inventory.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn inventory(
        &self,
        to: &End,
        since: i64,
        after: RepositoryId,
        limit: i64,
    ) -> Result<InventoryPage, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, None));
        let path = format!("/v1/inventory?since={since}&after={after}&limit={limit}");
        self.call(to, &grant, Method::GET, &path).answer(SHORT).await
    }

    /// A checksum, behind a fence. No epoch is needed: it changes nothing but the fence.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn checksum(
        &self,
        to: &End,
        id: RepositoryId,
        ask: &ChecksumRequest,
    ) -> Result<ChecksumAnswer, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Verify, Some(id)));
        let path = format!("/v1/repositories/{id}/checksum");
        self.call(to, &grant, Method::POST, &path).json(ask).answer(MEASURING).await
    }

    /// Compares a copy with its disk.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn verify(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &ChecksumRequest,
        watch: &Watch,
    ) -> Result<VerifyAnswer, CallError> {
        let wish =
            Wish { epoch: Some(epoch), holds_for: LONG_GRANT, ..Wish::about(Action::Verify, Some(id)) };
        let path = format!("/v1/repositories/{id}/verify");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).watched(watch).await
    }

    /// The parts that the agent believes.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn parts(&self, to: &End) -> Result<PartsList, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, None));
        self.call(to, &grant, Method::GET, "/v1/parts").answer(SHORT).await
    }

    /// One page of all that its disk holds.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn contents(
        &self,
        to: &End,
        after: RepositoryId,
        limit: i64,
    ) -> Result<ContentsPage, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, None));
        let path = format!("/v1/contents?after={after}&limit={limit}");
        self.call(to, &grant, Method::GET, &path).answer(MEASURING).await
    }

    /// The epochs that it has seen of a repository.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn epochs(&self, to: &End, id: RepositoryId) -> Result<EpochsAnswer, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, Some(id)));
        self.call(to, &grant, Method::GET, &format!("/v1/repositories/{id}/epochs")).answer(SHORT).await
    }

    /// Writes down anew what a copy is.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn identify(&self, to: &End, epoch: i64, identity: &Identity) -> Result<(), CallError> {
        let id = identity.repository;
        let wish = Wish { epoch: Some(epoch), ..Wish::about(Action::Repair, Some(id)) };
        let path = format!("/v1/repositories/{id}/identity");
        self.call(to, &self.sign(to, &wish), Method::PUT, &path).json(identity).done(SHORT).await
    }

    /// Checks every object of a copy, politely: it may take hours.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn scrub(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &ChecksumRequest,
        watch: &Watch,
    ) -> Result<VerifyAnswer, CallError> {
        let wish =
            Wish { epoch: Some(epoch), holds_for: LONG_GRANT, ..Wish::about(Action::Verify, Some(id)) };
        let path = format!("/v1/repositories/{id}/scrub");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).watched(watch).await
    }

    /// Packs a copy anew.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn repack(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        watch: &Watch,
    ) -> Result<RepackAnswer, CallError> {
        let wish = Wish { epoch: Some(epoch), ..Wish::about(Action::Repair, Some(id)) };
        let path = format!("/v1/repositories/{id}/repack");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).watched(watch).await
    }

    /// Brings a copy to what `source` has.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn resync(
        &self,
        to: &End,
        source: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &ResyncRequest,
        watch: &Watch,
    ) -> Result<CopyAnswer, CallError> {
        let grant = self.sign(to, &copying(source, id, epoch));
        let path = format!("/v1/repositories/{id}/resync");
        self.call(to, &grant, Method::POST, &path).json(ask).watched(watch).await
    }

    /// Makes a first copy of what `source` has.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn replicate(
        &self,
        to: &End,
        source: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &ReplicateRequest,
        watch: &Watch,
    ) -> Result<CopyAnswer, CallError> {
        let grant = self.sign(to, &copying(source, id, epoch));
        let path = format!("/v1/repositories/{id}/replicate");
        self.call(to, &grant, Method::POST, &path).json(ask).watched(watch).await
    }

    fn call<'a>(&'a self, to: &'a End, grant: &str, method: Method, path: &str) -> Call<'a> {
        Call::new(&self.http, to, grant, method, path)
    }

    fn sign(&self, to: &End, wish: &Wish<'_>) -> String {
        let grant = Grant {
            fleet: self.fleet.to_string(),
            part: self.part.to_string(),
            action: wish.action,
            repository: wish.repository,
            destination: to.clone(),
            source: wish.source.cloned(),
            epoch: wish.epoch,
            expires_at: clock::now() + wish.holds_for,
        };
        grant.sign(&self.key)
    }
}

const fn copying(source: &End, id: RepositoryId, epoch: i64) -> Wish<'_> {
    Wish {
        action: Action::Repair,
        repository: Some(id),
        source: Some(source),
        epoch: Some(epoch),
        holds_for: LONG_GRANT,
    }
}

#[cfg(test)]
mod tests;
