//! What a resync overwrites is kept as a list of references for 30 days: their objects stay in the copy meanwhile.
//!
//! `ROOT/journal/overwritten/<day>/<id>-<time>.refs`, in the text form of `wire`. A directory a day, so that old
//! ones go without anybody reading through the files of a whole fileserver.

use super::disk;
use super::references::References;
use crate::agent::store::Store;
use crate::clock;
use crate::model::Millis;
use crate::model::id::RepositoryId;
use crate::model::wire::Refusal;
use std::path::Path;

const DAY: Millis = 24 * 60 * 60 * 1000;
const KEPT_DAYS: Millis = 30;

/// Writes the list down, and removes the days that are past.
pub(super) async fn keep(store: &Store, id: RepositoryId, references: &References) -> Result<(), Refusal> {
    let now = clock::now();
    let (root, all) = (store.layout.root().to_path_buf(), store.layout.journal().join("overwritten"));
    let text = references.to_text();
    disk::blocking(move || {
        let day = all.join((now / DAY).to_string());
        disk::make_directories(&root, &day)?;
        forget(&all, now / DAY - KEPT_DAYS);
        disk::write_whole(&day.join(format!("{id}-{now}.refs")), &text)
    })
    .await
}

fn forget(all: &Path, before: Millis) {
    let Ok(days) = std::fs::read_dir(all) else { return };
    for day in days.flatten() {
        let number = day.file_name().to_str().and_then(|name| name.parse::<Millis>().ok());
        if number.is_some_and(|number| number < before) {
            // Another time, if not now.
            let _ = std::fs::remove_dir_all(day.path());
        }
    }
}
