//! Purge: unlink a copy for good.
//!
//! What may go is decided in SQL, under the repository's lock and this attempt's epoch; the
//! agent unlinks; the outcome is written. It may be done again at any point: unlinking what is
//! gone is no error. It needs no row of its repository: a tombstone is enough.

use super::remove::vouching;
use super::{Done, Task};
use crate::database::fileservers;
use crate::database::purges::{self, Begun, Purge};
use crate::database::replicas::Recorded;
use crate::fleet::Watch;
use crate::model::attempt::Attempt;
use crate::model::id::FileserverId;
use crate::model::wire::{PurgeRequest, Purged};
use crate::worker::Worker;
use crate::worker::facts::{Ends, Facts, reachable};
use crate::worker::lease::size;
use crate::worker::outcome::Outcome;

pub(in crate::worker) async fn purge(worker: &Worker, attempt: &Attempt, watch: &Watch) -> Done {
    let plan = &attempt.plan;
    let (Some(repository), Some(here)) = (plan.repository_id, plan.destination_id) else {
        return Err(Outcome::Stale("the plan names no copy".into()));
    };
    let all = fileservers::all(&worker.database).await?;
    let to = reachable(all.iter().find(|one| one.id == here), here)?;
    let purge = Purge { repository, fileserver: here, epoch: attempt.epoch, path: plan.path.as_deref() };
    let ends = Ends { here, destination: to.clone(), source: None };
    let task = Task { worker, repository, attempt, ends: &ends, watch };
    let vouching = others(&task).await?;
    let version = match purges::begin(&worker.database, purge, &vouching).await? {
        Begun::Go(version) => version,
        Begun::Gone => return Err(Outcome::Stale("there is nothing to purge any more".into())),
        Begun::Kept(why) => return Err(Outcome::Stale(why)),
        Begun::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    };
    let what = match &plan.path {
        Some(path) => Purged::Quarantined { path: path.clone() },
        None => Purged::Place { reason: format!("purged for goal {}", attempt.goal) },
    };
    let ask = PurgeRequest { what, version };
    let answer = worker.agents.purge(&to, repository, attempt.epoch, &ask, watch).await;
    let answer = answer.map_err(|error| Outcome::of_call(error, None))?;
    match purges::finish(&worker.database, purge).await? {
        Recorded::Written => {}
        _ => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    }
    let message = if answer.existed {
        format!("unlinked, {} given free", size(answer.bytes))
    } else {
        "it was gone already".to_owned()
    };
    Ok(Outcome::Succeeded { message, bytes: 0 })
}

/// For a copy that no row knows, of a repository that is there: the copies that make it spare, asked now.
async fn others(task: &Task<'_>) -> Result<Vec<FileserverId>, Outcome> {
    if task.attempt.plan.path.is_some() {
        return Ok(Vec::new());
    }
    match Facts::read(&task.worker.database, task.repository()).await? {
        Some(facts) if facts.repository.removed_at.is_none() => vouching(task, &facts, task.here()).await,
        _ => Ok(Vec::new()),
    }
}
