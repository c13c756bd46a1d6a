//! What an agent that was killed left in staging, cleared before this one serves.
//!
//! Nothing there was ever seen by a reader. Imports are kept for a day, for a client that resumes.

use super::layout::Layout;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

const IMPORTS_KEPT: Duration = Duration::from_hours(24);

/// Clears dead work; how many pieces were cleared.
pub(super) fn clear(layout: &Layout, now: SystemTime) -> io::Result<u32> {
    let mut cleared = 0;
    for entry in std::fs::read_dir(layout.staging())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let is_import = entry.file_name().to_string_lossy().contains("import");
        // An import's age is that of its directory: each pack that comes anew makes it younger.
        let age = metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
        if is_import && age < IMPORTS_KEPT {
            continue;
        }
        remove(&entry.path(), metadata.is_dir())?;
        cleared += 1;
    }
    Ok(cleared)
}

fn remove(path: &Path, is_directory: bool) -> io::Result<()> {
    if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_copies_go_and_young_imports_stay() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        for name in ["7-3.git", "8-import.git"] {
            std::fs::create_dir_all(layout.staging().join(name).join("objects")).unwrap();
        }
        let written = std::fs::metadata(layout.staging().join("8-import.git")).unwrap().modified().unwrap();
        assert_eq!(clear(&layout, written).unwrap(), 1);
        assert!(!layout.staging().join("7-3.git").exists());
        assert!(layout.staging().join("8-import.git/objects").exists());
        assert_eq!(clear(&layout, written + IMPORTS_KEPT).unwrap(), 1);
        assert_eq!(std::fs::read_dir(layout.staging()).unwrap().count(), 0);
    }
}
