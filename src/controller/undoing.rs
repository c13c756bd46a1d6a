//! Goals that undo each other: seen in what was done to a repository, when it is about to be
//! done again. Both are held for it until a person has looked.

use super::Shared;
use crate::database::{self, findings};
use crate::finding::undo::{Direction, Move, undone_by};
use crate::model::Millis;
use crate::model::attempt::Plan;
use crate::model::finding::Finding;
use crate::model::id::RepositoryId;
use std::collections::BTreeMap;

/// What was done longer ago is no answer to what is done now.
const LATELY: Millis = 24 * 3_600_000;

/// Takes those out that another goal undoes, and holds them.
pub(super) async fn without(
    shared: &Shared,
    admitted: Vec<(Finding, Plan)>,
    now: Millis,
) -> database::Result<Vec<(Finding, Plan)>> {
    let moving = |plan: &Plan| Direction::of(plan.step.as_str()).and(plan.repository_id);
    let ids: Vec<RepositoryId> = admitted.iter().filter_map(|(_, plan)| moving(plan)).collect();
    if ids.is_empty() {
        return Ok(admitted);
    }
    let db = &shared.database;
    let mut moves: BTreeMap<RepositoryId, Vec<Move>> = BTreeMap::new();
    for (repository, goal, step) in findings::moves(db, &ids, now - LATELY).await? {
        let Some(direction) = Direction::of(&step) else { continue };
        moves.entry(repository).or_default().push(Move { repository, goal, direction });
    }
    // Only where something was removed can something be undone: mostly nothing more is read.
    moves.retain(|_, all| all.iter().any(|one| one.direction == Direction::Removes));
    if moves.is_empty() {
        return Ok(admitted);
    }
    let suspects: Vec<RepositoryId> = moves.keys().copied().collect();
    let known = findings::undone(db, &suspects).await?;
    let mut kept = Vec::with_capacity(admitted.len());
    for (finding, plan) in admitted {
        match undoing(&finding, &plan, &moves, &known) {
            Some((repository, other)) => {
                tracing::warn!(
                    target: "trued::event", kind = "goal.undone", goal = finding.goal, subject = %finding.subject,
                    other, "goals {} and {other} undo each other on {}: both are held for it",
                    finding.goal, finding.subject,
                );
                findings::hold_undone(db, repository, [&finding.goal, &other]).await?;
            }
            None => kept.push((finding, plan)),
        }
    }
    Ok(kept)
}

/// The goal that undoes what is about to be done, by what was done or because that was found out already.
fn undoing(
    finding: &Finding,
    plan: &Plan,
    moves: &BTreeMap<RepositoryId, Vec<Move>>,
    known: &[(RepositoryId, String, String)],
) -> Option<(RepositoryId, String)> {
    let repository = plan.repository_id?;
    let direction = Direction::of(plan.step.as_str())?;
    let next = Move { repository, goal: finding.goal.clone(), direction };
    let before = moves.get(&repository)?;
    let already = known.iter().find(|(id, _, by)| *id == repository && *by == finding.goal);
    let other =
        undone_by(&next, before).map(str::to_owned).or_else(|| already.map(|(_, goal, _)| goal.clone()));
    other.map(|other| (repository, other))
}
