//! Trying a change before it is made: a text checked and linted with the engine's plan, and two versions of a goal
//! compared on live data. Nothing is written anywhere.

use super::Goal;
use super::library::{self, Repairs};
use super::lint::{Remark, lint};
use super::session::plan::Plan;
use super::session::{Evaluated, Problem, Source};
use crate::model::Millis;
use crate::model::finding::{Exception, Subject};
use crate::model::id::RepositoryId;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use tokio::sync::mpsc;

/// Rows of each version that are compared: what is kept of a row is some hundred bytes.
pub const MOST: u64 = 500_000;

/// A text that parses and was prepared on the engine.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The goal.
    pub goal: Goal,
    /// How the engine would answer.
    pub plan: Plan,
    /// What is to be said about it.
    pub remarks: Vec<Remark>,
}

/// Checks a text as the library does, asks for its plan, and lints it.
///
/// # Errors
/// As the library's check.
pub async fn check(path: &Path, text: &str, source: &Source, repairs: &Repairs) -> Result<Checked, Problem> {
    let goal = library::check(path, text, source, repairs).await?;
    let plan = source.plan(&goal).await?;
    let remarks = lint(&goal, source.engine(), Some(&plan));
    Ok(Checked { goal, plan, remarks })
}

/// What an edit would change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Difference {
    /// The moment that `:now` was for both.
    pub now: Millis,
    /// Rows before; none: there is no running version.
    pub before: Option<u64>,
    /// Rows after.
    pub after: u64,
    /// Whether either had more rows than are compared: the numbers are then no more than near.
    pub more: bool,
    /// What was looked at.
    pub population: Option<i64>,
    /// Subjects that only the edit returns.
    pub added: u64,
    /// Subjects that only the running version returns.
    pub removed: u64,
    /// Subjects that both return otherwise.
    pub changed: u64,
    /// The first of them, by subject.
    pub rows: Vec<DifferentRow>,
    /// Repositories of added subjects, with the bytes that the goal says, if it does.
    pub repositories: BTreeMap<RepositoryId, Option<i64>>,
    /// Added subjects that are about no repository.
    pub others: u64,
    /// A subject that the edit returns twice: an evaluation of it would fail.
    pub twice: Option<Subject>,
}

/// One subject that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DifferentRow {
    /// `+` added, `-` removed, `~` changed.
    pub sign: char,
    /// What it is about.
    pub subject: Subject,
    /// What the edit says; of a removed one what the running version says.
    pub priority: i32,
    /// Its priority before, where that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_priority: Option<i32>,
    /// Its reason now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is kept of a row of the running version.
#[derive(Clone, Copy)]
struct Print {
    priority: i32,
    rest: u64,
}

impl Print {
    fn of(row: &Exception) -> Self {
        let mut hasher = DefaultHasher::new();
        row.reason.hash(&mut hasher);
        serde_json::to_string(&(&row.hints, &row.evidence)).unwrap_or_default().hash(&mut hasher);
        Self { priority: row.priority, rest: hasher.finish() }
    }
}

/// Compares what two versions return at one moment. At most `limit` rows of each sign are kept.
///
/// # Errors
/// When either does not finish.
pub async fn compare(
    source: &Source,
    running: Option<&Goal>,
    edited: &Goal,
    limit: usize,
) -> Result<Difference, Problem> {
    let mut before = HashMap::new();
    let mut at = None;
    let mut difference = Difference::default();
    if let Some(goal) = running {
        let kept = &mut before;
        let evaluated = each(source, goal, None, |row| {
            kept.insert(row.subject.clone(), Print::of(&row));
        })
        .await?;
        (at, difference.before, difference.more) =
            (Some(evaluated.now), Some(evaluated.rows), evaluated.more);
    }
    let mut seen = HashSet::new();
    let evaluated = each(source, edited, at, |row| {
        if seen.insert(row.subject.clone()) {
            difference.meet(&mut before, &row, limit);
        } else {
            difference.twice.get_or_insert(row.subject);
        }
    })
    .await?;
    difference.now = evaluated.now;
    difference.after = evaluated.rows;
    difference.more |= evaluated.more;
    difference.population = evaluated.population;
    difference.removed = before.len() as u64;
    let mut gone: Vec<_> = before.into_iter().collect();
    gone.sort_by(|a, b| a.0.cmp(&b.0));
    let gone = gone.into_iter().take(limit).map(|(subject, print)| DifferentRow {
        sign: '-',
        subject,
        priority: print.priority,
        was_priority: None,
        reason: None,
    });
    difference.rows.extend(gone);
    difference.rows.sort_by(|a, b| a.subject.cmp(&b.subject));
    Ok(difference)
}

impl Difference {
    /// Takes a row of the edit.
    fn meet(&mut self, before: &mut HashMap<Subject, Print>, row: &Exception, limit: usize) {
        let (sign, was, count) = match before.remove(&row.subject) {
            None => ('+', None, &mut self.added),
            Some(was) => {
                let now = Print::of(row);
                if (was.priority, was.rest) == (now.priority, now.rest) {
                    return;
                }
                ('~', Some(was.priority).filter(|was| *was != now.priority), &mut self.changed)
            }
        };
        *count += 1;
        if *count <= limit as u64 {
            let Exception { subject, priority, reason, .. } = row.clone();
            self.rows.push(DifferentRow { sign, subject, priority, was_priority: was, reason });
        }
        if sign == '+' {
            match row.subject.repository() {
                Some(id) => {
                    self.repositories.entry(id).or_insert(row.hints.bytes);
                }
                None => self.others += 1,
            }
        }
    }
}

async fn each(
    source: &Source,
    goal: &Goal,
    now: Option<Millis>,
    mut take: impl FnMut(Exception),
) -> Result<Evaluated, Problem> {
    let bounded = Goal { max_rows: goal.max_rows.min(MOST), ..goal.clone() };
    let (sender, mut receiver) = mpsc::channel::<Vec<Exception>>(2);
    let taking = async {
        while let Some(batch) = receiver.recv().await {
            batch.into_iter().for_each(&mut take);
        }
    };
    let (evaluated, ()) = tokio::join!(source.evaluate_at(&bounded, now, sender), taking);
    evaluated
}
