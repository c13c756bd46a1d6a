//! Trying a change: an edit against what runs, the engine's plan, past evaluations. Nothing here changes anything.

use super::goals::{checked, entries, entry, no_such_goal, other_version_of, running};
use super::names;
use super::problem::{Answer, Problem};
use super::shapes::{CheckedGoal, DiffGoal, GoalDiff, GoalHistory, GoalPlan};
use super::state::Api;
use super::steering;
use crate::database::{evaluations, goals, pauses, repositories};
use crate::goal::Goal;
use crate::goal::lint;
use crate::goal::trial::{self, Difference};
use crate::model::finding::{Deferral, ONCE, Subject};
use crate::model::goal::{GoalStatus, Mode};
use crate::model::id::RepositoryId;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Rows of each kind, and evaluations, in one answer where nobody says how many.
const USUAL: usize = 20;

/// Most of them.
const MOST: usize = 10_000;

/// Repositories whose size one statement reads.
const IDS: usize = 5_000;

/// `POST /api/v1/goals/diff`
///
/// # Errors
/// When the edit or the running version does not finish, or the engine is away; a problem of the text is an answer.
pub async fn diff(State(api): State<Api>, Json(ask): Json<DiffGoal>) -> Answer<GoalDiff> {
    let path = std::path::Path::new(&ask.path);
    let checked = match checked(&api, path, &ask.text).await? {
        Ok(checked) => checked,
        Err(problem) => {
            let name = crate::goal::file::stem(path).map_or_else(String::new, |(name, _)| name.to_owned());
            return Ok(Json(nothing(name, CheckedGoal { problem: Some(problem), ..CheckedGoal::default() })));
        }
    };
    let over = steering::over(&api.db, &api.configured).await?;
    let (edited, _) = crate::goal::setting::over(&checked.goal, &over);
    let entries = entries(&api).await?;
    let running =
        entries.iter().find(|entry| entry.name == edited.name).and_then(|entry| entry.running.as_deref());
    let limit = ask.limit.unwrap_or(USUAL).min(MOST);
    let difference = trial::compare(&api.source, running, &edited, limit).await;
    let difference = difference.map_err(|problem| Problem::failed(problem.message))?;
    if let Some(subject) = &difference.twice {
        return Err(twice(&api, &edited, subject).await?);
    }
    let checked = CheckedGoal { problem: None, remarks: checked.remarks, cost: checked.plan.cost };
    let names = names::of(&api, difference.rows.iter().map(|row| &row.subject)).await?;
    let told = told(&api, &edited, difference, checked).await?;
    Ok(Json(GoalDiff { names, ..told }))
}

/// The answer to an edit that an evaluation would fail of, with the subject by its name.
async fn twice(api: &Api, edited: &Goal, subject: &Subject) -> Result<Problem, Problem> {
    let names = names::of(api, std::iter::once(subject)).await?;
    let number = subject.to_string();
    let name = names.get(&number).unwrap_or(&number);
    let path = edited.path.display();
    Ok(Problem::failed(format!("{path}: {name} is returned twice: an evaluation would fail; {ONCE}")))
}

fn nothing(goal: String, checked: CheckedGoal) -> GoalDiff {
    GoalDiff {
        goal,
        checked,
        now: 0,
        before: None,
        after: 0,
        added: 0,
        removed: 0,
        changed: 0,
        more: false,
        rows: Vec::new(),
        names: BTreeMap::new(),
        repair: None,
        attempts: 0,
        bytes: 0,
        held: Vec::new(),
    }
}

async fn told(
    api: &Api,
    edited: &Goal,
    difference: Difference,
    checked: CheckedGoal,
) -> Result<GoalDiff, Problem> {
    let repair = edited.repair.clone().filter(|_| edited.mode == Mode::Repair);
    let (mut attempts, mut bytes) = (0, 0);
    if let Some(name) = &repair {
        attempts = difference.repositories.len() as u64 + difference.others;
        let reads_only = api.remedies.get(name).is_some_and(crate::repair::Repair::yields);
        if !reads_only {
            bytes = moved(api, &difference).await?;
        }
    }
    let held = if repair.is_some() { held(api, edited, &difference).await? } else { Vec::new() };
    Ok(GoalDiff {
        now: difference.now,
        before: difference.before,
        after: difference.after,
        added: difference.added,
        removed: difference.removed,
        changed: difference.changed,
        more: difference.more,
        rows: difference.rows,
        repair,
        attempts,
        bytes,
        held,
        ..nothing(edited.name.clone(), checked)
    })
}

