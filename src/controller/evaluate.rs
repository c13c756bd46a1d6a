//! The evaluate loop: each goal in a task of its own, on its own schedule.
//!
//! One goal's failure or slowness touches no other. An evaluation never overlaps itself, in
//! this process because its task does one at a time, in the fleet because of a lease; a time
//! that comes while it still runs is skipped and counted.

use super::Shared;
use super::edits::{self, Tried};
use super::evaluation::{self, Ended, Occasion};
use super::goals::{Board, How, Running, Seen, Version};
use super::metrics::add;
use super::pressure;
use super::right::Right;
use super::schedule::{self, Due};
use super::suspects::Suspects;
use crate::database;
use crate::goal::Goal;
use crate::goal::library::Library;
use crate::model::Millis;
use crate::model::goal::{GoalState, GoalStatus};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A controller that dies in an evaluation leaves its goal to others after this long.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is looked after while an evaluation runs.
const RENEW: Duration = Duration::from_secs(5);
/// So long a goal that is due waits for a lease that somebody else has: longer than the lease.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest rest after an evaluation while the database is slow.
const LONGEST_REST: Duration = Duration::from_mins(2);

/// Ends of evaluations that wait to be heard of.
const SEEN: usize = 64;

/// What the tasks of goals share.
struct Evaluator {
    shared: Arc<Shared>,
    suspects: Suspects,
    running: watch::Receiver<Arc<Running>>,
    permits: Arc<Semaphore>,
    resting: TaskTracker,
    /// Who decides which version runs hears how each evaluation ended.
    seen: mpsc::Sender<Seen>,
}

/// The task of one goal, as its supervisor holds it.
struct Kept {
    task: Id,
    poke: Arc<Notify>,
    stop: CancellationToken,
}

/// Looks at the files, and keeps one task for each goal, until stopped.
pub(super) async fn run(shared: Arc<Shared>, library: Library, stop: CancellationToken) {
    let mut board = Board::new(Arc::clone(&shared), library);
    let (seen, mut all_seen) = mpsc::channel(SEEN);
    let evaluator = Arc::new(Evaluator {
        suspects: Suspects::new(Arc::clone(&shared)),
        running: board.watch(),
        permits: Arc::new(Semaphore::new(shared.settings.parallel.max(1))),
        resting: TaskTracker::new(),
        seen,
        shared: Arc::clone(&shared),
    });
    let (mut tasks, mut kept) = (JoinSet::new(), HashMap::new());
    while !stop.is_cancelled() {
        let loaded = tokio::select! {
            () = stop.cancelled() => break,
            loaded = board.reload() => loaded,
        };
        tend(&evaluator, &mut tasks, &mut kept, &stop);
        let pause = if loaded { shared.settings.reload } else { Duration::from_secs(1) };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(shared.chance.around(pause)) => {}
            wanted = shared.nudge.wanted() => {
                // An edit takes effect at the next evaluation, so files are looked at first.
                board.reload().await;
                tend(&evaluator, &mut tasks, &mut kept, &stop);
                kept.iter().filter(|(goal, _)| wanted.includes(goal)).for_each(|(_, one)| one.poke.notify_one());
            }
            Some(seen) = all_seen.recv() => {
                if board.note(&seen) {
                    board.reload().await;
                    if let Some(one) = kept.get(&seen.goal) {
                        one.poke.notify_one();
                    }
                }
            }
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|panic| panic.id(), |(id, ())| id);
                kept.retain(|_, one: &mut Kept| one.task != id);
            }
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Begins tasks for goals that have none, ends those of goals that are gone.
fn tend(
    evaluator: &Arc<Evaluator>,
    tasks: &mut JoinSet<()>,
    kept: &mut HashMap<String, Kept>,
    stop: &CancellationToken,
) {
    let running = Arc::clone(&evaluator.running.borrow());
    for (goal, one) in kept.iter() {
        if !running.contains_key(goal) {
            one.stop.cancel();
        }
    }
    for goal in running.keys().filter(|goal| !kept.contains_key(*goal)).cloned().collect::<Vec<_>>() {
        let (poke, stop) = (Arc::new(Notify::new()), stop.child_token());
        let one = Arc::clone(evaluator).attend(goal.clone(), Arc::clone(&poke), stop.clone());
        let task = tasks.spawn(one).id();
        kept.insert(goal, Kept { task, poke, stop });
    }
}

impl Evaluator {
    fn version(&self, name: &str) -> Option<Version> {
        self.running.borrow().get(name).cloned()
    }

    /// Evaluates one goal whenever it is due, its text is another one, or somebody wants it, until it is gone.
    async fn attend(self: Arc<Self>, name: String, poke: Arc<Notify>, stop: CancellationToken) {
        let lease = format!("goal:{name}");
        let mut right = Right::new(&self.shared.database, &lease, &self.shared.holder, LEASE);
        let mut changes = self.running.clone();
        let mut known = self.last(&name).await;
        let (mut first, mut tried) = (true, None);
        while let Some(version) = self.version(&name) {
            let now = self.shared.ask_now().await;
            let due = self.due(&version.goal, now);
            let soon = edits::soon(&version, known.as_ref(), tried.as_ref(), now);
            let late = first && overdue(known.as_ref(), due, now);
            let at = if late { now } else { soon.map_or(due.at, |soon| soon.max(now).min(due.at)) };
            let wait = Duration::from_millis(u64::try_from(at - now).unwrap_or(0));
            let wanted = tokio::select! {
                () = stop.cancelled() => break,
                () = poke.notified() => true,
                () = tokio::time::sleep(wait) => false,
                // Its schedule may be another one now.
                _ = changes.changed() => continue,
            };
            first = false;
            let Some(version) = self.version(&name) else { break };
            let ended = tokio::select! {
                () = stop.cancelled() => break,
                ended = self.turn(&version, due, wanted, known.as_ref(), &mut right) => ended,
            };
            right.release().await;
            if ended {
                known = self.last(&name).await.or(known);
                tried = Some(Tried { digest: version.goal.digest.clone(), at: self.shared.now() });
                self.count_skipped(&version.goal, at);
            }
        }
        right.release().await;
    }

