//! The goals that the program carries with it, and puts into a directory that has none.

use super::text::FileError;
use super::{Engine, Goal};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The shipped goals' files: name and text.
pub const FILES: &[(&str, &str)] = &[
    ("agents-current.sql", include_str!("../../goals/agents-current.sql")),
    ("controller-works.sql", include_str!("../../goals/controller-works.sql")),
    ("disks-balance.sql", include_str!("../../goals/disks-balance.sql")),
    ("fileservers-evacuate.sql", include_str!("../../goals/fileservers-evacuate.sql")),
    ("headroom-remains.sql", include_str!("../../goals/headroom-remains.sql")),
    ("last-copies-safe.sql", include_str!("../../goals/last-copies-safe.sql")),
    ("orphans-removed.sql", include_str!("../../goals/orphans-removed.sql")),
    ("quarantine-purged.sql", include_str!("../../goals/quarantine-purged.sql")),
    ("racks-differ.sql", include_str!("../../goals/racks-differ.sql")),
    ("removals-finish.sql", include_str!("../../goals/removals-finish.sql")),
    ("replicas-match.sql", include_str!("../../goals/replicas-match.sql")),
    ("replicas-not-excess.sql", include_str!("../../goals/replicas-not-excess.sql")),
    ("replicas-suffice.sql", include_str!("../../goals/replicas-suffice.sql")),
    ("replicas-verified.sql", include_str!("../../goals/replicas-verified.sql")),
];

/// The shipped goals, read for one engine.
///
/// # Errors
/// When one does not parse; a test holds that all do.
pub fn shipped(engine: Engine) -> Result<Vec<Goal>, FileError> {
    FILES.iter().map(|(name, text)| Goal::parse(Path::new(name), text, engine)).collect()
}

/// Writes the shipped files that a directory lacks; what is there is the operator's and stays. Each file appears
/// whole or not at all. Returns what was written.
///
/// # Errors
/// When the directory or a file cannot be written.
pub fn write_shipped(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir)?;
    let readable = std::fs::Permissions::from_mode(0o644);
    let mut written = Vec::new();
    for (name, text) in FILES {
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

    #[test]
    fn every_shipped_goal_parses_on_both_engines() {
        for engine in [Engine::Sqlite, Engine::Postgres] {
            assert_eq!(shipped(engine).unwrap().len(), FILES.len());
        }
    }

    #[test]
    fn missing_files_are_written_and_edited_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let goals = dir.path().join("goals");
        assert_eq!(write_shipped(&goals).unwrap().len(), FILES.len());
        std::fs::write(goals.join("racks-differ.sql"), "edited").unwrap();
        std::fs::remove_file(goals.join("replicas-match.sql")).unwrap();
        assert_eq!(write_shipped(&goals).unwrap(), [goals.join("replicas-match.sql")]);
        assert_eq!(std::fs::read_to_string(goals.join("racks-differ.sql")).unwrap(), "edited");
        assert_eq!(std::fs::read_dir(&goals).unwrap().count(), FILES.len(), "no temporary file is left");
    }
}
