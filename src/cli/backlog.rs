//! `trued backlog`: open findings that need a repair, and what each waits for.

use super::args::{Backlog, BacklogVerb, Change, Global};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age};
use crate::clock;
use crate::database::report::BacklogRow;
use crate::http::shapes::{BacklogList, Changed, Retry};
use crate::model::Millis;

/// Runs it.
///
/// # Errors
/// When nobody answers.
pub async fn run(global: &Global, ask: Backlog) -> anyhow::Result<Exit> {
    if let Some(BacklogVerb::Retry { ids, goal, change }) = ask.verb {
        return retry(global, ids, goal, change).await;
    }
    let mut query = vec![("limit", ask.limit.to_string())];
    query.extend(ask.goal.map(|goal| ("goal", goal)));
    query.extend(ask.fileserver.map(|name| ("fileserver", name)));
    query.extend(ask.state.map(|state| ("state", state.to_string())));
    let list: BacklogList = Client::new(global)?.get(&["backlog"], &query).await?;
    let now = clock::now();
    output::answer(global.output, &list, || {
        let columns = ["ID", "GOAL", "SUBJECT", "REPAIR", "STATE", "PRIO", "AGE", "WAITS FOR"];
        output::table(&columns, list.findings.iter().map(|row| cells(row, now)))
    })?;
    if list.more {
        eprintln!("there are more; --limit shows more of them");
    }
    Ok(Exit::Done)
}

async fn retry(global: &Global, ids: Vec<i64>, goal: Option<String>, change: Change) -> anyhow::Result<Exit> {
    let reason = change.reason.ok_or_else(|| Failure::usage("a retry needs --reason".to_owned()))?;
    let ask = Retry { ids, goal, reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.post(&["backlog", "retry"], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

fn cells(row: &BacklogRow, now: Millis) -> Vec<String> {
    vec![
        row.id.to_string(),
        row.goal.clone(),
        subject(row),
        row.repair.clone().unwrap_or_default(),
        row.state.to_string(),
        row.priority.to_string(),
        age(now - row.opened_at),
        waits(row),
    ]
}

/// The subject by its names where they are known.
#[must_use]
pub fn subject(row: &BacklogRow) -> String {
    match (&row.repository, &row.fileserver) {
        (Some(repository), Some(fileserver)) => format!("{repository}@{fileserver}"),
        (Some(name), None) | (None, Some(name)) => name.clone(),
        (None, None) => row.subject.clone(),
    }
}

/// What its repair waits for, or does.
#[must_use]
pub fn waits(row: &BacklogRow) -> String {
    row.progress.clone().or_else(|| row.waits.clone()).unwrap_or_default()
}
