//! `trued goal`: lists, one, what one returns now, a look again; a check, trying a change and steering are beside.

use super::args::{Change, Global, GoalCommand, GoalVerb};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age, cut, moment, moment_or_dash};
use crate::clock;
use crate::config::value;
use crate::http::shapes::{
    Approve, Asked, Changed, EvaluateGoals, GoalList, GoalListed, GoalRow, GoalRun, OtherVersion, PauseGoal,
    Status,
};
use crate::model::Millis;
use crate::model::amount::plural;
use crate::model::finding::{Exception, Hints, ONCE, Subject};
use crate::model::goal::GoalState;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

mod check;
pub(super) mod files;
mod fixtures;
mod steering;
mod trial;

/// Characters of an error that a list has room for.
const ERROR_WIDTH: usize = 72;

/// Characters of a digest that tell two texts apart.
const DIGEST_WIDTH: usize = 12;

/// Time between two looks at whether an evaluation has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: GoalCommand) -> anyhow::Result<Exit> {
    files::refuse_paths(&ask.verb)?;
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
    list.notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(Exit::Done)
}

fn table<'a>(goals: impl Iterator<Item = &'a GoalRow>) -> String {
    let now = clock::now();
    let columns = ["GOAL", "STATE", "FINDINGS", "EVALUATED", "TOOK", "ERROR"];
    let mut cut_short = false;
    let rows: Vec<_> = goals
        .map(|goal| {
            let error = goal.error.clone().unwrap_or_default();
            let short = cut(&error, ERROR_WIDTH);
            cut_short |= short != error;
            vec![
                goal.name.clone(),
                if goal.paused.is_some() {
                    format!("{} (paused)", goal.state)
                } else {
                    goal.state.to_string()
                },
                counted(goal),
                goal.evaluated_at.map_or("never".to_owned(), |at| format!("{} ago", age(now - at))),
                goal.took_ms.map_or("-".to_owned(), |took| format!("{took} ms")),
                short,
            ]
        })
        .collect();
    let more = if cut_short { "\n…: trued goal show GOAL has the whole error" } else { "" };
    output::table(&columns, rows) + more
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
    // Of a file that could not be read, nothing is known: not even that it says nothing.
    let unsaid = |usual: &str| if goal.row.no_version { dash() } else { usual.to_owned() };
    let mut lines = vec![
        format!("goal      {}", goal.row.name),
        format!("summary   {}", goal.summary.clone().unwrap_or_else(dash)),
        format!(
            "state     {}, {} {}",
            goal.row.state,
            counted(&goal.row),
            plural(goal.row.findings == 1, "finding")
        ),
        format!("evaluated {}", moment_or_dash(goal.row.evaluated_at, now)),
        format!("subject   {}", goal.subject.clone().unwrap_or_else(dash)),
        format!("repair    {}", goal.repair.clone().unwrap_or_else(|| unsaid("none"))),
        format!("schedule  {}", goal.schedule.clone().unwrap_or_else(|| unsaid("the default"))),
        format!("file      {}", goal.path.clone().unwrap_or_else(dash)),
    ];
    lines.extend(goal.population.iter().map(|population| format!("looks at  {population}")));
    lines.extend(goal.params.iter().map(|param| format!("param     {param}")));
    lines.extend(goal.row.paused.iter().map(|pause| format!("PAUSED    {}", steering::paused(pause, now))));
    for one in &goal.settings {
        let error = one.error.as_ref().map_or(String::new(), |error| format!("; does nothing: {error}"));
        lines.push(format!("set       {} = {} ({}){error}", one.name, one.value, one.origin));
    }
    // The file's error is told once, whether or not an evaluation has one too.
    let GoalRow { error, file_error, .. } = &goal.row;
    lines.extend(error.iter().map(|error| format!("ERROR     {error}")));
    let of_file = file_error.iter().filter(|one| error.as_ref() != Some(*one));
    lines.extend(of_file.map(|error| format!("ERROR     {error}")));
    lines.extend(goal.other_version.iter().map(|other| {
        let told = [error, file_error].into_iter().flatten().any(|one| *one == other.why);
        let why = if told { String::new() } else { format!(": {}", other.why) };
        format!("RUNS      {}{why}", which_version(other, now))
    }));
    lines.extend(goal.sql.iter().map(|sql| format!("\n{}", sql.trim_end())));
    lines.join("\n")
}

