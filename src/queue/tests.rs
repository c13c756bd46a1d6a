//! The queue over a ledger in memory: what is claimed, run and put back.

use super::feeder::Ledger;
use super::run::run_over;
use super::{Handler, Reminders, Workers};
use crate::database::{self, DatabaseError};
use crate::model::attempt::{Attempt, AttemptState, Plan, Step};
use crate::model::chance::Chance;
use crate::model::finding::{Lane, Subject};
use crate::model::id::{AttemptId, FileserverId, FindingId, RepositoryId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

fn attempt(id: i64) -> Attempt {
    Attempt {
        id: AttemptId(id),
        finding_id: FindingId(id),
        goal: "replicas-match".into(),
        subject: Subject::Replica(RepositoryId(id), FileserverId(1)),
        repair: "resync".into(),
        number: 1,
        state: AttemptState::Running,
        lane: Lane::Common,
        priority: 100,
        plan: Plan {
            step: Step::Resync,
            repository_id: Some(RepositoryId(id)),
            source_id: Some(FileserverId(2)),
            destination_id: Some(FileserverId(1)),
            bytes: 0,
            deadline_ms: 60_000,
            bytes_per_second: 0,
            write_lock: false,
            path: None,
        },
        epoch: 1,
        worker: Some("w".into()),
        lease_until: None,
        queued_at: 0,
        started_at: None,
        progress: None,
    }
}

#[derive(Default)]
struct Memory {
    queued: Mutex<BTreeMap<i64, Attempt>>,
    claims: AtomicUsize,
    failures: AtomicUsize,
    returned: AtomicUsize,
}

impl Memory {
    fn with(count: i64) -> Arc<Self> {
        let memory = Self::default();
        memory.queued.lock().unwrap().extend((1..=count).map(|id| (id, attempt(id))));
        Arc::new(memory)
    }

    fn waiting(&self) -> usize {
        self.queued.lock().unwrap().len()
    }
}

impl Ledger for Memory {
    fn claim(&self, limit: usize) -> BoxFuture<'_, database::Result<Vec<Attempt>>> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let fails = self.failures.load(Ordering::SeqCst) > 0;
        if fails {
            self.failures.fetch_sub(1, Ordering::SeqCst);
            return async { Err(DatabaseError::Refused("away".into())) }.boxed();
        }
        let mut queued = self.queued.lock().unwrap();
        let taken = (0..limit).map_while(|_| queued.pop_first()).map(|(_, attempt)| attempt).collect();
        async move { Ok(taken) }.boxed()
    }

    fn hand_back(&self, id: AttemptId, _: i64) -> BoxFuture<'_, database::Result<bool>> {
        self.returned.fetch_add(1, Ordering::SeqCst);
        self.queued.lock().unwrap().insert(id.0, attempt(id.0));
        async { Ok(true) }.boxed()
    }
}

fn workers(concurrency: usize, sweep: Duration) -> Workers {
    Workers { name: "w-1".into(), concurrency, lease_ms: 60_000, steps: Step::ALL.to_vec(), sweep }
}

/// Runs the queue in a task; a test ends it by the token and waits for the handle.
struct Running {
    stop: CancellationToken,
    tasks: tokio::task::JoinSet<()>,
    reminders: Reminders,
}

fn start(memory: &Arc<Memory>, workers: Workers, handler: Handler) -> Running {
    let (stop, reminders) = (CancellationToken::new(), Reminders::in_process());
    let mut tasks = tokio::task::JoinSet::new();
    let (token, bell, ledger) = (stop.clone(), reminders.clone(), Arc::clone(memory));
    tasks.spawn(async move {
        run_over(&workers, ledger, &bell, handler, Arc::new(Chance::new(1)), token).await;
    });
    Running { stop, tasks, reminders }
}

impl Running {
    async fn end(mut self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.tasks.join_next()).await.unwrap();
    }
}

/// A handler that counts, and waits for the gate.
fn gated(gate: &Arc<Semaphore>) -> (Handler, watch::Receiver<(usize, usize)>) {
    let (told, seen) = watch::channel((0, 0));
    let (gate, told) = (Arc::clone(gate), Arc::new(told));
    let handler: Handler = Arc::new(move |_| {
        let (gate, told) = (Arc::clone(&gate), Arc::clone(&told));
        async move {
            told.send_modify(|count| count.0 += 1);
            gate.acquire().await.unwrap().forget();
            told.send_modify(|count| count.1 += 1);
        }
        .boxed()
    });
    (handler, seen)
}

