//! Move: make one more replica, and mark the one that the finding is about leaving.
//!
//! Both are one transaction, and only where the new replica is live and in sync: there is no
//! moment at which fewer replicas count. Nothing is removed here. What leaves still reads,
//! takes pushes and votes; another goal takes it away once others suffice.

use super::replicate::make;
use super::{Done, Task};
use crate::model::fleet::ReplicaState;
use crate::worker::facts::Facts;
use crate::worker::outcome::Outcome;

pub(super) async fn move_away(task: &Task<'_>, facts: Facts) -> Done {
    let leaves =
        task.attempt.subject.fileserver().ok_or_else(|| {
            Outcome::Stale("a move is done to a replica, and its finding names none".into())
        })?;
    match facts.replica(leaves).map(|replica| replica.state) {
        Some(ReplicaState::Live) => make(task, &facts, Some(leaves)).await,
        Some(state) => Err(Outcome::Stale(format!("the replica on {} is {state}", facts.name(leaves)))),
        None => Err(Outcome::Stale(format!("there is no replica on {} any more", facts.name(leaves)))),
    }
}
