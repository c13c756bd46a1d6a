//! One evaluation of one goal: rows stream through a bounded channel into a merge, and the
//! merge is finished only when the last row has come. What does not finish changes nothing
//! but the goal's own state, which becomes unknown.

use super::metrics::add;
use super::suspects::Suspects;
use super::{Shared, audit, millis};
use crate::database::findings::{BrakeAt, Merge, MergeInto, Merged};
use crate::database::goals::{self, record_failure};
use crate::database::words::sentence;
use crate::goal::Goal;
use crate::goal::session::Evaluated;
use crate::model::Millis;
use crate::model::amount::counted;
use crate::model::attempt::Step;
use crate::model::finding::Exception;
use crate::model::goal::{GoalState, Mode};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument as _;

/// Batches of rows on their way; with the session's batch size this bounds the memory.
const BATCHES: usize = 4;
/// A session ends by itself at the goal's timeout; this is the guard behind it.
const GUARD: Duration = Duration::from_secs(15);

/// The code of a goal that looks at nothing any more; its error begins so.
const DEAD: &str = "GOAL_DEAD";

/// How one ended.
pub(super) enum Ended {
    /// All of its rows came.
    Whole,
    /// It took longer than it may; in words.
    Late(String),
    /// It failed otherwise.
    Failed,
}

/// Why one failed.
struct Failure {
    message: String,
    late: bool,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, late: false }
    }
}

/// One evaluation that is due.
pub(super) struct Occasion<'a> {
    /// What is evaluated.
    pub(super) goal: &'a Goal,
    /// Time to the next one; 0: somebody asked.
    pub(super) period: Duration,
    /// What its state was, for people.
    pub(super) before: Option<GoalState>,
}

/// Evaluates, merges, and says what changed.
pub(super) async fn evaluate(shared: &Shared, suspects: &Suspects, occasion: Occasion<'_>) -> Ended {
    let goal = occasion.goal;
    let span = tracing::info_span!("goal.evaluate", goal.name);
    async {
        let began = Instant::now();
        let began_at = match shared.database.now().await {
            Ok(now) => now,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "not evaluated, the database is away");
                return Ended::Failed;
            }
        };
        match attempt(shared, suspects, &occasion, began_at, began).await {
            Ok(merged) => {
                succeeded(shared, &occasion, merged, began.elapsed());
                if goal.suspects && merged.opened > 0 {
                    audit::examine(shared, goal, merged.evaluation).await;
                }
                Ended::Whole
            }
            Err(Failure { message, late }) => {
                add(&shared.metrics.evaluation_failures, 1);
                failed(shared, &occasion, began_at, began.elapsed(), &message).await;
                if late { Ended::Late(message) } else { Ended::Failed }
            }
        }
    }
    .instrument(span)
    .await
}

async fn attempt(
    shared: &Shared,
    suspects: &Suspects,
    occasion: &Occasion<'_>,
    began_at: Millis,
    began: Instant,
) -> Result<Merged, Failure> {
    let goal = occasion.goal;
    if goal.suspects {
        suspects.refresh(occasion.period).await?;
    }
    let (rows, batches) = mpsc::channel(BATCHES);
    let collect = collect(shared, merge_into(shared, goal, began_at), batches);
    let limit = Duration::from_millis(u64::try_from(goal.timeout).unwrap_or(0)) + GUARD;
    // On the heap: sessions with TLS make these futures large.
    let both = Box::pin(async { tokio::join!(shared.source.evaluate_all(goal, rows), collect) });
    let (evaluated, merge) = tokio::time::timeout(limit, both).await.map_err(|_| Failure {
        message: format!("{}: no end within {} s", goal.path.display(), limit.as_secs()),
        late: true,
    })?;
    // A merge that failed is the cause when both did: the session then lost its reader.
    let mut merge = merge?;
    let Evaluated { more, population, .. } =
        evaluated.map_err(|problem| Failure { message: problem.message, late: problem.late })?;
    let known = alive(shared, goal, population).await?;
    merge.looked_at(population);
    if more {
        merge.more();
    }
    let merged = merge.finish(millis(began.elapsed())).await.map_err(|error| sentence(&error))?;
    if known != population {
        let recorded = goals::record_population(&shared.database, &goal.name, population).await;
        recorded.map_err(|error| sentence(&error))?;
    }
    Ok(merged)
}

