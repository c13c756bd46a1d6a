//! Brakes: a person's word that what one saw is right.

use super::codes::is_dead;
use super::fileservers::record;
use super::problem::{Answer, Problem, did_you_mean, reason};
use super::shapes::{Approve, Changed};
use super::state::Api;
use crate::database::{brakes, goals};
use crate::model::brake::{of_goal, of_removals};
use crate::model::goal::GoalStatus;
use axum::Json;
use axum::extract::State;

/// `POST /api/v1/brakes/approve`: a goal's brakes, or one brake by its name, let go until their cause is gone; and a
/// goal that is `GOAL_DEAD` may look at nothing from now on.
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
    let dead = dead(&api, ask.goal.as_deref()).await?;
    if dead.is_none() && !names.iter().any(|name| holding.contains(name)) {
        return Err(nothing_holds(&what, &holding));
    }
    if ask.dry_run {
        let would = if dead.is_some() {
            "would be asked again, and may look at nothing"
        } else {
            "would hold no more"
        };
        return Ok(Json(Changed { message: format!("{what} {would}"), changed: false }));
    }
    let released = brakes::approve(&api.db, &names, "local", reason).await?;
    if released.is_empty() && dead.is_none() {
        return Err(nothing_holds(&what, &[]));
    }
    let mut said = Vec::new();
    if !released.is_empty() {
        said.push(format!("brake {} holds no more, until its cause is gone", released.join(", ")));
    }
    if let Some(goal) = dead {
        let detail = serde_json::json!({ "looked_at": goal.error });
        record(&api, "goal.approve", &goal.goal, Some(reason), detail).await?;
        goals::record_population(&api.db, &goal.goal, None).await?;
        (api.hooks.evaluate)(std::slice::from_ref(&goal.goal));
        said.push(format!("goal {} may look at nothing; it is asked again", goal.goal));
    }
    Ok(Json(Changed { message: said.join("; "), changed: true }))
}

/// The goal, if it is unknown because it looked at nothing where there was something before.
async fn dead(api: &Api, goal: Option<&str>) -> Result<Option<GoalStatus>, Problem> {
    let Some(name) = goal else { return Ok(None) };
    let states = goals::states(&api.db).await?;
    Ok(states.into_iter().find(|one| one.goal == name && is_dead(one)))
}

fn nothing_holds(what: &str, holding: &[String]) -> Problem {
    let problem = Problem::not_found(format!("no brake of {what:?} holds"));
    match did_you_mean(what, holding.iter().map(String::as_str)) {
        Some(hint) => problem.hint(hint),
        None if holding.is_empty() => problem.hint("none holds now"),
        None => problem.hint(format!("these hold: {}", holding.join(", "))),
    }
}
