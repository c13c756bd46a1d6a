//! The loop beside drains: notes how far each is, and forgets what lost fileservers held.
//!
//! Moving and removing is the work of goals and repairs. What is done here asks no agent: it counts
//! rows, so that a drain that stands still is found out, and takes rows away whose disks will never
//! return, a bounded number at a time and each only while enough good copies stand elsewhere.

use super::Shared;
use super::right::Right;
use crate::database::{self, drains};
use crate::model::amount::counted;
use crate::model::id::RepositoryId;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(2);
/// A controller that dies leaves this to another after so long.
const LEASE: Duration = Duration::from_secs(15);

/// Looks until stopped.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut right = Right::new(&shared.database, "drains", &shared.holder, LEASE);
    let mut after = RepositoryId(0);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(shared.chance.around(PERIOD)) => {}
        }
        if !right.held().await {
            continue;
        }
        let looked = tokio::select! {
            () = stop.cancelled() => break,
            looked = look(&shared, after) => looked,
        };
        match looked {
            Ok(next) => after = next,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "fileservers that are being emptied could not be looked at");
            }
        }
    }
    right.release().await;
}

/// One look; where to go on with what lost fileservers held.
async fn look(shared: &Shared, after: RepositoryId) -> database::Result<RepositoryId> {
    let (gone, next) = drains::forget_lost(&shared.database, after).await?;
    if gone > 0 {
        tracing::info!(
            target: "trued::event", kind = "replicas.forgotten", replicas = gone,
            "forgotten: {} of lost fileservers, of which as many as are wanted stand elsewhere",
            counted(gone, "replica"),
        );
    }
    drains::note(&shared.database).await?;
    Ok(next.unwrap_or(RepositoryId(0)))
}
