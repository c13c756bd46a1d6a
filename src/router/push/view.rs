//! What a push is decided from: the repository, its copies, and the references of one that shows the definitive ones.

use super::Pushing;
use crate::database::pushes::{self, Place};
use crate::database::{self, repositories};
use crate::model::checksum::Checksum;
use crate::model::fleet::{Repository, quorum};
use crate::model::id::RepositoryId;
use crate::model::push::Listing;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::Duration;

/// How long one copy alone is asked for its references.
const ALONE: Duration = Duration::from_secs(1);

/// A repository as SQL holds it now.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The repository.
    pub(super) repository: Repository,
    /// Copies that take pushes.
    pub(super) takers: Vec<Place>,
}

/// Its references at one version.
pub(super) struct Shown {
    /// The version.
    pub(super) version: i64,
    /// The definitive checksum, which is theirs.
    pub(super) base: Checksum,
    /// The references.
    pub(super) listing: Listing,
}

impl View {
    /// Reads it; none: there is no such repository any more.
    pub(super) async fn read(pushing: &Pushing, id: RepositoryId) -> database::Result<Option<Self>> {
        let db = &pushing.database;
        let row = repositories::by_ids(db, &[id]).await?.pop().filter(|row| row.removed_at.is_none());
        let Some(repository) = row else { return Ok(None) };
        let mut takers = pushes::places(db, id).await?;
        takers.retain(Place::takes_pushes);
        Ok(Some(Self { repository, takers }))
    }

    /// Why no push can be taken now: too few copies.
    pub(super) fn too_few(&self) -> Option<String> {
        let (have, seats) = (self.takers.len(), self.repository.seats);
        let needed = quorum(seats) as usize;
        (have < needed)
            .then(|| format!("{have} of {seats} copies can take a push now, {needed} must agree: try again"))
    }

    /// The references of a copy that shows what SQL holds definitive; none: no copy does now. One that is slow to answer
    /// is not waited for alone.
    pub(super) async fn references(&self, pushing: &Pushing) -> Option<Shown> {
        let base = self.repository.checksum?;
        let first = usize::try_from(pushing.chance.next() % self.takers.len().max(1) as u64).unwrap_or(0);
        let mut places = self.takers.iter().cycle().skip(first).take(self.takers.len());
        let mut calls = FuturesUnordered::new();
        loop {
            calls.extend(places.next().map(|place| self.ask(pushing, place, base)));
            match tokio::time::timeout(ALONE, calls.next()).await {
                Ok(Some(Some(shown))) => return Some(shown),
                Ok(None) => return None,
                Ok(Some(None)) | Err(_) => {}
            }
        }
    }

    async fn ask(&self, pushing: &Pushing, place: &Place, base: Checksum) -> Option<Shown> {
        let (id, format) = (self.repository.id, self.repository.object_format);
        match pushing.agents.references(&place.end, id, format, pushing.settings.listing).await {
            Ok(listing) if listing.checksum(&pushing.checksum_key, format) == base => {
                Some(Shown { version: self.repository.version, base, listing })
            }
            Ok(_) => {
                tracing::debug!(
                    fileserver.name = place.end.name,
                    "a copy is not at the version that was read"
                );
                None
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::info!(error, fileserver.name = place.end.name, "a copy did not list its references");
                None
            }
        }
    }
}
