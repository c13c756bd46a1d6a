//! Health codes: what a person should know of, each with a sentence and a hint. Pure but for reading one fact.
//!
//! One place for `status`, `/healthz` and the metrics, so that they never disagree. A code
//! is stable, and has a page of its name in `docs/runbook/`.

use super::shapes::{HealthCode, HealthReport};
use crate::database::drains::Drain;
use crate::database::report::{self, BacklogCounts, tally, work};
use crate::database::{self, Database};
use crate::model::Millis;
use crate::model::amount::{counted, listed};
use crate::model::brake::{BLIND, Brake, START};
use crate::model::finding::FindingState;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::goal::{GoalState, GoalStatus};

mod goals;

pub use goals::is_dead;

/// Eligible work this old with nothing done meanwhile is a stalled backlog.
pub const STALLED_AFTER: Millis = 600_000;

/// Names in one sentence; the others are counted.
const NAMED: usize = 3;

/// All codes, the most urgent first.
pub const ALL: &[&str] = &[
    "SQL_AWAY",
    "NO_COPY",
    "LAST_COPY",
    "FILESERVER_EMPTY",
    "CONTROLLER_BLIND",
    "HISTORY_LOST",
    "UNKNOWN_REPOSITORY",
    "REPOSITORY_STUCK",
    "GOAL_DEAD",
    "GOAL_STALE",
    "GOAL_INVALID",
    "SETTING_UNFIT",
    "GOAL_BRAKED",
    "BACKLOG_STALLED",
    "DRAIN_STALLED",
    "FILESERVER_SILENT",
    "REDIS_AWAY",
];

/// What the codes are read from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// How each goal stands.
    pub goals: &'a [GoalStatus],
    /// The backlog in numbers.
    pub backlog: &'a BacklogCounts,
    /// All fileservers.
    pub fileservers: &'a [Fileserver],
    /// Fileservers that are being emptied.
    pub drains: &'a [Drain],
    /// All brakes.
    pub brakes: &'a [Brake],
    /// Fileservers with copies of repositories that neither a row nor a tombstone knows, and how many.
    pub unknown: &'a [(String, i64)],
    /// Repositories of which a copy has committed more than the database knows.
    pub lost: &'a [String],
    /// Repairs that could start for [`STALLED_AFTER`] and of which nothing was done or failed meanwhile.
    pub stalled: &'a [Stalled],
    /// What is set over goals and does nothing, a sentence for each.
    pub unfit: &'a [String],
    /// What is wrong with the database, if something is.
    pub sql: Option<&'a str>,
    /// What is wrong with Redis, if it is used and something is.
    pub redis: Option<&'a str>,
    /// The moment.
    pub now: Millis,
}

/// A repair that could go on and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// Its name.
    pub repair: String,
    /// Findings that could start.
    pub ready: i64,
    /// Since when.
    pub since: Millis,
    /// Its attempts that are queued or running.
    pub in_flight: i64,
    /// What most of its findings wait for.
    pub waits: Option<String>,
}

/// Repairs that stand still although they could go on. Where none does, that costs one look at what ended lately.
///
/// # Errors
/// When the engine fails.
pub async fn stalled(db: &Database, backlog: &BacklogCounts, now: Millis) -> database::Result<Vec<Stalled>> {
    let old: Vec<_> = backlog.ready.iter().filter(|(_, _, since)| now - since > STALLED_AFTER).collect();
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let going_on = tally::going_on(db, now - STALLED_AFTER).await?;
    let in_flight = work::in_flight(db).await?;
    let mut stalled = Vec::new();
    for (repair, ready, since) in old.into_iter().filter(|(repair, ..)| !going_on.contains(repair)) {
        let in_flight = in_flight.iter().find(|(name, _)| name == repair).map_or(0, |(_, many)| *many);
        let waits = report::backlog::mostly_waits(db, repair).await?;
        stalled.push(Stalled { repair: repair.clone(), ready: *ready, since: *since, in_flight, waits });
    }
    Ok(stalled)
}

