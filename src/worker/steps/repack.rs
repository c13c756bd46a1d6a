//! Repack: pack a replica anew where it stands. Its references do not change, so nothing is compared.

use super::scrub::written;
use super::{Done, Task};
use crate::database::replicas::Packed;
use crate::database::tidying;
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;

pub(super) async fn repack(task: &Task<'_>, facts: Facts) -> Done {
    let to = &task.ends.destination;
    let done = task.agents().repack(to, task.repository(), task.epoch(), task.watch).await;
    let done = done.map_err(|error| Outcome::of_call(error, None))?;
    let packed = Packed { packs: done.packs, loose: done.loose, indexed: done.indexed };
    let (db, here) = (&task.worker.database, task.here());
    written(tidying::packed(db, facts.repository.id, here, task.epoch(), &packed, done.bytes).await?)?;
    Ok(Outcome::Succeeded { message: done.message, bytes: 0 })
}
