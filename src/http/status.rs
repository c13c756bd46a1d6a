//! The fleet at a glance, and the codes that a person should know of.

use super::codes::{self, Facts};
use super::drains::progress;
use super::goals::unread_files;
use super::problem::{Answer, Problem};
use super::shapes::{Backlog, BrakeRow, DrainShown, FileserverRow, GoalRow, PressureRow, Status};
use super::state::Api;
use super::steering;
use crate::database::drains::{self, Drain};
use crate::database::pauses::{self, Pause};
use crate::database::report::BacklogCounts;
use crate::database::{brakes, fileservers, goals, inventory, pushes, report};
use crate::model::Millis;
use crate::model::brake::Brake;
use crate::model::finding::FindingState;
use crate::model::fleet::Fileserver;
use crate::model::goal::GoalStatus;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A status that is not read within this is none.
const PATIENCE: Duration = Duration::from_secs(8);
/// How often and how far apart the database is asked again when a connection breaks: all of a pool may be broken.
const TRIES: usize = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// `GET /api/v1/status`
///
/// # Errors
/// When the engine fails.
pub async fn show(State(api): State<Api>) -> Answer<Status> {
    Ok(Json(read(&api).await?))
}

/// Reads it.
///
/// # Errors
/// When the engine fails.
pub async fn read(api: &Api) -> Result<Status, Problem> {
    let trouble = api.db.standing().trouble();
    if api.db.standing().is_away() {
        return Ok(blind(api, &trouble.unwrap_or_default()));
    }
    let reading = async {
        // Its connection was given up in the middle: another one may be there already, or may be gone like it.
        for _ in 0..TRIES {
            match read_all(api, api.db.standing().trouble().as_deref()).await {
                Err(_) if api.db.standing().trouble().is_none() => tokio::time::sleep(BETWEEN).await,
                read => return read,
            }
        }
        read_all(api, None).await
    };
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(problem)) => match api.db.standing().trouble() {
            Some(trouble) => Ok(blind(api, &trouble)),
            None => Err(problem),
        },
        Err(_) => Ok(blind(api, "the database does not answer in time")),
    }
}

/// What is known while the database says nothing: that.
fn blind(api: &Api, trouble: &str) -> Status {
    let redis = api.redis_away();
    let facts = Facts {
        goals: &[],
        backlog: &BacklogCounts::default(),
        fileservers: &[],
        drains: &[],
        brakes: &[],
        unknown: &[],
        lost: &[],
        stalled: &[],
        unfit: &[],
        sql: Some(trouble),
        redis: redis.as_deref(),
        now: 0,
    };
    Status {
        goals: Vec::new(),
        backlog: backlog(facts.backlog, 0),
        fileservers: Vec::new(),
        drains: Vec::new(),
        brakes: Vec::new(),
        pressure: None,
        health: codes::report(&facts),
        notes: Vec::new(),
    }
}

async fn read_all(api: &Api, trouble: Option<&str>) -> Result<Status, Problem> {
    let now = api.db.now().await?;
    let states = goals::states(&api.db).await?;
    let counts = report::backlog::counts(&api.db).await?;
    let all = fileservers::all(&api.db).await?;
    let brakes = brakes::all(&api.db).await?;
    let held: BTreeMap<_, _> = brakes::held(&api.db).await?.into_iter().collect();
    let rows = rows(api, &all).await?;
    let drains = drains::all(&api.db).await?;
    let unknown = inventory::unknown(&api.db).await?;
    let lost = pushes::history_lost(&api.db).await?;
    let stalled = codes::stalled(&api.db, &counts, now).await?;
    let unfit = steering::unfit(api).await?;
    let redis = api.redis_away();
    let facts = Facts {
        goals: &states,
        backlog: &counts,
        fileservers: &all,
        drains: &drains,
        brakes: &brakes,
        unknown: &unknown,
        lost: &lost,
        stalled: &stalled,
        unfit: &unfit,
        sql: trouble,
        redis: redis.as_deref(),
        now,
    };
    let health = codes::report(&facts);
    let pauses = pauses::all(&api.db).await?;
    Ok(Status {
        goals: states.into_iter().map(|one| goal_row(one, &pauses)).collect(),
        backlog: backlog(&counts, now),
        fileservers: rows,
        drains: drains.iter().map(|one| drain_shown(one, now)).collect(),
        brakes: brakes.into_iter().filter(|one| !one.is_over()).map(|one| brake_row(one, &held)).collect(),
        pressure: pressure(api),
        health,
        notes: notes(api).await,
    })
}

