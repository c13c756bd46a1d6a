//! The registry behind `/metrics`. Labels are bounded: goals, repairs, outcomes, healths; never a repository.

pub mod pushes;
pub mod router;

use crate::model::finding::FindingState;
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Goal {
    goal: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GoalOutcome {
    goal: String,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GoalInState {
    goal: String,
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairOutcome {
    repair: String,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByHealth {
    health: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: String,
}

/// Nothing to tell apart: a family whose gauge is not there until it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Alone {}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFileserver {
    fileserver: String,
}

/// All metrics of this process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    of_goals: Goals,
    of_work: Work,
    of_engines: Engines,
}

/// What is said of goals.
#[derive(Debug)]
struct Goals {
    goal_findings: Family<Goal, Gauge>,
    goal_state: Family<GoalInState, Gauge>,
    goal_file_error: Family<Goal, Gauge>,
    goal_file_errors: Gauge,
    paused: Gauge,
    goal_evaluations: Family<GoalOutcome, Counter>,
    audit_drift: Counter,
}

impl Goals {
    fn new(to: &mut Registry) -> Self {
        Self {
            goal_findings: keep(
                "goal_findings",
                "Open findings after the last evaluation that finished",
                to,
                <_>::default(),
            ),
            goal_state: keep("goal_state", "1 for the state a goal is in", to, <_>::default()),
            goal_file_error: keep(
                "goal_file_error",
                "1 where the file on disk is not what runs",
                to,
                <_>::default(),
            ),
            goal_file_errors: keep(
                "goal_file_errors",
                "Goals whose file on disk is not what runs",
                to,
                <_>::default(),
            ),
            paused: keep("goals_paused", "Goals that a person paused", to, <_>::default()),
            goal_evaluations: keep(
                "goal_evaluations",
                "Evaluations that ended, by what they said",
                to,
                <_>::default(),
            ),
            audit_drift: keep(
                "audit_drift",
                "Exceptions outside of the suspects, and counts that were wrong, that the audit found",
                to,
                <_>::default(),
            ),
        }
    }
}

/// What is said of repairs and of what they are for.
#[derive(Debug)]
struct Work {
    attempts: Family<RepairOutcome, Counter>,
    backlog: Family<ByState, Gauge>,
    backlog_age: Gauge,
    fileservers: Family<ByHealth, Gauge>,
    locks_removed: Family<ByFileserver, Gauge>,
    health: Family<ByCode, Gauge>,
}

impl Work {
    fn new(to: &mut Registry) -> Self {
        Self {
            attempts: keep("attempts", "Attempts that ended, by repair and outcome", to, <_>::default()),
            backlog: keep(
                "backlog_findings",
                "Findings that need a repair, by what it is doing",
                to,
                <_>::default(),
            ),
            backlog_age: keep(
                "backlog_oldest_seconds",
                "Age of the oldest finding that needs a repair",
                to,
                <_>::default(),
            ),
            fileservers: keep("fileservers", "Fileservers, by what was last seen", to, <_>::default()),
            locks_removed: keep(
                "fileserver_locks_removed",
                "Locks of dead gits that the agent removed since it started",
                to,
                <_>::default(),
            ),
            health: keep("health_code", "1 while a health code is raised", to, <_>::default()),
        }
    }
}

/// What is said of what this process stands on.
#[derive(Debug)]
struct Engines {
    reminders: Family<ByOutcome, Counter>,
    redis_up: Family<Alone, Gauge>,
    sql_up: Gauge,
    sql_round_trip: Family<Alone, Gauge<f64, AtomicU64>>,
    pace: Gauge<f64, AtomicU64>,
}

impl Engines {
    fn new(to: &mut Registry) -> Self {
        Self {
            reminders: keep(
                "queue_reminders",
                "Reminders for other processes, by whether Redis took them",
                to,
                <_>::default(),
            ),
            redis_up: keep("redis_up", "1 while Redis takes what this process sends", to, <_>::default()),
            sql_up: keep("sql_up", "1 while the database answers and takes writes", to, <_>::default()),
            sql_round_trip: keep(
                "sql_round_trip_seconds",
                "How long a question to the database and its answer took last",
                to,
                <_>::default(),
            ),
            pace: keep(
                "pressure_pace_ratio",
                "The share of their pace at which dispatch and evaluation go: below 1 the brake sql holds",
                to,
                <_>::default(),
            ),
        }
    }
}

/// A metric that is in the registry.
fn keep<M: Metric + Clone>(name: &str, help: &str, to: &mut Registry, metric: M) -> M {
    to.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("trued");
        Self {
            of_goals: Goals::new(&mut registry),
            of_work: Work::new(&mut registry),
            of_engines: Engines::new(&mut registry),
            registry,
        }
    }
}

impl Metrics {
    /// Says how one goal stands.
    pub fn goal(&self, goal: &str, state: GoalState, findings: i64, file_error: bool) {
        self.of_goals.goal_findings.get_or_create(&Goal { goal: goal.into() }).set(findings);
        self.of_goals.goal_file_error.get_or_create(&Goal { goal: goal.into() }).set(i64::from(file_error));
        for one in GoalState::ALL {
            let labels = GoalInState { goal: goal.into(), state: one.to_string() };
            self.of_goals.goal_state.get_or_create(&labels).set(i64::from(*one == state));
        }
    }

    /// Says how many goals have a bad file, and how many are paused.
    pub fn goals(&self, file_errors: usize, paused: usize) {
        self.of_goals.goal_file_errors.set(i64::try_from(file_errors).unwrap_or(i64::MAX));
        self.of_goals.paused.set(i64::try_from(paused).unwrap_or(i64::MAX));
    }

    /// Counts evaluations that ended.
    pub fn evaluations(&self, goal: &str, outcome: GoalState, count: u64) {
        let labels = GoalOutcome { goal: goal.into(), outcome: outcome.to_string() };
        self.of_goals.goal_evaluations.get_or_create(&labels).inc_by(count);
    }

    /// Counts attempts that ended.
    pub fn attempts(&self, repair: &str, outcome: &str, count: u64) {
        let labels = RepairOutcome { repair: repair.into(), outcome: outcome.into() };
        self.of_work.attempts.get_or_create(&labels).inc_by(count);
    }

    /// Says how many fileservers are of one health.
    pub fn fileservers(&self, health: Health, count: i64) {
        self.of_work.fileservers.get_or_create(&ByHealth { health: health.to_string() }).set(count);
    }

    /// Says how many findings of the backlog are in one state.
    pub fn backlog(&self, state: FindingState, count: i64) {
        self.of_work.backlog.get_or_create(&ByState { state: state.to_string() }).set(count);
    }

    /// Says how old the oldest finding of the backlog is.
    pub fn backlog_age(&self, seconds: i64) {
        self.of_work.backlog_age.set(seconds);
    }

    /// Says whether a health code is raised.
    pub fn health(&self, code: &str, raised: bool) {
        self.of_work.health.get_or_create(&ByCode { code: code.into() }).set(i64::from(raised));
    }

    /// Counts what the audit of the suspects found.
    pub fn drift(&self, count: u64) {
        self.of_goals.audit_drift.inc_by(count);
    }

    /// Counts reminders for other processes.
    pub fn reminders(&self, outcome: &str, count: u64) {
        self.of_engines.reminders.get_or_create(&ByOutcome { outcome: outcome.into() }).inc_by(count);
    }

    /// Says whether the database can be worked with, and how long an answer takes, if that was measured.
    pub fn database(&self, up: bool, round_trip: Option<Duration>) {
        self.of_engines.sql_up.set(i64::from(up));
        if let Some(round_trip) = round_trip {
            self.of_engines.sql_round_trip.get_or_create(&Alone::default()).set(round_trip.as_secs_f64());
        }
    }

    /// Says at what share of its pace the controller goes, in hundredths.
    pub fn pace(&self, hundredths: u32) {
        self.of_engines.pace.set(f64::from(hundredths) / 100.0);
    }

    /// Says whether Redis takes what is sent.
    pub fn redis(&self, up: bool) {
        self.of_engines.redis_up.get_or_create(&Alone::default()).set(i64::from(up));
    }

    /// Sets how many locks of dead gits a fileserver's agent removed.
    pub fn locks_removed(&self, fileserver: &str, count: i64) {
        let label = ByFileserver { fileserver: fileserver.to_owned() };
        self.of_work.locks_removed.get_or_create(&label).set(count);
    }

    /// Everything, as OpenMetrics text.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_prefix_and_counters_end_in_total() {
        let metrics = Metrics::default();
        metrics.goal("replicas-match", GoalState::Unmet, 3, false);
        metrics.evaluations("replicas-match", GoalState::Unmet, 2);
        metrics.attempts("resync", "succeeded", 1);
        metrics.fileservers(Health::Online, 4);
        let text = metrics.text().unwrap();
        for line in [
            "trued_goal_findings{goal=\"replicas-match\"} 3",
            "trued_goal_evaluations_total{goal=\"replicas-match\",outcome=\"unmet\"} 2",
            "trued_attempts_total{repair=\"resync\",outcome=\"succeeded\"} 1",
            "trued_fileservers{health=\"online\"} 4",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
