//! `trued goal`: lists, one, a check, what one returns now, a look again.

use super::args::{Change, Global, GoalCommand, GoalVerb};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age, moment_or_dash};
use crate::clock;
use crate::config::value;
use crate::goal::library;
use crate::http::shapes::{
    Approve, Asked, Changed, CheckGoal, CheckedGoal, EvaluateGoals, GoalList, GoalListed, GoalRow, GoalRun,
    Status,
};
use crate::model::Millis;
use crate::model::finding::Exception;
use crate::model::goal::GoalState;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two looks at whether an evaluation has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Largest goal file.
const LARGEST_FILE: u64 = 1 << 18;

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: GoalCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        GoalVerb::List => list(global).await,
        GoalVerb::Show { name } => show(global, &name).await,
        GoalVerb::Check { files, database_url } => check(global, &files, database_url).await,
        GoalVerb::Run { name, limit } => run_one(global, &name, limit).await,
        GoalVerb::Approve { name, brake, change } => approve(global, name, brake, change).await,
        GoalVerb::Evaluate { names, wait } => evaluate(global, names, &wait).await,
    }
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let list: GoalList = Client::new(global)?.get(&["goals"], &[]).await?;
    output::answer(global.output, &list, || table(list.goals.iter().map(|goal| &goal.row)))?;
    Ok(Exit::Done)
}

fn table<'a>(goals: impl Iterator<Item = &'a GoalRow>) -> String {
    let now = clock::now();
    let columns = ["GOAL", "STATE", "FINDINGS", "EVALUATED", "TOOK", "ERROR"];
    let rows = goals.map(|goal| {
        vec![
            goal.name.clone(),
            goal.state.to_string(),
            counted(goal),
            goal.evaluated_at.map_or("never".to_owned(), |at| format!("{} ago", age(now - at))),
            goal.took_ms.map_or("-".to_owned(), |took| format!("{took} ms")),
            goal.error.clone().unwrap_or_default(),
        ]
    });
    output::table(&columns, rows)
}

/// `at least` where there may be more.
fn counted(goal: &GoalRow) -> String {
    if goal.at_least { format!("at least {}", goal.findings) } else { goal.findings.to_string() }
}

async fn show(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let goal: GoalListed = Client::new(global)?.get(&["goals", name], &[]).await?;
    output::answer(global.output, &goal, || render(&goal, clock::now()))?;
    Ok(Exit::Done)
}

fn render(goal: &GoalListed, now: Millis) -> String {
    let dash = || "-".to_owned();
    let mut lines = vec![
        format!("goal      {}", goal.row.name),
        format!("summary   {}", goal.summary.clone().unwrap_or_else(dash)),
        format!("state     {}, {} findings", goal.row.state, counted(&goal.row)),
        format!("evaluated {}", moment_or_dash(goal.row.evaluated_at, now)),
        format!("subject   {}", goal.subject.clone().unwrap_or_else(dash)),
        format!("repair    {}", goal.repair.clone().unwrap_or_else(|| "none".into())),
        format!("schedule  {}", goal.schedule.clone().unwrap_or_else(|| "the default".into())),
        format!("file      {}", goal.path.clone().unwrap_or_else(dash)),
    ];
    lines.extend(goal.row.error.iter().map(|error| format!("ERROR     {error}")));
    lines.extend(goal.sql.iter().map(|sql| format!("\n{}", sql.trim_end())));
    lines.join("\n")
}

async fn check(global: &Global, files: &[PathBuf], database_url: Option<String>) -> anyhow::Result<Exit> {
    let mut problems = 0;
    for file in files {
        let text = read(file)?;
        let problem = if let Some(url) = &database_url {
            check_here(global, url, file, &text).await?
        } else {
            let ask = CheckGoal { path: file.display().to_string(), text };
            let checked: CheckedGoal = Client::new(global)?.post(&["goals", "check"], &ask).await?;
            checked.problem
        };
        match problem {
            Some(problem) => {
                problems += 1;
                eprintln!("{problem}");
            }
            None => output::line(&format!("{}: good", file.display())),
        }
    }
    Ok(if problems > 0 { Exit::Failed } else { Exit::Done })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let size = std::fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
    if size > LARGEST_FILE {
        let message = format!("{} has {size} bytes; a goal has {LARGEST_FILE} at most", file.display());
        return Err(Failure::new(Exit::Failed, message).into());
    }
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

async fn check_here(global: &Global, url: &str, file: &Path, text: &str) -> anyhow::Result<Option<String>> {
    let (_, config) = super::settings::with_flags(global, &[])?;
    let db = super::migrate::open(url).await?;
    let source = super::program::asking::source(&config, &db).await?;
    let repairs = super::program::files::repairs(global)?;
    let known = super::program::files::subjects(&repairs);
    let problem = library::check(file, text, &source, &known).await.err();
    match problem {
        Some(problem) if !problem.text => Err(Failure::new(Exit::Unreachable, problem.message).into()),
        other => Ok(other.map(|problem| problem.message)),
    }
}

async fn run_one(global: &Global, name: &str, limit: usize) -> anyhow::Result<Exit> {
    let query = [("limit", limit.to_string())];
    let run: GoalRun = Client::new(global)?.get(&["goals", name, "run"], &query).await?;
    output::answer(global.output, &run, || {
        output::table(&["SUBJECT", "PRIO", "REASON", "EVIDENCE"], run.rows.iter().map(cells))
    })?;
    let more = if run.more { "at least " } else { "" };
    eprintln!("{name} returns {more}{} rows", run.total);
    Ok(if run.total > 0 { Exit::Open } else { Exit::Done })
}

fn cells(row: &Exception) -> Vec<String> {
    let evidence: Vec<_> = row.evidence.iter().map(|(key, value)| format!("{key}={value}")).collect();
    vec![
        row.subject.to_string(),
        row.priority.to_string(),
        row.reason.clone().unwrap_or_default(),
        evidence.join(" "),
    ]
}

async fn evaluate(global: &Global, names: Vec<String>, wait: &str) -> anyhow::Result<Exit> {
    let wait = value::duration(wait).map_err(Failure::usage)?;
    let client = Client::new(global)?;
    let asked: Asked = client.post(&["goals", "evaluate"], &EvaluateGoals { goals: names }).await?;
    let until = clock::now() + wait;
    let goals = loop {
        let status: Status = client.get(&["status"], &[]).await?;
        let ours: Vec<_> = status.goals.into_iter().filter(|goal| asked.goals.contains(&goal.name)).collect();
        if ours.iter().all(|goal| goal.evaluated_at.is_some_and(|at| at >= asked.at)) {
            break ours;
        }
        if clock::now() > until {
            return Err(Failure::new(Exit::TimedOut, "the evaluation has not ended; it goes on")
                .hint("`trued status` shows when it has")
                .into());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let list = serde_json::json!({ "goals": goals });
    output::answer(global.output, &list, || table(goals.iter()))?;
    Ok(exit(&goals))
}

async fn approve(
    global: &Global,
    goal: Option<String>,
    brake: Option<String>,
    change: Change,
) -> anyhow::Result<Exit> {
    let reason = change.reason.ok_or_else(|| Failure::usage("an approval needs --reason".to_owned()))?;
    let ask = Approve { goal, brake, reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.post(&["brakes", "approve"], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

fn exit(goals: &[GoalRow]) -> Exit {
    if goals.iter().any(|goal| goal.state == GoalState::Unknown) {
        return Exit::Unknown;
    }
    if goals.iter().any(|goal| goal.state == GoalState::Unmet) { Exit::Open } else { Exit::Done }
}
