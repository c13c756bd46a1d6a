//! Verify: compare a replica with its disk, and write what was seen.

use super::compare::history_lost;
use super::{Done, Task, copy_is_bad};
use crate::database::replicas::{Recorded, Taken, record};
use crate::fleet::CallError;
use crate::model::wire::{ChecksumRequest, VerifyAnswer};
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;
use std::time::Duration;

pub(super) async fn verify(task: &Task<'_>, mut facts: Facts) -> Done {
    for _ in 0..task.worker.settings.rounds {
        let seen = look(task, &facts).await?;
        if seen.journal_version > facts.repository.version {
            let here = task.here();
            return Err(history_lost(&facts, here, seen.journal_version));
        }
        let version = facts.repository.version;
        let taken = [taken(task, &seen)];
        match record(&task.worker.database, task.repository(), version, task.epoch(), &taken).await? {
            Recorded::Written => {
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
    }
    Err(Outcome::failed("pushes came in between each time the copy was verified"))
}

/// What the agent sees. A copy that is gone is an answer too.
async fn look(task: &Task<'_>, facts: &Facts) -> Result<VerifyAnswer, Outcome> {
    let ask = ChecksumRequest { fence: Some(facts.repository.push_epoch) };
    let to = &task.ends.destination;
    match task.agents().verify(to, task.repository(), task.epoch(), &ask, task.watch).await {
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => Ok(VerifyAnswer {
            checksum: None,
            problem: Some(refusal.message),
            journal_version: 0,
            bytes: 0,
            packs: 0,
            loose: 0,
            // It stays out of sync until it is made new, so no flag is needed any more.
            generation: i64::MAX,
        }),
        other => other.map_err(|error| Outcome::of_call(error, None)),
    }
}

fn taken(task: &Task<'_>, seen: &VerifyAnswer) -> Taken {
    Taken {
        fileserver_id: task.here(),
        // Damage that leaves the references readable is damage all the same.
        checksum: seen.checksum.filter(|_| seen.problem.is_none()),
        bytes: seen.checksum.map(|_| seen.bytes),
        packs_loose: seen.checksum.map(|_| (seen.packs, seen.loose)),
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
