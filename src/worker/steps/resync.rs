//! Resync: bring an existing replica to the definitive references, objects included.
//!
//! A copy that cannot be mended is set aside and made new in place, but only after the
//! source was verified in full, now.

use super::compare::compare_all;
use super::scrub::written;
use super::{Done, Task, copy_is_bad};
use crate::database::tidying;
use crate::fleet::CallError;
use crate::model::wire::{ChecksumRequest, CopyAnswer, ResyncRequest};
use crate::worker::facts::Facts;
use crate::worker::lease::size;
use crate::worker::outcome::{Outcome, refused};

pub(super) async fn resync(task: &Task<'_>, facts: Facts) -> Done {
    let answer = bring(task, &facts).await?;
    let equal = compare_all(task, &answer).await?;
    let mut message = answer.message;
    if !equal {
        message.push_str("; it does not have the definitive checksum yet, the next evaluation looks again");
    }
    Ok(Outcome::Succeeded { message: with_size(message, answer.moved), bytes: answer.moved })
}

/// Brings the destination to what the source has, making it new where it cannot be mended.
pub(super) async fn bring(task: &Task<'_>, facts: &Facts) -> Result<CopyAnswer, Outcome> {
    task.vouch_for_source(facts).await?;
    let here = task.here();
    if facts.replica(here).is_some_and(|replica| replica.damage.is_some()) {
        return rebuild(task, facts).await;
    }
    match call(task, facts, false).await {
        Ok(answer) => Ok(answer),
        Err(error) if refused(&error).is_some_and(copy_is_bad) => {
            verify_source(task, facts).await?;
            call(task, facts, true).await.map_err(|error| task.failed_copy(error))
        }
        Err(error) => Err(task.failed_copy(error)),
    }
}

/// Makes a copy anew whose objects are damaged: its references may be well, so mending them would change nothing.
async fn rebuild(task: &Task<'_>, facts: &Facts) -> Result<CopyAnswer, Outcome> {
    verify_source(task, facts).await?;
    let answer = call(task, facts, true).await.map_err(|error| task.failed_copy(error))?;
    let (db, here) = (&task.worker.database, task.here());
    written(tidying::rebuilt(db, task.repository(), here, task.epoch()).await?)?;
    Ok(answer)
}

async fn call(task: &Task<'_>, facts: &Facts, rebuild: bool) -> Result<CopyAnswer, CallError> {
    let Some(source) = &task.ends.source else { return Err(CallError::Cancelled) };
    let ask = ResyncRequest {
        identity: facts.identity(),
        fence: Some(facts.fence),
        bytes_per_second: task.attempt.plan.bytes_per_second,
        rebuild,
    };
    let to = &task.ends.destination;
    task.agents().resync(to, source, task.repository(), task.epoch(), &ask, task.watch).await
}

/// Verifies the source's disk before a copy is set aside in its favour.
async fn verify_source(task: &Task<'_>, facts: &Facts) -> Result<(), Outcome> {
    let (source, blame) = (task.source()?, task.attempt.plan.source_id);
    let ask = ChecksumRequest { fence: Some(facts.fence) };
    let seen = task.agents().verify(source, task.repository(), task.epoch(), &ask, task.watch).await;
    let seen = seen.map_err(|error| Outcome::of_call(error, blame))?;
    match (seen.checksum, seen.problem) {
        (Some(checksum), None) if Some(checksum) == facts.repository.checksum => Ok(()),
        (_, problem) => {
            let why = problem.unwrap_or_else(|| "it no longer has the definitive checksum".into());
            Err(Outcome::Failed { message: format!("the source {}: {why}", source.name), blame })
        }
    }
}

/// A message with how much was moved, where something was.
pub(super) fn with_size(message: String, moved: i64) -> String {
    if moved > 0 { format!("{message} ({})", size(moved)) } else { message }
}
