//! Pruning history by age: one controller at a time, in small batches with pauses, so that nobody waits for it.

use super::metrics::add;
use super::right::Right;
use super::{Retention, Shared, millis};
use crate::database::history::{self, History};
use crate::model::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longer than a batch takes; another controller goes on after it.
const LEASE: Duration = Duration::from_mins(1);
/// Rows in a transaction.
const BATCH: i64 = 1_000;
/// Batches of one table in a round: the rest is for the next one.
const BATCHES: usize = 200;
/// Others write between two batches.
const PAUSE: Duration = Duration::from_millis(20);
/// However little is asked for, limits on attempts an hour need those of the last one.
const LEAST: Duration = Duration::from_hours(2);
/// Only what was seen in the last minute is believed; a day tells a person which observers there were.
const OBSERVED: Duration = Duration::from_hours(24);

/// Prunes now and then, until stopped.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut right = Right::new(&shared.database, "prune", &shared.holder, LEASE);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(shared.chance.around(shared.settings.retention.period)) => {}
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = round(&shared, &mut right) => {}
        }
        right.release().await;
    }
    right.release().await;
}

async fn round(shared: &Shared, right: &mut Right) {
    let Ok(now) = shared.database.now().await else { return };
    for history in History::ALL {
        let before = now - millis(kept(&shared.settings.retention, history));
        let pruned = one(shared, right, history, before).await;
        if pruned > 0 {
            add(&shared.metrics.pruned, pruned);
            tracing::info!(pruned, "{} were pruned by age", history.name());
        }
    }
}

fn kept(retention: &Retention, history: History) -> Duration {
    match history {
        History::Findings => retention.findings,
        History::Attempts => retention.attempts.max(LEAST),
        History::Evaluations => retention.evaluations,
        History::Pushes => retention.pushes,
        History::Audit => retention.audit,
        History::Observations => OBSERVED,
    }
}

async fn one(shared: &Shared, right: &mut Right, history: History, before: Millis) -> u64 {
    let mut pruned = 0;
    for _ in 0..BATCHES {
        if !right.held().await {
            return pruned;
        }
        let removed = match history::prune(&shared.database, history, before, BATCH).await {
            Ok(removed) => removed,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "{} could not be pruned", history.name());
                return pruned;
            }
        };
        pruned += removed;
        if removed < BATCH.unsigned_abs() {
            return pruned;
        }
        tokio::time::sleep(PAUSE).await;
    }
    pruned
}
