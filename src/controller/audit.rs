//! The audit that the suspects miss nothing: the next slice, and what a goal found in it.

use super::metrics::add;
use super::{Shared, millis};
use crate::database::suspects::audit::{self, Slice};
use crate::goal::Goal;
use crate::model::amount::counted;
use crate::model::finding::Subject;
use crate::model::id::EvaluationId;

/// Exceptions of one evaluation that are asked about again; there are more than these only where much is wrong.
const EXAMINED: i64 = 100;

/// Goes on to the next slice when it is time, and says what was mended there. What fails is tried with the next
/// refresh.
pub(super) async fn rotate(shared: &Shared) {
    let (size, period) = (shared.settings.audit_slice, millis(shared.settings.audit_period));
    if size == 0 {
        return;
    }
    match audit::rotate(&shared.database, size, period).await {
        Ok(Some(slice)) if slice.mended > 0 => mended(shared, slice),
        Ok(_) => {}
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the audit of the suspects did not go on");
        }
    }
}

fn mended(shared: &Shared, slice: Slice) {
    add(&shared.metrics.drift, slice.mended.unsigned_abs());
    tracing::warn!(
        target: "trued::event",
        kind = "audit.mended", mended = slice.mended, after = slice.after, until = slice.until,
        "{} of repositories or of the fleet: wrong, and mended now", counted(slice.mended, "count"),
    );
}

/// Says which findings that an evaluation opened the view of suspects would not have given.
pub(super) async fn examine(shared: &Shared, goal: &Goal, evaluation: EvaluationId) {
    match drift(shared, goal, evaluation).await {
        Ok(None) => {}
        Ok(Some((found, example))) => {
            add(&shared.metrics.drift, found);
            tracing::warn!(
                target: "trued::event",
                kind = "audit.drift", goal = goal.name, found, example = %example,
                "{} to {} found outside of its scope, {example} among them: is `scope: suspects` right?",
                counted(found, "exception"), goal.name,
            );
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, goal.name, "what the audit found could not be examined");
        }
    }
}

/// How many there are, and one of them. Each is asked about again: one that was put right since is none.
async fn drift(
    shared: &Shared,
    goal: &Goal,
    evaluation: EvaluationId,
) -> crate::database::Result<Option<(u64, Subject)>> {
    let db = &shared.database;
    let slice = audit::slice(db).await?;
    let mut found = audit::missed(db, &goal.name, evaluation, slice, EXAMINED).await?;
    let mut holds = Vec::with_capacity(found.len());
    for subject in found.drain(..) {
        // One that cannot be asked about is taken to hold, as everywhere.
        if shared.source.recheck(goal, &subject).await.unwrap_or(true) {
            holds.push(subject);
        }
    }
    let ids: Vec<i64> = holds.iter().filter_map(|one| one.repository().map(|id| id.0)).collect();
    let Some(example) = holds.into_iter().next() else { return Ok(None) };
    audit::record(db, &ids).await?;
    Ok(Some((ids.len() as u64, example)))
}
