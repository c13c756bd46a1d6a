//! Running workers: apalis's monitor over the backend, until told to stop.

use super::backend::Attempts;
use super::feeder::{Claimed, Feeder, Ledger, SqlLedger};
use super::{Listener, Reminders};
use crate::database::Database;
use crate::model::Millis;
use crate::model::attempt::{Attempt, Step};
use crate::model::chance::Chance;
use apalis_core::monitor::Monitor;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::ext::parallelize::ParallelizeExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What is done with one claimed attempt. It catches its own panics, keeps its own
/// deadlines, renews its own lease and writes its own ending; it must end soon after the
/// token that `run` was given is cancelled.
pub type Handler = Arc<dyn Fn(Attempt) -> BoxFuture<'static, ()> + Send + Sync>;

/// How many work, as whom, and on what.
#[derive(Debug, Clone)]
pub struct Workers {
    /// Written into claims; new at every start, never a metric's label.
    pub name: String,
    /// Attempts at once.
    pub concurrency: usize,
    /// Length of the lease that a claim gives, in milliseconds.
    pub lease_ms: Millis,
    /// Steps that this worker knows; attempts with others are left in the queue.
    pub steps: Vec<Step>,
    /// How often SQL is swept without a reminder; jittered by a quarter.
    pub sweep: Duration,
}

/// Claims and handles attempts until `stop` is cancelled, then until the last handler has
/// ended and everything unstarted is put back.
pub async fn run(
    workers: Workers,
    database: Database,
    reminders: &Reminders,
    handler: Handler,
    chance: Arc<Chance>,
    stop: CancellationToken,
) {
    let ledger = Arc::new(SqlLedger {
        database,
        worker: workers.name.clone(),
        lease: workers.lease_ms,
        steps: workers.steps.iter().map(|step| step.as_str()).collect(),
    });
    run_over(&workers, ledger, reminders, handler, chance, stop).await;
}

/// As [`run`], over any ledger.
pub(super) async fn run_over(
    workers: &Workers,
    ledger: Arc<dyn Ledger>,
    reminders: &Reminders,
    handler: Handler,
    chance: Arc<Chance>,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let line = Arc::new(Line {
        name: workers.name.clone(),
        concurrency: workers.concurrency.max(1),
        sweep: workers.sweep,
        ledger,
        permits: Arc::new(Semaphore::new(workers.concurrency.max(1))),
        listener: reminders.listen(),
        handler,
        chance: Arc::clone(&chance),
        tasks: tasks.clone(),
        stop: stop.clone(),
    });
    // The monitor ends early only by a fault in it: it is begun again, not left dead.
    while !stop.is_cancelled() {
        let line = Arc::clone(&line);
        let stopped = stop.clone().cancelled_owned();
        let monitor = Monitor::new().should_restart(|_, _| true).register(move |_| {
            let (handler, tasks) = (Arc::clone(&line.handler), line.tasks.clone());
            // Outermost, so that handlers and claims do not share one task.
            WorkerBuilder::new(line.name.clone())
                .backend(line.backend())
                .parallelize(move |handling| tasks.spawn(handling))
                .build(move |claim: Claimed| handle(Arc::clone(&handler), claim))
        });
        let ended = monitor
            .run_with_signal(async move {
                stopped.await;
                Ok(())
            })
            .await;
        if stop.is_cancelled() {
            break;
        }
        tracing::error!(?ended, "the workers' monitor ended by itself; it is started again");
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(chance.around(Duration::from_secs(1))) => {}
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn handle(handler: Handler, claim: Claimed) {
    if let Some((attempt, permit)) = claim.start() {
        handler(attempt).await;
        drop(permit);
    }
}

/// What a worker is made from, each time it is made.
struct Line {
    name: String,
    concurrency: usize,
    sweep: Duration,
    ledger: Arc<dyn Ledger>,
    permits: Arc<Semaphore>,
    listener: Listener,
    handler: Handler,
    chance: Arc<Chance>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Line {
    /// A backend with a feeder of its own; all share the permits, so that a worker that is
    /// made anew does not double the work.
    fn backend(&self) -> Attempts {
        let (out, claims) = mpsc::channel(self.concurrency);
        let feeder = Feeder {
            ledger: Arc::clone(&self.ledger),
            permits: Arc::clone(&self.permits),
            tasks: self.tasks.clone(),
            sweep: self.sweep,
            chance: Arc::clone(&self.chance),
        };
        self.tasks.spawn(feeder.feed(out, self.listener.clone(), self.stop.clone()));
        Attempts::new(claims)
    }
}
