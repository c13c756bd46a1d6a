//! Writing how an attempt ended: its event, its backoff, and who is to be verified.

use super::outcome::Outcome;
use super::{Worker, millis};
use crate::database::{attempts, fileservers, inventory, pushes, replicas, repositories, tidying};
use crate::model::Millis;
use crate::model::attempt::{Attempt, AttemptEvent, Ending, Step};
use crate::model::finding::Subject;
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use std::time::Duration;

/// How often an ending is tried to be written. Past it the lease runs out, and the goal looks again.
const WRITES: u32 = 6;

/// Whether the row of a copy stays: it was finished, or broke off for no fault of its place, and goes on from what came.
/// If it goes on elsewhere, the attempt that begins there forgets this one.
const fn keeps_copy(event: AttemptEvent, blame: Option<FileserverId>) -> bool {
    match event {
        AttemptEvent::Succeed | AttemptEvent::Cancel => true,
        _ => blame.is_some(),
    }
}

impl Worker {
    /// Writes an outcome, if the attempt is still ours.
    pub(super) async fn conclude(&self, attempt: &Attempt, outcome: Outcome, took: Duration) {
        let outcome = self.settle_epoch(attempt, outcome).await;
        let (event, message, bytes, blame) = match outcome {
            Outcome::Succeeded { message, bytes } => (AttemptEvent::Succeed, message, bytes, None),
            Outcome::Failed { message, blame } => (AttemptEvent::Fail, message, 0, blame),
            Outcome::Stale(message) => (AttemptEvent::GoStale, message, 0, None),
            Outcome::Away(message) => (AttemptEvent::Cancel, message, 0, None),
            Outcome::HandBack => return self.hand_back(attempt).await,
            Outcome::NotOurs(why) | Outcome::OldEpoch(why) => {
                tracing::warn!(why, "attempt let go, nothing written");
                return;
            }
        };
        if let (Some(source), Some(repository)) = (blame, attempt.plan.repository_id) {
            self.doubt(repository, source).await;
        }
        if attempt.plan.step.begins_copy() && !keeps_copy(event, blame) {
            self.abandon(attempt).await;
        }
        let ending = Ending { event, message, bytes, blame };
        let backoff = self.backoff(attempt, event);
        if self.write(attempt, &ending, backoff).await {
            // There is room under the limits now.
            self.nudge.dispatch();
            self.announce(attempt, &ending, took).await;
        }
    }

    /// An agent that saw a higher epoch is right if SQL agrees; if SQL says that the attempt
    /// is ours, the agent's memory is ahead, and the next claim's epoch is a higher one.
    async fn settle_epoch(&self, attempt: &Attempt, outcome: Outcome) -> Outcome {
        let Outcome::OldEpoch(message) = outcome else { return outcome };
        match attempts::holds(&self.database, attempt.id, attempt.epoch).await {
            Ok(true) => {
                self.raise_epoch(attempt).await;
                Outcome::Failed { message, blame: None }
            }
            _ => Outcome::NotOurs(message),
        }
    }

    /// Makes the next claim's epoch and the next push's higher than what the agent has seen: after a restore of the
    /// database it may have seen much more than that has given.
    async fn raise_epoch(&self, attempt: &Attempt) {
        let raised = async {
            let (repository, here) = (attempt.plan.repository_id?, attempt.plan.destination_id?);
            let all = fileservers::all(&self.database).await.ok()?;
            let one = all.into_iter().find(|one| one.id == here)?;
            let end = End { name: one.name, url: one.url };
            let seen = self.agents.epochs(&end, repository).await.ok()?;
            let pushes = pushes::catch_up(&self.database, repository, seen.push).await.ok()?;
            Some(tidying::raise_epoch(&self.database, repository, seen.repair).await.ok()? || pushes)
        };
        if let Some(true) = raised.await {
            tracing::warn!("the agent has seen higher epochs of the repository: the database went back");
        }
    }

