//! `trued goal diff`, `explain`, `history`: what an edit would do, how an engine answers, what evaluations said.

use super::super::args::Global;
use super::super::client::Client;
use super::super::failure::Exit;
use super::super::output::{self, counted, moment, number, size};
use super::check;
use crate::goal::trial::DifferentRow;
use crate::http::shapes::{DiffGoal, GoalDiff, GoalHistory, GoalPlan};
use std::fmt::Write as _;
use std::path::Path;

/// Compares an edited file with what runs.
///
/// # Errors
/// When the file cannot be read, nobody answers, or a query fails.
pub async fn diff(global: &Global, file: &Path, limit: usize) -> anyhow::Result<Exit> {
    let ask =
        DiffGoal { path: file.display().to_string(), text: check::read(global, file)?, limit: Some(limit) };
    let diff: GoalDiff = Client::new(global)?.post(&["goals", "diff"], &ask).await?;
    check::tell(&diff.checked);
    if diff.checked.problem.is_some() {
        return Ok(Exit::Failed);
    }
    output::answer(global.output, &diff, || render(&diff))?;
    Ok(if check::is_good(&diff.checked) { Exit::Done } else { Exit::Failed })
}

fn count(rows: u64) -> String {
    number(i64::try_from(rows).unwrap_or(i64::MAX))
}

fn render(diff: &GoalDiff) -> String {
    let mut text = String::new();
    for row in &diff.rows {
        let _ = writeln!(text, "{}", line(row, diff));
    }
    let near = if diff.more { "about " } else { "" };
    let before = diff.before.map_or("none, it does not run".to_owned(), count);
    let _ = writeln!(text, "{}: {near}{}, before {before}", diff.goal, counted(diff.after, "row"));
    let (added, removed, changed) = (count(diff.added), count(diff.removed), count(diff.changed));
    let _ = writeln!(text, "{near}{added} added, {removed} removed, {changed} changed");
    match &diff.repair {
        None => text.push_str("no repair: findings would only be listed\n"),
        Some(repair) => {
            let moved = size(diff.bytes);
            let _ = writeln!(
                text,
                "{near}{} of {repair} would start, moving {moved}",
                counted(diff.attempts, "attempt")
            );
        }
    }
    for held in &diff.held {
        let _ = writeln!(text, "not at once: {held}");
    }
    text
}

fn line(row: &DifferentRow, diff: &GoalDiff) -> String {
    let subject = row.subject.to_string();
    let subject = diff.names.get(&subject).unwrap_or(&subject);
    let mut line = format!("{} {subject}  priority ", row.sign);
    if let Some(was) = row.was_priority {
        let _ = write!(line, "{was} → ");
    }
    let _ = write!(line, "{}", row.priority);
    if let Some(reason) = &row.reason {
        let _ = write!(line, "  {reason}");
    }
    line
}

/// Shows the plan of a goal.
///
/// # Errors
/// When there is no such goal, or nobody answers.
pub async fn explain(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let plan: GoalPlan = Client::new(global)?.get(&["goals", name, "explain"], &[]).await?;
    output::answer(global.output, &plan, || plan.plan.lines.join("\n"))?;
    plan.remarks.iter().for_each(|remark| eprintln!("{}", check::shown(remark)));
    for one in &plan.ignored {
        eprintln!("{}: ignored: {}", one.what, one.reason);
    }
    super::tell_other_version(name, plan.other_version.as_ref());
    Ok(Exit::Done)
}

/// Shows evaluations.
///
/// # Errors
/// When there is no such goal, or nobody answers.
pub async fn history(global: &Global, name: &str, limit: usize) -> anyhow::Result<Exit> {
    let query = [("limit", limit.to_string())];
    let history: GoalHistory = Client::new(global)?.get(&["goals", name, "history"], &query).await?;
    output::answer(global.output, &history, || {
        let columns = ["BEGAN", "TOOK", "FINDINGS", "OPENED", "CLOSED", "CHANGED", "ERROR"];
        let rows = history.evaluations.iter().map(|one| {
            let found = |rows: i64| if one.error.is_some() { "-".to_owned() } else { number(rows) };
            vec![
                moment(one.began_at, history.now),
                format!("{} ms", one.took_ms),
                found(one.findings),
                found(one.opened),
                found(one.closed),
                found(one.changed),
                one.error.clone().unwrap_or_default(),
            ]
        });
        history.note.clone().unwrap_or_else(|| output::table(&columns, rows))
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shapes::CheckedGoal;
    use crate::model::finding::Subject;
    use crate::model::id::RepositoryId;

    #[test]
    fn a_difference_tells_subjects_sums_and_what_would_start() {
        let row = |sign, id, was| DifferentRow {
            sign,
            subject: Subject::Repository(RepositoryId(id)),
            priority: 300,
            was_priority: was,
            reason: Some("1 of 3 copies".into()),
        };
        let diff = GoalDiff {
            goal: "x".into(),
            checked: CheckedGoal::default(),
            now: 1,
            before: Some(1_200),
            after: 1_201,
            added: 1,
            removed: 0,
            changed: 1,
            more: false,
            rows: vec![row('+', 4, None), row('~', 7, Some(200))],
            names: [("repository:4".to_owned(), "a/four".to_owned())].into(),
            repair: Some("re-replicate".into()),
            attempts: 1,
            bytes: 3 << 30,
            held: vec!["held by the brake goal:x, until a person approves".into()],
        };
        insta::assert_snapshot!(render(&diff), @r"
        + a/four  priority 300  1 of 3 copies
        ~ repository:7  priority 200 → 300  1 of 3 copies
        x: 1,201 rows, before 1,200
        1 added, 0 removed, 1 changed
        1 attempt of re-replicate would start, moving 3.0 GiB
        not at once: held by the brake goal:x, until a person approves
        ");
    }
}
