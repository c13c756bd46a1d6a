//! The steps: each does the one next safe action of an attempt against agents, and records it.

use super::Worker;
use super::facts::{Ends, Facts};
use super::outcome::Outcome;
use crate::fleet::{Agents, CallError, Watch};
use crate::model::attempt::{Attempt, Step};
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::{ChecksumAnswer, ChecksumRequest};

mod compare;
mod moving;
mod purge;
mod remove;
mod repack;
mod replicate;
mod resume;
mod resync;
mod scrub;
mod settle;
mod verify;

pub(super) use purge::purge;
pub(super) use settle::settle;

/// What a step is given besides its facts.
pub(super) struct Task<'a> {
    /// The repository.
    pub(super) repository: RepositoryId,
    /// Database, agents, settings.
    pub(super) worker: &'a Worker,
    /// The attempt.
    pub(super) attempt: &'a Attempt,
    /// Who is called.
    pub(super) ends: &'a Ends,
    /// The bounds of long calls.
    pub(super) watch: &'a Watch,
}

/// What a step came to; the error is the ending that it has instead of its own.
pub(super) type Done = Result<Outcome, Outcome>;

/// Does the attempt's step.
pub(super) async fn perform(task: &Task<'_>, facts: Facts) -> Done {
    match task.attempt.plan.step {
        Step::Resync => resync::resync(task, facts).await,
        Step::Replicate => replicate::replicate(task, facts).await,
        Step::Move => moving::move_away(task, facts).await,
        Step::Verify => verify::verify(task, facts).await,
        Step::Scrub => scrub::scrub(task, facts).await,
        Step::Repack => repack::repack(task, facts).await,
        Step::Resume => resume::resume(task, facts).await,
        Step::Remove => remove::remove(task, facts).await,
        Step::Purge => purge::purge(task.worker, task.attempt, task.watch).await,
        Step::Settle | Step::Exec => Err(Outcome::Stale("it is done to no single replica".into())),
    }
}

impl Task<'_> {
    fn agents(&self) -> &Agents {
        &self.worker.agents
    }

    fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// The fileserver that is changed or looked at.
    fn here(&self) -> FileserverId {
        self.ends.here
    }

    fn epoch(&self) -> i64 {
        self.attempt.epoch
    }

    /// The far end of a copy. Plans without one never get here.
    fn source(&self) -> Result<&End, Outcome> {
        self.ends.source.as_ref().ok_or_else(|| Outcome::Stale("the plan names no source".into()))
    }

    /// An error of a call that copies.
    fn failed_copy(&self, error: CallError) -> Outcome {
        Outcome::of_call(error, self.attempt.plan.source_id)
    }

    /// Takes one checksum behind the fence of the last closed push, within the configured time.
    async fn checksum(&self, to: &End, push_epoch: i64) -> Result<ChecksumAnswer, CallError> {
        let after = self.worker.settings.checksum;
        let ask = ChecksumRequest { fence: Some(push_epoch) };
        match tokio::time::timeout(after, self.agents().checksum(to, self.repository(), &ask)).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut { fileserver: to.name.clone(), after }),
        }
    }

    /// Makes sure, now and at its agent, that the source has what SQL holds definitive: what
    /// the plan took for good may have been damaged since.
    ///
    /// # Errors
    /// With the ending that the attempt has instead.
    async fn vouch_for_source(&self, facts: &Facts) -> Result<(), Outcome> {
        let blame = self.attempt.plan.source_id;
        match self.checksum(self.source()?, facts.fence).await {
            Ok(answer) if Some(answer.checksum) == facts.repository.checksum => Ok(()),
            Ok(_) => Err(Outcome::Failed {
                message: format!("{} no longer has the definitive checksum", self.source()?.name),
                blame,
            }),
            Err(CallError::Refused(refusal)) if copy_is_bad(refusal.code) => {
                Err(Outcome::Failed { message: format!("the source: {}", refusal.message), blame })
            }
            Err(error) => Err(Outcome::of_call(error, blame)),
        }
    }
}

/// Whether a refusal says that the copy there is damaged or gone.
fn copy_is_bad(code: crate::model::wire::RefusalCode) -> bool {
    use crate::model::wire::RefusalCode::{Damaged, NotFound};
    matches!(code, Damaged | NotFound)
}