/// Bytes of one copy of each repository that would get an attempt.
async fn moved(api: &Api, difference: &Difference) -> Result<i64, Problem> {
    let mut sum: i64 =
        difference.repositories.values().flatten().fold(0, |sum, bytes| sum.saturating_add(*bytes));
    let unsaid = difference.repositories.iter().filter(|(_, bytes)| bytes.is_none()).map(|(id, _)| *id);
    let unsaid: Vec<RepositoryId> = unsaid.collect();
    for ids in unsaid.chunks(IDS) {
        let rows = repositories::by_ids(&api.db, ids).await?;
        sum = rows.iter().fold(sum, |sum, row| sum.saturating_add(row.bytes));
    }
    Ok(sum)
}

async fn held(api: &Api, edited: &Goal, difference: &Difference) -> Result<Vec<String>, Problem> {
    let mut held = Vec::new();
    if let Some(pause) = steering::of(&pauses::all(&api.db).await?, &edited.name) {
        let paused = Deferral::Paused { by: pause.by, until: pause.until, reason: pause.reason };
        held.push(paused.to_string());
    }
    let population = difference.population.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0);
    if edited.brake.holds(difference.after, population) {
        held.push(format!("held by the brake goal:{}, until a person approves", edited.name));
    }
    if edited.in_a_row > 1 {
        held.push(format!("a subject must be returned {} times in a row first", edited.in_a_row));
    }
    Ok(held)
}

/// `GET /api/v1/goals/{name}/explain`
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn explain(State(api): State<Api>, Path(name): Path<String>) -> Answer<GoalPlan> {
    let entry = entry(&api, &name).await?;
    let goal = running(&entry)?;
    let plan = api.source.plan(goal).await.map_err(|problem| Problem::failed(problem.message))?;
    // What the check of its file says, neither more nor less.
    let engine = api.source.engine();
    let (remarks, ignored) = lint::of_plan(goal, engine, &plan);
    let (engine, other_version) = (engine.as_str().to_owned(), other_version_of(&api, &entry).await?);
    Ok(Json(GoalPlan { goal: name, engine, plan, remarks, ignored, other_version }))
}

/// How many.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct HowMany {
    limit: Option<usize>,
}

/// `GET /api/v1/goals/{name}/history?limit=`
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn history(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(how): Query<HowMany>,
) -> Answer<GoalHistory> {
    let limit = i64::try_from(how.limit.unwrap_or(USUAL).clamp(1, MOST)).unwrap_or(i64::MAX);
    let evaluations = evaluations::history(&api.db, &name, limit).await?;
    let mut note = None;
    if evaluations.is_empty() {
        let states = goals::states(&api.db).await?;
        let Some(goal) = states.iter().find(|one| one.goal == name) else {
            let known: Vec<_> = states.into_iter().map(|one| one.goal).collect();
            return Err(no_such_goal(&api, &name, &known).await);
        };
        note = Some(why_none(goal));
    }
    Ok(Json(GoalHistory { goal: name, now: api.db.now().await?, evaluations, note }))
}

/// Why a goal has no evaluations: an empty table would look as if all were well.
fn why_none(status: &GoalStatus) -> String {
    let name = &status.goal;
    match (&status.file_error, status.evaluated_at) {
        (_, Some(_)) => format!("goal {name} has no evaluation that is still kept"),
        (Some(error), None) if status.digest.is_none() => {
            format!(
                "goal {name} was never evaluated, because its file is not valid: {error} (trued goal show {name})"
            )
        }
        _ => format!("goal {name} was not evaluated yet; now: trued goal evaluate {name}"),
    }
}
