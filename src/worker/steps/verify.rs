//! Verify: compare a replica with its disk, and write what was seen.

use super::compare::ahead;
use super::scrub::deep;
use super::{Done, Task, copy_is_bad};
use crate::database::replicas::{Packed, Recorded, Taken, record};
use crate::fleet::CallError;
use crate::model::wire::{ChecksumRequest, VerifyAnswer};
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;
use std::time::Duration;

pub(super) async fn verify(task: &Task<'_>, facts: Facts) -> Done {
    let seen = look(task, &facts).await?;
    settle(task, facts, seen).await
}

/// Writes what was seen after these facts were read. Where something was pushed meanwhile, the copy is looked at
/// again.
pub(super) async fn settle(task: &Task<'_>, mut facts: Facts, mut seen: VerifyAnswer) -> Done {
    for _ in 0..task.worker.settings.rounds {
        if let Some(outcome) = deep(task, &seen).await? {
            return Ok(outcome);
        }
        if seen.journal_version > facts.repository.version {
            let here = task.here();
            return Err(ahead(task, &facts, here, seen.journal_version).await);
        }
        let version = facts.repository.version;
        let taken = [taken(task, &seen)];
        match record(&task.worker.database, task.repository(), version, task.epoch(), &taken).await? {
            Recorded::Written => {
                identify(task, &facts).await;
                return Ok(Outcome::Succeeded { message: verdict(&facts, &seen), bytes: 0 });
            }
            Recorded::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
            Recorded::Moved => task.pause().await,
        }
        facts = Facts::read(&task.worker.database, task.repository())
            .await?
            .ok_or_else(|| Outcome::Stale("there is no such repository any more".into()))?;
        // The copy may have become another one meanwhile.
        facts.ends(&task.attempt.plan)?;
        seen = look(task, &facts).await?;
    }
    Err(Outcome::failed("pushes came in between each time the copy was verified"))
}

/// Has the agent write down what the copy is now, as after a rename: SQL may have to be rebuilt from it one day. A copy
/// that cannot be told is told by its next verification.
async fn identify(task: &Task<'_>, facts: &Facts) {
    let told = task.agents().identify(&task.ends.destination, task.epoch(), &facts.identity()).await;
    if let Err(error) = told {
        tracing::debug!(error = &error as &dyn std::error::Error, "a copy was not told what it is");
    }
}

/// What the agent sees. A copy that is gone is an answer too.
async fn look(task: &Task<'_>, facts: &Facts) -> Result<VerifyAnswer, Outcome> {
    let ask = ChecksumRequest { fence: Some(facts.fence) };
    let to = &task.ends.destination;
    match task.agents().verify(to, task.repository(), task.epoch(), &ask, task.watch).await {
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => Ok(bad(refusal.message)),
        other => other.map_err(|error| Outcome::of_call(error, None)),
    }
}

/// What is seen of a copy that is gone, or that cannot be opened.
pub(super) fn bad(problem: String) -> VerifyAnswer {
    VerifyAnswer {
        checksum: None,
        problem: Some(problem),
        journal_version: 0,
        bytes: 0,
        packs: 0,
        loose: 0,
        indexed: false,
        // It stays out of sync until it is made new, so no flag is needed any more.
        generation: i64::MAX,
        deep: false,
    }
}

fn taken(task: &Task<'_>, seen: &VerifyAnswer) -> Taken {
    Taken {
        fileserver_id: task.here(),
        // Damage that leaves the references readable is damage all the same.
        checksum: seen.checksum.filter(|_| seen.problem.is_none()),
        bytes: seen.checksum.map(|_| seen.bytes),
        packs_loose: seen.checksum.map(|_| Packed {
            packs: seen.packs,
            loose: seen.loose,
            indexed: seen.indexed,
        }),
        verified_generation: Some(seen.generation),
    }
}

fn verdict(facts: &Facts, seen: &VerifyAnswer) -> String {
    match (&seen.problem, seen.checksum) {
        (Some(problem), _) => format!("damaged: {problem}"),
        (None, checksum) if checksum.is_some() && checksum == facts.repository.checksum => {
            "as it ought to be".into()
        }
        _ => "its references are not the definitive ones".into(),
    }
}

impl Task<'_> {
    /// A short wait after a push came in between.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(self.worker.chance.around(Duration::from_millis(100))).await;
    }
}
