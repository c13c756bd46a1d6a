//! Settings over a goal's file: per environment in the configuration, and at run time in SQL.
//!
//! The file says what the goal is; a setting says how it goes here: its mode, schedule, brake, and the values of
//! parameters that it has. The order is file, configuration, SQL. A setting that does not fit the file any more
//! changes nothing and is told. Where settings are kept is not known here.

use super::Goal;
use super::file::Brake;
use super::header;
use super::text::{did_you_mean, nearest};
use super::value::{Unit, Value};
use crate::model::goal::Mode;
use std::collections::BTreeSet;
use std::str::FromStr;

/// What may be set; `param.<name>` beside.
pub const NAMES: [&str; 3] = ["mode", "schedule", "brake"];

/// One value over a goal's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The goal.
    pub goal: String,
    /// `mode`, `schedule`, `brake` or `param.<name>`.
    pub name: String,
    /// As text.
    pub value: String,
    /// Where it came from, for people.
    pub origin: String,
}

/// A goal with the settings over it, and what did not fit.
#[must_use]
pub fn over(goal: &Goal, settings: &[Setting]) -> (Goal, Vec<String>) {
    let (mut set, mut errors) = (goal.clone(), Vec::new());
    for one in settings.iter().filter(|one| one.goal == goal.name) {
        if let Err(why) = put(&mut set, &one.name, &one.value) {
            errors.push(format!("{} ({}): {why}", one.name, one.origin));
        }
    }
    (set, errors)
}

/// What is set over goals that there are not, a sentence for each goal: mostly a name that is misspelt.
#[must_use]
pub fn strangers(settings: &[Setting], goals: &[&str]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let unknown = |one: &&Setting| !goals.contains(&one.goal.as_str());
    let first = settings.iter().filter(unknown).filter(|one| seen.insert(one.goal.as_str()));
    first
        .map(|one| {
            let near = did_you_mean(&one.goal, goals.iter().copied());
            format!("{}: there is no goal \"{}\"{near}", one.origin, one.goal)
        })
        .collect()
}

/// What does not fit the goals that it is set over, a sentence for each.
#[must_use]
pub fn misfits<'a>(settings: &[Setting], goal: impl Fn(&str) -> Option<&'a Goal>) -> Vec<String> {
    let misfit = |one: &Setting| {
        let why = put(&mut goal(&one.goal)?.clone(), &one.name, &one.value).err()?;
        Some(format!("{}: goal.{}.{}: {why}", one.origin, one.goal, one.name))
    };
    settings.iter().filter_map(misfit).collect()
}

/// What may be set over this goal, each with the name that `set` and `unset` take.
fn keys(goal: &Goal) -> impl Iterator<Item = String> + '_ {
    let params = goal.params.keys().map(|name| format!("param.{name}"));
    NAMES.iter().map(|name| (*name).to_owned()).chain(params)
}

/// Whether there is such a setting of this goal.
///
/// # Errors
/// With the key that was meant, and all there are.
pub fn known(goal: &Goal, name: &str) -> Result<(), String> {
    let keys: Vec<_> = keys(goal).collect();
    if keys.iter().any(|key| key == name) {
        return Ok(());
    }
    // A parameter's bare name is the likeliest slip: in the file it stands without the word before it.
    let bare = name.strip_prefix("param.").unwrap_or(name);
    let param = goal.params.get_key_value(bare).map(|(known, _)| known.as_str());
    let param = param.or_else(|| nearest(bare, goal.params.keys().map(String::as_str)));
    let meant = match param {
        Some(param) => Some(format!("param.{param}")),
        None => nearest(name, NAMES).map(str::to_owned),
    };
    let near = meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
    Err(format!("goal {} has no key \"{name}\"{near} (keys: {})", goal.name, keys.join(", ")))
}

/// Sets one value.
///
/// # Errors
/// When there is no such setting, or the value is none of its kind.
pub fn put(goal: &mut Goal, name: &str, value: &str) -> Result<(), String> {
    match name {
        "mode" => {
            goal.mode = Mode::from_str(value).map_err(|_| format!("\"{value}\" is not repair or observe"))?;
        }
        "schedule" => goal.schedule = Some(schedule(value)?),
        "brake" => {
            goal.brake = Brake::parse(value)
                .ok_or_else(|| format!("\"{value}\" is not a count, a share such as 20%, both, or none"))?;
        }
        _ => return param(goal, name, value),
    }
    Ok(())
}

