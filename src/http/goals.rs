//! Goals: lists, one, what it returns now, a check of a text, a look again.

use super::names;
use super::problem::{Answer, Problem, did_you_mean};
use super::shapes::{
    Asked, CheckGoal, CheckedGoal, EvaluateGoals, GoalList, GoalListed, GoalRun, OtherVersion,
};
use super::state::Api;
use super::status::goal_row;
use super::steering;
use crate::database::goals;
use crate::database::pauses::{self, Pause};
use crate::goal::library::{Entry, strays};
use crate::goal::{Goal, header, trial};
use crate::model::finding::Exception;
use crate::model::goal::GoalStatus;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Rows of a goal in one answer where nobody says how many.
const USUAL: usize = 100;

/// Most rows of a goal in one answer.
const MOST: usize = 10_000;

/// `GET /api/v1/goals`
///
/// # Errors
/// When the engine fails.
pub async fn list(State(api): State<Api>) -> Answer<GoalList> {
    let goals = read(&api).await?;
    Ok(Json(GoalList {
        goals: goals
            .into_iter()
            .map(|one| GoalListed { sql: None, population: None, params: Vec::new(), ..one })
            .collect(),
        notes: unread_files(&api).await,
    }))
}

/// `GET /api/v1/goals/{name}`
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn show(State(api): State<Api>, Path(name): Path<String>) -> Answer<GoalListed> {
    let goals = read(&api).await?;
    let known: Vec<_> = goals.iter().map(|one| one.row.name.clone()).collect();
    let Some(mut found) = goals.into_iter().find(|one| one.row.name == name) else {
        return Err(no_such_goal(&api, &name, &known).await);
    };
    let entries = (api.hooks.goals)();
    let goal = entries.iter().find(|entry| entry.name == name).and_then(|entry| entry.running.as_deref());
    found.settings = steering::shown(&api, goal, &name).await?;
    Ok(Json(found))
}

async fn read(api: &Api) -> Result<Vec<GoalListed>, Problem> {
    let entries = entries(api).await?;
    let states = goals::states(&api.db).await?;
    let pauses = pauses::all(&api.db).await?;
    Ok(states
        .into_iter()
        .map(|status| {
            let entry = entries.iter().find(|entry| entry.name == status.goal);
            listed(status, entry, &pauses)
        })
        .collect())
}

fn listed(status: GoalStatus, entry: Option<&Entry>, pauses: &[Pause]) -> GoalListed {
    let goal = entry.and_then(|entry| entry.running.as_deref());
    GoalListed {
        failures: status.failures,
        finished_at: status.finished_at,
        summary: goal.map(|goal| goal.summary.clone()),
        subject: goal.map(|goal| goal.subject.to_string()),
        repair: goal.and_then(|goal| goal.repair.clone()),
        schedule: goal.and_then(|goal| goal.schedule.as_ref()).map(ToString::to_string),
        timeout_ms: goal.map(|goal| goal.timeout),
        path: goal
            .map(|goal| goal.path.display().to_string())
            .or_else(|| file_of(status.file_error.as_deref()?).map(str::to_owned)),
        population: goal.and_then(|goal| header_values(goal, "population").pop()),
        params: goal.map(|goal| header_values(goal, "param")).unwrap_or_default(),
        sql: goal.map(|goal| goal.sql.clone()),
        settings: Vec::new(),
        other_version: entry.and_then(|entry| other_version(&status, entry)),
        row: goal_row(status, pauses),
    }
}

/// The file that an error begins with.
fn file_of(error: &str) -> Option<&str> {
    let end = error.find(".sql:")? + ".sql".len();
    error.get(..end)
}

/// The version that runs, where it is another one than the text on disk.
fn other_version(status: &GoalStatus, entry: &Entry) -> Option<OtherVersion> {
    let shown = &entry.running.as_ref()?.digest;
    let other = |digest: &str, why| OtherVersion {
        digest: digest.to_owned(),
        since: status.gave_way_at,
        why,
        shown: digest == shown,
    };
    match (&status.digest, &entry.error) {
        (Some(runs), _) if runs != shown => {
            let unread = || "no controller has read it yet".to_owned();
            Some(other(runs, status.file_error.clone().unwrap_or_else(unread)))
        }
        (_, Some(why)) => Some(other(shown, why.clone())),
        _ => None,
    }
}

