//! Scrub: check every object of a replica, and write what was seen.
//!
//! It may take hours, and pushes go on meanwhile. What it found wrong is wrong at every version; what it found well
//! is noted, and the checksum is compared as a verification does.

use super::verify::{bad, settle};
use super::{Done, Task, copy_is_bad};
use crate::database::replicas::Recorded;
use crate::database::tidying;
use crate::fleet::CallError;
use crate::model::wire::{ChecksumRequest, VerifyAnswer};
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;

pub(super) async fn scrub(task: &Task<'_>, facts: Facts) -> Done {
    let seen = look(task, &facts).await?;
    settle(task, facts, seen).await
}

async fn look(task: &Task<'_>, facts: &Facts) -> Result<VerifyAnswer, Outcome> {
    let ask = ChecksumRequest { fence: Some(facts.fence) };
    let to = &task.ends.destination;
    match task.agents().scrub(to, task.repository(), task.epoch(), &ask, task.watch).await {
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => Ok(bad(refusal.message)),
        other => other.map_err(|error| Outcome::of_call(error, None)),
    }
}

/// Writes what a look at every object found, if the agent took one. With damage that is all there is to say.
pub(super) async fn deep(task: &Task<'_>, seen: &VerifyAnswer) -> Result<Option<Outcome>, Outcome> {
    if !seen.deep {
        return Ok(None);
    }
    let (db, repository, here) = (&task.worker.database, task.repository(), task.here());
    let Some(words) = &seen.problem else {
        return written(tidying::scrubbed(db, repository, here, task.epoch()).await?).map(|()| None);
    };
    written(tidying::damaged(db, repository, here, task.epoch(), words, seen.generation).await?)?;
    Ok(Some(Outcome::Succeeded { message: format!("damaged: {words}"), bytes: 0 }))
}

pub(super) fn written(recorded: Recorded) -> Result<(), Outcome> {
    match recorded {
        Recorded::Written => Ok(()),
        Recorded::Moved => Err(Outcome::Stale("the repository was removed".into())),
        Recorded::OldEpoch => Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    }
}