    /// One turn: the lease, then the evaluation under it. `false`: it was not our turn.
    async fn turn(
        &self,
        version: &Version,
        due: Due,
        wanted: bool,
        known: Option<&GoalStatus>,
        right: &mut Right,
    ) -> bool {
        let goal = &*version.goal;
        let deadline = Instant::now() + PATIENCE;
        while !right.held().await {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(self.shared.chance.around(Duration::from_secs(1))).await;
        }
        let last = self.last(&goal.name).await;
        let by_another = last.as_ref().map(|last| last.evaluated_at) != known.map(|known| known.evaluated_at);
        if by_another && !wanted {
            // Another controller had this turn.
            return true;
        }
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return false };
        let period = if wanted { Duration::ZERO } else { duration(due.period) };
        let occasion = Occasion { goal, period, before: last.map(|last| last.state) };
        let began = Instant::now();
        let work = self.work(version, occasion);
        tokio::pin!(work);
        loop {
            tokio::select! {
                ended = &mut work => {
                    self.rest(permit, began.elapsed());
                    if let Some(how) = ended {
                        let seen = Seen { goal: goal.name.clone(), digest: goal.digest.clone(), how };
                        let _ = self.seen.send(seen).await;
                    }
                    return true;
                }
                () = tokio::time::sleep(RENEW) => {
                    if !right.held().await {
                        tracing::warn!(goal.name, "an evaluation is given up, its lease is gone");
                        return false;
                    }
                }
            }
        }
    }

    /// The evaluation, and what it says of its version; none: nothing.
    async fn work(&self, version: &Version, occasion: Occasion<'_>) -> Option<How> {
        match (evaluation::evaluate(&self.shared, &self.suspects, occasion).await, &version.before) {
            (Ended::Whole, _) => Some(How::Whole),
            (Ended::Late(why), Some(before)) => {
                Some(How::Late(why, edits::examine(&self.shared, &version.goal, before).await))
            }
            _ => None,
        }
    }

    /// While the database is slow, the place of an evaluation stays empty for a while after it.
    fn rest(&self, permit: OwnedSemaphorePermit, took: Duration) {
        let rest = pressure::rest(took, self.shared.pace(), LONGEST_REST);
        if !rest.is_zero() {
            self.resting.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(permit);
            });
        }
    }

    fn schedule<'a>(&'a self, goal: &'a Goal) -> Option<&'a cron::Schedule> {
        goal.schedule.as_ref().or(self.shared.settings.schedule.as_ref())
    }

    fn due(&self, goal: &Goal, now: Millis) -> Due {
        const HOUR: Millis = 3_600_000;
        let hourly = Due { at: now + HOUR, period: HOUR };
        self.schedule(goal).map_or(hourly, |schedule| schedule::next(schedule, &goal.name, now))
    }

    fn count_skipped(&self, goal: &Goal, began: Millis) {
        let Some(schedule) = self.schedule(goal) else { return };
        let skipped = schedule::missed(schedule, &goal.name, began, self.shared.now());
        if skipped > 0 {
            add(&self.shared.metrics.evaluations_skipped, skipped);
            tracing::warn!(goal.name, skipped, "a goal was due again before its turn ended");
        }
    }

    /// What SQL remembers of a goal; nothing also when it cannot be asked.
    async fn last(&self, name: &str) -> Option<GoalStatus> {
        match database::goals::states(&self.shared.database).await {
            Ok(states) => states.into_iter().find(|state| state.goal == name),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "goal states could not be read");
                None
            }
        }
    }
}

/// Whether a goal was not evaluated for a whole period, or never, or is unknown: what made it so may be over.
fn overdue(known: Option<&GoalStatus>, due: Due, now: Millis) -> bool {
    let known = known.filter(|known| known.state != GoalState::Unknown);
    known.and_then(|known| known.finished_at).is_none_or(|at| now - at > due.period)
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::testing::goal_status;
    use super::*;

    #[test]
    fn what_is_unknown_is_looked_at_again_at_once_and_what_was_judged_in_time_is_not() {
        let seen = |state, finished_at| GoalStatus { state, finished_at, ..goal_status("probe") };
        let due = Due { at: 2_000, period: 1_000 };
        assert!(overdue(None, due, 1_500));
        assert!(overdue(Some(&seen(GoalState::Unknown, Some(1_400))), due, 1_500));
        assert!(!overdue(Some(&seen(GoalState::Met, Some(1_400))), due, 1_500));
        assert!(overdue(Some(&seen(GoalState::Met, Some(400))), due, 1_500));
    }
}