/// The same for the goal of an entry.
///
/// # Errors
/// When the engine fails.
pub async fn other_version_of(api: &Api, entry: &Entry) -> Result<Option<OtherVersion>, Problem> {
    let states = goals::states(&api.db).await?;
    Ok(states.iter().find(|one| one.goal == entry.name).and_then(|status| other_version(status, entry)))
}

/// What the header says for a key, line by line.
fn header_values(goal: &Goal, key: &str) -> Vec<String> {
    let lines = header::read(&goal.text).map(|header| header.lines).unwrap_or_default();
    lines.iter().filter(|line| line.key == key).map(|line| line.value.to_owned()).collect()
}

/// The answer for a name that no goal has.
pub async fn no_such_goal(api: &Api, name: &str, known: &[String]) -> Problem {
    let (directory, goal) = (directory(api), name.to_owned());
    let looking = move || directory.and_then(|directory| unread(&directory, &goal));
    let unread = tokio::task::spawn_blocking(looking).await.ok().flatten();
    let problem = Problem::not_found(format!("there is no goal {name:?}"));
    if let Some(unread) = unread {
        return problem.hint(unread);
    }
    match did_you_mean(name, known.iter().map(String::as_str)) {
        Some(hint) => problem.hint(hint),
        None => problem.hint(format!("goals are: {}", known.join(", "))),
    }
}

/// The directory of goals, as those that run tell it.
fn directory(api: &Api) -> Option<PathBuf> {
    let entries = (api.hooks.goals)();
    let of = |entry: &Entry| Some(entry.running.as_ref()?.path.parent()?.to_owned());
    entries.iter().find_map(of)
}

/// Whether a goal's file is there and was not read yet, or lies where nobody reads it.
fn unread(directory: &FilePath, goal: &str) -> Option<String> {
    // A name that comes from outside leads nowhere else.
    if !goal.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return None;
    }
    let file = directory.join(format!("{goal}.sql"));
    if file.is_file() {
        let poll = "files are read every few seconds (goals.poll): ask again";
        return Some(format!("its file {} is there, and was not read yet; {poll}", file.display()));
    }
    strays::astray(directory, goal).map(|path| strays::misplaced(&path, directory, goal))
}

/// Files that look like goals and that nobody reads, a sentence for each.
pub async fn unread_files(api: &Api) -> Vec<String> {
    let Some(directory) = directory(api) else { return Vec::new() };
    tokio::task::spawn_blocking(move || strays::strays(&directory)).await.unwrap_or_default()
}

/// `POST /api/v1/goals/check`: reads a text and prepares it on the real engine.
///
/// # Errors
/// When the engine is away; a problem of the text is an answer.
pub async fn check(State(api): State<Api>, Json(ask): Json<CheckGoal>) -> Answer<CheckedGoal> {
    let path = FilePath::new(&ask.path);
    Ok(Json(match checked(&api, path, &ask.text).await? {
        Ok(checked) => CheckedGoal { problem: None, remarks: checked.remarks, cost: checked.plan.cost },
        Err(problem) => CheckedGoal { problem: Some(problem), ..CheckedGoal::default() },
    }))
}

/// A text that was checked, or what is wrong with it.
///
/// # Errors
/// When the engine could not be asked.
pub async fn checked(
    api: &Api,
    path: &FilePath,
    text: &str,
) -> Result<Result<trial::Checked, String>, Problem> {
    match trial::check(path, text, &api.source, &api.repairs).await {
        Ok(checked) => Ok(Ok(checked)),
        Err(problem) if problem.text => Ok(Err(problem.message)),
        Err(problem) => Err(Problem::failed(problem.message)),
    }
}