/// That what runs is not what is on disk: which of them is shown, since when, and why.
fn other_version(other: &OtherVersion, now: Millis) -> String {
    format!("{}: {}", which_version(other, now), other.why)
}

/// The same without why.
fn which_version(other: &OtherVersion, now: Millis) -> String {
    let digest = &other.digest;
    let digest = digest.get(..DIGEST_WIDTH).unwrap_or(digest);
    let since = other.since.map_or_else(String::new, |since| format!(" since {}", moment(since, now)));
    if other.shown {
        return format!("another text than the one on disk{since}, and is shown here (digest {digest}…)");
    }
    format!("another text{since} (digest {digest}…); shown here is the one on disk")
}

/// Says it beside an answer.
fn tell_other_version(name: &str, other: Option<&OtherVersion>) {
    if let Some(other) = other {
        eprintln!("{name} runs {}", other_version(other, clock::now()));
    }
}

/// What a goal returns, and how long the answer took.
#[derive(Serialize)]
struct Ran<'a> {
    #[serde(flatten)]
    run: &'a GoalRun,
    took_ms: u64,
}

async fn run_one(global: &Global, name: &str, limit: usize) -> anyhow::Result<Exit> {
    let query = [("limit", limit.to_string())];
    let began = Instant::now();
    let run: GoalRun = Client::new(global)?.get(&["goals", name, "run"], &query).await?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    output::answer(global.output, &Ran { run: &run, took_ms }, || {
        output::table(&["SUBJECT", "PRIO", "REASON", "EVIDENCE"], run.rows.iter().map(|row| cells(row, &run)))
    })?;
    let more = if run.more { "at least " } else { "" };
    eprintln!("{name} returns {more}{}, in {took_ms} ms", output::counted(run.total, "row"));
    if let Some(subject) = twice(&run.rows).map(ToString::to_string) {
        let subject = run.names.get(&subject).unwrap_or(&subject);
        eprintln!("warning: {subject} is returned twice, of which an evaluation fails: {ONCE}");
    }
    tell_other_version(name, run.other_version.as_ref());
    Ok(if run.total > 0 { Exit::Open } else { Exit::Done })
}

/// The first subject that stands twice among rows.
fn twice(rows: &[Exception]) -> Option<&Subject> {
    let mut seen = BTreeSet::new();
    rows.iter().map(|row| &row.subject).find(|subject| !seen.insert(*subject))
}

