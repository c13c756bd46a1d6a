//! Resume: finish or undo what was begun and is worked on by nobody.
//!
//! A removal is finished, or taken back where its copy is needed by now. A copy that stands whole on its disk with the definitive checksum becomes a replica; of any other the row is
//! forgotten, and what lies on the disk is then an untracked copy, or staging that its agent clears.

use super::{Done, Task, copy_is_bad, remove, replicate};
use crate::database::replicas::abandon_copy;
use crate::fleet::CallError;
use crate::model::fleet::ReplicaState;
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;

pub(super) async fn resume(task: &Task<'_>, facts: Facts) -> Done {
    let here = task.here();
    match facts.replica(here).map(|replica| replica.state) {
        Some(ReplicaState::Creating) => creating(task, &facts).await,
        Some(ReplicaState::Removing) => remove::finish(task, &facts).await,
        _ => Err(Outcome::Stale("nothing is half done there any more".into())),
    }
}

async fn creating(task: &Task<'_>, facts: &Facts) -> Done {
    let seen = match task.checksum(&task.ends.destination, facts.fence).await {
        Ok(seen) => Some(seen),
        Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => None,
        Err(error) => return Err(Outcome::of_call(error, None)),
    };
    if seen.is_some_and(|seen| Some(seen.checksum) == facts.repository.checksum) {
        replicate::publish(task, facts.repository.bytes, None).await?;
        return Ok(Outcome::Succeeded {
            message: "the copy was whole, and is a replica now".into(),
            bytes: 0,
        });
    }
    let here = task.here();
    super::scrub::written(abandon_copy(&task.worker.database, task.repository(), here, task.epoch()).await?)?;
    Ok(Outcome::Succeeded { message: "the copy was not whole, and is forgotten".into(), bytes: 0 })
}
