//! The backlog's verbs, live attempts, and repairs.

use super::backlog::Asked;
use super::limits;
use super::problem::{Answer, Problem, did_you_mean, reason};
use super::shapes::{
    AttemptList, BacklogIds, CancelAttempt, Changed, Chosen, FindingStory, Moved, RepairList, RepairRow,
};
use super::state::Api;
use crate::database::findings::By;
use crate::database::{attempts, findings, report};
use crate::model::Millis;
use crate::model::id::{AttemptId, FindingId};
use crate::repair::Repair;
use axum::Json;
use axum::extract::{Path, Query, State};

/// Numbers in one page of a snapshot.
const PAGE: i64 = 20_000;
/// Most findings that one request changes.
const MOST: usize = 20_000;
/// Attempts in one list, and in one story.
const LISTED: i64 = 10_000;
const TOLD: i64 = 200;
/// How long nothing starts after a cancel, where nobody says how long.
const USUAL_WAIT: Millis = 3_600_000;
const LONGEST_WAIT: Millis = 30 * 86_400_000;
/// A finding whose attempt a person ended waits so long: long enough to put it off, if that is what is meant.
const AFTER_CANCEL: Millis = 60_000;

/// `GET /api/v1/backlog/ids`: what a filter matches, by number; `after` goes on behind one.
///
/// # Errors
/// When the state is not one, or the engine fails.
pub async fn ids(State(api): State<Api>, Query(asked): Query<Asked>) -> Answer<BacklogIds> {
    let after = asked.after();
    let ids = report::backlog::ids(&api.db, &asked.filter()?, after, PAGE).await?;
    let whole = i64::try_from(ids.len()).is_ok_and(|many| many < PAGE);
    let next = ids.last().copied().filter(|_| !whole);
    Ok(Json(BacklogIds { ids, next }))
}

/// `GET /api/v1/backlog/{id}`: one finding with its story, open or closed.
///
/// # Errors
/// When there is none, or the engine fails.
pub async fn show(State(api): State<Api>, Path(id): Path<i64>) -> Answer<FindingStory> {
    let found = report::work::finding(&api.db, id).await?;
    let found = found.ok_or_else(|| Problem::not_found(format!("there is no finding {id}")))?;
    let attempts = report::work::tried(&api.db, id, TOLD).await?;
    let now = api.db.now().await?;
    Ok(Json(FindingStory { now, open: found.open, closed: found.closed, evidence: found.evidence, attempts }))
}

/// `POST /api/v1/backlog/retry`: chosen findings that are stuck or back off begin anew.
///
/// # Errors
/// When there is no reason, there are too many, or the engine fails.
pub async fn retry(State(api): State<Api>, Json(ask): Json<Chosen>) -> Answer<Moved> {
    let (ids, by) = chosen(&ask)?;
    Ok(Json(Moved { moved: findings::retry(&api.db, &ids, by).await? }))
}

/// `POST /api/v1/backlog/cancel`: the attempts of chosen findings end, and nothing starts for them for a while.
///
/// # Errors
/// As [`retry`].
pub async fn cancel(State(api): State<Api>, Json(ask): Json<Chosen>) -> Answer<Moved> {
    let (ids, by) = chosen(&ask)?;
    let wait = ask.wait_ms.unwrap_or(USUAL_WAIT);
    if !(0..=LONGEST_WAIT).contains(&wait) {
        return Err(Problem::bad_request("for: from nothing to 30d".to_owned()));
    }
    Ok(Json(Moved { moved: attempts::cancel_for(&api.db, &ids, wait, by).await? }))
}

/// `POST /api/v1/backlog/bump`: chosen findings get another priority than their goal gives them.
///
/// # Errors
/// As [`retry`].
pub async fn bump(State(api): State<Api>, Json(ask): Json<Chosen>) -> Answer<Moved> {
    let (ids, by) = chosen(&ask)?;
    let priority = ask.priority.unwrap_or(999);
    if !(0..=999).contains(&priority) {
        return Err(Problem::bad_request(format!("priority: {priority} is not within 0 to 999")));
    }
    Ok(Json(Moved { moved: findings::bump(&api.db, &ids, priority, by).await? }))
}

