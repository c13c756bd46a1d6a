//! A few rules about goals that parse and run, and are wrong all the same: each with an id, why, and what to do.
//!
//! `-- lint: ignore ID reason` on a comment line of its own leaves a remark out; the reason is required, and an
//! ignore that is not needed is told. Rules of safety cannot be ignored. The text's tokens are looked at, and the
//! engine's plan; a lint never decides whether a goal may run, the engine does.

use super::session::plan::Plan;
use super::text::{At, did_you_mean};
use super::{Engine, Goal, header};
use serde::{Deserialize, Serialize};

mod rules;

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// What an ignore names.
    pub id: &'static str,
    /// Whether it cannot be ignored, and fails the check.
    pub safety: bool,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
}

const fn rule(id: &'static str, safety: bool, why: &'static str, fix: &'static str) -> Rule {
    Rule { id, safety, why, fix }
}

/// Every rule; at most a dozen, so that each is worth reading.
pub const RULES: [Rule; 12] = [
    rule(
        "no-condition",
        true,
        "a goal with a repair and no condition returns everything, and everything would be repaired",
        "say in WHERE, HAVING or ON what makes a row an exception",
    ),
    rule(
        "limit-order",
        true,
        "which rows a LIMIT without ORDER BY returns is chance: findings would close and open at every evaluation",
        "add ORDER BY with the subject's columns last",
    ),
    rule(
        "limit-recheck",
        false,
        "before each repair the goal is asked again for one subject, and a LIMIT must then compute everything first",
        "give `-- recheck: SELECT 1 FROM … WHERE … = :subject`",
    ),
    rule(
        "select-star",
        false,
        "a column that a later version adds to the table becomes evidence, and every finding is written anew",
        "name the columns",
    ),
    rule(
        "no-population",
        false,
        "of a goal with a repair and without a population, nothing found and nothing looked at are the same",
        "add `-- population: repositories`, `replicas`, `fileservers`, or a query that counts",
    ),
    rule(
        "no-reason",
        false,
        "of a goal with a repair, people see the reason in the backlog and in `why`, at night",
        "return a short text as `reason`",
    ),
    rule(
        "unused-param",
        false,
        "a parameter that nothing uses looks like a setting and is none",
        "use it as :name, or remove the line",
    ),
    rule(
        "other-kind",
        false,
        "what is of two kinds compares all the same, or is an error on PostgreSQL: the goal would be met for ever, \
         return everything, or be unknown",
        "compare bytes with sizes, moments with moments, numbers with numbers; what a parameter is, its value says: \
         7d, 1GiB, 20%, and a text in quotes",
    ),
    rule(
        "not-in-null",
        false,
        "nothing equals NULL or differs from it, and NOT IN is never true once the subquery returns one NULL: the goal \
         would be met for ever",
        "write IS NULL or IS NOT NULL; for NOT IN use NOT EXISTS",
    ),
    rule(
        "union-distinct",
        false,
        "UNION sorts all rows to remove doubles, which the subject's columns seldom are",
        "use UNION ALL, with conditions that exclude each other",
    ),
    rule(
        "summary-sentence",
        false,
        "the summary is shown as a statement that holds when all is well",
        "write a sentence, from a capital letter to a full stop",
    ),
    rule(
        "large-scan",
        false,
        "a table that grows with the fleet is read whole at every evaluation: seconds at a million repositories",
        "ask for what is marked by an index (in_sync, state, miscounted), join `suspect`, or evaluate less often, by \
         a `schedule`, and say so: `-- lint: ignore large-scan REASON`",
    ),
];

/// What to do about a large scan in a goal that has a schedule already.
const SCHEDULED: &str = "it has a schedule of its own: where that is rare enough, say so: \
                         `-- lint: ignore large-scan REASON`; else ask for what is marked by an index (in_sync, \
                         state, miscounted), or join `suspect`";

/// What a rule has to say about a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The rule's id; `lint` for a line `-- lint:` itself.
    pub id: String,
    /// `goals/x.sql:7:12: …`
    pub message: String,
    /// Why it matters.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// Whether the check fails because of it.
    pub refused: bool,
}

