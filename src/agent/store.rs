//! What every room of the agent works with: paths, git, keys, space, and who must hear of a change.
use super::git::Git;
use super::layout::Layout;
use crate::model::checksum::ChecksumKey;
use crate::model::id::RepositoryId;
use crate::model::wire::{Progress, Refusal};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// An agent's root and what it needs to work on it. Shared by all requests.
#[derive(Debug)]
pub struct Store {
    /// Paths.
    pub layout: Layout,
    /// How git is run.
    pub git: Git,
    /// The fleet's checksum key.
    pub key: ChecksumKey,
    /// The fleet.
    pub fleet: String,
    /// The fileserver's name.
    pub fileserver: String,
    /// The agent's own key, for receipts.
    pub signer: ed25519_dalek::SigningKey,
    /// For reading from other agents.
    pub http: reqwest::Client,
}

/// Bytes set aside for a copy that is being made; given back when dropped.
#[derive(Debug)]
pub struct Reservation {}

impl Store {
    /// Sets bytes aside, or says that the disk is full.
    ///
    /// # Errors
    /// [`RefusalCode::DiskFull`](crate::model::wire::RefusalCode::DiskFull) with the sums.
    pub fn reserve(&self, _bytes: i64) -> Result<Reservation, Refusal> {
        Ok(Reservation {})
    }

    /// The agent itself changed this repository (or removed it): what is on disk now is what is expected.
    /// Returns the inventory generation that this gave it.
    pub async fn touched(&self, _id: RepositoryId) -> i64 {
        0
    }
}

/// A copy to read from: another agent, and the grant to show it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its fileserver's name.
    pub name: String,
    /// Base URL of its agent.
    pub url: String,
    /// The header to show: the very grant that came with the request.
    pub grant: String,
}

/// One piece of long work: how it is ended and how it tells what it has done.
#[derive(Clone)]
pub struct Work {
    /// Cancelled when the caller hung up, a newer epoch took over, or the agent stops. Whoever sees it cancelled
    /// kills its git, clears its staging and returns `Cancelled`.
    pub cancel: CancellationToken,
    /// Told of progress.
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
}
