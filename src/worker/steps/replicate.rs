//! Replicate: make one more replica.
//!
//! Its row is there from the first byte on, in state creating: it never reads, votes or
//! counts before it is whole and its checksum was taken at the repository's version; where
//! the attempt fails, its conclusion forgets that row. A copy that an attempt before this one left whole is not made twice: it is compared, and brought
//! to the source where it differs.

use super::compare::ahead;
use super::resync::{bring, with_size};
use super::{Done, Task};
use crate::database::replicas::{Recorded, Taken, abandon_copy, begin_copy, finish_move};
use crate::database::tidying::copied_from;
use crate::model::fleet::ReplicaState;
use crate::model::id::FileserverId;
use crate::model::wire::{CopyAnswer, RefusalCode, ReplicateRequest};
use crate::worker::facts::Facts;
use crate::worker::outcome::{Outcome, refused};

pub(super) async fn replicate(task: &Task<'_>, facts: Facts) -> Done {
    make(task, &facts, None).await
}

/// Makes one more replica; `leaves`: the one that no longer counts as soon as this one does.
pub(super) async fn make(task: &Task<'_>, facts: &Facts, leaves: Option<FileserverId>) -> Done {
    forget_leftovers(task, facts).await?;
    let here = task.here();
    let begun = begin_copy(&task.worker.database, task.repository(), here, task.epoch()).await?;
    written(begun, "the repository was removed")?;
    if let Some(source) = task.attempt.plan.source_id {
        copied_from(&task.worker.database, task.repository(), here, source).await?;
    }
    let answer = copy(task, facts).await?;
    let equal = publish(task, answer.bytes, leaves).await?;
    let mut message = answer.message;
    if !equal {
        message.push_str("; something was pushed meanwhile, the next evaluation looks again");
    }
    Ok(Outcome::Succeeded { message: with_size(message, answer.moved), bytes: answer.moved })
}

/// Only one attempt works on a repository at a time, and that is this one: a half-made copy
/// elsewhere is what a lost attempt left behind.
async fn forget_leftovers(task: &Task<'_>, facts: &Facts) -> Result<(), Outcome> {
    let here = task.here();
    let left = facts.replicas.iter().filter(|replica| replica.state == ReplicaState::Creating);
    for replica in left.filter(|replica| replica.fileserver_id != here) {
        let at = replica.fileserver_id;
        abandon_copy(&task.worker.database, task.repository(), at, task.epoch()).await?;
        tracing::info!(fileserver.name = facts.name(at), "a half-made copy of a lost attempt is forgotten");
    }
    Ok(())
}

async fn copy(task: &Task<'_>, facts: &Facts) -> Result<CopyAnswer, Outcome> {
    task.vouch_for_source(facts).await?;
    let ask =
        ReplicateRequest { identity: facts.identity(), bytes_per_second: task.attempt.plan.bytes_per_second };
    let to = &task.ends.destination;
    let copied =
        task.agents().replicate(to, task.source()?, task.repository(), task.epoch(), &ask, task.watch).await;
    match copied {
        Err(error) if refused(&error) == Some(RefusalCode::Exists) => adopt(task, facts).await,
        other => other.map_err(|error| task.failed_copy(error)),
    }
}

/// Takes over a copy that stands there already.
async fn adopt(task: &Task<'_>, facts: &Facts) -> Result<CopyAnswer, Outcome> {
    if let Ok(seen) = task.checksum(&task.ends.destination, facts.fence).await
        && Some(seen.checksum) == facts.repository.checksum
    {
        return Ok(CopyAnswer {
            checksum: seen.checksum,
            moved: 0,
            bytes: facts.repository.bytes,
            references_changed: 0,
            rebuilt: false,
            generation: 0,
            message: "the copy of an earlier attempt was whole".into(),
        });
    }
    let mut answer = bring(task, facts).await?;
    answer.message = format!("the copy of an earlier attempt was brought up to date: {}", answer.message);
    Ok(answer)
}

/// Makes the copy live at the version that its checksum was taken at; whether it is in sync.
pub(super) async fn publish(
    task: &Task<'_>,
    bytes: i64,
    leaves: Option<FileserverId>,
) -> Result<bool, Outcome> {
    let here = task.here();
    for _ in 0..task.worker.settings.rounds {
        let facts = Facts::read(&task.worker.database, task.repository()).await?;
        let Some(facts) = facts.filter(|facts| facts.repository.removed_at.is_none()) else {
            return Err(Outcome::Stale("the repository was removed".into()));
        };
        let seen = task.checksum(&task.ends.destination, facts.fence).await;
        let seen = seen.map_err(|error| Outcome::of_call(error, None))?;
        if seen.journal_version > facts.repository.version {
            return Err(ahead(task, &facts, here, seen.journal_version).await);
        }
        let taken = Taken {
            fileserver_id: here,
            checksum: Some(seen.checksum),
            bytes: Some(bytes),
            packs_loose: None,
            verified_generation: Some(0),
        };
        let version = facts.repository.version;
        let done =
            finish_move(&task.worker.database, task.repository(), version, task.epoch(), &taken, leaves)
                .await?;
        match done {
            Recorded::Written => return Ok(Some(seen.checksum) == facts.repository.checksum),
            Recorded::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
            Recorded::Moved => task.pause().await,
        }
    }
    Err(Outcome::failed("pushes came in between each time the copy was to be published"))
}

fn written(recorded: Recorded, moved: &str) -> Result<(), Outcome> {
    match recorded {
        Recorded::Written => Ok(()),
        Recorded::Moved => Err(Outcome::Stale(moved.into())),
        Recorded::OldEpoch => Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    }
}
