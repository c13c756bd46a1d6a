//! What the observe loop tells: the brakes, the log, and people.

use super::Watched;
use crate::controller::Shared;
use crate::controller::detector::Seen;
use crate::controller::inventory::Compared;
use crate::database::fileservers::Verdict;
use crate::fleet::CallError;
use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health};
use crate::model::id::FileserverId;
use crate::model::wire::Status;

/// Notes for the brakes who answers and who fell silent; one in trouble was heard.
pub(super) fn note_sight(shared: &Shared, id: FileserverId, seen: Seen, now: Millis) {
    shared.see(|sight| {
        if seen == Seen::Missed {
            if sight.expected.contains(&id) || sight.heard.contains(&id) {
                sight.silent.entry(id).or_insert(now);
            }
        } else {
            sight.heard.insert(id);
            sight.silent.remove(&id);
        }
    });
}

/// Keeps an agent's own words of trouble in the log, once while they are the same.
pub(super) fn note_trouble(watched: &mut Watched, answer: &Result<Status, CallError>) {
    let trouble = answer.as_ref().ok().and_then(|status| status.trouble.clone());
    if let Some(words) = trouble.as_ref().filter(|_| trouble != watched.trouble) {
        tracing::warn!(fileserver.name = watched.row.name, trouble = words, "an agent says it is in trouble");
    }
    if answer.is_ok() {
        watched.trouble = trouble;
    }
}

/// One line for people, from the controller that writes.
pub(super) fn announce(watched: &Watched, was: Health, answer: &Result<Status, CallError>, writes: bool) {
    let (name, now) = (&watched.row.name, watched.detector.health);
    let why = match answer {
        Ok(Status { trouble: Some(words), .. }) => format!(": {words}"),
        Ok(_) => String::new(),
        Err(error) => format!(": {error}"),
    };
    // A suspect is no news yet, nor is one that was only suspect.
    if !writes || now == Health::Suspect || (was == Health::Suspect && now == Health::Online) {
        tracing::debug!(fileserver.name = name, health = %now, why, "health");
        return;
    }
    tracing::info!(
        target: "trued::event",
        kind = "fileserver.health", fileserver = name, health = %now, was = %was,
        "fileserver {name} is {now}{why}",
    );
}

pub(super) fn announce_counts(row: &Fileserver, verdict: &Verdict) {
    let name = &row.name;
    let text = if verdict.counts {
        "counts: its inventory was compared"
    } else if verdict.empty_since.is_some() {
        "no longer counts: its root is another one"
    } else {
        "no longer counts: its replicas are to be made elsewhere"
    };
    tracing::info!(
        target: "trued::event", kind = "fileserver.counts", fileserver = name, counts = verdict.counts,
        "fileserver {name} {text}",
    );
}

pub(super) fn announce_compared(row: &Fileserver, compared: &Compared) {
    let (name, Compared { missing, changed, untracked, ahead, .. }) = (&row.name, compared);
    if *ahead > 0 {
        tracing::error!(
            target: "trued::event",
            kind = "history.lost", fileserver = name, ahead,
            "of the copies of {name}, {ahead} committed more than the database knows: it went back in time",
        );
    }
    if missing + changed + untracked == 0 {
        tracing::debug!(fileserver.name = name, "inventory compared, all as it ought to be");
        return;
    }
    tracing::info!(
        target: "trued::event",
        kind = "inventory", fileserver = name, missing, changed, untracked,
        "inventory of {name}: {missing} missing, {changed} changed, {untracked} untracked",
    );
}

/// Said once, when it is first seen.
pub(super) fn announce_empty(row: &Fileserver) {
    tracing::error!(
        target: "trued::event", kind = "fileserver.empty", fileserver = row.name,
        "fileserver {} came back with another root than the one that held its replicas: \
         nothing is removed or forgotten, it does not count", row.name,
    );
}
