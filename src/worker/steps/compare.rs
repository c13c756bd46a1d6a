//! All replicas' checksums as one act: the only way in which a repaired copy becomes in sync.
//!
//! The repository's version is read, every reachable replica's checksum is taken behind the
//! fence of the last closed push, and all are written in one transaction that demands that
//! version. If something was pushed meanwhile nothing was written, and it is done again, a
//! bounded number of times.

use super::{Task, copy_is_bad};
use crate::database::inventory;
use crate::database::replicas::{Recorded, Taken, record};
use crate::fleet::CallError;
use crate::model::fleet::{Health, Replica, ReplicaState};
use crate::model::grant::End;
use crate::model::id::FileserverId;
use crate::model::wire::{ChecksumAnswer, CopyAnswer};
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;
use futures::future::join_all;

/// What an agent said of one replica.
type Answer = (FileserverId, Result<ChecksumAnswer, CallError>);

/// Whether the destination came out equal to what is definitive.
pub(super) async fn compare_all(task: &Task<'_>, brought: &CopyAnswer) -> Result<bool, Outcome> {
    for _ in 0..task.worker.settings.rounds {
        let facts = Facts::read(&task.worker.database, task.repository()).await?;
        let Some(facts) = facts.filter(|facts| facts.repository.removed_at.is_none()) else {
            return Err(Outcome::Stale("the repository was removed".into()));
        };
        let answers = ask_all(task, &facts).await;
        let taken = taken(task, &facts, answers, brought).await?;
        let version = facts.repository.version;
        match record(&task.worker.database, task.repository(), version, task.epoch(), &taken).await? {
            Recorded::Written => {
                let here = taken.iter().find(|one| one.fileserver_id == task.here());
                return Ok(here.is_some_and(|one| one.checksum == facts.repository.checksum));
            }
            Recorded::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
            Recorded::Moved => task.pause().await,
        }
    }
    Err(Outcome::failed("pushes came in between each time the replicas were compared"))
}

/// Asks every replica that reads, and the destination whatever it is.
async fn ask_all(task: &Task<'_>, facts: &Facts) -> Vec<Answer> {
    let asks = facts.replicas.iter().filter_map(|replica| {
        let end = askable(facts, replica)?;
        Some(async move { (replica.fileserver_id, task.checksum(&end, facts.fence).await) })
    });
    join_all(asks).await
}

fn askable(facts: &Facts, replica: &Replica) -> Option<End> {
    let fileserver = facts.fileservers.get(&replica.fileserver_id)?;
    let reads = matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving);
    let there = fileserver.health != Health::Offline && fileserver.empty_since.is_none();
    (reads && there).then(|| End { name: fileserver.name.clone(), url: fileserver.url.clone() })
}

/// What is to be written. The destination's answer is judged; of its siblings only what was
/// really seen is written, and one that could not show a checksum is flagged, to be verified.
async fn taken(
    task: &Task<'_>,
    facts: &Facts,
    answers: Vec<Answer>,
    brought: &CopyAnswer,
) -> Result<Vec<Taken>, Outcome> {
    let answered = if brought.rebuilt { brought.generation } else { 0 };
    let mut taken = Vec::with_capacity(answers.len());
    for (fileserver_id, answer) in answers {
        let here = fileserver_id == task.here();
        let checksum = match answer {
            Ok(answer) if answer.journal_version > facts.repository.version => {
                if facts.moved(&task.worker.database).await? {
                    // Nothing is written: somebody pushes.
                    continue;
                }
                return Err(history_lost(facts, fileserver_id, answer.journal_version));
            }
            Ok(answer) => Some(answer.checksum),
            Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => {
                if !here {
                    inventory::doubt(&task.worker.database, task.repository(), fileserver_id).await?;
                    continue;
                }
                None
            }
            Err(error) if here => return Err(Outcome::of_call(error, None)),
            Err(_) => continue,
        };
        taken.push(Taken {
            fileserver_id,
            checksum,
            bytes: here.then_some(brought.bytes),
            packs_loose: None,
            // A copy that was just brought to its source counts as looked at. Where it was made anew, that answers
            // what its inventory had flagged; what it flags from then on stays.
            verified_generation: (here && checksum.is_some()).then_some(answered),
        });
    }
    Ok(taken)
}

/// A copy that journalled a version above the one that was read: a push is being ended, or the database went back.
pub(super) async fn ahead(task: &Task<'_>, facts: &Facts, at: FileserverId, journal: i64) -> Outcome {
    match facts.moved(&task.worker.database).await {
        Ok(true) => Outcome::Away("somebody pushes to the repository just now".into()),
        Ok(false) => history_lost(facts, at, journal),
        Err(error) => error.into(),
    }
}

/// A copy that journalled a version above SQL's: the database went back, a person decides.
fn history_lost(facts: &Facts, at: FileserverId, journal: i64) -> Outcome {
    let (name, version) = (facts.name(at), facts.repository.version);
    Outcome::failed(format!(
        "{name} has committed version {journal}, the database knows {version}: it went back in time, nothing is overwritten"
    ))
}
