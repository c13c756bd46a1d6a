//! `trued why`: the story of one subject, from what holds now back to what was done.

use super::args::{Global, Why as Ask};
use super::backlog::{subject, waits};
use super::client::Client;
use super::failure::Exit;
use super::output::{self, age, moment, moment_or_dash, yes_no};
use crate::database::report::{AttemptRow, BacklogRow, ClosedRow};
use crate::http::shapes::{GoalSays, RepositoryShown, Why};
use crate::model::amount::counted;
use crate::model::goal::GoalState;
use std::fmt::Write as _;

/// Runs it.
///
/// # Errors
/// When nothing is named so, or nobody answers.
pub async fn run(global: &Global, ask: &Ask) -> anyhow::Result<Exit> {
    let why: Why = Client::new(global)?.get(&["why"], &[("subject", ask.subject.clone())]).await?;
    output::answer(global.output, &why, || render(&why))?;
    Ok(Exit::Done)
}

fn render(why: &Why) -> String {
    let mut text = format!("{} ({})\n", why.subject, why.id);
    if let Some(one) = &why.repository {
        repository(&mut text, one, why);
    }
    if let Some(one) = &why.fileserver {
        let _ = writeln!(
            text,
            "  {} since {}, intent {}, counts: {}, {}",
            one.row.health,
            moment(one.health_since, why.now),
            one.row.intent,
            yes_no(one.row.counts),
            counted(one.row.replicas, "copy")
        );
    }
    text.push_str("\nGOALS\n");
    for says in &why.goals {
        goal(&mut text, says, why);
    }
    if why.goals.is_empty() {
        text.push_str("  none was evaluated yet\n");
    }
    attempts(&mut text, why);
    if !why.closed.is_empty() {
        text.push_str("\nCLOSED FINDINGS\n");
        for one in &why.closed {
            let _ = writeln!(text, "  {}", closed(one, why));
        }
    }
    text
}

fn repository(text: &mut String, one: &RepositoryShown, why: &Why) {
    let checksum = one.checksum.as_deref().unwrap_or("-");
    let _ = writeln!(
        text,
        "  {} wanted, {}, version {}, checksum {checksum}",
        counted(one.wanted, "copy"),
        counted(one.seats, "seat"),
        one.version
    );
    if let Some(wait) = &one.pushes_wait {
        let _ = writeln!(text, "  pushes wait: {wait}");
    }
    for replica in &one.replicas {
        let _ = writeln!(
            text,
            "  {} ({}): {}, {}, verified {}",
            replica.fileserver,
            replica.rack,
            replica.state,
            if replica.in_sync { "in sync" } else { "NOT in sync" },
            moment_or_dash(replica.verified_at, why.now)
        );
    }
    for flag in &why.flags {
        let since = moment(flag.since, why.now);
        let _ = writeln!(text, "  inventory of {}: {} since {since}", flag.fileserver, flag.found);
    }
}

fn goal(text: &mut String, says: &GoalSays, why: &Why) {
    if let Some(pause) = &says.paused {
        let until = pause.until.map_or(String::new(), |until| format!(" for {}", age(until - why.now)));
        let _ = writeln!(text, "  {} is PAUSED{until} by {}: {}", says.goal, pause.by, pause.reason);
    }
    let seen = says.evaluated_at.map_or("never".to_owned(), |at| format!("{} ago", age(why.now - at)));
    let _ = writeln!(text, "  {}: {} (evaluated {seen})", says.goal, verdict(says));
    for finding in &says.findings {
        let _ = writeln!(text, "    {}", found(finding, why));
    }
}

/// An unknown goal says nothing of this subject: what it last found stands, and what it would find now is not known.
fn verdict(says: &GoalSays) -> &'static str {
    match (says.state, says.findings.is_empty()) {
        (GoalState::Unknown, true) => "UNKNOWN, it found nothing here when it could last be evaluated",
        (GoalState::Unknown, false) => "UNKNOWN, it did NOT hold when it could last be evaluated",
        (GoalState::Met | GoalState::Unmet, true) => "holds here",
        (GoalState::Met | GoalState::Unmet, false) => "does NOT hold",
    }
}

fn found(finding: &BacklogRow, why: &Why) -> String {
    let mut line = format!(
        "finding {} about {}, open since {}: {}",
        finding.id,
        subject(finding),
        moment(finding.opened_at, why.now),
        finding.state
    );
    if let Some(reason) = &finding.reason {
        let _ = write!(line, "; {reason}");
    }
    match &finding.repair {
        Some(repair) => {
            let _ = write!(line, "; repair {repair}");
        }
        None => line.push_str("; only listed"),
    }
    let waits = waits(finding);
    if !waits.is_empty() {
        let _ = write!(line, ": {waits}");
    }
    if finding.tries > 0 {
        let _ = write!(line, "; {}", counted(finding.tries, "failed attempt"));
    }
    if finding.ineffective > 0 {
        let _ = write!(line, "; {} without effect", counted(finding.ineffective, "attempt"));
    }
    line
}

fn attempts(text: &mut String, why: &Why) {
    if why.attempts.is_empty() {
        return;
    }
    text.push_str("\nATTEMPTS, latest first\n");
    for one in &why.attempts {
        let _ = writeln!(text, "  {}", attempt(one, why));
    }
}

fn attempt(one: &AttemptRow, why: &Why) -> String {
    let at = one.finished_at.or(one.started_at).unwrap_or(one.queued_at);
    let mut line = format!("{}  {} {}", moment(at, why.now), one.repair, one.state);
    if let Some(destination) = &one.destination {
        let _ = write!(line, " on {destination}");
    }
    if let Some(source) = &one.source {
        let _ = write!(line, " from {source}");
    }
    let _ = write!(line, " (attempt {}, try {}, for {})", one.id, one.number, one.goal);
    if let Some(message) = one.message.as_deref().filter(|message| !message.is_empty()) {
        let _ = write!(line, ": {}", message.replace('\n', " "));
    }
    line
}

fn closed(one: &ClosedRow, why: &Why) -> String {
    let place = one.fileserver.as_deref().map_or(String::new(), |name| format!(" on {name}"));
    let reason = one.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
    format!(
        "{}  {}{place}, open for {}{reason}",
        moment(one.closed_at, why.now),
        one.goal,
        age(one.closed_at - one.opened_at)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_goal_is_never_said_to_hold() {
        let says = |state| GoalSays {
            goal: "replicas-match".into(),
            state,
            evaluated_at: Some(1),
            findings: Vec::new(),
            paused: None,
        };
        assert_eq!(verdict(&says(GoalState::Met)), "holds here");
        assert_eq!(verdict(&says(GoalState::Unmet)), "holds here", "it falls short elsewhere");
        let unknown = verdict(&says(GoalState::Unknown));
        assert_eq!(unknown, "UNKNOWN, it found nothing here when it could last be evaluated");
    }
}
