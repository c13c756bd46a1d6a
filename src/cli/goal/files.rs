//! The goals directory of this machine, and the goal files that a person names.

use super::super::args::{Global, GoalVerb};
use super::super::failure::Failure;
use super::super::{program, settings};
use crate::goal::file::stem;
use crate::goal::library::{self, strays};
use crate::goal::text::{did_you_mean, nearest};
use crate::model::amount;
use std::path::{Path, PathBuf};

/// Names of goals that one answer lists.
const LISTED: usize = 40;

/// Where the goals are: of `trued up`'s data directory, if it has some and the configuration names no other.
///
/// # Errors
/// When the configuration cannot be read.
pub fn directory(global: &Global) -> anyhow::Result<PathBuf> {
    let (layers, config) = settings::with_flags(global, &[])?;
    let own = global.data.join("goals");
    let named = program::files::directory(&layers, &config).goals;
    Ok(if layers.is_default("goals.directory") && own.is_dir() { own } else { named })
}

/// The goal files of a directory, by path.
///
/// # Errors
/// When it cannot be read.
pub fn all(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all: Vec<_> = std::fs::read_dir(directory)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => no_directory(directory),
            _ => Failure::usage(format!("goals directory {}: {error}", directory.display())),
        })?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && library::is_goal_file(path))
        .collect();
    all.sort();
    Ok(all)
}

fn no_directory(directory: &Path) -> Failure {
    Failure::usage(format!("there is no directory of goals {}", directory.display())).hint(
        "run it where the data directory of `trued up` is, or name that with --data DIR; `goals.directory` in the \
         configuration names another",
    )
}

/// The file of a goal's name.
pub fn of_name(directory: &Path, name: &str) -> Option<PathBuf> {
    let variants = ["sql", "sqlite.sql", "postgres.sql"].map(|end| directory.join(format!("{name}.{end}")));
    variants.into_iter().find(|path| path.is_file())
}

/// The file that a name or a path stands for.
///
/// # Errors
/// When there is none, with the goals there are.
pub fn found(directory: &Path, goal: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(goal);
    let kind = path.extension().is_some_and(|kind| kind == "sql" || kind == "toml");
    if kind || goal.contains('/') {
        return match refused(Some(directory), path) {
            Some(failure) => Err(failure.into()),
            None => Ok(goal.into()),
        };
    }
    if !directory.is_dir() {
        return Err(no_directory(directory).into());
    }
    of_name(directory, goal).ok_or_else(|| {
        let known = names(directory);
        let near = did_you_mean(goal, known.iter().map(String::as_str));
        let message = format!("there is no goal \"{goal}\" in {}{near}", directory.display());
        let astray = strays::astray(directory, goal)
            .map_or_else(String::new, |path| strays::misplaced(&path, directory, goal) + "; ");
        Failure::usage(message).hint(astray + &listed(&known)).into()
    })
}

/// The answer to a path that is no goal's file, with the file that was meant; none: it is one. Without a directory of
/// goals nothing is looked for there.
pub fn refused(directory: Option<&Path>, path: &Path) -> Option<Failure> {
    let said = path.display();
    if path.is_dir() {
        return Some(of_directory(path));
    }
    if path.extension().is_some_and(|kind| kind == "toml") {
        return Some(of_fixture(path));
    }
    if !path.exists() {
        return Some(missing(directory, path));
    }
    (!library::is_goal_file(path)).then(|| {
        Failure::usage(format!("{said} is no goal's file: those are called NAME.sql, with the goal's name"))
    })
}

fn of_directory(path: &Path) -> Failure {
    let failure = Failure::usage(format!("{} is a directory: name the goals' files", path.display()));
    let known = names(path);
    let Some(first) = known.first() else {
        return failure.hint("it has no goal's file, NAME.sql".to_owned());
    };
    let (all, one) = (path.join("*.sql"), path.join(format!("{first}.sql")));
    failure.hint(format!(
        "{} for all of them, or one such as {}; `trued goal test` without a name tries every goal",
        all.display(),
        one.display()
    ))
}

fn of_fixture(path: &Path) -> Failure {
    let name = path.file_stem().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let there = if path.is_file() { "is a fixture and no goal" } else { "would be a fixture and no goal" };
    let failure = Failure::usage(format!("{} {there}", path.display()));
    let beside = path.parent().and_then(Path::parent).and_then(|goals| of_name(goals, name));
    failure.hint(match beside {
        Some(file) => {
            format!("its goal's file is {}; `trued goal test {name}` runs the fixture", file.display())
        }
        None => format!("`trued goal test {name}` runs it, with its goal's file {name}.sql"),
    })
}

