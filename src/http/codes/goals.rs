//! Health codes about goals: one that looked at nothing, one that does not finish, one whose file does not check, and
//! what is set over goals that does nothing.

use super::{Facts, NAMED, Said, named};
use crate::model::amount::{counted, listed_by};
use crate::model::goal::{GoalState, GoalStatus};

/// Evaluations in a row that did not finish before a goal is stale.
const STALE_AFTER: i64 = 3;

/// Unknown, because nothing was there to look at: the evaluation says so in its error.
pub(super) fn dead(facts: &Facts<'_>) -> Said {
    let dead = facts.goals.iter().filter(|one| is_dead(one));
    let names = named(dead.map(|one| one.goal.as_str()))?;
    let sentence = format!("{names}: looked at nothing, where there was something before");
    Some((sentence, "see what its population reads (trued goal show NAME); where that is rightly empty now: trued goal approve NAME --reason …".to_owned()))
}

/// Whether it is.
#[must_use]
pub fn is_dead(one: &GoalStatus) -> bool {
    one.state == GoalState::Unknown && one.error.as_deref().is_some_and(|error| error.contains("GOAL_DEAD"))
}

pub(super) fn stale(facts: &Facts<'_>) -> Said {
    let old = || facts.goals.iter().filter(|one| one.failures >= STALE_AFTER);
    let names = named(old().map(|one| one.goal.as_str()))?;
    let sentence =
        format!("{names}: unknown for {STALE_AFTER} evaluations or more; its findings are not of now");
    let one = old().find(|one| one.error.is_some()).or_else(|| old().next())?;
    Some((sentence, shown(one, one.error.as_deref(), "GOAL_STALE")))
}

/// An error, and where the whole of it and what to do are told.
fn shown(one: &GoalStatus, error: Option<&str>, code: &str) -> String {
    let error = error.map_or_else(String::new, |error| format!("{error}; "));
    format!("{error}trued goal show {}; docs/runbook/{code}.md", one.goal)
}

/// A bad edit of a goal that runs is no hurry; a goal of which nothing runs watches over nothing.
pub(super) fn invalid(facts: &Facts<'_>) -> Said {
    let invalid = || facts.goals.iter().filter(|one| one.file_error.is_some());
    let of =
        |runs: bool| named(invalid().filter(|one| one.digest.is_some() == runs).map(|one| one.goal.as_str()));
    let idle = of(false).map(|names| format!("{names}: the file does not check, and no version of it runs"));
    let edited = of(true)
        .map(|names| format!("{names}: the file on disk is not what runs; the last good version does"));
    let hint = invalid().next().map(|one| shown(one, one.file_error.as_deref(), "GOAL_INVALID"));
    let sentences: Vec<_> = idle.into_iter().chain(edited).collect();
    (!sentences.is_empty()).then(|| (sentences.join("; "), hint.unwrap_or_default()))
}

/// It is refused by `config check` and only told by a start, so that a controller comes up at night.
pub(super) fn unfit(facts: &Facts<'_>) -> Said {
    let first = listed_by(facts.unfit, NAMED, "; ");
    let hint =
        "it does nothing: mend it or take it out (trued config check, trued goal set NAME --unset KEY)";
    (!first.is_empty()).then(|| (first, hint.to_owned()))
}

/// What a goal returns; what it returned before it was unknown is as likely now.
fn returned(facts: &Facts<'_>, goal: &str) -> Option<i64> {
    let one = facts.goals.iter().find(|one| one.goal == goal && one.findings > 0)?;
    Some(one.findings)
}

pub(super) fn no_copy(facts: &Facts<'_>) -> Said {
    let findings = returned(facts, "copies-exist")?;
    let have = if findings == 1 { "has" } else { "have" };
    let many = counted(findings, "repository");
    let sentence = format!("{many} {have} no good copy anywhere, nothing of it is removed");
    Some((sentence, "trued backlog --goal copies-exist, then the runbook".to_owned()))
}

pub(super) fn last_copy(facts: &Facts<'_>) -> Said {
    let findings = returned(facts, "last-copies-safe")?;
    let have = if findings == 1 { "has" } else { "have" };
    let many = counted(findings, "repository");
    let sentence = format!("{many} {have} one good copy left of several wanted");
    Some((sentence, "trued backlog --goal last-copies-safe".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, goal};
    use super::super::{BacklogCounts, report};
    use super::*;

    #[test]
    fn a_bad_file_says_whether_an_older_version_runs() {
        let none = BacklogCounts::default();
        let bad = |name: &str, digest: Option<&str>| GoalStatus {
            file_error: Some(format!("goals/{name}.sql:7:12: no")),
            digest: digest.map(str::to_owned),
            ..goal(name, GoalState::Met, 0)
        };
        let said = |goals: &[GoalStatus]| report(&facts(goals, &none, &[])).details.remove(0);
        let (new, old) = (bad("new", None), bad("old", Some("d")));
        let (idle, runs) = (
            "new: the file does not check, and no version of it runs",
            "old: the file on disk is not what runs; the last good version does",
        );
        assert_eq!(said(std::slice::from_ref(&new)).sentence, idle);
        assert_eq!(said(std::slice::from_ref(&old)).sentence, runs);
        let both = said(&[old, new]);
        assert_eq!((both.code.as_str(), both.sentence), ("GOAL_INVALID", format!("{idle}; {runs}")));
        let hint = "goals/old.sql:7:12: no; trued goal show old; docs/runbook/GOAL_INVALID.md";
        assert_eq!(both.hint, hint);
        let late =
            GoalStatus { failures: 3, error: Some("timed out".into()), ..goal("a", GoalState::Unknown, 0) };
        let late = said(&[late]);
        let hint = "timed out; trued goal show a; docs/runbook/GOAL_STALE.md";
        assert_eq!((late.code.as_str(), late.hint.as_str()), ("GOAL_STALE", hint));
    }
}
