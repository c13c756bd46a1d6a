//! Steering goals at run time: pauses, and values over their files. A wish is a row, and every change is audited.

use super::fileservers::record;
use super::goals::{entry, no_such_goal};
use super::problem::{Answer, Problem};
use super::shapes::{Changed, PauseGoal, PausedGoal, ResumeGoal, SetGoal, SettingShown};
use super::state::Api;
use crate::database::pauses::{self, Pause};
use crate::database::{Database, DatabaseError, goals, settings};
use crate::goal::Goal;
use crate::goal::setting::{self, Setting};
use crate::model::Millis;
use crate::model::goal::GoalStatus;
use axum::Json;
use axum::extract::{Path, State};

/// Longest pause: what is held for longer is better taken out of the directory.
const LONGEST: Millis = 366 * 86_400_000;

/// Longest reason, and longest value.
const LONGEST_TEXT: usize = 500;

/// `POST /api/v1/goals/{name}/pause`
///
/// # Errors
/// When there is no such goal, the reason or the time will not do, or the engine fails.
pub async fn pause(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<PauseGoal>,
) -> Answer<Changed> {
    let status = known(&api, &name).await?;
    let reason = text("reason", &ask.reason)?;
    let now = api.db.now().await?;
    let until = ask.for_ms.map_or(ask.until, |length| Some(now.saturating_add(length)));
    let until = until.ok_or_else(|| {
        Problem::bad_request("a pause needs an end").hint("say --until 2026-03-01T08:00:00Z or --for 2h")
    })?;
    if until <= now || until - now > LONGEST {
        return Err(Problem::bad_request("a pause ends in the future, within a year"));
    }
    let end = moment(until);
    if ask.dry_run {
        let message = format!("goal {name} would be paused until {end}");
        return Ok(Json(Changed { message, changed: false }));
    }
    pauses::put(&api.db, &pauses::of_goal(&name), "local", reason, Some(until)).await?;
    record(&api, "goal.pause", &name, Some(reason), serde_json::json!({ "until": until })).await?;
    let meanwhile = match (&status.digest, &status.file_error) {
        (Some(_), _) => "it is still evaluated".to_owned(),
        (None, Some(error)) => format!("no version of it runs: {error}"),
        (None, None) => "no version of it runs yet".to_owned(),
    };
    Ok(Json(Changed { message: format!("goal {name} is paused until {end}; {meanwhile}"), changed: true }))
}

/// `POST /api/v1/goals/{name}/resume`
///
/// # Errors
/// When there is no such goal, or the engine fails.
pub async fn resume(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<ResumeGoal>,
) -> Answer<Changed> {
    known(&api, &name).await?;
    let paused = of(&pauses::all(&api.db).await?, &name);
    if paused.is_none() || ask.dry_run {
        let message = match paused {
            Some(_) => format!("goal {name} would go on"),
            None => format!("goal {name} is not paused"),
        };
        return Ok(Json(Changed { message, changed: false }));
    }
    pauses::end(&api.db, &pauses::of_goal(&name)).await?;
    record(&api, "goal.resume", &name, ask.reason.as_deref(), serde_json::json!({ "was": paused })).await?;
    Ok(Json(Changed { message: format!("goal {name} goes on"), changed: true }))
}

/// `PUT /api/v1/goals/{name}/settings`
///
/// # Errors
/// When there is no such goal or setting, a value will not do, or the engine fails.
pub async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<SetGoal>,
) -> Answer<Changed> {
    let entry = entry(&api, &name).await?;
    let reason = text("reason", &ask.reason)?;
    if ask.set.is_empty() && ask.unset.is_empty() {
        return Err(Problem::bad_request("nothing is to be set")
            .hint("say --mode, --schedule, --brake, --param NAME=VALUE, or --unset NAME"));
    }
    let running = entry.running.ok_or_else(|| without_version(&name, entry.error.as_deref()))?;
    let mut tried = (*running).clone();
    for (key, value) in &ask.set {
        text("value", value)?;
        setting::put(&mut tried, key, value).map_err(Problem::bad_request)?;
    }
    let before = settings::all(&api.db).await?;
    let was = |key: &str| {
        before.iter().find(|one| one.goal == name && one.name == key).map(|one| one.value.clone())
    };
    // What was set over a parameter that the file has no more can still be taken back.
    if let Some(key) = ask.unset.iter().find(|key| was(key).is_none()) {
        setting::known(&running, key).map_err(Problem::bad_request)?;
        return Err(not_set(&name, key, &before));
    }
    let mut told: Vec<_> = ask.set.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    told.extend(ask.unset.iter().map(|key| format!("{key} as before")));
    let told = told.join(", ");
    if ask.dry_run {
        let message = format!("goal {name} would have {told}{}", idle(&running, &ask.set));
        return Ok(Json(Changed { message, changed: false }));
    }
    for (key, value) in &ask.set {
        settings::put(&api.db, &name, key, value, "local", reason).await?;
        let detail = serde_json::json!({ "name": key, "was": was(key), "is": value });
        record(&api, "goal.set", &name, Some(reason), detail).await?;
    }
    for key in &ask.unset {
        settings::remove(&api.db, &name, key).await?;
        let detail = serde_json::json!({ "name": key, "was": was(key), "is": null });
        record(&api, "goal.unset", &name, Some(reason), detail).await?;
    }
    let message = format!(
        "goal {name} has {told}{}; its findings follow at its next evaluation, which `trued goal evaluate {name}` asks for",
        idle(&running, &ask.set)
    );
    Ok(Json(Changed { message, changed: true }))
}