fn chosen(ask: &Chosen) -> Result<(Vec<FindingId>, By<'_>), Problem> {
    if ask.ids.len() > MOST {
        return Err(Problem::bad_request(format!(
            "{} findings in one request; {MOST} at most",
            ask.ids.len()
        )));
    }
    let by = By { who: "local", reason: reason(&ask.reason)?, filter: &ask.filter };
    Ok((ask.ids.iter().map(|id| FindingId(*id)).collect(), by))
}

/// `GET /api/v1/attempts`: those that are queued or running.
///
/// # Errors
/// When the engine fails.
pub async fn attempts(State(api): State<Api>) -> Answer<AttemptList> {
    let mut attempts = report::work::live(&api.db, LISTED + 1).await?;
    let more = i64::try_from(attempts.len()).is_ok_and(|many| many > LISTED);
    attempts.truncate(usize::try_from(LISTED).unwrap_or(usize::MAX));
    Ok(Json(AttemptList { now: api.db.now().await?, attempts, more }))
}

/// `POST /api/v1/attempts/{id}/cancel`: ends it; its finding waits a minute.
///
/// # Errors
/// When there is no such attempt, there is no reason, or the engine fails.
pub async fn cancel_attempt(
    State(api): State<Api>,
    Path(id): Path<i64>,
    Json(ask): Json<CancelAttempt>,
) -> Answer<Changed> {
    let by = By { who: "local", reason: reason(&ask.reason)?, filter: "" };
    if ask.dry_run {
        return Ok(Json(Changed { message: format!("attempt {id} would end"), changed: false }));
    }
    if attempts::cancel_one(&api.db, AttemptId(id), AFTER_CANCEL, by).await? {
        let message = format!("attempt {id} is cancelled; its worker notices at its next renewal");
        return Ok(Json(Changed { message, changed: true }));
    }
    Err(Problem::not_found(format!("no attempt {id} is queued or running")).hint("trued attempts lists them"))
}

/// `GET /api/v1/repairs`: all repairs with the limits that hold.
///
/// # Errors
/// When the engine fails.
pub async fn repairs(State(api): State<Api>) -> Answer<RepairList> {
    let in_flight = report::work::in_flight(&api.db).await?;
    let limits = limits::rows(&api).await?;
    let row = |repair: &Repair| {
        let prefix = format!("{}.", repair.name);
        RepairRow {
            name: repair.name.clone(),
            summary: repair.summary.clone(),
            subject: repair.subject.to_string(),
            step: repair.step.to_string(),
            exec: repair.exec.clone(),
            in_flight: in_flight.iter().find(|(name, _)| *name == repair.name).map_or(0, |(_, many)| *many),
            limits: limits.iter().filter(|limit| limit.name.starts_with(&prefix)).cloned().collect(),
            deadline_ms: repair.deadline.base_ms,
            per_gib_ms: repair.deadline.per_gib_ms,
            first_ms: repair.retry.first_ms,
            max_ms: repair.retry.max_ms,
            lock_after: repair.retry.lock_after,
            stuck_after: repair.retry.stuck_after,
        }
    };
    Ok(Json(RepairList { repairs: api.limited.repairs.by_name.values().map(|one| row(one)).collect() }))
}

/// `GET /api/v1/repairs/{name}`
///
/// # Errors
/// When there is none, or the engine fails.
pub async fn repair(State(api): State<Api>, Path(name): Path<String>) -> Answer<RepairRow> {
    let Json(list) = repairs(State(api)).await?;
    let near = did_you_mean(&name, list.repairs.iter().map(|row| row.name.as_str()));
    let found = list.repairs.into_iter().find(|row| row.name == name);
    found.map(Json).ok_or_else(|| {
        let problem = Problem::not_found(format!("there is no repair {name}"));
        problem.hint(near.unwrap_or_else(|| "trued repair list lists them".to_owned()))
    })
}
