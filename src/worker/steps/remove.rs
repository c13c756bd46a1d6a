//! Remove: take a replica away that is provably spare.
//!
//! The other countable copies are asked afresh, behind the fence, at one version; the intent is
//! written only if as many of them as are wanted answered with the definitive checksum, and only
//! then is the copy set aside at its agent. Nothing is unlinked here, and nothing is ever added.
//!
//! A removal that was begun is finished by whoever meets it: after a crash "unknown" counts as
//! "maybe gone", and setting aside what is already set aside is no error. Before that the others
//! are asked again; if the copy is needed by now, and still stands at its place, it stays.

use super::compare::ahead;
use super::{Done, Task, copy_is_bad};
use crate::database::inventory;
use crate::database::removals::{self, Begun, SetAside};
use crate::database::replicas::Recorded;
use crate::fleet::CallError;
use crate::model::fleet::{Health, Replica, ReplicaState};
use crate::model::grant::End;
use crate::model::id::FileserverId;
use crate::model::wire::QuarantineRequest;
use crate::shutdown::reached;
use crate::worker::facts::Facts;
use crate::worker::lease::size;
use crate::worker::outcome::Outcome;
use futures::future::join_all;

pub(super) async fn remove(task: &Task<'_>, facts: Facts) -> Done {
    let here = task.here();
    if facts.replica(here).is_some_and(|replica| replica.state == ReplicaState::Removing) {
        return finish(task, &facts).await;
    }
    let facts = begin(task, facts).await?;
    reached("removal.marked");
    set_aside(task, &facts).await
}

/// Writes the intent, at the version of the facts that it returns.
async fn begin(task: &Task<'_>, mut facts: Facts) -> Result<Facts, Outcome> {
    let here = task.here();
    for _ in 0..task.worker.settings.rounds {
        look_at(task, &facts, here).await?;
        let vouching = vouching(task, &facts, here).await?;
        reached("removal.asked");
        let (db, version) = (&task.worker.database, facts.repository.version);
        match removals::begin(db, task.repository(), here, version, task.epoch(), &vouching).await? {
            Begun::Marked => return Ok(facts),
            Begun::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
            Begun::Gone => return Err(Outcome::Stale("there is no such replica any more".into())),
            Begun::Needed { others, wanted } => {
                return Err(Outcome::Stale(format!(
                    "the copy is needed: {others} others said that they are good, {wanted} are wanted"
                )));
            }
            Begun::Moved => task.pause().await,
        }
        facts = Facts::read(&task.worker.database, task.repository())
            .await?
            .ok_or_else(|| Outcome::Stale("there is no such repository any more".into()))?;
        facts.ends(&task.attempt.plan)?;
    }
    Err(Outcome::failed("pushes came in between each time the other copies were compared"))
}

/// Nothing is marked while the copy's own agent is silent, or while the copy knows a version that SQL does not.
async fn look_at(task: &Task<'_>, facts: &Facts, here: FileserverId) -> Result<(), Outcome> {
    match task.checksum(&task.ends.destination, facts.fence).await {
        Ok(seen) if seen.journal_version > facts.repository.version => {
            Err(ahead(task, facts, here, seen.journal_version).await)
        }
        Ok(_) => Ok(()),
        // A copy that is damaged or gone may go all the same.
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => Ok(()),
        Err(error) => Err(Outcome::of_call(error, None)),
    }
}

/// The other countable copies whose agents say, now, that they hold the definitive checksum. One that says
/// otherwise is flagged, to be verified.
pub(super) async fn vouching(
    task: &Task<'_>,
    facts: &Facts,
    here: FileserverId,
) -> Result<Vec<FileserverId>, Outcome> {
    let others = facts.replicas.iter().filter(|replica| replica.fileserver_id != here);
    let asks = others.filter_map(|replica| {
        let end = countable(facts, replica)?;
        Some(async move { (replica.fileserver_id, task.checksum(&end, facts.fence).await) })
    });
    let mut vouching = Vec::new();
    for (id, answer) in join_all(asks).await {
        match answer {
            Ok(seen) if seen.journal_version > facts.repository.version => {
                return Err(ahead(task, facts, id, seen.journal_version).await);
            }
            Ok(seen) if Some(seen.checksum) == facts.repository.checksum => vouching.push(id),
            Ok(_) => inventory::doubt(&task.worker.database, task.repository(), id).await?,
            Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => {
                inventory::doubt(&task.worker.database, task.repository(), id).await?;
            }
            Err(_) => {}
        }
    }
    Ok(vouching)
}

fn countable(facts: &Facts, replica: &Replica) -> Option<End> {
    let fileserver = facts.fileservers.get(&replica.fileserver_id)?;
    let stays = replica.state == ReplicaState::Live && replica.in_sync;
    let there = fileserver.counts && fileserver.health != Health::Offline && fileserver.empty_since.is_none();
    (stays && there).then(|| End { name: fileserver.name.clone(), url: fileserver.url.clone() })
}

/// Ends a removal whose replica is marked removing already: whoever marked it is gone.
pub(super) async fn finish(task: &Task<'_>, facts: &Facts) -> Done {
    let here = task.here();
    let good = vouching(task, facts, here).await?.len();
    if good >= usize::try_from(facts.repository.wanted).unwrap_or(usize::MAX) {
        return set_aside(task, facts).await;
    }
    let push_epoch = facts.fence;
    let standing = match task.checksum(&task.ends.destination, push_epoch).await {
        Ok(seen) => seen.checksum,
        // It went before its remover died, or is of no use.
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => return set_aside(task, facts).await,
        Err(error) => return Err(Outcome::of_call(error, None)),
    };
    let (db, version, epoch) = (&task.worker.database, facts.repository.version, task.epoch());
    match removals::take_back(db, task.repository(), here, version, epoch, &standing).await? {
        Recorded::Written => {
            let message =
                format!("kept: only {good} others are good by now, {} are wanted", facts.repository.wanted);
            Ok(Outcome::Succeeded { message, bytes: 0 })
        }
        Recorded::Moved => Err(Outcome::Away("something was pushed meanwhile".into())),
        Recorded::OldEpoch => Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    }
}

/// Has the copy of a replica that is marked removing set aside, and writes the outcome. May be done again.
async fn set_aside(task: &Task<'_>, facts: &Facts) -> Done {
    let here = task.here();
    let reason = format!("{}: as many others as are wanted were good", task.attempt.repair);
    let ask = QuarantineRequest { reason: reason.clone(), version: Some(facts.repository.version) };
    let to = &task.ends.destination;
    let answer = task.agents().quarantine(to, task.repository(), task.epoch(), &ask).await;
    let answer = answer.map_err(|error| Outcome::of_call(error, None))?;
    reached("removal.renamed");
    let aside = answer.path.map(|path| SetAside { path, bytes: answer.bytes, reason });
    let (db, epoch) = (&task.worker.database, task.epoch());
    match removals::finish(db, task.repository(), here, epoch, aside.as_ref()).await? {
        Recorded::Written => {}
        Recorded::Moved => return Err(Outcome::Stale("the replica's row is gone already".into())),
        Recorded::OldEpoch => return Err(Outcome::NotOurs("a newer attempt has the repository".into())),
    }
    let message = match &aside {
        Some(aside) => format!("set aside in {} ({})", aside.path, size(aside.bytes)),
        None => "nothing was left to set aside".to_owned(),
    };
    Ok(Outcome::Succeeded { message, bytes: 0 })
}