    async fn doubt(&self, repository: RepositoryId, source: FileserverId) {
        if let Err(error) = inventory::doubt(&self.database, repository, source).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(fileserver.id = %source, error, "a doubtful source could not be flagged");
        }
    }

    /// Forgets the row of a copy that is not gone on with, while the epoch is still this attempt's.
    async fn abandon(&self, attempt: &Attempt) {
        let (Some(repository), Some(here)) = (attempt.plan.repository_id, attempt.plan.destination_id) else {
            return;
        };
        let gone = replicas::abandon_copy(&self.database, repository, here, attempt.epoch).await;
        if let Err(error) = gone {
            // The next attempt for this repository forgets it.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a half-made copy could not be forgotten");
        }
    }

    /// How long its finding waits before the next try.
    fn backoff(&self, attempt: &Attempt, event: AttemptEvent) -> Millis {
        let retry = self.repairs.by_name.get(&attempt.repair).map(|repair| repair.retry);
        match event {
            AttemptEvent::Fail => {
                let ceiling = retry.map_or(30_000, |retry| retry.ceiling(attempt.number));
                // Full jitter, but never at once: a failure of the next second is the same one.
                self.chance.up_to(ceiling).max(1_000.min(ceiling))
            }
            AttemptEvent::GoStale => {
                let longest = millis(self.settings.stale);
                self.chance.up_to(retry.map_or(longest, |retry| retry.first_ms.min(longest)))
            }
            AttemptEvent::Cancel if attempt.plan.step == Step::Exec => {
                let first = retry.map_or(30_000, |retry| retry.first_ms).unsigned_abs();
                millis(self.chance.around(Duration::from_millis(first)))
            }
            AttemptEvent::Cancel => millis(self.chance.around(self.settings.away)),
            _ => 0,
        }
    }

    /// Writes the ending; `true` when this call or one before it did.
    async fn write(&self, attempt: &Attempt, ending: &Ending, backoff: Millis) -> bool {
        for tried in 0..WRITES {
            match attempts::finish(&self.database, attempt.id, attempt.epoch, ending, backoff).await {
                Ok(true) => return true,
                // After an error the first write may have been committed all the same.
                Ok(false) => {
                    tracing::warn!(
                        retried = tried > 0,
                        "attempt is no longer this worker's, nothing written"
                    );
                    return false;
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "writing an ending failed");
                    tokio::time::sleep(self.chance.around(Duration::from_millis(250 << tried))).await;
                }
            }
        }
        false
    }

    async fn hand_back(&self, attempt: &Attempt) {
        match attempts::hand_back(&self.database, attempt.id, attempt.epoch).await {
            Ok(_) => {
                self.reminders.remind(&[attempt.id]);
                tracing::info!("attempt handed back unfinished, the worker stops");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "handing an attempt back failed, its lease runs out");
            }
        }
    }

    /// One line for people, with names rather than numbers where they can be had.
    async fn announce(&self, attempt: &Attempt, ending: &Ending, took: Duration) {
        if !tracing::enabled!(target: "trued::event", tracing::Level::INFO) {
            return;
        }
        let state = attempt.state.after(ending.event).unwrap_or(attempt.state);
        let subject: &Subject = &attempt.subject;
        let on = self.names(attempt).await;
        tracing::info!(
            target: "trued::event",
            kind = "attempt.ended", attempt = %attempt.id, goal = attempt.goal, repair = attempt.repair,
            subject = %subject, state = %state, said = ending.message, bytes = ending.bytes,
            duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "{} of {on} {state}: {}", attempt.repair, ending.message,
        );
    }

    /// What it was about: `team/tools on fs-2`, or what its subject says by itself.
    async fn names(&self, attempt: &Attempt) -> String {
        let plan = &attempt.plan;
        let (Some(id), place) = (plan.repository_id, plan.destination_id) else {
            return attempt.subject.to_string();
        };
        let repository = repositories::by_ids(&self.database, &[id]).await.unwrap_or_default();
        let name = repository.into_iter().next().map_or_else(|| format!("repository {id}"), |one| one.name);
        let Some(place) = place else { return name };
        let all = fileservers::all(&self.database).await.unwrap_or_default();
        let place = all.into_iter().find(|one| one.id == place);
        format!("{name} on {}", place.map_or_else(|| "a fileserver that is gone".to_owned(), |one| one.name))
    }
}