/// What is raised now, and the level of all of it.
#[must_use]
pub fn report(facts: &Facts<'_>) -> HealthReport {
    let details: Vec<HealthCode> = ALL.iter().filter_map(|code| raised(code, facts)).collect();
    let unmet = facts.goals.iter().any(|one| one.state != GoalState::Met);
    let worst = details.iter().any(|one| is_error(&one.code));
    let level = match (worst, details.is_empty() && !unmet) {
        (true, _) => "HEALTH_ERR",
        (false, true) => "HEALTH_OK",
        (false, false) => "HEALTH_WARN",
    };
    let codes = details.iter().map(|one| one.code.clone()).collect();
    HealthReport { level: level.to_owned(), codes, details }
}

/// Codes at which data is at risk; the others are warnings.
fn is_error(code: &str) -> bool {
    matches!(
        code,
        "SQL_AWAY" | "NO_COPY" | "LAST_COPY" | "FILESERVER_EMPTY" | "CONTROLLER_BLIND" | "HISTORY_LOST"
    )
}

fn raised(code: &str, facts: &Facts<'_>) -> Option<HealthCode> {
    let (sentence, hint) = match code {
        "SQL_AWAY" => sql_away(facts),
        "NO_COPY" => goals::no_copy(facts),
        "LAST_COPY" => goals::last_copy(facts),
        "FILESERVER_EMPTY" => fileserver_empty(facts),
        "CONTROLLER_BLIND" => controller_blind(facts),
        "HISTORY_LOST" => history_lost(facts),
        "UNKNOWN_REPOSITORY" => unknown_repository(facts),
        "REPOSITORY_STUCK" => repository_stuck(facts),
        "GOAL_DEAD" => goals::dead(facts),
        "GOAL_STALE" => goals::stale(facts),
        "GOAL_INVALID" => goals::invalid(facts),
        "SETTING_UNFIT" => goals::unfit(facts),
        "GOAL_BRAKED" => goal_braked(facts),
        "BACKLOG_STALLED" => backlog_stalled(facts),
        "REDIS_AWAY" => redis_away(facts),
        "DRAIN_STALLED" => drain_stalled(facts),
        _ => fileserver_silent(facts),
    }?;
    Some(HealthCode { code: code.to_owned(), sentence, hint })
}

type Said = Option<(String, String)>;

fn fileserver_empty(facts: &Facts<'_>) -> Said {
    let empty = facts.fileservers.iter().filter(|one| one.empty_since.is_some());
    let names = named(empty.map(|one| one.name.as_str()))?;
    let sentence = format!("{names}: the root is another one than the one that held its copies");
    Some((sentence, "look at its disks; nothing is removed or forgotten meanwhile".to_owned()))
}

fn controller_blind(facts: &Facts<'_>) -> Said {
    let brake = facts.brakes.iter().find(|brake| brake.holds && brake.name == BLIND)?;
    let sentence = format!("{}: the controller seems to be cut off, no repair starts", brake.reason);
    Some((sentence, "look at the controller's own network before you look at the fileservers".to_owned()))
}

fn history_lost(facts: &Facts<'_>) -> Said {
    let names = named(facts.lost.iter().map(String::as_str))?;
    let sentence =
        format!("{names}: a copy has committed more than the database knows, nothing is overwritten");
    Some((sentence, "the database went back: see the runbook before anything else".to_owned()))
}

fn unknown_repository(facts: &Facts<'_>) -> Said {
    let names = named(facts.unknown.iter().map(|(name, _)| name.as_str()))?;
    let copies: i64 = facts.unknown.iter().map(|(_, copies)| copies).sum();
    let stand = if copies == 1 { "stands" } else { "stand" };
    let copies = counted(copies, "copy");
    let sentence = format!("{copies} of repositories that nothing knows of {stand} on {names}");
    Some((sentence, "did the database go back? Nothing of them is removed; a person decides".to_owned()))
}

