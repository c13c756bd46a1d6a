//! What the configuration sets over goals (`[goal.NAME]`), held against the goals' files.
//!
//! `config check` refuses all that does not fit. A start only says it, and `status` until it is mended (`SETTING_UNFIT`):
//! goals' files change and go while everything runs, and a controller that restarts at night must come up.

use super::super::args::Global;
use super::super::failure::Failure;
use super::super::goal::files;
use super::setting;
use crate::config::Config;
use crate::database::address;
use crate::goal::Goal;
use crate::goal::file::stem;
use crate::goal::session::Source;
use crate::goal::setting::{misfits, strangers};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The engine of `trued up`'s own file decides about variants of goals where no database is named.
const NO_DATABASE: &str = "sqlite:trued.db";

/// Refuses what the configuration sets over goals and does not fit their files; asks no database.
///
/// # Errors
/// Naming each line, its key, and what is allowed.
pub fn check(global: &Global, config: &Config) -> anyhow::Result<()> {
    let settings: Vec<_> = config.goals.settings.iter().cloned().map(setting).collect();
    if settings.is_empty() {
        return Ok(());
    }
    let directory = files::directory(global)?;
    let files = match files::all(&directory) {
        Ok(files) => files,
        // A machine of an agent may have the fleet's configuration, and needs no goals.
        Err(error) => {
            tracing::warn!("{error}: what [goal.NAME] sets is not held against goals");
            return Ok(());
        }
    };
    let names: Vec<_> = files.iter().filter_map(|file| Some(stem(file)?.0)).collect();
    let unknown = strangers(&settings, &names);
    if !unknown.is_empty() {
        let hint = format!("goals are the files in {}", directory.display());
        return Err(Failure::usage(unknown.join("; ")).hint(hint).into());
    }
    let goals = parsed(&files, &source(config)?);
    match misfits(&settings, |name| goals.get(name)).as_slice() {
        [] => Ok(()),
        wrong => Err(Failure::usage(wrong.join("; ")).into()),
    }
}

/// Where goals would be asked; it is not.
fn source(config: &Config) -> anyhow::Result<Source> {
    let url = Some(config.database_url.as_str()).filter(|url| !url.is_empty()).unwrap_or(NO_DATABASE);
    let others = config.databases.iter();
    let fleet = Source::new(&address::each(url).swap_remove(0));
    let all = others.fold(fleet, |source, (name, url)| source?.with_database(name, url));
    Ok(all.map_err(|problem| Failure::usage(problem.message))?)
}

/// The goals that would run, by name; what is wrong with a file is for `goal check`.
fn parsed(files: &[PathBuf], source: &Source) -> BTreeMap<String, Goal> {
    let mut goals = BTreeMap::new();
    for file in files {
        let Some((name, variant)) = stem(file) else { continue };
        let ours = variant.is_none_or(|engine| engine == source.engine());
        if !ours || (variant.is_none() && goals.contains_key(name)) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        if let Ok(goal) = Goal::parse(file, &text, source.engine_of(&text)) {
            goals.insert(name.to_owned(), goal);
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::setting::Setting;

    #[test]
    fn what_does_not_fit_a_goal_is_named_with_its_line_and_what_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let text = "-- goal: x\n-- summary: X.\n-- subject: key\n-- repair: mend\n-- param: age = 7d\n--\nSELECT 'a' AS key WHERE :age > 0\n";
        std::fs::write(directory.path().join("x.sqlite.sql"), text).unwrap();
        std::fs::write(directory.path().join("x.sql"), text.replace("age", "other")).unwrap();
        std::fs::write(directory.path().join("broken.sql"), "SELECT").unwrap();
        let files = files::all(directory.path()).unwrap();
        let goals = parsed(&files, &Source::new(NO_DATABASE).unwrap());
        let set = |goal: &str, name: &str, value: &str| Setting {
            goal: goal.into(),
            name: name.into(),
            value: value.into(),
            origin: "trued.toml:3".into(),
        };
        let good = [set("x", "param.age", "1d"), set("x", "mode", "observe"), set("broken", "param.y", "1")];
        let misfits = |set: &[Setting]| misfits(set, |name| goals.get(name));
        assert_eq!(misfits(&good), Vec::<String>::new());
        let wrong = [set("x", "param.aeg", "1d"), set("x", "param.age", "soon"), set("x", "brake", "much")];
        let said = misfits(&wrong);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said.iter().all(|one| one.starts_with("trued.toml:3: goal.x.")), "{said:?}");
        assert!(
            said[0].contains("did you mean \"param.age\"? (keys: mode, schedule, brake, param.age)"),
            "{said:?}"
        );
        assert!(said[1].contains("\"soon\" is not of the kind"), "{said:?}");
    }
}
