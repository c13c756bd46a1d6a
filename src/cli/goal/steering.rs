//! `trued goal pause`, `resume`, `set`: people's wishes over a goal's file.

use super::super::args::{Change, Global, SetValues};
use super::super::client::Client;
use super::super::failure::{Exit, Failure};
use super::super::output::{self, age};
use crate::config::value;
use crate::http::shapes::{Changed, PauseGoal, PausedGoal, ResumeGoal, SetGoal};
use crate::model::Millis;

/// When a pause ends: a moment, or a length.
///
/// # Errors
/// When neither is given.
pub fn end(until: Option<&str>, length: Option<&str>) -> anyhow::Result<(Option<Millis>, Option<Millis>)> {
    match (until, length) {
        (Some(until), _) => {
            let at = chrono::DateTime::parse_from_rfc3339(until)
                .map_err(|error| Failure::usage(error.to_string()))?;
            Ok((Some(at.timestamp_millis()), None))
        }
        (None, Some(length)) => Ok((None, Some(value::duration(length).map_err(Failure::usage)?))),
        (None, None) => Err(Failure::usage("a pause needs an end")
            .hint("say --until 2026-03-01T08:00:00Z or --for 2h")
            .into()),
    }
}

/// Pauses.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn pause(global: &Global, name: &str, ask: PauseGoal) -> anyhow::Result<Exit> {
    told(global, &Client::new(global)?.post(&["goals", name, "pause"], &ask).await?)
}

/// Ends a pause.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn resume(global: &Global, name: &str, change: Change) -> anyhow::Result<Exit> {
    let ask = ResumeGoal { reason: change.reason, dry_run: change.dry_run };
    told(global, &Client::new(global)?.post(&["goals", name, "resume"], &ask).await?)
}

/// Sets values.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn set(
    global: &Global,
    name: &str,
    values: SetValues,
    reason: String,
    dry_run: bool,
) -> anyhow::Result<Exit> {
    let plain = [("mode", values.mode), ("schedule", values.schedule), ("brake", values.brake)];
    let mut set: Vec<_> =
        plain.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let params = values.params.iter().filter_map(|param| param.split_once('='));
    set.extend(params.map(|(key, value)| (format!("param.{}", key.trim()), value.trim().to_owned())));
    let ask = SetGoal { set, unset: values.unset, reason, dry_run };
    told(global, &Client::new(global)?.put(&["goals", name, "settings"], &ask).await?)
}

fn told(global: &Global, changed: &Changed) -> anyhow::Result<Exit> {
    output::answer(global.output, changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

/// A pause in words.
pub fn paused(pause: &PausedGoal, now: Millis) -> String {
    let until = pause
        .until
        .map_or("until it is resumed".to_owned(), |until| format!("for {} more", age(until - now)));
    format!("{until}, by {}: {}", pause.by, pause.reason)
}