/// `POST /api/v1/goals/evaluate`: asks for a look at once; the answer says after which moment one counts.
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn evaluate(State(api): State<Api>, Json(ask): Json<EvaluateGoals>) -> Answer<Asked> {
    let known: Vec<_> = goals::states(&api.db).await?.into_iter().map(|one| one.goal).collect();
    if let Some(unknown) = ask.goals.iter().find(|name| !known.contains(name)) {
        return Err(no_such_goal(&api, unknown, &known).await);
    }
    let goals = if ask.goals.is_empty() { known } else { ask.goals };
    let at = api.db.now().await?;
    (api.hooks.evaluate)(&goals);
    Ok(Json(Asked { at, goals }))
}

/// How many rows.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct HowMany {
    limit: Option<usize>,
}

/// `GET /api/v1/goals/{name}/run?limit=`: what it returns now; nothing is written.
///
/// # Errors
/// When there is no such goal, or it does not finish.
pub async fn run(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(how): Query<HowMany>,
) -> Answer<GoalRun> {
    let entry = entry(&api, &name).await?;
    let goal = running(&entry)?;
    let limit = how.limit.unwrap_or(USUAL).min(MOST);
    let (sender, receiver) = mpsc::channel(4);
    let (evaluated, rows) = tokio::join!(api.source.evaluate(goal, sender), first(receiver, limit));
    let evaluated = evaluated.map_err(|problem| Problem::failed(problem.message))?;
    let names = names::of(&api, rows.iter().map(|row| &row.subject)).await?;
    let (total, more) = (evaluated.rows, evaluated.more);
    let other_version = other_version_of(&api, &entry).await?;
    Ok(Json(GoalRun { goal: name, now: evaluated.now, rows, names, total, more, other_version }))
}

/// All goals as they are loaded now, with what is set over them at this moment.
///
/// # Errors
/// When the engine fails.
pub async fn entries(api: &Api) -> Result<Vec<Entry>, Problem> {
    let over = steering::over(&api.db, &api.configured).await?;
    Ok((api.hooks.goals)().iter().map(|entry| entry.set(&over)).collect())
}

/// One of them.
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn entry(api: &Api, name: &str) -> Result<Entry, Problem> {
    let entries = entries(api).await?;
    let known: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    match entries.into_iter().find(|entry| entry.name == name) {
        Some(entry) => Ok(entry),
        None => Err(no_such_goal(api, name, &known).await),
    }
}

/// The version of a goal that runs.
///
/// # Errors
/// When there is no good version of it.
pub fn running(entry: &Entry) -> Result<&Arc<Goal>, Problem> {
    let none = || steering::without_version(&entry.name, entry.error.as_deref());
    entry.running.as_ref().ok_or_else(none)
}

/// Keeps the first rows and lets the rest go by, so that all are counted.
async fn first(mut batches: mpsc::Receiver<Vec<Exception>>, limit: usize) -> Vec<Exception> {
    let mut kept = Vec::new();
    while let Some(batch) = batches.recv().await {
        let room = limit - kept.len();
        kept.extend(batch.into_iter().take(room));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_and_was_not_read_yet_is_told_and_one_that_lies_elsewhere_is_named() {
        let goals = tempfile::tempdir().unwrap();
        let directory = goals.path();
        assert_eq!(unread(directory, "x"), None);
        let shouted = directory.join("x.SQL");
        std::fs::write(&shouted, "").unwrap();
        let said = unread(directory, "x").unwrap();
        assert!(said.starts_with(&format!("{} is where nobody looks", shouted.display())), "{said}");
        std::fs::write(directory.join("x.sql"), "").unwrap();
        let said = unread(directory, "x").unwrap();
        assert!(said.contains("x.sql is there, and was not read yet; files are read every few"), "{said}");
        assert_eq!(unread(directory, "../x"), None);
    }

    #[test]
    fn the_file_of_an_error_is_told_where_nothing_of_it_runs() {
        assert_eq!(file_of("goals/x.sql:7:12: no such column"), Some("goals/x.sql"));
        assert_eq!(file_of("goals cannot be asked"), None);
    }
}