/// An evaluation that looked at nothing, where one before looked at something, has found nothing out: it is
/// blindness, and neither opens nor closes a finding. Returns what was remembered.
async fn alive(shared: &Shared, goal: &Goal, population: Option<i64>) -> Result<Option<i64>, String> {
    if goal.population.is_none() {
        return Ok(None);
    }
    let known = goals::population(&shared.database, &goal.name).await.map_err(|error| sentence(&error))?;
    match (population, known) {
        (None, _) => Err(format!("{DEAD}: its population is no number")),
        (Some(now), Some(before)) if now <= 0 && before > 0 => {
            Err(format!("{DEAD}: it looked at nothing, and at {before} before"))
        }
        _ => Ok(known),
    }
}

async fn collect(
    shared: &Shared,
    into: MergeInto,
    mut batches: mpsc::Receiver<Vec<Exception>>,
) -> Result<Merge, String> {
    let mut merge = Merge::begin(&shared.database, into).await.map_err(|error| sentence(&error))?;
    while let Some(rows) = batches.recv().await {
        merge.add(&rows).await.map_err(|error| sentence(&error))?;
    }
    Ok(merge)
}

fn merge_into(shared: &Shared, goal: &Goal, began_at: Millis) -> MergeInto {
    let repair = goal.repair.clone().filter(|_| goal.mode == Mode::Repair);
    let file = repair.as_ref().and_then(|name| shared.repairs.by_name.get(name));
    let (retry, removes) =
        (file.map(|repair| repair.retry), file.is_some_and(|one| one.step == Step::Remove));
    let stuck_after = retry.map_or(i32::MAX, |retry| retry.stuck_after);
    let backoff_ms = retry.map_or_else(Vec::new, |retry| {
        (1..=stuck_after.clamp(1, 64)).map(|n| shared.chance.up_to(retry.ceiling(n))).collect()
    });
    MergeInto {
        goal: goal.name.clone(),
        digest: goal.digest.clone(),
        subject: goal.subject,
        repair,
        last_copies: goal.last_copies,
        began_at,
        backoff_ms,
        stuck_after,
        in_a_row: goal.in_a_row,
        brake: goal.brake.bound().map(|bound| BrakeAt { bound, population: None }),
        removes,
        most: i64::try_from(goal.max_rows).unwrap_or(i64::MAX),
    }
}

fn succeeded(shared: &Shared, occasion: &Occasion<'_>, merged: Merged, took: Duration) {
    let name = &occasion.goal.name;
    add(&shared.metrics.evaluations, 1);
    tracing::info!(
        evaluation.id = %merged.evaluation, merged.returned, merged.at_least, merged.opened, merged.closed,
        merged.changed,
        duration_ms = millis(took), "evaluated"
    );
    let kept = i64::try_from(occasion.goal.max_rows).unwrap_or(i64::MAX);
    if merged.returned > kept || merged.at_least {
        tracing::warn!(kept, "more rows than max-rows; the others are findings when these are repaired");
    }
    if merged.opened > 0 {
        shared.nudge.dispatch();
    }
    let now = if merged.returned == 0 { GoalState::Met } else { GoalState::Unmet };
    if occasion.before == Some(now) && merged.opened == 0 {
        return;
    }
    let bound = if merged.at_least { "at least " } else { "" };
    let counts = match (merged.returned, merged.opened) {
        (0, _) => String::new(),
        (returned, opened) => {
            let new = if opened == 0 { String::new() } else { format!(", {opened} of them new") };
            format!(": {bound}{}{new}", counted(returned, "exception"))
        }
    };
    tracing::info!(
        target: "trued::event",
        kind = "goal.state", goal = name, state = %now, findings = merged.returned, opened = merged.opened,
        "goal {name} is {now}{counts}",
    );
}

async fn failed(shared: &Shared, occasion: &Occasion<'_>, began_at: Millis, took: Duration, error: &str) {
    let name = &occasion.goal.name;
    tracing::warn!(error, duration_ms = millis(took), "not evaluated: the goal is unknown");
    if let Err(error) = record_failure(&shared.database, name, began_at, millis(took), error).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a failed evaluation could not be written");
    }
    if occasion.before != Some(GoalState::Unknown) {
        tracing::warn!(
            target: "trued::event",
            kind = "goal.state", goal = name, state = %GoalState::Unknown, error,
            "goal {name} is unknown: {error}",
        );
    }
}
