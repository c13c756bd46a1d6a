//! What every room of the agent works with: paths, git, keys, space, and who must hear of a change.

pub use super::bandwidth::Bandwidth;
use super::inventory::Fingerprint;
pub use super::space::Reservation;

use super::git::Git;
use super::holds::Holds;
use super::inventory::Inventory;
use super::layout::Layout;
use super::space::Space;
use crate::model::checksum::ChecksumKey;
use crate::model::grant::Enrolment;
use crate::model::id::RepositoryId;
use crate::model::wire::{Progress, Refusal, RefusalCode};
use std::io;
use std::sync::Arc;
use std::time::Duration;
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
    pub(super) inventory: Arc<Inventory>,
    pub(super) space: Arc<Space>,
    /// Who reads objects now.
    pub(super) holds: Arc<Holds>,
    /// What all copies share.
    pub(super) bandwidth: Arc<Bandwidth>,
    /// What is made of faults in pushed objects, as git reads it; empty: git's own severities.
    pub(super) fsck: String,
}

impl Store {
    /// A store over a root, as the enrolled fileserver; `capacity` bounds the bytes it may use.
    ///
    /// # Errors
    /// When the enrolment lacks a readable key or the checksum key, or no HTTP client can be made.
    pub fn new(
        layout: Layout,
        git: Git,
        enrolment: &Enrolment,
        capacity: Option<i64>,
    ) -> Result<Self, String> {
        let signer = enrolment.signing_key().ok_or("the enrolment's secret key cannot be read")?;
        let key = enrolment.checksum_key.clone().ok_or("the enrolment has no checksum key")?;
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| format!("cannot make an HTTP client: {error}"))?;
        let inventory = Inventory::new(layout.clone());
        let space = Arc::new(Space::new(layout.root().to_owned(), capacity, Arc::clone(&inventory)));
        let (fleet, fileserver) = (enrolment.fleet.clone(), enrolment.part.name.clone());
        Ok(Self {
            layout,
            git,
            key,
            fleet,
            fileserver,
            signer,
            http,
            inventory,
            space,
            holds: Arc::default(),
            bandwidth: Arc::new(Bandwidth::new(0)),
            fsck: String::new(),
        })
    }

    /// Sets bytes aside, or says that the disk is full.
    ///
    /// # Errors
    /// [`RefusalCode::DiskFull`] with the sums.
    pub fn reserve(&self, bytes: i64) -> Result<Reservation, Refusal> {
        self.space.reserve(bytes)
    }

    /// The agent itself changed this repository (or removed it): what is on disk now is what is expected.
    /// Returns the inventory generation that this gave it.
    ///
    /// In a verification nothing is accepted by this: the server does so when it came to an answer, and
    /// then only what was there before it looked.
    pub async fn touched(&self, id: RepositoryId) -> i64 {
        let inventory = Arc::clone(&self.inventory);
        self.noted(id, move || inventory.touched(id)).await
    }

    /// What a repository looks like now, to be accepted after it was verified.
    ///
    /// # Errors
    /// `Failed` when it cannot be looked at.
    pub async fn fingerprint(&self, id: RepositoryId) -> Result<Fingerprint, Refusal> {
        let inventory = Arc::clone(&self.inventory);
        tokio::task::spawn_blocking(move || inventory.fingerprint(id))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(|error| Refusal::new(RefusalCode::Failed, format!("cannot look at {id}: {error}")))
    }

    /// Expects from now on what was looked at. Returns the generation whose flag that answers.
    pub async fn accept(&self, id: RepositoryId, fingerprint: Fingerprint) -> i64 {
        let inventory = Arc::clone(&self.inventory);
        self.noted(id, move || inventory.accept(id, fingerprint)).await
    }

    /// A change that cannot be noted is not lost: the sweep finds it and has it verified.
    async fn noted(&self, id: RepositoryId, note: impl FnOnce() -> io::Result<i64> + Send + 'static) -> i64 {
        match tokio::task::spawn_blocking(note).await.map_err(io::Error::other).flatten() {
            Ok(generation) => generation,
            Err(error) => {
                tracing::warn!(repository.id = id.0, %error, "cannot note what a repository looks like");
                0
            }
        }
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
