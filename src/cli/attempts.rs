//! `trued attempts`: what is queued and running now, once or again and again; ending one.

use super::args::{AttemptVerb, Attempts, Change, Global, Output};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age, size};
use crate::config::value;
use crate::database::report::LiveRow;
use crate::http::shapes::{AttemptList, CancelAttempt, Changed};
use crate::model::Millis;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Shorter than this nobody reads, and the database is asked for nothing.
const SHORTEST: Duration = Duration::from_millis(200);
/// Moves the cursor home and clears what is below.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: Attempts) -> anyhow::Result<Exit> {
    if let Some(AttemptVerb::Cancel { id, change }) = ask.verb {
        return cancel(global, id, change).await;
    }
    let client = Client::new(global)?;
    if !ask.watch {
        let list: AttemptList = client.get(&["attempts"], &[]).await?;
        output::answer(global.output, &list, || table(&list))?;
        return Ok(Exit::Done);
    }
    let every = u64::try_from(value::duration(&ask.every).map_err(Failure::usage)?).unwrap_or_default();
    watch(global, &client, Duration::from_millis(every).max(SHORTEST)).await
}

/// Until it is interrupted.
async fn watch(global: &Global, client: &Client, every: Duration) -> anyhow::Result<Exit> {
    let drawn = global.output == Output::Table && std::io::stdout().is_terminal();
    loop {
        let list: AttemptList = client.get(&["attempts"], &[]).await?;
        if drawn {
            output::line(&format!("{REDRAW}{}", table(&list)));
        } else {
            output::line(&serde_json::to_string(&list)?);
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn cancel(global: &Global, id: i64, change: Change) -> anyhow::Result<Exit> {
    let reason = change.reason.ok_or_else(|| Failure::usage("an attempt is cancelled with a --reason"))?;
    let ask = CancelAttempt { reason, dry_run: change.dry_run };
    let path = ["attempts", &id.to_string(), "cancel"];
    let changed: Changed = Client::new(global)?.post(&path, &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

fn table(list: &AttemptList) -> String {
    let columns = ["ID", "REPAIR", "SUBJECT", "FROM", "TO", "STATE", "AGE", "SIZE", "WORKER", "PROGRESS"];
    let mut text = output::table(&columns, list.attempts.iter().map(|row| cells(row, list.now)));
    if list.attempts.is_empty() {
        "nothing is queued or running".clone_into(&mut text);
    } else if list.more {
        text.push_str("\nthere are more");
    }
    text
}

fn cells(row: &LiveRow, now: Millis) -> Vec<String> {
    let dash = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let overdue = row.lease_until.is_some_and(|until| until < now);
    vec![
        row.id.to_string(),
        row.repair.clone(),
        row.repository.clone().unwrap_or_else(|| row.subject.clone()),
        dash(&row.source),
        dash(&row.destination),
        if overdue { "silent".to_owned() } else { row.state.clone() },
        age(now - row.started_at.unwrap_or(row.queued_at)),
        if row.bytes > 0 { size(row.bytes) } else { "-".to_owned() },
        dash(&row.worker),
        row.progress.clone().unwrap_or_default(),
    ]
}
