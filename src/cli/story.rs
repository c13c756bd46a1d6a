//! One finding's story as text: what it is about, what it waits for, what was tried.

use super::backlog::{subject, waits};
use super::output::{age, counted, moment};
use crate::database::report::{AttemptRow, BacklogRow, ClosedRow};
use crate::http::shapes::FindingStory;
use crate::model::Millis;
use std::fmt::Write as _;

/// The whole of it.
#[must_use]
pub fn told(story: &FindingStory) -> String {
    let mut text = match (&story.open, &story.closed) {
        (Some(row), _) => open(row, story.now),
        (None, Some(row)) => closed(row, story.now),
        (None, None) => String::new(),
    };
    if let Some(evidence) = story.evidence.as_object().filter(|all| !all.is_empty()) {
        let _ = writeln!(text, "EVIDENCE");
        for (name, value) in evidence {
            let _ = writeln!(text, "  {name} = {value}");
        }
    }
    let _ = writeln!(
        text,
        "TRIED       {}",
        match story.attempts.len() {
            0 => "nothing yet".to_owned(),
            many => format!("{}, latest first", counted(many as u64, "attempt")),
        }
    );
    for attempt in &story.attempts {
        let _ = writeln!(text, "  {}", tried(attempt, story.now));
    }
    text
}

fn open(row: &BacklogRow, now: Millis) -> String {
    let mut text = format!("FINDING     {} of goal {}: {}\n", row.id, row.goal, subject(row));
    let reason = row.reason.as_deref().unwrap_or("-");
    let _ = writeln!(text, "REASON      {reason}");
    let _ = writeln!(text, "OPENED      {}", moment(row.opened_at, now));
    let repair = row.repair.as_deref().unwrap_or("none, it is only listed");
    let _ = writeln!(text, "REPAIR      {repair}, {}, priority {}", row.state, row.priority);
    let waits = waits(row);
    if !waits.is_empty() {
        let again = row.next_at - now;
        let when = if again > 0 { format!(" (looked at again in {})", age(again)) } else { String::new() };
        let _ = writeln!(text, "WAITS FOR   {waits}{when}");
    }
    let _ = writeln!(text, "COUNTED     {} failed, {} without effect", row.tries, row.ineffective);
    text
}

fn closed(row: &ClosedRow, now: Millis) -> String {
    let mut text = format!("FINDING     {} of goal {}: {}\n", row.id, row.goal, row.subject);
    let _ = writeln!(text, "REASON      {}", row.reason.as_deref().unwrap_or("-"));
    let _ = writeln!(text, "OPENED      {}", moment(row.opened_at, now));
    let _ = writeln!(text, "CLOSED      {}", moment(row.closed_at, now));
    text
}

fn tried(row: &AttemptRow, now: Millis) -> String {
    let at = row.finished_at.or(row.started_at).unwrap_or(row.queued_at);
    let ends = match (&row.source, &row.destination) {
        (Some(source), Some(destination)) => format!(" {source} → {destination}"),
        (None, Some(destination)) => format!(" on {destination}"),
        _ => String::new(),
    };
    let message = row.message.as_deref().unwrap_or_default();
    format!("#{} {} {}{ends}, {} ago: {message}", row.number, row.repair, row.state, age(now - at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::finding::FindingState;

    #[test]
    fn a_story_says_what_was_found_what_it_waits_for_and_what_was_tried() {
        let row = BacklogRow {
            id: 7,
            goal: "replicas-match".into(),
            subject: "replica:1:2".into(),
            repository: Some("a/b".into()),
            fileserver: Some("fs-2".into()),
            repair: Some("resync".into()),
            state: FindingState::Stuck,
            priority: 100,
            reason: Some("not in sync".into()),
            waits: Some("stuck: 12 attempts succeeded, and the goal still returns it".into()),
            opened_at: 0,
            tries: 1,
            ineffective: 12,
            next_at: 0,
            progress: None,
        };
        let attempt = AttemptRow {
            id: 9,
            goal: "replicas-match".into(),
            subject: "replica:1:2".into(),
            repair: "resync".into(),
            step: "resync".into(),
            number: 13,
            state: "succeeded".into(),
            source: Some("fs-1".into()),
            destination: Some("fs-2".into()),
            worker: None,
            bytes: 0,
            queued_at: 0,
            started_at: Some(0),
            finished_at: Some(30_000),
            message: Some("2 references changed".into()),
        };
        let evidence = serde_json::json!({ "version": 4 });
        let story =
            FindingStory { now: 60_000, open: Some(row), closed: None, evidence, attempts: vec![attempt] };
        insta::assert_snapshot!(told(&story), @"
        FINDING     7 of goal replicas-match: a/b@fs-2
        REASON      not in sync
        OPENED      1970-01-01 00:00:00Z (1m00s ago)
        REPAIR      resync, stuck, priority 100
        WAITS FOR   stuck: 12 attempts succeeded, and the goal still returns it
        COUNTED     1 failed, 12 without effect
        EVIDENCE
          version = 4
        TRIED       1 attempt, latest first
          #13 resync succeeded fs-1 → fs-2, 30s ago: 2 references changed
        ");
    }
}