fn schedule(value: &str) -> Result<cron::Schedule, String> {
    cron::Schedule::from_str(value).map_err(|error| {
        let why = crate::model::cron::why(value, &error);
        format!("\"{value}\" is not cron with seconds, UTC, such as `0 */2 * * * *`; {why}")
    })
}

fn param(goal: &mut Goal, name: &str, value: &str) -> Result<(), String> {
    known(goal, name)?;
    let new = Value::parse(value).map_err(|why| format!("{name}: {why}"))?;
    let param = name.strip_prefix("param.").unwrap_or(name);
    let Some(old) = goal.params.get_mut(param) else { return Ok(()) };
    if std::mem::discriminant(old) != std::mem::discriminant(&new) {
        let kind = old.kind();
        return Err(format!("\"{value}\" is not of the kind that param {param} has in the file: {kind}"));
    }
    let written = header::param(&goal.text, param);
    if let (Some(is), Some(was)) = (Unit::of(value), written.and_then(Unit::of))
        && is != was
    {
        let (is, was) = (is.words(), was.words());
        let written = written.unwrap_or_default();
        return Err(format!("\"{value}\" is {is}, and param {param} is {was} in the file: {written}"));
    }
    *old = new;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_there_is_not_is_named_once_with_what_was_meant() {
        let of = |goal: &str, name: &str| Setting { goal: goal.into(), ..setting(name, "x") };
        let settings =
            [of("replicas-mach", "mode"), of("replicas-mach", "brake"), of("replicas-match", "mode")];
        let said = strangers(&settings, &["disks-balance", "replicas-match"]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].ends_with("there is no goal \"replicas-mach\"; did you mean \"replicas-match\"?"),
            "{said:?}"
        );
    }
    use crate::goal::Engine;
    use std::path::Path;

    fn goal() -> Goal {
        let text = "-- goal: x\n-- summary: X.\n-- subject: key\n-- repair: mend\n-- param: age = 7d\n--\nSELECT 'a' AS key WHERE :age > 0\n";
        Goal::parse(Path::new("x.sql"), text, Engine::Sqlite).unwrap()
    }

    fn setting(name: &str, value: &str) -> Setting {
        Setting { goal: "x".into(), name: name.into(), value: value.into(), origin: "trued.toml:3".into() }
    }

    #[test]
    fn the_last_setting_wins_and_the_file_stays_as_it_is() {
        let file = goal();
        let settings = [
            setting("mode", "observe"),
            setting("brake", "5, 1%"),
            setting("param.age", "1d"),
            setting("param.age", "2d"),
            setting("schedule", "0 0 3 * * *"),
            Setting { goal: "y".into(), ..setting("mode", "repair") },
        ];
        let (set, errors) = over(&file, &settings);
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!((set.mode, set.params["age"].clone()), (Mode::Observe, Value::Integer(2 * 86_400_000)));
        assert_eq!(set.brake, Brake::Above { count: Some(5), share: Some(0.01) });
        assert!(set.schedule.is_some() && file.schedule.is_none());
        assert_eq!(set.digest, file.digest);
    }

    #[test]
    fn what_does_not_fit_changes_nothing_and_is_told() {
        let wrong = [
            ("mode", "sleep", "not repair or observe"),
            ("schedule", "* * * * *", "seconds, which come first"),
            ("brake", "much", "a count, a share"),
            ("param.aeg", "1d", "no key \"param.aeg\"; did you mean \"param.age\"?"),
            ("param.age", "soon", "not of the kind"),
            ("param.age", "5MiB", "is a size, and param age is a duration in the file: "),
            ("mod", "observe", "did you mean \"mode\"?"),
        ];
        for (name, value, said) in wrong {
            let (set, errors) = over(&goal(), &[setting(name, value)]);
            assert_eq!(set, goal(), "{name}");
            assert!(errors[0].contains(said) && errors[0].contains("trued.toml:3"), "{errors:?}");
        }
    }

    #[test]
    fn an_unknown_key_is_told_with_all_keys_and_the_one_that_was_meant() {
        for (name, meant) in
            [("age", "param.age"), ("aeg", "param.age"), ("param.agee", "param.age"), ("brak", "brake")]
        {
            let said = known(&goal(), name).unwrap_err();
            let keys = "(keys: mode, schedule, brake, param.age)";
            assert_eq!(said, format!("goal x has no key \"{name}\"; did you mean \"{meant}\"? {keys}"));
        }
        assert!(!known(&goal(), "xyzzy").unwrap_err().contains("did you mean"));
        for name in ["mode", "schedule", "brake", "param.age"] {
            assert_eq!(known(&goal(), name), Ok(()));
        }
    }
}
