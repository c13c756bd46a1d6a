//! One attempt from its claim to its ending: recheck, facts, step, all under the lease.

use super::facts::Facts;
use super::lease::{Lease, stalled};
use super::outcome::Outcome;
use super::steps::{self, Task};
use super::{Worker, millis};
use crate::database::attempts;
use crate::fleet::Watch;
use crate::model::attempt::{Attempt, Step};
use crate::model::wire::Progress;
use futures::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// No attempt is given up for silence sooner than this, whatever its plan says.
const SHORTEST_QUIET: Duration = Duration::from_secs(10);

impl Worker {
    /// Works on one claimed attempt and writes its ending. `over` ends it early: then it is handed back.
    pub(super) async fn handle(&self, attempt: Attempt, over: CancellationToken) {
        let span = tracing::info_span!(
            "attempt.run", attempt.id = %attempt.id, finding.id = %attempt.finding_id,
            subject = %attempt.subject, step = %attempt.plan.step,
        );
        async {
            let begun = tokio::time::Instant::now();
            let outcome = self.outcome(&attempt, over).await;
            self.conclude(&attempt, outcome, begun.elapsed()).await;
        }
        .instrument(span)
        .await;
    }

    /// Does the work under the lease. Whatever ends first decides; the work is then dropped,
    /// which hangs up on the agent, and an agent ends work whose caller is gone.
    async fn outcome(&self, attempt: &Attempt, over: CancellationToken) -> Outcome {
        let quiet = Duration::from_millis(u64::try_from(attempt.plan.deadline_ms).unwrap_or(0));
        // A program sees to its own deadline, and says nothing on its way.
        let quiet = match attempt.plan.step {
            Step::Exec => quiet + SHORTEST_QUIET,
            _ => quiet.max(SHORTEST_QUIET),
        };
        let (progress, seen) = watch::channel::<Option<Progress>>(None);
        let cancel = CancellationToken::new();
        let hang_up = cancel.clone().drop_guard();
        let watch = Watch { cancel, quiet: quiet.min(self.settings.silence), progress };
        let work = AssertUnwindSafe(self.work(attempt, &watch)).catch_unwind();
        let lease = self.lease(attempt);
        let outcome = tokio::select! {
            biased;
            outcome = work => outcome.unwrap_or_else(|panic| {
                Outcome::failed(format!("the step panicked: {}", words_of(panic.as_ref())))
            }),
            why = lease.keep(seen.clone()) => Outcome::NotOurs(why),
            () = stalled(seen.clone(), quiet) => {
                Outcome::failed(format!("nothing moved for {} s", quiet.as_secs()))
            }
            () = over.cancelled() => Outcome::HandBack,
        };
        drop(hang_up);
        outcome
    }

    fn lease<'a>(&'a self, attempt: &'a Attempt) -> Lease<'a> {
        let length = millis(self.settings.lease);
        Lease {
            length: self.settings.lease,
            renew: self.settings.renew,
            chance: &self.chance,
            ask: Box::new(move |text| {
                async move {
                    let (db, id, epoch) = (&self.database, attempt.id, attempt.epoch);
                    let ours = attempts::renew(db, id, epoch, length, text.as_deref()).await?;
                    if ours && attempt.plan.write_lock {
                        attempts::renew_write_lock(db, id, epoch, length).await?;
                    }
                    Ok(ours)
                }
                .boxed()
            }),
        }
    }

    async fn work(&self, attempt: &Attempt, watch: &Watch) -> Outcome {
        let step = attempt.plan.step;
        match self.recheck.holds(&attempt.goal, &attempt.subject).await {
            Some(true) => {}
            None if !step.takes_away() => {}
            Some(false) => return Outcome::Stale("the goal no longer returns it".into()),
            None => return Outcome::Away("its goal could not be asked whether it still holds".into()),
        }
        if step == Step::Purge {
            return steps::purge(self, attempt, watch).await.unwrap_or_else(|instead| instead);
        }
        if step == Step::Settle {
            return steps::settle(self, attempt, watch).await.unwrap_or_else(|instead| instead);
        }
        if attempt.plan.step == Step::Exec {
            return self.exec(attempt).await;
        }
        let Some(repository) = attempt.plan.repository_id else {
            return Outcome::Stale("the plan names no repository".into());
        };
        let facts = match Facts::read(&self.database, repository).await {
            Ok(Some(facts)) => facts,
            Ok(None) => return Outcome::Stale("there is no such repository any more".into()),
            Err(error) => return error.into(),
        };
        let ends = match facts.ends(&attempt.plan) {
            Ok(ends) => ends,
            Err(instead) => return instead,
        };
        let task = Task { worker: self, repository, attempt, ends: &ends, watch };
        steps::perform(&task, facts).await.unwrap_or_else(|instead| instead)
    }
}

/// What a panic said.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no words".to_owned())
}