fn cells(row: &Exception, run: &GoalRun) -> Vec<String> {
    let subject = row.subject.to_string();
    // What the plan of a repair is told is evidence to who looks at it here.
    let Hints { source_id, destination_id, bytes, path } = &row.hints;
    let number = |name: &str, value: Option<i64>| value.map(|value| format!("{name}={value}"));
    let mut evidence: Vec<_> = row.evidence.iter().map(|(key, value)| format!("{key}={value}")).collect();
    evidence.extend(number("bytes", *bytes));
    evidence.extend(number("source_id", source_id.map(|id| id.0)));
    evidence.extend(number("destination_id", destination_id.map(|id| id.0)));
    evidence.extend(path.iter().map(|path| format!("path={path}")));
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
        // What does not run is not evaluated either: it is unknown already.
        let ended = |goal: &GoalRow| goal.no_version || goal.evaluated_at.is_some_and(|at| at >= asked.at);
        if ours.iter().all(ended) {
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
    // Of a goal that does not run, the state is at best that of another day.
    if goals.iter().any(|goal| goal.no_version || goal.state == GoalState::Unknown) {
        return Exit::Unknown;
    }
    if goals.iter().any(|goal| goal.state == GoalState::Unmet) { Exit::Open } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str, error: Option<String>) -> GoalRow {
        GoalRow {
            name: name.into(),
            state: GoalState::Unknown,
            findings: 0,
            at_least: false,
            evaluated_at: None,
            took_ms: None,
            error,
            file_error: None,
            no_version: false,
            paused: None,
        }
    }

    #[test]
    fn a_subject_that_stands_twice_among_the_rows_is_found() {
        let row = |key: &str| Exception {
            subject: Subject::Key(key.to_owned()),
            priority: 100,
            reason: None,
            hints: Hints::default(),
            evidence: serde_json::Map::new(),
        };
        assert_eq!(twice(&[row("a"), row("b")]), None);
        assert_eq!(twice(&[row("a"), row("b"), row("a")]), Some(&Subject::Key("a".to_owned())));
    }

    #[test]
    fn columns_with_a_meaning_are_shown_beside_the_evidence() {
        let row = Exception {
            subject: Subject::Key("a".to_owned()),
            priority: 100,
            reason: None,
            hints: Hints { bytes: Some(7), path: Some("q".into()), ..Hints::default() },
            evidence: serde_json::Map::from_iter([("age".to_owned(), 3.into())]),
        };
        let run = serde_json::json!({ "goal": "x", "now": 1, "rows": [], "total": 1, "more": false });
        let run: GoalRun = serde_json::from_value(run).unwrap();
        assert_eq!(cells(&row, &run)[3], "age=3 bytes=7 path=q");
    }

    #[test]
    fn a_bad_file_is_shown_with_its_path_and_each_error_once() {
        let row = |error: &str, no_version| GoalRow {
            file_error: Some("goals/a.sql:7:12: no".into()),
            no_version,
            ..goal("a", Some(error.into()))
        };
        let json = |row: &GoalRow| {
            let mut json = serde_json::to_value(row).unwrap();
            json["failures"] = 0.into();
            json["path"] = "goals/a.sql".into();
            json
        };
        let shown = |json| render(&serde_json::from_value::<GoalListed>(json).unwrap(), 0);
        let new = shown(json(&row("goals/a.sql:7:12: no", true)));
        assert!(new.contains("schedule  -\nfile      goals/a.sql\nERROR     goals/a.sql:7:12: no"), "{new}");
        let mut both = json(&row("timed out", false));
        both["other_version"] =
            serde_json::json!({ "digest": "d", "why": "goals/a.sql:7:12: no", "shown": true });
        let both = shown(both);
        assert!(both.contains("ERROR     timed out\nERROR     goals/a.sql:7:12: no\nRUNS"), "{both}");
        assert_eq!(both.matches("7:12: no").count(), 1, "{both}");
    }

    #[test]
    fn another_version_than_the_one_on_disk_is_told_with_which_is_shown_since_when_and_why() {
        let other = OtherVersion {
            digest: "0123456789abcdef".into(),
            since: Some(1_767_225_600_000),
            why: "x.sql:7:1: timed out after 2s".into(),
            shown: true,
        };
        insta::assert_snapshot!(
            other_version(&other, 1_767_225_660_000),
            @"another text than the one on disk since 2026-01-01 00:00:00Z (1m00s ago), and is shown here (digest 0123456789ab…): x.sql:7:1: timed out after 2s"
        );
        let file = OtherVersion { shown: false, since: None, ..other };
        insta::assert_snapshot!(
            other_version(&file, 0),
            @"another text (digest 0123456789ab…); shown here is the one on disk: x.sql:7:1: timed out after 2s"
        );
    }

    #[test]
    fn a_goal_that_does_not_run_is_unknown_whatever_it_was() {
        let goal = |state, no_version| GoalRow { state, no_version, ..goal("a", None) };
        assert_eq!(exit(&[goal(GoalState::Met, true), goal(GoalState::Unmet, false)]), Exit::Unknown);
        assert_eq!(exit(&[goal(GoalState::Met, false), goal(GoalState::Unmet, false)]), Exit::Open);
        assert_eq!(exit(&[goal(GoalState::Met, false)]), Exit::Done);
    }

    #[test]
    fn a_long_error_is_cut_in_the_list_which_says_where_the_whole_is() {
        let short = table([goal("a", Some("timed out".into()))].iter());
        assert!(short.ends_with("timed out"), "{short}");
        let long = table([goal("a", Some("x".repeat(300))), goal("b", None)].iter());
        assert!(long.lines().all(|line| line.chars().count() < 130), "{long}");
        assert!(long.contains(&format!("{}…\n", "x".repeat(ERROR_WIDTH - 1))), "{long}");
        assert!(long.ends_with("\n…: trued goal show GOAL has the whole error"), "{long}");
    }
}
