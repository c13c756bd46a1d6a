//! `trued fileserver evacuate`, `lost`, `accept-empty`, `ok-to-stop`, and waiting for a quiesced one.
//!
//! Watching prints a line whenever something changed, and each thing in the way once. It ends with
//! 0 only when nothing is left and the agents say that nothing runs, with 6 when the time is over.

use super::args::{AcceptEmpty, Evacuate as Ask, Global, Lost, OkToStop, Output, Quiesce};
use super::client::Client;
use super::confirm::confirmed;
use super::failure::{Exit, Failure};
use super::output::{self, counted, moment, number, size};
use crate::clock;
use crate::config::value;
use crate::http::shapes::{
    AskToStop, Changed, Confirmed, DrainList, DrainRow, Evacuate, FileserverShown, MayStop, Named, SetIntent,
};
use crate::model::Millis;
use crate::model::fleet::{Health, Intent};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// `trued fileserver evacuate`
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn evacuate(global: &Global, ask: Ask) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    let (reason, dry_run) = (ask.change.reason, ask.change.dry_run);
    let body = Evacuate { fileservers: ask.names.clone(), reason, dry_run };
    let changed: Changed = client.post(&["drains"], &body).await?;
    if dry_run {
        output::answer(global.output, &changed, || changed.message.clone())?;
        return Ok(Exit::Done);
    }
    if !ask.watch {
        output::answer(global.output, &changed, || changed.message.clone())?;
        return Ok(Exit::Done);
    }
    eprintln!("{}", changed.message);
    watch(global, &client, &ask.names.join(","), until(ask.timeout.as_deref())?).await
}

fn until(timeout: Option<&str>) -> anyhow::Result<Option<Instant>> {
    let Some(text) = timeout else { return Ok(None) };
    let wait = value::duration(text).map_err(Failure::usage)?;
    Ok(Some(Instant::now() + Duration::from_millis(u64::try_from(wait).unwrap_or_default())))
}

