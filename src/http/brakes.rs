//! Brakes: a person's word that what one saw is right.

use super::problem::{Answer, Problem, did_you_mean, reason};
use super::shapes::{Approve, Changed};
use super::state::Api;
use crate::database::brakes;
use crate::model::brake::{of_goal, of_removals};
use axum::Json;
use axum::extract::State;

/// `POST /api/v1/brakes/approve`: a goal's brakes, or one brake by its name, let go until their cause is gone.
///
/// # Errors
/// When no such brake holds, there is no reason, or the engine fails.
pub async fn approve(State(api): State<Api>, Json(ask): Json<Approve>) -> Answer<Changed> {
    let reason = reason(&ask.reason)?;
    let (what, names) = match (&ask.goal, &ask.brake) {
        (Some(goal), None) => (goal.clone(), vec![of_goal(goal), of_removals(goal)]),
        (None, Some(brake)) => (brake.clone(), vec![brake.clone()]),
        _ => return Err(Problem::bad_request("name a goal, or a brake, not both".to_owned())),
    };
    let all = brakes::all(&api.db).await?;
    let holding: Vec<String> = all.into_iter().filter(|one| one.holds).map(|one| one.name).collect();
    if !names.iter().any(|name| holding.contains(name)) {
        return Err(nothing_holds(&what, &holding));
    }
    if ask.dry_run {
        return Ok(Json(Changed { message: format!("{what} would hold no more"), changed: false }));
    }
    let released = brakes::approve(&api.db, &names, "local", reason).await?;
    if released.is_empty() {
        return Err(nothing_holds(&what, &[]));
    }
    let message = format!("brake {} holds no more, until its cause is gone", released.join(", "));
    Ok(Json(Changed { message, changed: true }))
}

fn nothing_holds(what: &str, holding: &[String]) -> Problem {
    let problem = Problem::not_found(format!("no brake of {what:?} holds"));
    match did_you_mean(what, holding.iter().map(String::as_str)) {
        Some(hint) => problem.hint(hint),
        None if holding.is_empty() => problem.hint("none holds now"),
        None => problem.hint(format!("these hold: {}", holding.join(", "))),
    }
}