fn missing(directory: Option<&Path>, path: &Path) -> Failure {
    let failure = Failure::usage(format!("there is no such file: {}", path.display()));
    let Some(name) = stem(path).map(|(name, _)| name).or_else(|| path.file_name()?.to_str()) else {
        return failure;
    };
    let beside =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if let Some(file) = nearest_file(beside, name) {
        return failure.hint(format!("did you mean {}?", file.display()));
    }
    let Some(directory) = directory else { return failure };
    if let Some(file) = of_name(directory, name) {
        return failure.hint(format!("the file of goal {name} is {}", file.display()));
    }
    failure.hint(match nearest_file(directory, name) {
        Some(file) => format!("did you mean {}?", file.display()),
        None => format!("goals are in {}, each in a file NAME.sql", directory.display()),
    })
}

/// The file in a directory whose goal is called almost so.
fn nearest_file(directory: &Path, name: &str) -> Option<PathBuf> {
    let known = names(directory);
    nearest(name, known.iter().map(String::as_str)).and_then(|near| of_name(directory, near))
}

/// Some verbs take goals that run, by name: of a file it is said what its goal is called.
///
/// # Errors
/// When a path stands in the place of a name.
pub fn refuse_paths(verb: &GoalVerb) -> Result<(), Failure> {
    match verb {
        GoalVerb::Show { name }
        | GoalVerb::Run { name, .. }
        | GoalVerb::Explain { name }
        | GoalVerb::History { name, .. }
        | GoalVerb::Pause { name, .. }
        | GoalVerb::Resume { name, .. }
        | GoalVerb::Set { name, .. } => refuse_path(name),
        GoalVerb::Evaluate { names, .. } => names.iter().try_for_each(|name| refuse_path(name)),
        GoalVerb::List
        | GoalVerb::Check { .. }
        | GoalVerb::Approve { .. }
        | GoalVerb::Diff { .. }
        | GoalVerb::Test { .. } => Ok(()),
    }
}

fn refuse_path(name: &str) -> Result<(), Failure> {
    let path = Path::new(name);
    let meant = stem(path).map(|(name, _)| name).or_else(|| name.strip_suffix(".toml"));
    if meant.is_none() && !name.contains('/') {
        return Ok(());
    }
    let last = meant.map_or("NAME", |meant| meant.rsplit('/').next().unwrap_or(meant));
    let failure = Failure::usage(format!("{name} is a path, and a goal is named here: {last}"));
    Err(failure
        .hint("the fleet answers for the goals that it has loaded; `trued goal check` and `diff` take files"))
}

fn names(directory: &Path) -> Vec<String> {
    let files = all(directory).unwrap_or_default();
    let mut names: Vec<_> = files.iter().filter_map(|path| Some(stem(path)?.0.to_owned())).collect();
    names.dedup();
    names
}