async fn watch(
    global: &Global,
    client: &Client,
    names: &str,
    until: Option<Instant>,
) -> anyhow::Result<Exit> {
    let (mut told, mut said) = (BTreeSet::new(), String::new());
    loop {
        let list: DrainList = client.get(&["drains"], &[("fileservers", names.to_owned())]).await?;
        if list.drains.is_empty() {
            return Err(
                Failure::new(Exit::Failed, "nothing is being emptied any more: somebody ended it").into()
            );
        }
        tell(global, &list, &mut said, &mut told)?;
        if list.drains.iter().all(|one| one.done) {
            return Ok(Exit::Done);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            eprintln!("still being emptied; it goes on");
            return Ok(Exit::TimedOut);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints what changed since the last time.
fn tell(
    global: &Global,
    list: &DrainList,
    said: &mut String,
    told: &mut BTreeSet<(String, String, String)>,
) -> anyhow::Result<()> {
    if global.output == Output::Json {
        let line = serde_json::to_string(list)?;
        if line != *said {
            output::line(&line);
            *said = line;
        }
        return Ok(());
    }
    let now = clock::now();
    let lines = list.drains.iter().map(|one| line(one, now)).collect::<Vec<_>>().join("\n");
    let counts =
        list.drains.iter().map(|one| format!("{}{}{}{}", one.name, one.left, one.processes, one.done));
    let counts = counts.collect::<String>();
    if counts != *said {
        output::line(&lines);
        *said = counts;
    }
    for (drain, blocker) in list.drains.iter().flat_map(|one| one.blockers.iter().map(move |it| (one, it))) {
        if told.insert((drain.name.clone(), blocker.subject.clone(), blocker.why.clone())) {
            output::line(&format!("{}  in the way: {}: {}", drain.name, blocker.subject, blocker.why));
        }
    }
    Ok(())
}

/// `fs-07  61 %  120 of 308 copies left (2.1 GiB), 41/min, ~40m`
fn line(one: &DrainRow, now: Millis) -> String {
    if one.done {
        return format!("{}  empty, nothing runs there", one.name);
    }
    if one.left == 0 {
        let plural = if one.processes == 1 { "" } else { "es" };
        let what = if one.processes > 0 {
            format!("{} process{plural}", one.processes)
        } else {
            "its agent is asked".to_owned()
        };
        return format!("{}  evacuating ({what})", one.name);
    }
    let gone = (one.replicas - one.left).max(0);
    let took = (now - one.since).max(1_000);
    let ahead = one
        .left
        .saturating_mul(took)
        .checked_div(gone)
        .map_or_else(String::new, |ms| format!(", ~{}", span(ms)));
    format!(
        "{}  {} %  {} of {} copies left ({}), {}/min{ahead}",
        one.name,
        gone * 100 / one.replicas.max(1),
        number(one.left),
        number(one.replicas),
        size(one.bytes),
        gone.saturating_mul(60_000) / took,
    )
}

fn span(ms: Millis) -> String {
    match ms / 1_000 {
        seconds @ ..=99 => format!("{seconds}s"),
        seconds @ ..=5_999 => format!("{}m", seconds / 60),
        seconds => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// `trued fileserver quiesce`
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn quiesce(global: &Global, ask: Quiesce) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    let dry_run = ask.change.dry_run;
    let body = SetIntent { intent: Intent::Quiesce, reason: ask.change.reason, dry_run };
    let changed: Changed = client.put(&["fileservers", &ask.name, "intent"], &body).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    if dry_run || !ask.wait {
        return Ok(Exit::Done);
    }
    let until = until(ask.timeout.as_deref())?;
    let mut first = None;
    loop {
        let one: FileserverShown = client.get(&["fileservers", &ask.name], &[]).await?;
        // A status from before says nothing: a read may have begun after it.
        let begun = *first.get_or_insert(one.seen_at);
        let news = one.seen_at > begun && one.row.health == Health::Online;
        if news && one.long_reads == 0 {
            eprintln!("{}: no long read is left", one.row.name);
            return Ok(Exit::Done);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            eprintln!("{}: {} long reads go on, {}", one.row.name, one.long_reads, one.row.health);
            return Ok(Exit::TimedOut);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `trued fileserver lost`
///
/// # Errors
/// When it was not confirmed, nobody answers, or the answer is no.
pub async fn lost(global: &Global, ask: Lost) -> anyhow::Result<Exit> {
    let dry_run = ask.change.dry_run;
    let what = "it will never be asked again, and its replicas are forgotten as others suffice";
    confirmed(&ask.name, what, ask.yes || dry_run)?;
    let client = Client::new(global)?;
    let body = Confirmed { reason: ask.change.reason, dry_run };
    let changed: Changed = client.post(&["fileservers", &ask.name, "lost"], &body).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    if !ask.watch || dry_run {
        return Ok(Exit::Done);
    }
    watch(global, &client, &ask.name, until(ask.timeout.as_deref())?).await
}

/// `trued fileserver accept-empty`
///
/// # Errors
/// As [`lost`].
pub async fn accept_empty(global: &Global, ask: AcceptEmpty) -> anyhow::Result<Exit> {
    let dry_run = ask.change.dry_run;
    let what = "what it held is given up, and every copy is made anew on its new root";
    confirmed(&ask.name, what, ask.yes || dry_run)?;
    let body = Confirmed { reason: ask.change.reason, dry_run };
    let changed: Changed =
        Client::new(global)?.post(&["fileservers", &ask.name, "accept-empty"], &body).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

/// `trued fileserver ok-to-stop`
///
/// # Errors
/// When nobody answers.
pub async fn ok_to_stop(global: &Global, ask: OkToStop) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    if ask.release {
        let changed: Changed = client.post(&["stops", "release"], &Named { fileservers: ask.names }).await?;
        output::answer(global.output, &changed, || changed.message.clone())?;
        return Ok(Exit::Done);
    }
    let keep = value::duration(&ask.keep).map_err(Failure::usage)?;
    let body = AskToStop {
        fileservers: ask.names.clone(),
        keep_ms: keep,
        reason: ask.change.reason,
        dry_run: ask.change.dry_run,
    };
    let answer: MayStop = client.post(&["stops"], &body).await?;
    output::answer(global.output, &answer, || verdict(&ask.names, &answer))?;
    Ok(if answer.ok { Exit::Done } else { Exit::Unsafe })
}

fn verdict(names: &[String], answer: &MayStop) -> String {
    let mut text = format!(
        "{} to stop {}: of {} there, {} would fall below quorum, {} with any one more",
        if answer.ok { "yes, ok" } else { "not ok" },
        names.join(", "),
        counted(answer.repositories.unsigned_abs(), "repository"),
        number(answer.below),
        number(answer.one_more),
    );
    if !answer.stopped_by_others.is_empty() {
        let _ = write!(text, " (others may stop {} meanwhile)", answer.stopped_by_others.join(", "));
    }
    if let Some(until) = answer.until {
        let _ = write!(text, "; kept for you until {}", moment(until, clock::now()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain() -> DrainRow {
        DrainRow {
            name: "fs-07".into(),
            since: 0,
            replicas: 308,
            left: 120,
            bytes: 3 << 30,
            processes: 0,
            lost: false,
            moved_at: 0,
            done: false,
            blockers: Vec::new(),
        }
    }

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long() {
        let minute = 60_000;
        assert_eq!(line(&drain(), 4 * minute), "fs-07  61 %  120 of 308 copies left (3.0 GiB), 47/min, ~2m");
        assert_eq!(
            line(&DrainRow { left: 308, ..drain() }, minute),
            "fs-07  0 %  308 of 308 copies left (3.0 GiB), 0/min"
        );
    }

    #[test]
    fn an_empty_one_is_evacuating_until_nothing_runs() {
        let empty = DrainRow { left: 0, processes: 1, ..drain() };
        assert_eq!(line(&empty, 0), "fs-07  evacuating (1 process)");
        assert_eq!(
            line(&DrainRow { processes: 0, ..empty.clone() }, 0),
            "fs-07  evacuating (its agent is asked)"
        );
        assert_eq!(line(&DrainRow { done: true, ..empty }, 0), "fs-07  empty, nothing runs there");
    }
}