fn repository_stuck(facts: &Facts<'_>) -> Said {
    let stuck = facts.backlog.of(FindingState::Stuck);
    let need = if stuck == 1 { "needs a person: its repair does" } else { "need a person: their repairs do" };
    let sentence = format!("{} {need} not help", counted(stuck, "finding"));
    (stuck > 0).then(|| (sentence, "trued backlog --state stuck, then trued why SUBJECT".to_owned()))
}

fn goal_braked(facts: &Facts<'_>) -> Said {
    let holding = || facts.brakes.iter().filter(|one| one.holds && one.name != BLIND && one.name != START);
    let names = named(holding().map(|one| one.name.as_str()))?;
    let first = holding().next()?;
    let how = match first.goal() {
        Some(goal) => format!("trued goal approve {goal} --reason …"),
        None => format!("trued goal approve --brake {} --reason …", first.name),
    };
    Some((format!("brake {names} holds repairs: {}", first.reason), format!("if that is right: {how}")))
}

fn backlog_stalled(facts: &Facts<'_>) -> Said {
    let one = facts.stalled.iter().max_by_key(|one| one.ready)?;
    let minutes = (facts.now - one.since) / 60_000;
    let others = match facts.stalled.len() {
        1 => String::new(),
        2 => ", and so does 1 more repair".to_owned(),
        many => format!(", and so do {} more repairs", many - 1),
    };
    let what = match (&one.waits, one.in_flight) {
        (Some(waits), _) => format!("; most wait because {waits}"),
        (None, 0) => "; nothing of it was started: no controller dispatches".to_owned(),
        (None, 1) => "; its 1 attempt does not end".to_owned(),
        (None, many) => format!("; its {many} attempts do not end"),
    };
    let sentence = format!(
        "{} could be repaired by {} for {} and nothing of it ended{what}{others}",
        counted(one.ready, "finding"),
        one.repair,
        counted(minutes, "minute"),
    );
    let hint = match one.in_flight {
        0 => "trued limits show, then the controllers' logs",
        _ => "does a worker run? trued attempts says who has what, and since when",
    };
    Some((sentence, hint.to_owned()))
}

fn sql_away(facts: &Facts<'_>) -> Said {
    let sentence = facts.sql?.to_owned();
    Some((sentence, "connections are renewed by themselves once a server takes writes".to_owned()))
}

fn redis_away(facts: &Facts<'_>) -> Said {
    let sentence = format!("Redis carries no reminders: {}", facts.redis?);
    Some((sentence, "nothing is lost: workers look at SQL every queue.sweep".to_owned()))
}

/// Copies are left, none went for ten minutes, and nothing works on them.
fn drain_stalled(facts: &Facts<'_>) -> Said {
    let stalled = |one: &&Drain| one.left > 0 && !one.working && facts.now - one.moved_at > STALLED_AFTER;
    let all: Vec<&Drain> = facts.drains.iter().filter(stalled).collect();
    let names = named(all.iter().map(|one| one.name.as_str()))?;
    let left: i64 = all.iter().map(|one| one.left).sum();
    let sentence = format!("{names}: {} left, and none went for ten minutes", counted(left, "copy"));
    Some((sentence, "trued fileserver evacuate NAME --watch names what is in the way".to_owned()))
}

/// A retired one may be gone, and a lost one is.
fn fileserver_silent(facts: &Facts<'_>) -> Said {
    let lost =
        |one: &Fileserver| facts.drains.iter().any(|drain| drain.id == one.id && drain.lost_at.is_some());
    let silent = facts
        .fileservers
        .iter()
        .filter(|one| one.health == Health::Offline && one.intent != Intent::Retire && !lost(one));
    let names = named(silent.map(|one| one.name.as_str()))?;
    Some((format!("{names} does not answer"), "trued fileserver show NAME, then its agent's log".to_owned()))
}

