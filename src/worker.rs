//! Claim, recheck, do one step, renew, record.
//!
//! A worker knows repositories, replicas and agents; it does not know that goals exist
//! (whether a finding still holds is asked through [`Recheck`]). It does exactly one step
//! of one attempt at a time, writes only under the epoch that its claim was given, and
//! when its lease is gone it hangs up and writes nothing. It chooses nothing: the plan
//! leaves no choice open, and a plan that is no longer true ends stale.

use crate::database::Database;
use crate::fleet::Agents;
use crate::model::Millis;
use crate::model::attempt::Step;
use crate::model::chance::Chance;
use crate::model::finding::Subject;
use crate::queue::{self, Handler, Reminders, Workers};
use crate::repair::Repairs;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

mod conclude;
mod exec;
mod facts;
mod lease;
mod outcome;
mod perform;
mod steps;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use exec::Programs;

/// Asks a goal again whether it still returns one subject.
pub trait Recheck: Send + Sync + 'static {
    /// Whether the goal still returns the subject; `None`: it could not be asked. A repair that only adds goes on
    /// then: not needed it does no harm, left out it might. One that takes something away waits.
    fn holds<'a>(&'a self, goal: &'a str, subject: &'a Subject) -> BoxFuture<'a, Option<bool>>;
}

/// How a worker works. Every value is configurable; the defaults are what is shipped.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Attempts at once. Most of an attempt's time is spent at agents, so this may be well
    /// above the number of processors. Default 16.
    pub concurrency: usize,
    /// Length of an attempt's lease: a dead worker's attempt is taken over after it. Default 60 s.
    pub lease: Duration,
    /// How often it is renewed; a third of the lease bears two lost renewals. Default 20 s.
    pub renew: Duration,
    /// How often SQL is swept without a reminder. Default 2 s.
    pub sweep: Duration,
    /// How long running steps may go on after the stop before they are handed back. Default 30 s.
    pub grace: Duration,
    /// Longest silence of an agent amid long work, of which it tells every second: then it is taken for gone, and the
    /// attempt is cancelled. Default 8 s.
    pub silence: Duration,
    /// Longest wait for one checksum: a million loose references take minutes. Default 5 min.
    pub checksum: Duration,
    /// How often all replicas are compared again when pushes come in between. Default 5.
    pub rounds: u32,
    /// Wait before a finding is tried again whose fileserver or database was away. Default 5 s.
    pub away: Duration,
    /// Longest wait before a finding is looked at again whose attempt went stale. Default 10 s.
    pub stale: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 16,
            lease: Duration::from_mins(1),
            renew: Duration::from_secs(20),
            sweep: Duration::from_secs(2),
            grace: Duration::from_secs(30),
            silence: Duration::from_secs(8),
            checksum: Duration::from_mins(5),
            rounds: 5,
            away: Duration::from_secs(5),
            stale: Duration::from_secs(10),
        }
    }
}

/// Works on attempts in the name of one enrolled part.
pub struct Worker {
    /// The part's name; a claim is made under it and a number that is new at every start.
    pub name: String,
    /// How it works.
    pub settings: Settings,
    /// Where attempts are.
    pub database: Database,
    /// Whom it calls.
    pub agents: Agents,
    /// Backoff of each repair.
    pub repairs: Arc<Repairs>,
    /// Whether findings still hold.
    pub recheck: Arc<dyn Recheck>,
    /// Whether it runs operators' own programs.
    pub programs: Programs,
    /// Wakes it.
    pub reminders: Reminders,
    /// Jitter, and the number in its name.
    pub chance: Arc<Chance>,
}

impl Worker {
    /// Works until `stop` is cancelled; then running steps have the grace to end, and what
    /// remains is handed back.
    pub async fn run(self, stop: CancellationToken) {
        let workers = Workers {
            name: format!("{}-{:016x}", self.name, self.chance.next()),
            concurrency: self.settings.concurrency,
            lease_ms: millis(self.settings.lease),
            steps: self.steps(),
            sweep: self.settings.sweep,
        };
        let (database, reminders) = (self.database.clone(), self.reminders.clone());
        let programs = self.programs.clone();
        let (chance, grace, over) = (Arc::clone(&self.chance), self.settings.grace, CancellationToken::new());
        let worker = Arc::new(self);
        let token = over.clone();
        let handler: Handler = Arc::new(move |attempt| {
            let (worker, over) = (Arc::clone(&worker), token.clone());
            async move { worker.handle(attempt, over).await }.boxed()
        });
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(grace).await;
            over.cancel();
            std::future::pending::<()>().await;
        };
        tracing::info!(worker = %workers.name, concurrency = workers.concurrency, "worker started");
        tokio::select! {
            () = queue::run(workers, database, &reminders, handler, chance, stop.clone()) => {}
            () = patience => {}
        }
        programs.buried().await;
    }

    /// What it claims: everything that it knows, and programs where they may run here.
    fn steps(&self) -> Vec<Step> {
        Step::ALL.iter().copied().filter(|step| *step != Step::Exec || self.programs.allowed()).collect()
    }
}

/// A length of time as SQL has it.
fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
