//! `trued status`: the fleet at a glance, in 80 columns.

use super::args::Global;
use super::client::Client;
use super::failure::Exit;
use super::output::{self, age, counted, cut, number, wrapped};
use crate::clock;
use crate::http::shapes::{BrakeRow, DrainShown, GoalRow, PressureRow, Status, stands_out};
use crate::model::Millis;
use crate::model::fleet::Health;
use crate::model::goal::GoalState;
use std::fmt::Write as _;

/// Columns of the smallest terminal.
const WIDTH: usize = 80;

/// Codes of what trued itself runs on, and of what is set for it: their sentences are shown, since no other line tells
/// of them.
const TOLD: [&str; 3] = ["SQL_AWAY", "REDIS_AWAY", "SETTING_UNFIT"];

/// Which command tells more, where there is more.
const FINDINGS: &str = "  → trued goal run NAME: a goal's findings; trued backlog: those to repair";
const ERRORS: &str = "  → trued goal show NAME: its error, whole";

/// Runs it.
///
/// # Errors
/// When nobody answers.
pub async fn run(global: &Global) -> anyhow::Result<Exit> {
    let status: Status = Client::new(global)?.get(&["status"], &[]).await?;
    output::answer(global.output, &status, || render(&status, clock::now()))?;
    Ok(exit(&status))
}

/// 7 when a goal is unknown or does not run, or the database takes no evaluation, else 3 when findings are open.
fn exit(status: &Status) -> Exit {
    let is_unknown = |goal: &GoalRow| goal.no_version || goal.state == GoalState::Unknown;
    if nothing_known(status) || status.goals.iter().any(is_unknown) {
        return Exit::Unknown;
    }
    if status.backlog.total > 0 || status.goals.iter().any(|goal| goal.state == GoalState::Unmet) {
        return Exit::Open;
    }
    Exit::Done
}

/// Whether what is said of goals is of another time: no evaluation can be written.
fn nothing_known(status: &Status) -> bool {
    status.health.codes.iter().any(|code| code == "SQL_AWAY")
}

fn render(status: &Status, now: Millis) -> String {
    let mut text = String::new();
    for line in [health(status, now), goals(status), backlog(status), fileservers(status)] {
        let _ = writeln!(text, "{}", cut(line.trim_end(), WIDTH));
    }
    let shown = |goal: &&GoalRow| goal.state != GoalState::Met || goal.error.is_some() || stands_out(goal);
    for goal in status.goals.iter().filter(shown) {
        let _ = writeln!(text, "{}", wrapped(&trouble(goal), WIDTH, "    "));
        if let Some(error) = &goal.file_error {
            // Whole: the place and the code are what it is for.
            let what = if goal.no_version {
                "its file does not check, and no version of it runs"
            } else {
                "its file is not what runs"
            };
            let line = format!("    {what}: {error}");
            let _ = writeln!(text, "{}", wrapped(&line, WIDTH, "      "));
        }
        if let Some(pause) = &goal.paused {
            let until = pause.until.map_or(String::new(), |until| format!(" for {}", age(until - now)));
            let line = format!("    PAUSED{until} by {}: {}", pause.by, pause.reason);
            let _ = writeln!(text, "{}", cut(&line, WIDTH));
        }
    }
    for (is_there, line) in [
        (status.goals.iter().any(|goal| goal.findings > 0), FINDINGS),
        (status.goals.iter().any(|goal| goal.error.is_some()), ERRORS),
    ] {
        if is_there {
            let _ = writeln!(text, "{line}");
        }
    }
    for server in status.fileservers.iter().filter(|server| server.health != Health::Online) {
        let counts = if server.counts { "still counts" } else { "does not count" };
        let copies = counted(server.replicas.unsigned_abs(), "copy");
        let line = format!("  {} is {}, {copies}, {counts}", server.name, server.health);
        let _ = writeln!(text, "{}", cut(&line, WIDTH));
    }
    for one in status.health.details.iter().filter(|one| TOLD.contains(&one.code.as_str())) {
        let line = format!("  {}: {}", one.code, one.sentence);
        let _ = writeln!(text, "{}", wrapped(&line, WIDTH, "    "));
    }
    if let Some(pressure) = &status.pressure {
        let _ = writeln!(text, "{}", cut(&slowed(pressure), WIDTH));
    }
    for brake in &status.brakes {
        let _ = writeln!(text, "{}", cut(&held(brake), WIDTH));
    }
    for note in &status.notes {
        let _ = writeln!(text, "NOTE        {note}");
    }
    if status.backlog.stuck > 0 {
        let need = if status.backlog.stuck == 1 { "needs" } else { "need" };
        let line =
            format!("STUCK       {} {need} a person → trued backlog --state stuck", status.backlog.stuck);
        let _ = writeln!(text, "{}", cut(&line, WIDTH));
    }
    text
}

