//! The evaluate, dispatch and observe loops: each readable on one page.
//!
//! Each loop goes at its own pace and reads its facts afresh from SQL; none is triggered by
//! another's facts (a nudge says "look again", never "X changed"). Several controllers may
//! run at once: what only one of them may do is a lease in SQL. A controller decides by pure
//! functions (`finding::admit`, `brakes`, `detector`, `verdict`, `schedule`) and keeps nothing
//! that a restart would lose, but for what it has heard of agents since it started.

use crate::clock;
use crate::database::Database;
use crate::fleet::Agents;
use crate::goal::library::Library;
use crate::goal::session::Source;
use crate::goal::setting::Setting;
use crate::model::Millis;
use crate::model::chance::Chance;
use crate::queue::{Nudge, Reminders};
use crate::repair::Repairs;
use crate::shutdown::Shutdown;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

mod audit;
pub mod brakes;
mod braking;
pub mod detector;
mod dispatch;
mod drains;
mod edits;
mod evaluate;
mod evaluation;
mod goals;
mod inventory;
mod metrics;
mod observe;
mod paused;
mod press;
pub mod pressure;
mod prune;
mod right;
pub mod schedule;
mod suspects;
mod undoing;
pub mod verdict;
mod voices;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use detector::Pace;
pub use metrics::Metrics;

/// How the loops go. Every value is configurable; the defaults are what is shipped.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Schedule of goals whose files name none. Default every two minutes.
    pub schedule: Option<cron::Schedule>,
    /// How often goal files are looked at; an edit is noticed within it. Default 10 s, at most 30 s.
    pub reload: Duration,
    /// Goals evaluated at once by this controller: each takes a connection. Default 8.
    pub parallel: usize,
    /// Time between two dispatch rounds. Default 1 s.
    pub dispatch: Duration,
    /// Attempts that may be queued or running in the whole fleet. Default 2,000.
    pub in_flight: u32,
    /// Largest share of a disk that new copies may fill, in hundredths. Default 90.
    pub fill_limit: i64,
    /// Time offline after which a fileserver's replicas no longer count. Default 30 min.
    pub grace: Duration,
    /// So long a rack that is silent as a whole is waited for before its replicas are copied elsewhere. Default 60 min.
    pub rack_grace: Duration,
    /// What is set over goals' files in this environment; what SQL says goes over it.
    pub configured: Vec<Setting>,
    /// How often agents are asked.
    pub pace: Pace,
    /// Ids that the audit adds to the suspects at a time; 0: there is no audit. Default 100,000.
    pub audit_slice: i64,
    /// How long a slice of the audit stands; no shorter than the longest period of goals over suspects. Default 2 min.
    pub audit_period: Duration,
    /// How long what has ended is kept.
    pub retention: Retention,
    /// From where on the database is slow.
    pub pressure: pressure::Bounds,
}

/// How long what has ended is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Closed findings. Default 90 days.
    pub findings: Duration,
    /// Ended attempts. Default 90 days.
    pub attempts: Duration,
    /// Evaluations. Default 30 days.
    pub evaluations: Duration,
    /// Closed pushes. Default 7 days.
    pub pushes: Duration,
    /// Who changed what. Default 400 days.
    pub audit: Duration,
    /// Time between two rounds of pruning. Default 5 min.
    pub period: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        let (findings, attempts, evaluations) = (90 * DAY, 90 * DAY, 30 * DAY);
        let (pushes, audit) = (7 * DAY, 400 * DAY);
        Self { findings, attempts, evaluations, pushes, audit, period: Duration::from_mins(5) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            schedule: schedule::default(),
            reload: Duration::from_secs(10),
            parallel: 8,
            dispatch: Duration::from_secs(1),
            in_flight: 2_000,
            fill_limit: 90,
            grace: Duration::from_mins(30),
            rack_grace: Duration::from_hours(1),
            configured: Vec::new(),
            pace: Pace::default(),
            audit_slice: 100_000,
            audit_period: Duration::from_mins(2),
            retention: Retention::default(),
            pressure: pressure::Bounds::default(),
        }
    }
}

/// One controller.
pub struct Controller {
    /// The part's name; leases are held under it and a number that is new at every start.
    pub name: String,
    /// How its loops go.
    pub settings: Settings,
    /// Where everything is remembered.
    pub database: Database,
    /// Where goals are asked.
    pub source: Source,
    /// The directory of goals.
    pub goals: Library,
    /// All repairs.
    pub repairs: Arc<Repairs>,
    /// Whom it asks.
    pub agents: Agents,
    /// Wakes workers of this process.
    pub reminders: Reminders,
    /// Wakes this controller.
    pub nudge: Nudge,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// At what share of its pace it goes, in hundredths: it writes, whoever shows it reads.
    pub pace: Arc<AtomicU32>,
    /// Jitter, seeds, and the number in its name.
    pub chance: Arc<Chance>,
}