fn listed(known: &[String]) -> String {
    let where_else = "--data DIR names the directory of another `trued up`, and a file may be named too";
    if known.is_empty() {
        format!("it has none; {where_else}")
    } else {
        format!("goals are: {}; {where_else}", amount::listed(known, LISTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in ["racks-differ.sql", "replicas-match.sql", "replicas-match.postgres.sql", ".hidden.sql"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        directory
    }

    #[test]
    fn a_name_that_no_goal_has_is_told_with_the_goals_there_are() {
        let goals = goals();
        assert_eq!(found(goals.path(), "racks-differ").unwrap(), goals.path().join("racks-differ.sql"));
        let error = found(goals.path(), "replicas-mach").unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert!(failure.message.ends_with("; did you mean \"replicas-match\"?"), "{failure}");
        let hint = failure.hint.as_deref().unwrap();
        assert!(hint.starts_with("goals are: racks-differ, replicas-match; --data DIR"), "{hint}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_told_and_not_that_it_has_no_goals() {
        let goals = goals();
        let none = goals.path().join("zorkmid");
        for error in [found(&none, "racks-differ").unwrap_err(), all(&none).unwrap_err()] {
            let failure = error.downcast_ref::<Failure>().unwrap();
            assert_eq!(failure.message, format!("there is no directory of goals {}", none.display()));
            assert!(failure.hint.as_deref().unwrap().contains("--data DIR"), "{failure:?}");
        }
    }

    #[test]
    fn a_goals_file_that_lies_where_nobody_looks_is_named() {
        let goals = goals();
        std::fs::create_dir(goals.path().join("sub")).unwrap();
        for path in ["sub/in-sub.sql", "shouted.SQL", "noted.txt"] {
            std::fs::write(goals.path().join(path), "").unwrap();
            let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
            let error = found(goals.path(), name).unwrap_err();
            let hint = error.downcast_ref::<Failure>().unwrap().hint.clone().unwrap();
            let (is, belongs) = (goals.path().join(path), goals.path().join(format!("{name}.sql")));
            let said = format!(
                "{} is where nobody looks: it is read as {}; goals are:",
                is.display(),
                belongs.display()
            );
            assert!(hint.starts_with(&said), "{hint}");
        }
    }

    #[test]
    fn a_fixture_or_a_directory_in_the_place_of_a_goal_is_told_with_what_to_give() {
        let goals = goals();
        std::fs::create_dir(goals.path().join("tests")).unwrap();
        let fixture = goals.path().join("tests/racks-differ.toml");
        std::fs::write(&fixture, "").unwrap();
        let failure = refused(None, &fixture).unwrap();
        assert!(failure.message.ends_with("is a fixture and no goal"), "{failure}");
        let file = goals.path().join("racks-differ.sql");
        let hint = format!("its goal's file is {}; `trued goal test racks-differ` runs", file.display());
        assert!(failure.hint.as_deref().unwrap().starts_with(&hint), "{:?}", failure.hint);
        assert!(found(goals.path(), fixture.to_str().unwrap()).is_err());
        assert!(found(goals.path(), "racks-differ.toml").is_err(), "nor without a directory before it");
        let failure = refused(None, goals.path()).unwrap();
        assert!(failure.message.ends_with(" is a directory: name the goals' files"), "{failure}");
        let hint = failure.hint.unwrap();
        assert!(
            hint.contains("/*.sql for all of them, or one such as ") && hint.contains("/racks-differ.sql;"),
            "{hint}"
        );
        let empty = refused(None, &goals.path().join("tests")).unwrap();
        assert_eq!(empty.hint.unwrap(), "it has no goal's file, NAME.sql");
        assert_eq!(refused(None, &file).map(|failure| failure.message), None);
        std::fs::write(goals.path().join("notes.txt"), "").unwrap();
        let other = refused(None, &goals.path().join("notes.txt")).unwrap();
        assert!(other.message.contains("is no goal's file: those are called NAME.sql"), "{other}");
    }

    #[test]
    fn a_file_that_is_not_there_is_told_with_the_one_that_was_meant() {
        let goals = goals();
        let of = |path: &str| refused(Some(goals.path()), Path::new(path)).unwrap();
        let file = goals.path().join("racks-differ.sql");
        for path in ["racks-differ", "edit/racks-differ.sql"] {
            let failure = of(path);
            assert_eq!(failure.message, format!("there is no such file: {path}"));
            assert_eq!(failure.hint.unwrap(), format!("the file of goal racks-differ is {}", file.display()));
        }
        let near = format!("did you mean {}?", file.display());
        assert_eq!(of("rack-differ").hint.unwrap(), near);
        // Beside the path, wherever the goals are.
        let beside = refused(None, &goals.path().join("rack-differ.sql")).unwrap();
        assert_eq!(beside.hint.unwrap(), near);
        let far = of("zorkmid.sql").hint.unwrap();
        assert_eq!(far, format!("goals are in {}, each in a file NAME.sql", goals.path().display()));
        assert_eq!(refused(None, Path::new("x")).unwrap().hint, None);
    }

    #[test]
    fn a_path_where_a_goal_is_named_is_told_with_its_name() {
        for path in ["goals/racks-differ.sql", "racks-differ.sql", "goals/tests/racks-differ.toml"] {
            let failure = refuse_path(path).unwrap_err();
            assert_eq!(failure.message, format!("{path} is a path, and a goal is named here: racks-differ"));
        }
        assert!(refuse_path("racks-differ").is_ok());
        assert!(refuse_path("nobody-has-this").is_ok(), "the fleet says that, with its goals");
    }
}