fn slowed(pressure: &PressureRow) -> String {
    let PressureRow { name, pace, round_trip_ms, .. } = pressure;
    let answer = round_trip_ms.map_or_else(String::new, |ms| format!(": SQL answers in {ms} ms"));
    format!("BRAKE       {name} holds dispatch and evaluation at {pace} %{answer}")
}

fn held(brake: &BrakeRow) -> String {
    let BrakeRow { name, reason, held, .. } = brake;
    if brake.holds {
        return format!("BRAKE       {name} holds {}: {reason}", number(*held));
    }
    format!("BRAKE       {name} was released by a person: {reason}")
}

fn health(status: &Status, now: Millis) -> String {
    let last = status.goals.iter().filter_map(|goal| goal.evaluated_at).max();
    let evaluated =
        last.map_or("never evaluated".to_owned(), |at| format!("evaluated {} ago", age(now - at)));
    format!("HEALTH      {}   {evaluated}   {}", status.health.level, status.health.codes.join(" "))
}

fn goals(status: &Status) -> String {
    let goals = &status.goals;
    let of = |state| goals.iter().filter(|goal| goal.state == state).count();
    if nothing_known(status) {
        let met = of(GoalState::Met);
        return format!("GOALS       NOT KNOWN now   {met} of {} met when they last were", goals.len());
    }
    let mut line = format!("GOALS       {} met   {} unmet", of(GoalState::Met), of(GoalState::Unmet));
    if of(GoalState::Unknown) > 0 {
        let _ = write!(line, "   {} UNKNOWN", of(GoalState::Unknown));
    }
    let paused = goals.iter().filter(|goal| goal.paused.is_some()).count();
    let files = goals.iter().filter(|goal| goal.file_error.is_some()).count();
    for (count, what) in
        [(paused, "paused"), (files, "with a bad file")].iter().filter(|(count, _)| *count > 0)
    {
        let _ = write!(line, "   {count} {what}");
    }
    line
}

fn trouble(goal: &GoalRow) -> String {
    let mut line = format!("  {} is {}", goal.name, goal.state);
    if goal.findings > 0 {
        let bound = if goal.at_least { "at least " } else { "" };
        let _ = write!(line, ", {bound}{}", counted(goal.findings.unsigned_abs(), "finding"));
    }
    if let Some(error) = goal.error.as_ref().filter(|error| goal.file_error.as_ref() != Some(*error)) {
        let _ = write!(line, ": {error}");
    }
    line
}

fn backlog(status: &Status) -> String {
    let backlog = &status.backlog;
    let mut line = format!("BACKLOG     {}", number(backlog.total));
    if let Some(oldest) = backlog.oldest_seconds {
        let _ = write!(line, "   oldest {}", age(oldest * 1_000));
    }
    let kinds = [
        (backlog.running, "running"),
        (backlog.ready, "ready"),
        (backlog.waiting, "waiting"),
        (backlog.held, "held"),
        (backlog.stuck, "stuck"),
    ];
    for (count, state) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(line, "   {} {state}", number(count));
    }
    line
}