/// The remarks about a goal, in the order of the rules. Without a plan, what needs one is left out.
#[must_use]
pub fn lint(goal: &Goal, engine: Engine, plan: Option<&Plan>) -> Vec<Remark> {
    let end = header::read(&goal.text).map_or(0, |header| header.end);
    let found = rules::look(goal, engine, end, plan);
    let (ignores, mut remarks) = ignores(goal);
    for (id, at) in &found {
        let Some(rule) = RULES.iter().find(|rule| rule.id == *id) else { continue };
        if rule.safety || !ignores.iter().any(|ignore| ignore.id == *id) {
            let scheduled = rule.id == LARGE_SCAN && goal.schedule.is_some();
            let fix = if scheduled { SCHEDULED } else { rule.fix };
            remarks.push(remark(goal, rule.id, at.clone(), rule.why, fix, rule.safety));
        }
    }
    let needs_plan = |id: &str| id == LARGE_SCAN && plan.is_none();
    for ignore in ignores.iter().filter(|ignore| !needs_plan(ignore.id)) {
        if !found.iter().any(|(id, _)| *id == ignore.id) {
            let at = At::new(ignore.at, format!("nothing here needs `ignore {}`", ignore.id));
            remarks.push(remark(
                goal,
                "lint",
                at,
                "it would hide a remark that is yet to come",
                "remove the line",
                false,
            ));
        }
    }
    remarks
}

/// The rule of what a plan reads whole.
const LARGE_SCAN: &str = "large-scan";

/// What the lint says of a plan: what [`lint`] would, or why the file has it left out.
#[must_use]
pub fn of_plan(goal: &Goal, engine: Engine, plan: &Plan) -> (Vec<Remark>, Vec<Ignored>) {
    let remarks = lint(goal, engine, Some(plan)).into_iter().filter(|one| one.id == LARGE_SCAN).collect();
    let end = header::read(&goal.text).map_or(0, |header| header.end);
    let (ignores, _) = ignores(goal);
    let Some(ignore) = ignores.into_iter().find(|ignore| ignore.id == LARGE_SCAN) else {
        return (remarks, Vec::new());
    };
    let found = rules::look(goal, engine, end, Some(plan)).into_iter().filter(|(id, _)| *id == LARGE_SCAN);
    let left_out = found.map(|(_, at)| Ignored { what: at.message, reason: ignore.reason.clone() });
    (remarks, left_out.collect())
}

/// What a rule would say, and why the file has it left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// What it would say.
    pub what: String,
    /// The file's reason.
    pub reason: String,
}

struct Ignore {
    id: &'static str,
    at: usize,
    reason: String,
}

/// The ignores of a file, and remarks about those that are none.
fn ignores(goal: &Goal) -> (Vec<Ignore>, Vec<Remark>) {
    let (mut ignores, mut remarks) = (Vec::new(), Vec::new());
    let mut at = 0;
    for line in goal.text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let Some(rest) =
            line.trim().strip_prefix("--").map(str::trim).and_then(|rest| rest.strip_prefix("lint:"))
        else {
            continue;
        };
        match ignore(rest.trim()) {
            Ok((id, reason)) => ignores.push(Ignore { id, at: start, reason: reason.to_owned() }),
            Err(message) => {
                let (why, fix) =
                    ("an ignore says what it ignores, and why", "write `-- lint: ignore ID reason`");
                remarks.push(remark(goal, "lint", At::new(start, message), why, fix, true));
            }
        }
    }
    (ignores, remarks)
}

fn ignore(text: &str) -> Result<(&'static str, &str), String> {
    let rest = text.strip_prefix("ignore").map(str::trim_start);
    let rest = rest.ok_or_else(|| format!("`lint: {text}` is no `lint: ignore ID reason`"))?;
    let (id, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let known = RULES.iter().find(|rule| rule.id == id).ok_or_else(|| {
        let near = did_you_mean(id, RULES.iter().map(|rule| rule.id));
        format!("there is no rule \"{id}\"{near}")
    })?;
    if known.safety {
        return Err(format!("{id} is a rule of safety and cannot be ignored"));
    }
    if reason.trim().is_empty() {
        return Err(format!("`ignore {id}` gives no reason"));
    }
    Ok((known.id, reason.trim()))
}

fn remark(goal: &Goal, id: &str, at: At, why: &str, fix: &str, refused: bool) -> Remark {
    let message = goal.at(at.offset, at.message);
    Remark { id: id.to_owned(), message, why: why.to_owned(), fix: fix.to_owned(), refused }
}

#[cfg(test)]
mod tests;
