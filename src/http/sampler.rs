//! Metrics read from SQL: cheap tables alone, at most once in a few seconds however often one asks.

use super::codes::{self, Facts};
use super::state::Api;
use super::steering;
use crate::clock;
use crate::database::{
    Database, Result, brakes, drains, fileservers, goals, inventory, pauses, pushes, report, suspects,
    tidying,
};
use crate::model::Millis;
use crate::model::finding::FindingState;
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use crate::queue::Carried;
use crate::telemetry::metrics::Metrics;
use std::sync::atomic::Ordering;
use tokio::sync::Mutex;

/// Samples younger than this are not taken again.
const FRESH: Millis = 2_000;

/// Attempts are counted up to this long ago: a transaction that is still open may end with an older time.
const SETTLED: Millis = 2_000;

/// Metrics, and up to where SQL was counted.
#[derive(Debug, Default)]
pub struct Sampler {
    metrics: Metrics,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    sampled_at: Millis,
    evaluation: Option<i64>,
    ended_until: Option<Millis>,
    drift: Option<i64>,
    carried: Carried,
}

impl Sampler {
    /// One that fills these.
    #[must_use]
    pub fn of(metrics: Metrics) -> Self {
        Self { metrics, seen: Mutex::default() }
    }

    /// All metrics as text, read again from SQL if the last reading is old.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn text(&self, api: &Api) -> Result<String> {
        let mut seen = self.seen.lock().await;
        self.engines(api, &mut seen);
        // What SQL says is as old as SQL's last answer.
        // A clock that was set back must not make a reading last.
        let age = clock::now() - seen.sampled_at;
        if !(0..FRESH).contains(&age) && !api.db.standing().is_away() {
            self.sample(api, &mut seen).await?;
            seen.sampled_at = clock::now();
        }
        Ok(self.metrics.text().unwrap_or_default())
    }

    async fn sample(&self, api: &Api, seen: &mut Seen) -> Result<()> {
        let db = &api.db;
        let now = db.now().await?;
        let states = goals::states(db).await?;
        let paused = pauses::all(db).await?.iter().filter(|pause| pause.goal().is_some()).count();
        self.metrics.goals(states.iter().filter(|goal| goal.file_error.is_some()).count(), paused);
        for goal in &states {
            self.metrics.goal(&goal.goal, goal.state, goal.findings, goal.file_error.is_some());
        }
        let all = fileservers::all(db).await?;
        for health in Health::ALL {
            let count = all.iter().filter(|one| one.health == *health).count();
            self.metrics.fileservers(*health, i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (name, count) in tidying::locks_removed(db).await? {
            self.metrics.locks_removed(&name, count);
        }
        let backlog = report::backlog::counts(db).await?;
        for state in FindingState::ALL {
            self.metrics.backlog(*state, backlog.of(*state));
        }
        self.metrics.backlog_age(backlog.oldest.map_or(0, |oldest| (now - oldest).max(0) / 1_000));
        let brakes = brakes::all(db).await?;
        let stalled = codes::stalled(db, &backlog, now).await?;
        let drains = drains::all(db).await?;
        let (goals, backlog, fileservers) = (&states, &backlog, &all);
        let unknown = inventory::unknown(db).await?;
        let lost = pushes::history_lost(db).await?;
        let unfit = steering::unfit(api).await?;
        let (redis, sql) = (api.redis_away(), api.db.standing().trouble());
        let facts = Facts {
            goals,
            backlog,
            fileservers,
            drains: &drains,
            brakes: &brakes,
            unknown: &unknown,
            lost: &lost,
            stalled: &stalled,
            unfit: &unfit,
            sql: sql.as_deref(),
            redis: redis.as_deref(),
            now,
        };
        let raised = codes::report(&facts).codes;
        for code in codes::ALL {
            self.metrics.health(code, raised.iter().any(|one| one == code));
        }
        let drift = suspects::audit::drift(db).await?;
        self.metrics.drift(u64::try_from(drift - seen.drift.unwrap_or(drift)).unwrap_or_default());
        seen.drift = Some(drift);
        self.count_evaluations(db, seen).await?;
        self.count_attempts(db, seen, now - SETTLED).await
    }

    /// Counters begin at the first look: what came before belongs to a process that is gone.
    async fn count_evaluations(&self, db: &Database, seen: &mut Seen) -> Result<()> {
        let Some(mut last) = seen.evaluation else {
            seen.evaluation = Some(report::tally::last_evaluation(db).await?);
            return Ok(());
        };
        for tally in report::tally::evaluations_after(db, last).await? {
            last = last.max(tally.last);
            let met = tally.total - tally.unmet - tally.unknown;
            for (state, count) in
                [(GoalState::Met, met), (GoalState::Unmet, tally.unmet), (GoalState::Unknown, tally.unknown)]
            {
                self.metrics.evaluations(&tally.goal, state, u64::try_from(count).unwrap_or_default());
            }
        }
        seen.evaluation = Some(last);
        Ok(())
    }

    /// What the process knows without asking.
    fn engines(&self, api: &Api, seen: &mut Seen) {
        let standing = api.db.standing();
        self.metrics.database(standing.trouble().is_none(), standing.round_trip);
        self.metrics.pace(api.pace.load(Ordering::Relaxed));
        if let Some(trouble) = standing.trouble().filter(|_| standing.is_away()) {
            tracing::debug!(trouble, "metrics are not read from SQL");
            self.metrics.health("SQL_AWAY", true);
        }
        if let Some(post) = &api.post {
            self.count_reminders(post.carried(), seen);
            self.metrics.redis(api.redis_away().is_none());
        }
    }

    fn count_reminders(&self, carried: Carried, seen: &mut Seen) {
        self.metrics.reminders("sent", carried.sent - seen.carried.sent);
        self.metrics.reminders("lost", carried.lost - seen.carried.lost);
        seen.carried = carried;
    }

    async fn count_attempts(&self, db: &Database, seen: &mut Seen, until: Millis) -> Result<()> {
        if let Some(from) = seen.ended_until {
            for ended in report::tally::ended_between(db, from, until).await? {
                let count = u64::try_from(ended.count).unwrap_or_default();
                self.metrics.attempts(&ended.repair, &ended.outcome, count);
            }
        }
        seen.ended_until = Some(until);
        Ok(())
    }
}