/// The first names, and how many more; none: there is none.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let all: Vec<&str> = names.collect();
    (!all.is_empty()).then(|| listed(&all, NAMED))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn goal(name: &str, state: GoalState, findings: i64) -> GoalStatus {
        GoalStatus {
            goal: name.into(),
            state,
            findings,
            at_least: false,
            evaluated_at: Some(1),
            finished_at: Some(1),
            took_ms: Some(2),
            error: None,
            failures: 0,
            file_error: None,
            digest: None,
            ended: None,
            gave_way: None,
            gave_way_at: None,
        }
    }

    pub(crate) fn facts<'a>(
        goals: &'a [GoalStatus],
        backlog: &'a BacklogCounts,
        brakes: &'a [Brake],
    ) -> Facts<'a> {
        Facts {
            goals,
            backlog,
            fileservers: &[],
            drains: &[],
            brakes,
            unknown: &[],
            lost: &[],
            stalled: &[],
            unfit: &[],
            sql: None,
            redis: None,
            now: 0,
        }
    }

    fn brake(name: &str) -> Brake {
        let look =
            crate::model::brake::Look { cause: Some("120 of 130".into()), at: 0, looks: 1, patience: 0 };
        crate::model::brake::after(name, None, &look).unwrap()
    }

    #[test]
    fn a_last_copy_is_an_error_and_a_stale_goal_a_warning() {
        let none = BacklogCounts::default();
        let ok = report(&facts(&[goal("a", GoalState::Met, 0)], &none, &[]));
        assert_eq!((ok.level.as_str(), ok.codes.len()), ("HEALTH_OK", 0));
        let stale =
            GoalStatus { failures: 3, error: Some("timed out".into()), ..goal("a", GoalState::Unknown, 0) };
        let warn = report(&facts(&[stale], &none, &[]));
        assert_eq!((warn.level.as_str(), warn.codes), ("HEALTH_WARN", vec!["GOAL_STALE".to_owned()]));
        let none_left = report(&facts(&[goal("copies-exist", GoalState::Unmet, 2)], &none, &[]));
        assert_eq!(
            (none_left.level.as_str(), &none_left.codes[..]),
            ("HEALTH_ERR", &["NO_COPY".to_owned()][..])
        );
        let said = &none_left.details[0].sentence;
        assert_eq!(said, "2 repositories have no good copy anywhere, nothing of it is removed");
        assert!(warn.details[0].hint.starts_with("timed out; trued goal show a"), "{:?}", warn.details);
        let last = report(&facts(&[goal("last-copies-safe", GoalState::Unmet, 1)], &none, &[]));
        assert_eq!(last.level, "HEALTH_ERR");
    }

    #[test]
    fn a_stalled_backlog_names_the_repair_and_the_limit_that_binds_it() {
        let none = BacklogCounts::default();
        let waits = Some("repair resync is at its limit of 4 attempts".to_owned());
        let one = Stalled { repair: "resync".into(), ready: 312, since: 0, in_flight: 4, waits };
        let said = |stalled: &[Stalled]| {
            report(&Facts { stalled, now: 14 * 60_000, ..facts(&[], &none, &[]) }).details.remove(0)
        };
        let first = said(std::slice::from_ref(&one));
        assert_eq!(first.code, "BACKLOG_STALLED");
        assert_eq!(
            first.sentence,
            "312 findings could be repaired by resync for 14 minutes and nothing of it ended; most wait because \
             repair resync is at its limit of 4 attempts"
        );
        let idle = Stalled { repair: "verify".into(), ready: 999, in_flight: 0, waits: None, ..one.clone() };
        let both = said(&[one, idle]);
        assert!(both.sentence.starts_with("999 findings could be repaired by verify"), "{}", both.sentence);
        assert!(
            both.sentence.ends_with("no controller dispatches, and so does 1 more repair"),
            "{}",
            both.sentence
        );
        assert!(report(&facts(&[], &none, &[])).codes.is_empty());
    }

    #[test]
    fn a_drain_that_nothing_leaves_and_nobody_works_on_is_stalled() {
        let none = BacklogCounts::default();
        let drain = Drain {
            id: crate::model::id::FileserverId(7),
            name: "fs-07".into(),
            health: "online".into(),
            since: 0,
            replicas: 9,
            left: 3,
            moved_at: 0,
            lost_at: None,
            processes: 0,
            seen_at: None,
            working: false,
        };
        let raised = |drain: Drain, now| {
            report(&Facts { drains: &[drain], now, ..facts(&[], &none, &[]) })
                .details
                .into_iter()
                .map(|one| one.sentence)
                .collect::<Vec<_>>()
        };
        let said = raised(drain.clone(), STALLED_AFTER + 1);
        assert_eq!(said, ["fs-07: 3 copies left, and none went for ten minutes"]);
        assert!(raised(drain.clone(), STALLED_AFTER - 1).is_empty());
        assert!(
            raised(Drain { working: true, ..drain.clone() }, STALLED_AFTER + 1).is_empty(),
            "a copy may take hours"
        );
        assert!(raised(Drain { left: 0, ..drain }, STALLED_AFTER + 1).is_empty());
    }

    #[test]
    fn a_brake_says_what_it_saw_and_how_a_person_releases_it() {
        let none = BacklogCounts::default();
        let brakes = [brake("goal:a"), brake("offline")];
        let said = report(&facts(&[], &none, &brakes)).details.remove(0);
        assert_eq!(said.code, "GOAL_BRAKED");
        assert_eq!(said.sentence, "brake goal:a, offline holds repairs: 120 of 130");
        assert_eq!(said.hint, "if that is right: trued goal approve a --reason …");
        let approved = Brake { holds: false, approved: Some(1), ..brake("goal:a") };
        assert!(report(&facts(&[], &none, &[approved])).codes.is_empty());
        let blind = report(&facts(&[], &none, &[brake(BLIND)]));
        assert_eq!((blind.level.as_str(), blind.codes), ("HEALTH_ERR", vec!["CONTROLLER_BLIND".to_owned()]));
        assert!(report(&facts(&[], &none, &[brake(START)])).codes.is_empty(), "each start waits a moment");
    }

    #[test]
    fn a_copy_that_knows_more_than_the_database_is_an_error() {
        let (none, lost) = (BacklogCounts::default(), ["a/b".to_owned()]);
        let said = report(&Facts { lost: &lost, ..facts(&[], &none, &[]) });
        assert_eq!((said.level.as_str(), said.codes), ("HEALTH_ERR", vec!["HISTORY_LOST".to_owned()]));
    }

    #[test]
    fn copies_that_nothing_knows_of_are_a_persons_to_decide() {
        let none = BacklogCounts::default();
        let unknown = [("fs-1".to_owned(), 2), ("fs-2".to_owned(), 1)];
        let said = report(&Facts { unknown: &unknown, ..facts(&[], &none, &[]) });
        assert_eq!((said.level.as_str(), said.codes), ("HEALTH_WARN", vec!["UNKNOWN_REPOSITORY".to_owned()]));
        let sentence = "3 copies of repositories that nothing knows of stand on fs-1, fs-2";
        assert_eq!(said.details[0].sentence, sentence);
    }

    #[test]
    fn each_code_has_a_page_in_the_runbook() {
        let runbook = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbook");
        for code in ALL {
            let text = std::fs::read_to_string(runbook.join(format!("{code}.md"))).expect(code);
            for part in ["## What it means", "## What to look at", "## What to do"] {
                assert!(text.contains(part), "{code} has no part {part:?}");
            }
        }
    }
}