/// What steers repairs does nothing for a goal that has none.
fn idle(goal: &Goal, set: &[(String, String)]) -> &'static str {
    let steers = |(key, value): &(String, String)| key == "brake" || (key == "mode" && value == "repair");
    if goal.repair.is_none() && set.iter().any(steers) {
        "; it has no repair, so its findings are only listed all the same"
    } else {
        ""
    }
}

/// The answer to a wish about a goal of which nothing runs.
#[must_use]
pub fn without_version(name: &str, error: Option<&str>) -> Problem {
    let why = error.map_or_else(String::new, |error| format!(": {error}"));
    Problem::refused(format!("no version of goal {name} runs{why}"))
        .hint(format!("mend its file; `trued goal show {name}` has its error until then"))
}

fn not_set(name: &str, key: &str, all: &[settings::GoalSetting]) -> Problem {
    let set: Vec<_> = all.iter().filter(|one| one.goal == name).map(|one| one.name.as_str()).collect();
    let hint =
        if set.is_empty() { "nothing of it is".to_owned() } else { format!("set is: {}", set.join(", ")) };
    Problem::bad_request(format!("{key} of goal {name} was not set at run time"))
        .hint(format!("{hint}; `trued goal show {name}` tells where each value comes from"))
}

/// The settings over goals' files: the configuration's, then SQL's.
///
/// # Errors
/// When the engine fails.
pub async fn over(db: &Database, configured: &[Setting]) -> Result<Vec<Setting>, DatabaseError> {
    let set = settings::all(db).await?.into_iter().map(|one| Setting {
        origin: format!("set by {} on {}: {}", one.who, moment(one.at), one.reason),
        goal: one.goal,
        name: one.name,
        value: one.value,
    });
    Ok(configured.iter().cloned().chain(set).collect())
}

/// What is set over goals and does nothing, a sentence for each: the configuration's for goals that there are not, and
/// values that do not fit their goals.
///
/// # Errors
/// When the engine fails.
pub async fn unfit(api: &Api) -> Result<Vec<String>, DatabaseError> {
    let entries = (api.hooks.goals)();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let goal = |name: &str| entries.iter().find(|entry| entry.name == name)?.running.as_deref();
    let mut unfit = setting::strangers(&api.configured, &names);
    unfit.extend(setting::misfits(&over(&api.db, &api.configured).await?, goal));
    Ok(unfit)
}

/// What is set over one goal, as `show` tells it.
///
/// # Errors
/// When the engine fails.
pub async fn shown(api: &Api, goal: Option<&Goal>, name: &str) -> Result<Vec<SettingShown>, Problem> {
    let over = over(&api.db, &api.configured).await?;
    let ours: Vec<_> = over.into_iter().filter(|one| one.goal == name).collect();
    let shown = ours.iter().enumerate().map(|(index, one)| {
        let later = ours[index + 1..].iter().find(|other| other.name == one.name);
        let wrong = goal.and_then(|goal| setting::put(&mut goal.clone(), &one.name, &one.value).err());
        let error = wrong.or_else(|| later.map(|later| format!("overruled: {}", later.origin)));
        SettingShown { name: one.name.clone(), value: one.value.clone(), origin: one.origin.clone(), error }
    });
    Ok(shown.collect())
}

/// The pause of a goal, if it is paused.
#[must_use]
pub fn of(pauses: &[Pause], goal: &str) -> Option<PausedGoal> {
    let pause = pauses.iter().find(|pause| pause.goal() == Some(goal))?;
    Some(PausedGoal {
        by: pause.who.clone(),
        reason: pause.reason.clone(),
        until: pause.until,
        since: pause.at,
    })
}

async fn known(api: &Api, name: &str) -> Result<GoalStatus, Problem> {
    let mut states = goals::states(&api.db).await?;
    if let Some(at) = states.iter().position(|one| one.goal == name) {
        return Ok(states.swap_remove(at));
    }
    let known: Vec<_> = states.into_iter().map(|one| one.goal).collect();
    Err(no_such_goal(api, name, &known).await)
}

fn text<'a>(what: &str, text: &'a str) -> Result<&'a str, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST_TEXT {
        return Err(Problem::bad_request(format!("a {what} has 1 to {LONGEST_TEXT} bytes")));
    }
    Ok(text)
}

fn moment(at: Millis) -> String {
    chrono::DateTime::from_timestamp_millis(at).unwrap_or_default().format("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Engine;

    #[test]
    fn what_steers_repairs_is_told_to_do_nothing_for_a_goal_that_has_none() {
        let text = "-- goal: x\n-- summary: X.\n-- subject: key\n--\nSELECT 'a' AS key;\n";
        let listed = Goal::parse(std::path::Path::new("x.sql"), text, Engine::Sqlite).unwrap();
        let repaired = Goal { repair: Some("mend".into()), ..listed.clone() };
        let set = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
        for steers in [set("brake", "5"), set("mode", "repair")] {
            assert!(idle(&listed, &steers).contains("it has no repair"));
            assert_eq!(idle(&repaired, &steers), "");
        }
        assert_eq!(idle(&listed, &set("mode", "observe")), "");
    }
}
