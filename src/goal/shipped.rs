//! The goals that the program carries with it, and puts into a directory that has none.

use super::text::FileError;
use super::{Engine, Goal};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Each goal's file, and its fixtures.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        /// The shipped goals' files: name and text.
        pub const FILES: &[(&str, &str)] =
            &[$((concat!($name, ".sql"), include_str!(concat!("../../goals/", $name, ".sql")))),+];

        /// Their fixtures, which `tests/` beside them holds: what each returns of small fleets.
        pub const FIXTURES: &[(&str, &str)] =
            &[$((concat!($name, ".toml"), include_str!(concat!("../../goals/tests/", $name, ".toml")))),+];
    };
}

files!(
    "agents-current",
    "changes-finish",
    "controller-works",
    "copies-exist",
    "disks-balance",
    "fileservers-evacuate",
    "headroom-remains",
    "last-copies-safe",
    "orphans-removed",
    "quarantine-purged",
    "racks-differ",
    "removals-finish",
    "replicas-match",
    "replicas-not-excess",
    "replicas-packed",
    "replicas-scrubbed",
    "replicas-suffice",
    "replicas-verified",
    "writes-settle",
);

/// The shipped goals, read for one engine.
///
/// # Errors
/// When one does not parse; a test holds that all do.
pub fn shipped(engine: Engine) -> Result<Vec<Goal>, FileError> {
    FILES.iter().map(|(name, text)| Goal::parse(Path::new(name), text, engine)).collect()
}

/// Writes the shipped goals that a directory lacks, and their fixtures into `tests` below it; what is there is the
/// operator's and stays. Each file appears whole or not at all. Returns what was written.
///
/// # Errors
/// When a directory or a file cannot be written.
pub fn write_shipped(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut written = write_missing(dir, FILES)?;
    written.extend(write_missing(&dir.join("tests"), FIXTURES)?);
    Ok(written)
}

fn write_missing(dir: &Path, files: &[(&str, &str)]) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir)?;
    let readable = std::fs::Permissions::from_mode(0o644);
    let mut written = Vec::new();
    for (name, text) in files {
        let path = dir.join(name);
        let mut file =
            tempfile::Builder::new().prefix(".goal-").permissions(readable.clone()).tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(&path) {
            Ok(_) => written.push(path),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error),
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::fixture::Fixture;

    #[test]
    fn every_goal_of_the_directory_is_shipped() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("goals");
        let names = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut sorted: Vec<String> =
            names.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "sql")).collect();
        sorted.sort_unstable();
        assert!(sorted.iter().eq(FILES.iter().map(|(name, _)| *name)), "{sorted:?}");
    }

    #[test]
    fn every_shipped_goal_parses_on_both_engines() {
        for engine in [Engine::Sqlite, Engine::Postgres] {
            assert_eq!(shipped(engine).unwrap().len(), FILES.len());
        }
    }

    #[test]
    fn every_shipped_goal_has_fixtures_with_a_case_that_is_met_and_one_that_is_not() {
        let of = |names: &[(&str, &str)], end: &str| -> Vec<String> {
            names.iter().map(|(name, _)| name.trim_end_matches(end).to_owned()).collect()
        };
        assert_eq!(of(FIXTURES, ".toml"), of(FILES, ".sql"));
        for (name, text) in FIXTURES {
            let fixture = Fixture::parse(Path::new(name), text).unwrap();
            assert!(fixture.case.iter().any(|case| case.expect.is_empty()), "{name}");
            assert!(fixture.case.iter().any(|case| !case.expect.is_empty()), "{name}");
        }
    }

    #[test]
    fn missing_files_are_written_and_edited_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let goals = dir.path().join("goals");
        assert_eq!(write_shipped(&goals).unwrap().len(), FILES.len() + FIXTURES.len());
        std::fs::write(goals.join("racks-differ.sql"), "edited").unwrap();
        std::fs::remove_file(goals.join("replicas-match.sql")).unwrap();
        assert_eq!(write_shipped(&goals).unwrap(), [goals.join("replicas-match.sql")]);
        assert_eq!(std::fs::read_to_string(goals.join("racks-differ.sql")).unwrap(), "edited");
        assert_eq!(std::fs::read_dir(&goals).unwrap().count(), FILES.len() + 1, "no temporary file is left");
        assert_eq!(std::fs::read_dir(goals.join("tests")).unwrap().count(), FIXTURES.len());
    }
}
