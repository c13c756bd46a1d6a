//! `trued limits`: what holds, who owns it, and setting them while everything runs.

use super::args::{Global, LimitVerb, LimitsCommand};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, age};
use crate::clock;
use crate::http::shapes::{Changed, LimitList, LimitRow, SetLimit};
use crate::model::Millis;

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: LimitsCommand) -> anyhow::Result<Exit> {
    let (name, value, change) = match ask.verb.unwrap_or(LimitVerb::Show) {
        LimitVerb::Show => return show(global).await,
        LimitVerb::Set { name, value, change } => (name, Some(value), change),
        LimitVerb::Unset { name, change } => (name, None, change),
    };
    let reason = change.reason.ok_or_else(|| Failure::usage("a limit is changed with a --reason"))?;
    let ask = SetLimit { value, reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.put(&["limits", &name], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

async fn show(global: &Global) -> anyhow::Result<Exit> {
    let list: LimitList = Client::new(global)?.get(&["limits"], &[]).await?;
    let now = clock::now();
    output::answer(global.output, &list, || {
        let columns = ["LIMIT", "VALUE", "OWNER", "WRITTEN", "ALLOWED", "SET"];
        output::table(&columns, list.limits.iter().map(|row| cells(row, now)))
    })?;
    Ok(Exit::Done)
}

fn cells(row: &LimitRow, now: Millis) -> Vec<String> {
    let who = row.who.as_deref().unwrap_or_default();
    let why = row.reason.as_deref().unwrap_or_default();
    let set = row.at.map_or(String::new(), |at| format!("{} ago by {who}: {why}", age(now - at)));
    vec![
        row.name.clone(),
        value(row, row.value),
        row.owner.clone(),
        value(row, row.written),
        row.allowed.clone(),
        set,
    ]
}

/// A rate in units, everything else as a number.
fn value(row: &LimitRow, value: i64) -> String {
    match value {
        0 => "no bound".to_owned(),
        rate if row.name.ends_with(".bytes_per_second") => output::size(rate),
        number => number.to_string(),
    }
}
