//! `trued goal`: lists, one, what one returns now, a look again; a check, trying a change and steering are beside.

use super::args::{Change, Global, GoalCommand, GoalVerb};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age, moment_or_dash};
use crate::clock;
use crate::config::value;
use crate::http::shapes::{
    Approve, Asked, Changed, EvaluateGoals, GoalList, GoalListed, GoalRow, GoalRun, PauseGoal, Status,
};
use crate::model::Millis;
use crate::model::finding::Exception;
use crate::model::goal::GoalState;
use std::time::Duration;

mod check;
mod fixtures;
mod steering;
mod trial;

/// Time between two looks at whether an evaluation has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: GoalCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        GoalVerb::List => list(global).await,
        GoalVerb::Show { name } => show(global, &name).await,
        GoalVerb::Check { lint_rules: true, .. } => check::rules(global),
        GoalVerb::Check { files, database_url, .. } => check::run(global, &files, database_url).await,
        GoalVerb::Run { name, limit } => run_one(global, &name, limit).await,
        GoalVerb::Approve { name, brake, change } => approve(global, name, brake, change).await,
        GoalVerb::Evaluate { names, wait } => evaluate(global, names, &wait).await,
        GoalVerb::Diff { file, limit } => trial::diff(global, &file, limit).await,
        GoalVerb::Explain { name } => trial::explain(global, &name).await,
        GoalVerb::History { name, limit } => trial::history(global, &name, limit).await,
        GoalVerb::Test { goals, postgres } => fixtures::run(global, &goals, postgres.as_deref()).await,
        GoalVerb::Pause { name, until, length, reason, dry_run } => {
            let (until, for_ms) = steering::end(until.as_deref(), length.as_deref())?;
            steering::pause(global, &name, PauseGoal { until, for_ms, reason, dry_run }).await
        }
        GoalVerb::Resume { name, change } => steering::resume(global, &name, change).await,
        GoalVerb::Set { name, values, reason, dry_run } => {
            steering::set(global, &name, values, reason, dry_run).await
        }
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
            if goal.paused.is_some() { format!("{} (paused)", goal.state) } else { goal.state.to_string() },
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
        format!(
            "state     {}, {} finding{}",
            goal.row.state,
            counted(&goal.row),
            if goal.row.findings == 1 { "" } else { "s" }
        ),
        format!("evaluated {}", moment_or_dash(goal.row.evaluated_at, now)),
        format!("subject   {}", goal.subject.clone().unwrap_or_else(dash)),
        format!("repair    {}", goal.repair.clone().unwrap_or_else(|| "none".into())),
        format!("schedule  {}", goal.schedule.clone().unwrap_or_else(|| "the default".into())),
        format!("file      {}", goal.path.clone().unwrap_or_else(dash)),
    ];
    lines.extend(goal.population.iter().map(|population| format!("looks at  {population}")));
    lines.extend(goal.params.iter().map(|param| format!("param     {param}")));
    lines.extend(goal.row.paused.iter().map(|pause| format!("PAUSED    {}", steering::paused(pause, now))));
    for one in &goal.settings {
        let error = one.error.as_ref().map_or(String::new(), |error| format!("; does nothing: {error}"));
        lines.push(format!("set       {} = {} ({}){error}", one.name, one.value, one.origin));
    }
    lines.extend(goal.row.error.iter().map(|error| format!("ERROR     {error}")));
    lines.extend(goal.sql.iter().map(|sql| format!("\n{}", sql.trim_end())));
    lines.join("\n")
}

async fn run_one(global: &Global, name: &str, limit: usize) -> anyhow::Result<Exit> {
    let query = [("limit", limit.to_string())];
    let run: GoalRun = Client::new(global)?.get(&["goals", name, "run"], &query).await?;
    output::answer(global.output, &run, || {
        output::table(&["SUBJECT", "PRIO", "REASON", "EVIDENCE"], run.rows.iter().map(|row| cells(row, &run)))
    })?;
    let more = if run.more { "at least " } else { "" };
    eprintln!("{name} returns {more}{}", output::counted(run.total, "row"));
    Ok(if run.total > 0 { Exit::Open } else { Exit::Done })
}

fn cells(row: &Exception, run: &GoalRun) -> Vec<String> {
    let subject = row.subject.to_string();
    let evidence: Vec<_> = row.evidence.iter().map(|(key, value)| format!("{key}={value}")).collect();
    vec![
        run.names.get(&subject).cloned().unwrap_or(subject),
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
