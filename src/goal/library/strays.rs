//! Files that look like goals and lie where nobody reads them: told to people, and never run.

use super::{is_goal_file, stem};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Directories below that of the goals in which is looked.
const PLACES: usize = 40;
/// Files of one directory that are looked at.
const LOOKED_AT: usize = 1_000;
/// Strays that are told.
const TOLD: usize = 10;
/// Bytes of a file in which its header is sought.
const HEAD: u64 = 4_096;

/// A file of a goal's name, in another directory nearby or with another ending.
#[must_use]
pub fn astray(directory: &Path, goal: &str) -> Option<PathBuf> {
    let is_it = |kind: &str| kind.eq_ignore_ascii_case("sql") || kind == "txt" || kind.is_empty();
    named(directory, goal, is_it).find(|path| path.parent() != Some(directory) || !is_goal_file(path))
}

/// A fixture of a goal's name, in another directory than `tests` or with another ending.
#[must_use]
pub fn fixture_astray(directory: &Path, goal: &str) -> Option<PathBuf> {
    let place = directory.join("tests").join(format!("{goal}.toml"));
    let is_it = |kind: &str| ["toml", "tml", "tom"].iter().any(|one| kind.eq_ignore_ascii_case(one));
    named(directory, goal, is_it).find(|path| *path != place)
}

/// Files that say that they are goals, of names that no goal of the directory has; a sentence for each.
#[must_use]
pub fn strays(directory: &Path) -> Vec<String> {
    let of = |path: &Path| Some(stem(path)?.0.to_owned());
    let read = files(directory).filter(|path| is_goal_file(path)).filter_map(|path| of(&path));
    let goals: BTreeSet<String> = read.collect();
    let stray = |path: PathBuf| {
        let beside = path.parent() == Some(directory);
        let name = name_of(&path)?;
        let is_read = beside && is_goal_file(&path);
        let is_one = !is_read && !goals.contains(&name) && is_goal(&path);
        is_one.then(|| misplaced(&path, directory, &name))
    };
    places(directory).flat_map(|place| files(&place)).filter_map(stray).take(TOLD).collect()
}

/// Where a file is, and where it would be read.
#[must_use]
pub fn misplaced(path: &Path, directory: &Path, name: &str) -> String {
    let place = directory.join(format!("{name}.sql"));
    format!("{} is where nobody looks: it is read as {}", path.display(), place.display())
}

fn named(directory: &Path, name: &str, is_kind: impl Fn(&str) -> bool) -> impl Iterator<Item = PathBuf> {
    let called = move |path: &PathBuf| {
        let kind = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        (stem == name && is_kind(kind))
            || (kind == "txt" && stem.strip_suffix(".sql") == Some(name) && is_kind("sql"))
    };
    places(directory).flat_map(|place| files(&place)).filter(called)
}

/// The directories below, the one above, and itself.
fn places(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let below = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = below.filter(|path| path.is_dir()).take(PLACES);
    below.chain(directory.parent().map(Path::to_owned)).chain([directory.to_owned()])
}

fn files(place: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let all = std::fs::read_dir(place).into_iter().flatten().flatten().take(LOOKED_AT);
    all.map(|entry| entry.path()).filter(|path| path.is_file())
}

/// The goal's name that a file's name might stand for; hidden files and editors' backups have none.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str().filter(|name| !name.starts_with(['.', '#']))?;
    let lower = name.to_ascii_lowercase();
    let end = [".sql.txt", ".sql"].iter().find(|end| lower.ends_with(**end))?;
    name.get(..name.len() - end.len()).map(str::to_owned)
}

/// Whether a file's text begins like a goal's.
fn is_goal(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let key = |line: &str| Some(line.trim().strip_prefix("--")?.split_once(':')?.0.trim() == "goal");
    read.is_ok() && String::from_utf8_lossy(&head).lines().any(|line| key(line) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_goal_where_nobody_reads_is_told_and_an_edited_copy_is_not() {
        let data = tempfile::tempdir().unwrap();
        let goals = data.path().join("goals");
        std::fs::create_dir_all(goals.join("tests")).unwrap();
        let text = "-- goal: x\n-- summary: X.\n";
        for (path, text) in [
            ("goals/good.sql", text),
            ("goals/tests/good.sql", text),
            ("goals/.hidden.sql", text),
            ("goals/plain.SQL", "SELECT 1"),
        ] {
            std::fs::write(data.path().join(path), text).unwrap();
        }
        assert_eq!(strays(&goals), Vec::<String>::new());
        for path in ["above.sql", "goals/tests/below.sql", "goals/shouted.SQL", "goals/noted.sql.txt"] {
            let is = data.path().join(path);
            std::fs::write(&is, text).unwrap();
            let name = is.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
            let belongs = goals.join(format!("{name}.sql"));
            let said = format!("{} is where nobody looks: it is read as {}", is.display(), belongs.display());
            assert_eq!(strays(&goals), [said]);
            assert_eq!(astray(&goals, name), Some(is.clone()));
            std::fs::remove_file(is).unwrap();
        }
    }

    #[test]
    fn a_fixture_that_lies_elsewhere_is_found() {
        let data = tempfile::tempdir().unwrap();
        let goals = data.path().join("goals");
        std::fs::create_dir_all(goals.join("tests")).unwrap();
        std::fs::create_dir_all(goals.join("test")).unwrap();
        for path in ["goals/x.toml", "goals/test/x.toml", "goals/tests/x.tml", "x.toml"] {
            let is = data.path().join(path);
            std::fs::write(&is, "").unwrap();
            assert_eq!(fixture_astray(&goals, "x"), Some(is.clone()));
            std::fs::remove_file(is).unwrap();
        }
        std::fs::write(goals.join("tests/x.toml"), "").unwrap();
        assert_eq!(fixture_astray(&goals, "x"), None);
    }
}