/// What is to be known, and raises no code.
async fn notes(api: &Api) -> Vec<String> {
    let mut notes = api.db.standing().risks;
    notes.extend(api.source.note().map(str::to_owned));
    notes.extend(unread_files(api).await);
    notes
}

/// The brake `sql`, while it holds.
fn pressure(api: &Api) -> Option<PressureRow> {
    let pace = api.pace.load(Ordering::Relaxed);
    let standing = api.db.standing();
    let millis = |time: Duration| Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
    (pace < 100).then(|| PressureRow {
        name: "sql".to_owned(),
        pace,
        round_trip_ms: standing.round_trip.map(millis),
        lag_ms: millis(standing.lag),
    })
}

fn drain_shown(drain: &Drain, now: Millis) -> DrainShown {
    let (percent, ahead) = progress(drain, now);
    DrainShown {
        name: drain.name.clone(),
        percent,
        left: drain.left,
        seconds_left: ahead.map(|ms| ms / 1_000),
        processes: drain.processes,
        lost: drain.lost_at.is_some(),
    }
}

fn brake_row(brake: Brake, held: &BTreeMap<String, i64>) -> BrakeRow {
    BrakeRow {
        held: held.get(&brake.name).copied().unwrap_or(0),
        name: brake.name,
        reason: brake.reason,
        since: brake.since,
        holds: brake.holds,
        approved: brake.approved,
    }
}

/// Fileservers with the number of their replicas.
///
/// # Errors
/// When the engine fails.
pub async fn rows(api: &Api, all: &[Fileserver]) -> Result<Vec<FileserverRow>, Problem> {
    let counts: BTreeMap<_, _> = fileservers::replica_counts(&api.db).await?.into_iter().collect();
    Ok(all.iter().map(|one| row(one, counts.get(&one.id).copied().unwrap_or(0))).collect())
}

fn row(one: &Fileserver, replicas: i64) -> FileserverRow {
    FileserverRow {
        name: one.name.clone(),
        rack: one.rack.clone(),
        intent: one.intent,
        health: one.health,
        counts: one.counts,
        replicas,
        disk_used: one.disk_used,
        disk_free: one.disk_free,
    }
}

/// A goal as the lists show it.
#[must_use]
pub fn goal_row(status: GoalStatus, pauses: &[Pause]) -> GoalRow {
    GoalRow {
        paused: steering::of(pauses, &status.goal),
        no_version: status.file_error.is_some() && status.digest.is_none(),
        file_error: status.file_error.clone(),
        name: status.goal,
        state: status.state,
        findings: status.findings,
        at_least: status.at_least,
        evaluated_at: status.evaluated_at,
        took_ms: status.took_ms,
        error: status.error.or(status.file_error),
    }
}

fn backlog(counts: &BacklogCounts, now: Millis) -> Backlog {
    Backlog {
        total: counts.total(),
        waiting: counts.of(FindingState::Waiting),
        ready: counts.of(FindingState::Ready),
        running: counts.of(FindingState::Running),
        held: counts.of(FindingState::Held),
        stuck: counts.of(FindingState::Stuck),
        oldest_seconds: counts.oldest.map(|oldest| (now - oldest).max(0) / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::goal::GoalState;

    fn goal(name: &str, state: GoalState, findings: i64) -> GoalStatus {
        GoalStatus {
            goal: name.into(),
            state,
            findings,
            at_least: false,
            evaluated_at: Some(1),
            finished_at: Some(1),
            took_ms: Some(2),
            error: None,
            failures: 0,
            file_error: None,
            digest: None,
            ended: None,
            gave_way: None,
            gave_way_at: None,
        }
    }

    // Case 16: what is pending is never less than what is open.
    #[test]
    fn the_backlog_counts_waiting_ready_running_held_and_stuck_together() {
        let states: Vec<_> =
            FindingState::ALL.iter().zip([1, 20, 300, 4_000, 50_000]).map(|(s, n)| (*s, n)).collect();
        let shown = backlog(&BacklogCounts { states, ..BacklogCounts::default() }, 0);
        assert_eq!(shown.total, 54_321);
        assert_eq!(shown.waiting + shown.ready + shown.running + shown.held + shown.stuck, shown.total);
    }

    #[test]
    fn the_error_of_a_file_shows_where_the_evaluation_has_none() {
        let status =
            GoalStatus { file_error: Some("goals/a.sql:7:12: no".into()), ..goal("a", GoalState::Met, 0) };
        assert_eq!(goal_row(status, &[]).error.as_deref(), Some("goals/a.sql:7:12: no"));
    }
}
