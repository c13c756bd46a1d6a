//! The goals directory of this machine, and the goal files that a person names.

use super::super::args::Global;
use super::super::failure::Failure;
use super::super::{program, settings};
use crate::goal::file::stem;
use crate::goal::library;
use crate::goal::text::did_you_mean;
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
        .map_err(|error| Failure::usage(format!("goals directory {}: {error}", directory.display())))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && library::is_goal_file(path))
        .collect();
    all.sort();
    Ok(all)
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
    let is_path = goal.contains('/') || Path::new(goal).extension().is_some_and(|kind| kind == "sql");
    if is_path {
        if !library::is_goal_file(Path::new(goal)) {
            let message = format!(
                "{goal} is no goal's file: those are called NAME.sql, and a fixture is tried with its goal"
            );
            return Err(Failure::usage(message).into());
        }
        return if Path::new(goal).is_file() {
            Ok(goal.into())
        } else {
            Err(no_file(Some(directory), Path::new(goal)).into())
        };
    }
    of_name(directory, goal).ok_or_else(|| {
        let known = names(directory);
        let near = did_you_mean(goal, known.iter().map(String::as_str));
        let message = format!("there is no goal \"{goal}\" in {}{near}", directory.display());
        Failure::usage(message).hint(listed(&known)).into()
    })
}

/// The answer to a path that is no file, with the file that was meant, if a goal is called so.
pub fn no_file(directory: Option<&Path>, path: &Path) -> Failure {
    let said = path.display();
    let what = if path.is_dir() { "is a directory" } else { "is no file" };
    let failure = Failure::usage(format!("{said} {what}: a goal's file is needed, such as goals/NAME.sql"));
    let name = stem(path).map(|(name, _)| name).or_else(|| path.file_name()?.to_str());
    let (Some(directory), Some(name)) = (directory, name) else { return failure };
    if let Some(file) = of_name(directory, name) {
        return failure.hint(format!("the file of goal {name} is {}", file.display()));
    }
    let known = names(directory);
    let near = did_you_mean(name, known.iter().map(String::as_str));
    failure.hint(format!("{} has no goal \"{name}\" either{near}", directory.display()))
}

fn names(directory: &Path) -> Vec<String> {
    let files = all(directory).unwrap_or_default();
    let mut names: Vec<_> = files.iter().filter_map(|path| Some(stem(path)?.0.to_owned())).collect();
    names.dedup();
    names
}

fn listed(known: &[String]) -> String {
    let (first, rest) = known.split_at(known.len().min(LISTED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let where_else = "--data DIR names the directory of another `trued up`, and a file may be named too";
    if first.is_empty() {
        format!("it has none; {where_else}")
    } else {
        format!("goals are: {}{more}; {where_else}", first.join(", "))
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
    fn a_fixture_in_the_place_of_a_goal_is_refused_and_not_passed_over() {
        let goals = goals();
        let fixture = goals.path().join("racks-differ.toml");
        std::fs::write(&fixture, "").unwrap();
        let error = found(goals.path(), fixture.to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("is no goal's file"), "{error}");
    }

    #[test]
    fn a_goals_name_in_the_place_of_its_file_is_told_with_the_file() {
        let goals = goals();
        let of = |path: &str| no_file(Some(goals.path()), Path::new(path));
        for path in ["racks-differ", "edit/racks-differ.sql"] {
            let failure = of(path);
            assert_eq!(
                failure.message,
                format!("{path} is no file: a goal's file is needed, such as goals/NAME.sql")
            );
            let file = goals.path().join("racks-differ.sql");
            assert_eq!(failure.hint.unwrap(), format!("the file of goal racks-differ is {}", file.display()));
        }
        assert!(of("rack-differ").hint.unwrap().ends_with("either; did you mean \"racks-differ\"?"));
        assert!(of("/tmp").message.starts_with("/tmp is a directory"));
        assert_eq!(no_file(None, Path::new("x")).hint, None);
    }
}