fn fileservers(status: &Status) -> String {
    let of = |health| status.fileservers.iter().filter(|server| server.health == health).count();
    let mut line = format!("FILESERVERS {} online", of(Health::Online));
    for health in [Health::Suspect, Health::Offline] {
        if of(health) > 0 {
            let _ = write!(line, "   {} {health}", of(health));
        }
    }
    for drain in &status.drains {
        let what = if drain.lost { "lost" } else { "evacuating" };
        let _ = write!(line, "   {what} {} ({}", drain.name, drained(drain));
    }
    line
}

/// `61 %, ~40m)`, `1 process)`, `empty)`
fn drained(drain: &DrainShown) -> String {
    if drain.left == 0 {
        return match drain.processes {
            0 => "empty)".to_owned(),
            1 => "1 process)".to_owned(),
            more => format!("{more} processes)"),
        };
    }
    let ahead = drain.seconds_left.map_or_else(String::new, |seconds| format!(", ~{}", age(seconds * 1_000)));
    format!("{} %{ahead})", drain.percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shapes::{Backlog, FileserverRow, HealthCode, HealthReport, PausedGoal};
    use crate::model::fleet::Intent;

    fn status() -> Status {
        let goal = |name: &str, state, findings, error: Option<&str>| GoalRow {
            name: name.into(),
            state,
            findings,
            at_least: findings > 2,
            evaluated_at: Some(1_000),
            took_ms: Some(2),
            error: error.map(Into::into),
            file_error: None,
            no_version: false,
            paused: None,
        };
        let server = |name: &str, health, counts| FileserverRow {
            name: name.into(),
            rack: "rack-1".into(),
            intent: Intent::Serve,
            health,
            counts,
            replicas: 1_200,
            disk_used: 1,
            disk_free: 2,
        };
        Status {
            goals: vec![
                goal("racks-differ", GoalState::Met, 0, None),
                goal("replicas-match", GoalState::Unmet, 3, None),
                goal("replicas-suffice", GoalState::Unknown, 0, Some("timeout 30s")),
            ],
            backlog: Backlog {
                total: 3,
                waiting: 1,
                running: 2,
                oldest_seconds: Some(70),
                ..Backlog::default()
            },
            fileservers: vec![server("fs-1", Health::Online, true), server("fs-2", Health::Offline, false)],
            drains: vec![],
            brakes: vec![],
            pressure: None,
            health: HealthReport {
                level: "HEALTH_WARN".into(),
                codes: vec!["FILESERVER_SILENT".into()],
                details: vec![],
            },
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_glance_fits_eighty_columns() {
        let text = render(&status(), 39_000);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        insta::assert_snapshot!(text, @r"
        HEALTH      HEALTH_WARN   evaluated 38s ago   FILESERVER_SILENT
        GOALS       1 met   1 unmet   1 UNKNOWN
        BACKLOG     3   oldest 1m10s   2 running   1 waiting
        FILESERVERS 1 online   1 offline
          replicas-match is unmet, at least 3 findings
          replicas-suffice is unknown: timeout 30s
          → trued goal run NAME: a goal's findings; trued backlog: those to repair
          → trued goal show NAME: its error, whole
          fs-2 is offline, 1,200 copies, does not count
        ");
    }

    #[test]
    fn a_brake_is_shown_with_what_it_holds_and_saw() {
        let brake = BrakeRow {
            name: "goal:a".into(),
            reason: "120 unexplained findings".into(),
            since: 0,
            holds: true,
            approved: None,
            held: 120,
        };
        assert_eq!(held(&brake), "BRAKE       goal:a holds 120: 120 unexplained findings");
        let approved = BrakeRow { holds: false, approved: Some(1), ..brake };
        assert!(held(&approved).contains("released by a person"));
    }

    #[test]
    fn a_slow_database_is_shown_by_its_brake_and_one_that_is_away_by_its_code() {
        let pressure = PressureRow { name: "sql".into(), pace: 12, round_trip_ms: Some(212), lag_ms: 0 };
        assert_eq!(
            slowed(&pressure),
            "BRAKE       sql holds dispatch and evaluation at 12 %: SQL answers in 212 ms"
        );
        let code =
            |code: &str| HealthCode { code: code.into(), sentence: "it is so".into(), hint: String::new() };
        let health = HealthReport {
            level: "HEALTH_ERR".into(),
            codes: vec!["SQL_AWAY".into()],
            details: vec![code("SQL_AWAY")],
        };
        let away = Status { goals: vec![], backlog: Backlog::default(), health, ..status() };
        let text = render(&away, 0);
        assert!(text.contains("  SQL_AWAY: it is so\n"), "{text}");
        assert!(text.contains("GOALS       NOT KNOWN now   0 of 0 met when they last were\n"), "{text}");
        assert_eq!(exit(&away), Exit::Unknown);
    }

    #[test]
    fn a_pause_and_a_bad_file_stand_out_on_a_goal_that_is_met() {
        let mut one = status();
        one.goals.truncate(1);
        one.goals[0].file_error = Some("goals/racks-differ.sql:7:12: no such column: rack".into());
        one.goals[0].error = one.goals[0].file_error.clone();
        one.goals[0].paused = Some(PausedGoal {
            by: "local".into(),
            reason: "a rack moves".into(),
            until: Some(99_000),
            since: 1,
        });
        let text = render(&one, 39_000);
        let lines: Vec<_> =
            text.lines().filter(|line| line.contains("GOALS") || line.starts_with("  ")).collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        GOALS       1 met   0 unmet   1 paused   1 with a bad file
          racks-differ is met
            its file is not what runs: goals/racks-differ.sql:7:12: no such column: rack
            PAUSED for 1m00s by local: a rack moves
          → trued goal show NAME: its error, whole
          fs-2 is offline, 1,200 copies, does not count
        ");
    }

    #[test]
    fn a_bad_file_of_a_goal_that_never_ran_is_not_told_as_an_edit() {
        let mut one = status();
        one.goals.truncate(1);
        one.goals[0].file_error = Some("goals/racks-differ.sql:7:12: no".into());
        one.goals[0].no_version = true;
        let text = render(&one, 39_000);
        assert!(text.contains("    its file does not check, and no version of it runs:\n"), "{text}");
        assert!(!text.contains("is not what runs"), "{text}");
        assert_eq!(exit(&one), Exit::Unknown, "its state is of another day");
    }

    #[test]
    fn unknown_goes_before_open_findings() {
        let mut one = status();
        assert_eq!(exit(&one), Exit::Unknown);
        one.goals.pop();
        assert_eq!(exit(&one), Exit::Open);
        one.goals.pop();
        assert_eq!(exit(&one), Exit::Open);
        one.backlog = Backlog::default();
        assert_eq!(exit(&one), Exit::Done);
        one.health.codes = vec!["SQL_AWAY".into()];
        assert_eq!(exit(&one), Exit::Unknown, "nobody can have looked");
    }

    #[test]
    fn the_json_has_the_promised_shape() {
        let json = serde_json::to_string(&status()).unwrap();
        insta::assert_snapshot!(json, @r#"{"goals":[{"name":"racks-differ","state":"met","findings":0,"at_least":false,"evaluated_at":1000,"took_ms":2,"error":null},{"name":"replicas-match","state":"unmet","findings":3,"at_least":true,"evaluated_at":1000,"took_ms":2,"error":null},{"name":"replicas-suffice","state":"unknown","findings":0,"at_least":false,"evaluated_at":1000,"took_ms":2,"error":"timeout 30s"}],"backlog":{"total":3,"waiting":1,"ready":0,"running":2,"held":0,"stuck":0,"oldest_seconds":70},"fileservers":[{"name":"fs-1","rack":"rack-1","intent":"serve","health":"online","counts":true,"replicas":1200,"disk_used":1,"disk_free":2},{"name":"fs-2","rack":"rack-1","intent":"serve","health":"offline","counts":false,"replicas":1200,"disk_used":1,"disk_free":2}],"drains":[],"brakes":[],"pressure":null,"health":{"level":"HEALTH_WARN","codes":["FILESERVER_SILENT"],"details":[]},"notes":[]}"#);
    }
}
