//! What work that broke off left in staging: kept for a while for whoever goes on with it, then cleared.
//!
//! Nothing there was ever seen by a reader. Imports are kept for a client that resumes, copies for the next attempt;
//! both for a day since the last byte came, and copies no more than [`MOST_BYTES`] together, the newest first. On a
//! disk that has no more room copies go at once: whoever goes on with one begins anew, and pushes need the room.

use super::epochs::Epochs;
use super::layout::Layout;
use super::space::Space;
use crate::model::id::RepositoryId;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// How long it is kept.
const KEPT: Duration = Duration::from_hours(24);
/// Bytes of all copies that are kept.
const MOST_BYTES: u64 = 64 << 30;
/// How often it is looked through, and how often it is asked whether there is room.
const EVERY: Duration = Duration::from_mins(15);
const ROOM_EVERY: Duration = Duration::from_secs(20);

/// One directory in staging.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    id: Option<RepositoryId>,
    is_copy: bool,
    bytes: u64,
    touched: SystemTime,
}

/// Clears what is dead, before the agent serves; how many pieces were cleared.
pub(super) fn clear(layout: &Layout, now: SystemTime) -> io::Result<u32> {
    clear_if(layout, now, MOST_BYTES, |_| true)
}

/// Clears from time to time what nobody goes on with and nobody works on, until it is cancelled.
pub(super) async fn keep(layout: Layout, space: Arc<Space>, epochs: Arc<Epochs>, cancel: CancellationToken) {
    let mut looked = tokio::time::Instant::now();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(ROOM_EVERY) => {}
        }
        let (layout, space, epochs) = (layout.clone(), Arc::clone(&space), Arc::clone(&epochs));
        let due = looked.elapsed() >= EVERY;
        if due {
            looked = tokio::time::Instant::now();
        }
        let cleared = tokio::task::spawn_blocking(move || {
            let most = if space.sums()?.free == 0 { 0 } else { MOST_BYTES };
            if !due && most > 0 {
                return Ok(0);
            }
            let now = super::moment(crate::clock::now());
            clear_if(&layout, now, most, |id| id.is_some_and(|id| epochs.try_write(id).is_some()))
        });
        match cleared.await.map_err(io::Error::other).flatten() {
            Ok(0) => {}
            Ok(cleared) => tracing::info!(cleared, "cleared what nobody went on with in staging"),
            Err(error) => tracing::warn!(%error, "cannot clear staging"),
        }
    }
}

/// Clears what is too old or too much, where it is nobody's.
fn clear_if(
    layout: &Layout,
    now: SystemTime,
    most: u64,
    idle: impl Fn(Option<RepositoryId>) -> bool,
) -> io::Result<u32> {
    let mut left = std::fs::read_dir(layout.staging())?
        .map(|entry| look(&entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    left.sort_by_key(|one| std::cmp::Reverse(one.touched));
    let (mut bytes, mut cleared) = (0_u64, 0);
    for one in left {
        let age = now.duration_since(one.touched).unwrap_or_default();
        let is_known = one.is_copy || one.path.to_string_lossy().ends_with("import.git");
        bytes = bytes.saturating_add(if one.is_copy { one.bytes } else { 0 });
        let stays = is_known && age < KEPT && (!one.is_copy || bytes <= most);
        if !stays && idle(one.id) {
            remove(&one.path)?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

fn look(path: &Path) -> io::Result<Left> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Objects of a push belong to whoever pushes while the agent runs, and to nobody when it starts.
    let is_ingest = name.ends_with(super::layout::INGEST);
    let id = name.split_once('-').filter(|_| !is_ingest);
    let id = id.and_then(|(id, _)| id.parse().ok()).map(RepositoryId);
    let mut left = Left {
        path: path.to_owned(),
        id,
        is_copy: name.ends_with("-copy.git"),
        bytes: 0,
        touched: SystemTime::UNIX_EPOCH,
    };
    measure(path, &mut left)?;
    Ok(left)
}

/// Adds up bytes, and finds when the last of them came; what vanishes meanwhile is not counted.
fn measure(path: &Path, into: &mut Left) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    into.touched = into.touched.max(metadata.modified()?);
    if !metadata.is_dir() {
        into.bytes = into.bytes.saturating_add(metadata.len());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).into_iter().flatten() {
        measure(&entry?.path(), into)?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let is_directory = std::fs::symlink_metadata(path)?.is_dir();
    if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staging(names: &[&str]) -> (tempfile::TempDir, Layout, SystemTime) {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        for name in names {
            std::fs::create_dir_all(layout.staging().join(name).join("objects")).unwrap();
            std::fs::write(layout.staging().join(name).join("objects/some"), [1; 100]).unwrap();
        }
        let written = std::fs::metadata(layout.staging().join(names[0])).unwrap().modified().unwrap();
        (directory, layout, written)
    }

    #[test]
    fn young_copies_and_imports_wait_for_whoever_goes_on_and_all_else_goes() {
        let (_directory, layout, written) = staging(&["7-copy.git", "8-import.git", "9-3.git", "7-1-push"]);
        let nobody_writes = |id: Option<RepositoryId>| id.is_some_and(|id| id.0 != 9);
        assert_eq!(clear_if(&layout, written, MOST_BYTES, nobody_writes).unwrap(), 0, "a push may go on");
        assert_eq!(clear(&layout, written).unwrap(), 2);
        assert!(!layout.staging().join("9-3.git").exists());
        assert!(layout.staging().join("7-copy.git/objects").exists());
        assert_eq!(clear(&layout, written + KEPT + Duration::from_mins(1)).unwrap(), 2);
        assert_eq!(std::fs::read_dir(layout.staging()).unwrap().count(), 0);
    }

    #[test]
    fn too_many_bytes_of_copies_do_not_stay_and_what_is_worked_on_does() {
        let (_directory, layout, written) = staging(&["1-copy.git", "2-copy.git", "3-copy.git"]);
        assert_eq!(clear_if(&layout, written, 100, |_| false).unwrap(), 0);
        assert_eq!(clear_if(&layout, written, 200, |_| true).unwrap(), 1);
        assert_eq!(clear_if(&layout, written, 200, |_| true).unwrap(), 0);
        assert_eq!(clear_if(&layout, written, 0, |_| true).unwrap(), 2, "where there is no room none stays");
    }

    #[test]
    fn a_copy_whose_bytes_still_come_is_not_old() {
        let (_directory, layout, written) = staging(&["1-copy.git"]);
        let later = written + KEPT * 2;
        let file = std::fs::File::open(layout.staging().join("1-copy.git/objects/some")).unwrap();
        file.set_modified(later).unwrap();
        assert_eq!(clear(&layout, later + Duration::from_hours(1)).unwrap(), 0);
    }
}