async fn until(seen: &mut watch::Receiver<(usize, usize)>, is: impl Fn(&(usize, usize)) -> bool) {
    tokio::time::timeout(Duration::from_secs(10), seen.wait_for(is)).await.unwrap().unwrap();
}

#[tokio::test]
async fn no_more_is_claimed_than_may_run() {
    let (memory, gate) = (Memory::with(40), Arc::new(Semaphore::new(0)));
    let (handler, mut seen) = gated(&gate);
    let running = start(&memory, workers(4, Duration::from_mins(1)), handler);
    until(&mut seen, |count| count.0 == 4).await;
    assert_eq!(memory.waiting(), 36, "four permits, four claims");
    gate.add_permits(40);
    until(&mut seen, |count| count.1 == 40).await;
    running.end().await;
    assert_eq!((memory.waiting(), memory.returned.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn running_handlers_are_waited_for_and_nothing_new_is_claimed_after_the_stop() {
    let (memory, gate) = (Memory::with(10), Arc::new(Semaphore::new(0)));
    let (handler, mut seen) = gated(&gate);
    let mut running = start(&memory, workers(2, Duration::from_mins(1)), handler);
    until(&mut seen, |count| count.0 == 2).await;
    running.stop.cancel();
    assert!(tokio::time::timeout(Duration::from_millis(50), running.tasks.join_next()).await.is_err());
    gate.add_permits(10);
    running.end().await;
    assert_eq!((seen.borrow().1, memory.waiting()), (2, 8));
}

#[tokio::test]
async fn a_reminder_wakes_a_worker_long_before_its_sweep() {
    let (memory, gate) = (Memory::with(0), Arc::new(Semaphore::new(100)));
    let (handler, mut seen) = gated(&gate);
    let running = start(&memory, workers(2, Duration::from_hours(1)), handler);
    while memory.claims.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    memory.queued.lock().unwrap().insert(1, attempt(1));
    running.reminders.remind();
    until(&mut seen, |count| count.1 == 1).await;
    running.end().await;
}

#[tokio::test]
async fn a_sweep_finds_what_nobody_reminded_of() {
    let (memory, gate) = (Memory::with(0), Arc::new(Semaphore::new(100)));
    let (handler, mut seen) = gated(&gate);
    let running = start(&memory, workers(2, Duration::from_millis(20)), handler);
    while memory.claims.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    memory.queued.lock().unwrap().insert(1, attempt(1));
    until(&mut seen, |count| count.1 == 1).await;
    running.end().await;
}

#[tokio::test]
async fn a_failing_database_and_a_panicking_handler_end_no_worker() {
    let memory = Memory::with(6);
    memory.failures.store(2, Ordering::SeqCst);
    let (told, mut seen) = watch::channel((0, 0));
    let told = Arc::new(told);
    let handler: Handler = Arc::new(move |attempt| {
        let told = Arc::clone(&told);
        async move {
            assert!(attempt.id.0 % 2 == 0, "odd ones panic");
            told.send_modify(|count| count.1 += 1);
        }
        .boxed()
    });
    let running = start(&memory, workers(1, Duration::from_millis(20)), handler);
    until(&mut seen, |count| count.1 == 3).await;
    running.end().await;
    assert_eq!(memory.waiting(), 0);
}

#[tokio::test]
async fn what_was_claimed_and_not_started_is_put_back_when_the_consumer_goes_away() {
    let memory = Memory::with(5);
    let tasks = tokio_util::task::TaskTracker::new();
    let feeder = super::feeder::Feeder {
        ledger: Arc::clone(&memory) as Arc<dyn Ledger>,
        permits: Arc::new(Semaphore::new(3)),
        tasks: tasks.clone(),
        sweep: Duration::from_mins(1),
        chance: Arc::new(Chance::new(1)),
    };
    let (out, mut claims) = tokio::sync::mpsc::channel(3);
    tasks.spawn(feeder.feed(out, Reminders::in_process().listen(), CancellationToken::new()));
    let first = claims.recv().await.unwrap();
    assert!(first.name().starts_with("1-"), "named by attempt and epoch");
    drop((first, claims));
    tasks.close();
    tokio::time::timeout(Duration::from_secs(10), tasks.wait()).await.unwrap();
    assert_eq!((memory.waiting(), memory.returned.load(Ordering::SeqCst)), (5, 3));
}