/// What the loops share.
struct Shared {
    holder: String,
    settings: Settings,
    database: Database,
    source: Source,
    repairs: Arc<Repairs>,
    agents: Agents,
    reminders: Reminders,
    nudge: Nudge,
    metrics: Arc<Metrics>,
    pace: Arc<AtomicU32>,
    chance: Arc<Chance>,
    /// What was heard of agents since the start: the brakes decide from it.
    sight: Mutex<Option<brakes::Sight>>,
    /// What the database's clock is ahead of this machine's.
    ahead: AtomicI64,
}

impl Controller {
    /// Runs the three loops until `stop` is cancelled; what runs then is given up, and leases
    /// are given back. Nothing is lost: all that matters is in SQL.
    pub async fn run(self, stop: CancellationToken) {
        let (shared, goals) = self.shared();
        tracing::info!(controller = shared.holder, "controller started");
        // Tasks of their own, so that one loop that computes does not hold up the others.
        let tasks = Shutdown::new();
        tasks.spawn(evaluate::run(Arc::clone(&shared), goals, stop.clone()));
        tasks.spawn(dispatch::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(observe::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(press::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(prune::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(drains::run(Arc::clone(&shared), stop.clone()));
        stop.cancelled().await;
        if !tasks.finish(Duration::from_secs(5)).await {
            tracing::warn!("a loop of the controller did not end in time and is left");
        }
    }
}

impl Controller {
    /// Dispatches so many rounds, one after the other, and says how long each took: for measuring. After each comes
    /// `between`, whose time does not count.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn measure(
        self,
        rounds: usize,
        mut between: impl AsyncFnMut(),
    ) -> crate::database::Result<Vec<Duration>> {
        let shared = self.shared().0;
        // Nobody is silent to whom nobody listens.
        shared.see(|_| ());
        let (mut braking, mut paused) = (braking::Braking::default(), paused::Paused::default());
        let mut took = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let began = tokio::time::Instant::now();
            dispatch::round(&shared, &mut braking, &mut paused).await?;
            took.push(began.elapsed());
            between().await;
        }
        Ok(took)
    }

    fn shared(self) -> (Arc<Shared>, Library) {
        let shared = Shared {
            holder: format!("{}-{:016x}", self.name, self.chance.next()),
            settings: self.settings,
            database: self.database,
            source: self.source,
            repairs: self.repairs,
            agents: self.agents,
            reminders: self.reminders,
            nudge: self.nudge,
            metrics: self.metrics,
            pace: self.pace,
            chance: self.chance,
            sight: Mutex::new(None),
            ahead: AtomicI64::new(0),
        };
        (Arc::new(shared), self.goals)
    }
}

impl Shared {
    /// What was heard so far, if anybody has looked yet.
    fn sight(&self) -> Option<brakes::Sight> {
        self.sight.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Now, by the database's clock: this machine's may be off, and may jump.
    fn now(&self) -> Millis {
        clock::now() + self.ahead.load(Ordering::Relaxed)
    }

    /// The same, the database asked; while it is away, what it is thought to be.
    async fn ask_now(&self) -> Millis {
        match self.database.now().await {
            Ok(now) => {
                self.set_clock(now);
                now
            }
            Err(_) => self.now(),
        }
    }

    /// The database's clock says this.
    fn set_clock(&self, now: Millis) {
        self.ahead.store(now - clock::now(), Ordering::Relaxed);
    }

    /// A moment of the database's clock, as this machine's says it.
    fn here(&self, moment: Millis) -> Millis {
        moment - self.ahead.load(Ordering::Relaxed)
    }

    /// At what share of its pace it goes now, in hundredths.
    fn pace(&self) -> u32 {
        self.pace.load(Ordering::Relaxed)
    }

    /// Notes what was heard.
    fn see(&self, note: impl FnOnce(&mut brakes::Sight)) {
        let mut sight = self.sight.lock().unwrap_or_else(PoisonError::into_inner);
        note(sight.get_or_insert_with(|| brakes::Sight { started: clock::now(), ..Default::default() }));
    }
}

/// A length of time as SQL has it.
fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
