//! `trued backlog`: open findings that need a repair, what each waits for, and what a person does to many.
//!
//! A verb acts on a snapshot: the numbers of the findings that the filter matches are read
//! first, said, and asked for; what comes up after that is not touched.

use super::args::{Backlog, BacklogVerb, Choice, Filter, Global};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age, counted, number};
use crate::clock;
use crate::config::value;
use crate::database::report::BacklogRow;
use crate::http::shapes::{BacklogIds, BacklogList, Changed, Chosen, FindingStory, Moved};
use crate::model::Millis;
use std::io::{IsTerminal as _, Write as _};

/// Findings in one request: the API takes twice as many.
const AT_ONCE: usize = 10_000;

/// Runs it.
///
/// # Errors
/// When nobody answers.
pub async fn run(global: &Global, ask: Backlog) -> anyhow::Result<Exit> {
    match ask.verb {
        None => list(global, &ask.filter, ask.limit).await,
        Some(BacklogVerb::Show { id }) => show(global, id).await,
        Some(BacklogVerb::Retry { choice }) => act(global, "retry", choice, Chosen::default()).await,
        Some(BacklogVerb::Cancel { wait, choice }) => {
            let wait_ms = Some(value::duration(&wait).map_err(Failure::usage)?);
            act(global, "cancel", choice, Chosen { wait_ms, ..Chosen::default() }).await
        }
        Some(BacklogVerb::Bump { priority, choice }) => {
            act(global, "bump", choice, Chosen { priority: Some(priority), ..Chosen::default() }).await
        }
    }
}

fn query(filter: &Filter) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    query.extend(filter.goal.clone().map(|goal| ("goal", goal)));
    query.extend(filter.fileserver.clone().map(|name| ("fileserver", name)));
    query.extend(filter.state.map(|state| ("state", state.to_string())));
    query
}

async fn list(global: &Global, filter: &Filter, limit: u32) -> anyhow::Result<Exit> {
    let mut query = query(filter);
    query.push(("limit", limit.to_string()));
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

async fn show(global: &Global, id: i64) -> anyhow::Result<Exit> {
    let story: FindingStory = Client::new(global)?.get(&["backlog", &id.to_string()], &[]).await?;
    output::answer(global.output, &story, || super::story::told(&story))?;
    Ok(Exit::Done)
}

/// Does a verb to the findings that were chosen, and to no other.
async fn act(global: &Global, verb: &str, choice: Choice, what: Chosen) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    let reason = choice.change.reason.clone();
    let reason = reason.ok_or_else(|| Failure::usage(format!("a {verb} needs a --reason")))?;
    let filter = query(&choice.filter);
    if choice.ids.is_empty() && filter.is_empty() {
        return Err(Failure::usage(format!(
            "say which findings to {verb}: numbers, or --goal, --fileserver, --state"
        ))
        .into());
    }
    let named = !choice.ids.is_empty();
    let ids = if named { choice.ids.clone() } else { snapshot(&client, &filter).await? };
    let many = number(i64::try_from(ids.len()).unwrap_or(i64::MAX));
    if choice.change.dry_run || ids.is_empty() {
        let message = format!("{}; nothing was done", matching(ids.len()));
        let changed = Changed { message, changed: false };
        output::answer(global.output, &changed, || changed.message.clone())?;
        return Ok(Exit::Done);
    }
    if !(choice.yes || named && ids.len() == 1) {
        confirm(verb, ids.len())?;
    }
    let words: Vec<String> = filter.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut moved = 0;
    for some in ids.chunks(AT_ONCE) {
        let ask =
            Chosen { ids: some.to_vec(), reason: reason.clone(), filter: words.join(" "), ..what.clone() };
        let one: Moved = client.post(&["backlog", verb], &ask).await?;
        moved += one.moved;
    }
    let done = number(i64::try_from(moved).unwrap_or(i64::MAX));
    let message =
        format!("{verb}: {done} of {many} findings; the others were in a state that it does not apply to");
    let message = if done == many { format!("{verb}: {}", counted(moved, "finding")) } else { message };
    let changed = Changed { message, changed: moved > 0 };
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

/// The numbers of all findings that a filter matches now.
async fn snapshot(client: &Client, filter: &[(&'static str, String)]) -> anyhow::Result<Vec<i64>> {
    let (mut ids, mut after) = (Vec::new(), 0);
    loop {
        let mut query = filter.to_vec();
        query.push(("after", after.to_string()));
        let page: BacklogIds = client.get(&["backlog", "ids"], &query).await?;
        ids.extend(page.ids);
        let Some(next) = page.next else { return Ok(ids) };
        after = next;
    }
}

/// `1 finding matches`, `2 findings match`.
fn matching(many: usize) -> String {
    format!("{} match{}", counted(many as u64, "finding"), if many == 1 { "es" } else { "" })
}

/// Asks for the number of findings, typed.
fn confirm(verb: &str, many: usize) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{}; --yes says that all of them are meant", matching(many))));
    }
    eprint!("{}. Type {many} to {verb} them: ", matching(many));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    if line.trim() == many.to_string() {
        Ok(())
    } else {
        Err(Failure::usage("not confirmed; nothing was done"))
    }
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
