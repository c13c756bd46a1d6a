//! The fleet at a glance, and the codes that a person should know of.

use super::problem::{Answer, Problem};
use super::shapes::{Backlog, FileserverRow, GoalRow, HealthReport, Status};
use super::state::Api;
use super::steering;
use crate::database::pauses::{self, Pause};
use crate::database::report::BacklogCounts;
use crate::database::{fileservers, goals, report};
use crate::model::Millis;
use crate::model::finding::FindingState;
use crate::model::fleet::{Fileserver, Health};
use crate::model::goal::{GoalState, GoalStatus};
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;

/// Evaluations in a row that did not finish before a goal is stale.
const STALE_AFTER: i64 = 3;

/// Ready work this old with nothing done meanwhile is a stalled backlog.
const STALLED_AFTER: Millis = 600_000;

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
    let now = api.db.now().await?;
    let states = goals::states(&api.db).await?;
    let counts = report::backlog::counts(&api.db).await?;
    let all = fileservers::all(&api.db).await?;
    let ended = report::tally::ended_between(&api.db, now - STALLED_AFTER, now + 1).await?;
    let rows = rows(api, &all).await?;
    let pauses = pauses::all(&api.db).await?;
    let health = health(&states, &counts, &all, ended.is_empty(), now);
    Ok(Status {
        goals: states.into_iter().map(|one| goal_row(one, &pauses)).collect(),
        backlog: backlog(&counts, now),
        fileservers: rows,
        health,
    })
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
        file_error: status.file_error.clone(),
        name: status.goal,
        state: status.state,
        findings: status.findings,
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

fn health(
    goals: &[GoalStatus],
    backlog: &BacklogCounts,
    fileservers: &[Fileserver],
    nothing_ended: bool,
    now: Millis,
) -> HealthReport {
    let last_copies = goals.iter().any(|one| one.goal == "last-copies-safe" && one.findings > 0);
    let old = backlog.oldest.is_some_and(|oldest| now - oldest > STALLED_AFTER);
    let stalled = old && nothing_ended && backlog.of(FindingState::Ready) > 0;
    let raised = [
        ("LAST_COPY", last_copies),
        ("FILESERVER_EMPTY", fileservers.iter().any(|one| one.empty_since.is_some())),
        ("REPOSITORY_STUCK", backlog.of(FindingState::Stuck) > 0),
        ("GOAL_STALE", goals.iter().any(|one| one.failures >= STALE_AFTER)),
        ("GOAL_INVALID", goals.iter().any(|one| one.file_error.is_some())),
        ("GOAL_BRAKED", backlog.of(FindingState::Held) > 0),
        ("BACKLOG_STALLED", stalled),
        ("FILESERVER_SILENT", fileservers.iter().any(|one| one.health == Health::Offline)),
    ];
    let codes: Vec<_> = raised.iter().filter(|(_, yes)| *yes).map(|(code, _)| (*code).to_owned()).collect();
    let worst = codes.iter().any(|code| matches!(code.as_str(), "LAST_COPY" | "FILESERVER_EMPTY"));
    let unmet = goals.iter().any(|one| one.state != GoalState::Met);
    let level = match (worst, codes.is_empty() && !unmet) {
        (true, _) => "HEALTH_ERR",
        (false, true) => "HEALTH_OK",
        (false, false) => "HEALTH_WARN",
    };
    HealthReport { level: level.to_owned(), codes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str, state: GoalState, findings: i64) -> GoalStatus {
        GoalStatus {
            goal: name.into(),
            state,
            findings,
            evaluated_at: Some(1),
            finished_at: Some(1),
            took_ms: Some(2),
            error: None,
            failures: 0,
            file_error: None,
            digest: None,
        }
    }

    #[test]
    fn a_last_copy_is_an_error_and_a_stale_goal_a_warning() {
        let ok = health(&[goal("a", GoalState::Met, 0)], &BacklogCounts::default(), &[], false, 0);
        assert_eq!((ok.level.as_str(), ok.codes.len()), ("HEALTH_OK", 0));
        let stale = GoalStatus { failures: 3, ..goal("a", GoalState::Unknown, 0) };
        let warn = health(&[stale], &BacklogCounts::default(), &[], false, 0);
        assert_eq!((warn.level.as_str(), warn.codes), ("HEALTH_WARN", vec!["GOAL_STALE".to_owned()]));
        let last = health(
            &[goal("last-copies-safe", GoalState::Unmet, 1)],
            &BacklogCounts::default(),
            &[],
            false,
            0,
        );
        assert_eq!(last.level, "HEALTH_ERR");
    }

    #[test]
    fn ready_work_that_nothing_is_done_about_is_a_stalled_backlog() {
        let counts = BacklogCounts { states: vec![(FindingState::Ready, 3)], oldest: Some(0) };
        let codes = |idle, now| health(&[], &counts, &[], idle, now).codes;
        assert_eq!(codes(true, STALLED_AFTER + 1), ["BACKLOG_STALLED"]);
        assert!(codes(false, STALLED_AFTER + 1).is_empty());
        assert!(codes(true, STALLED_AFTER - 1).is_empty());
    }

    #[test]
    fn the_error_of_a_file_shows_where_the_evaluation_has_none() {
        let status =
            GoalStatus { file_error: Some("goals/a.sql:7:12: no".into()), ..goal("a", GoalState::Met, 0) };
        assert_eq!(goal_row(status, &[]).error.as_deref(), Some("goals/a.sql:7:12: no"));
    }
}
