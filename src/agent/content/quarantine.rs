//! Setting a copy aside: renamed, never unlinked, with a note beside it that says why.
//!
//! The note is written first, and both directories are synced after the rename: after a crash
//! the copy is at its place or here, whole, and no copy lies here without a note. What is here
//! serves nothing: readers look at a repository's place alone.

use super::{disk, identity};
use crate::agent::layout::Layout;
use crate::agent::store::Store;
use crate::clock;
use crate::model::Millis;
use crate::model::id::RepositoryId;
use crate::model::wire::{
    Identity, QuarantineAnswer, QuarantineEntry, QuarantinePage, QuarantineRequest, Refusal, RefusalCode,
};
use crate::shutdown::reached;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The longest page.
const LONGEST_PAGE: usize = 5_000;
/// How paths begin.
const BELOW: &str = "quarantine/";

/// What stands beside a copy in quarantine.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    repository: RepositoryId,
    at: Millis,
    reason: String,
    #[serde(default)]
    bytes: i64,
    #[serde(default)]
    identity: Option<Identity>,
}

/// Renames a copy into quarantine, if there is one.
pub(super) async fn set_aside(
    store: &Store,
    id: RepositoryId,
    reason: &str,
) -> Result<QuarantineAnswer, Refusal> {
    let (layout, reason, now) = (store.layout.clone(), reason.to_owned(), clock::now());
    let answer = disk::blocking(move || rename(&layout, id, reason, now)).await?;
    store.touched(id).await;
    Ok(answer)
}

/// Takes a copy away from its place, with what lies beside it. Asked for again it says where the copy went.
pub(super) async fn take_away(
    store: &Store,
    id: RepositoryId,
    ask: &QuarantineRequest,
) -> Result<QuarantineAnswer, Refusal> {
    refuse_newer(&store.layout, id, ask.version)?;
    let answer = set_aside(store, id, &ask.reason).await?;
    let layout = store.layout.clone();
    disk::blocking(move || {
        forget_identity(&layout, id)?;
        if answer.path.is_some() {
            return Ok(answer);
        }
        let found = last_of(&layout, id)?;
        Ok(found.map_or(answer, |entry| QuarantineAnswer { path: Some(entry.path), bytes: entry.bytes }))
    })
    .await
}

/// A copy that committed a version above SQL's is the last witness of what SQL forgot.
pub(super) fn refuse_newer(layout: &Layout, id: RepositoryId, version: Option<i64>) -> Result<(), Refusal> {
    let there = std::fs::symlink_metadata(layout.repository(id)).is_ok();
    let journalled = identity::read(&layout.identity(id)).map_or(0, |found| found.version);
    match version {
        Some(version) if there && journalled > version => Err(Refusal::new(
            RefusalCode::HistoryLost,
            format!("the copy of repository {id} journalled version {journalled}, above {version}"),
        )),
        _ => Ok(()),
    }
}

/// Nothing stands at the place any more: what says what it was would mislead whoever rebuilds SQL from disks.
pub(super) fn forget_identity(layout: &Layout, id: RepositoryId) -> Result<(), Refusal> {
    if std::fs::symlink_metadata(layout.repository(id)).is_ok() {
        return Ok(());
    }
    let beside = layout.identity(id);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(disk::refusal("cannot remove", &beside, &error))
        }
        _ => Ok(()),
    }
}

fn rename(
    layout: &Layout,
    id: RepositoryId,
    reason: String,
    now: Millis,
) -> Result<QuarantineAnswer, Refusal> {
    let from = layout.repository(id);
    if std::fs::symlink_metadata(&from).is_err() {
        return Ok(QuarantineAnswer { path: None, bytes: 0 });
    }
    let bytes = disk::usage(&from);
    let quarantine = layout.quarantine();
    disk::make_directories(layout.root(), &quarantine)?;
    let note =
        Note { repository: id, at: now, reason, bytes, identity: identity::read(&layout.identity(id)) };
    let text = serde_json::to_vec_pretty(&note).map_err(|error| {
        Refusal::new(RefusalCode::Failed, format!("cannot write why a copy is set aside: {error}"))
    })?;
    let name = free_name(&quarantine, id, now);
    disk::write_whole(&quarantine.join(format!("{name}.json")), &text)?;
    reached("quarantine.noted");
    let to = quarantine.join(format!("{name}.git"));
    disk::rename_new(&from, &to).map_err(|error| disk::refusal("cannot set aside", &from, &error))?;
    reached("quarantine.renamed");
    Ok(QuarantineAnswer { path: Some(format!("{BELOW}{name}.git")), bytes })
}

/// `<id>-<time>`, a millisecond later for each that is taken.
fn free_name(quarantine: &Path, id: RepositoryId, now: Millis) -> String {
    let names = (now..).map(|time| format!("{id}-{time}"));
    let mut free = names.filter(|name| !quarantine.join(format!("{name}.git")).exists());
    free.next().unwrap_or_else(|| format!("{id}-{now}"))
}

/// The repository and the moment that a name in quarantine speaks of; none: it is not one of ours.
pub(super) fn read_name(name: &str) -> Option<(RepositoryId, Millis)> {
    let (id, time) = name.strip_suffix(".git")?.split_once('-')?;
    let (id, time) = (id.parse().ok()?, time.parse().ok()?);
    (format!("{id}-{time}.git") == name).then_some((RepositoryId(id), time))
}

/// The name in quarantine that a path means; none: it leads elsewhere.
pub(super) fn name_of(path: &str, id: RepositoryId) -> Option<&str> {
    let name = path.strip_prefix(BELOW)?;
    read_name(name).filter(|(of, _)| *of == id).map(|_| name)
}

/// A page of what is here.
pub(super) async fn page(store: &Store, after: String, limit: usize) -> Result<QuarantinePage, Refusal> {
    let layout = store.layout.clone();
    disk::blocking(move || {
        let mut names = names(&layout)?;
        names.sort_unstable();
        let after = after.strip_prefix(BELOW).unwrap_or(&after);
        let begin = names.partition_point(|name| name.as_str() <= after);
        let end = names.len().min(begin + limit.clamp(1, LONGEST_PAGE));
        let entries = names.get(begin..end).unwrap_or_default();
        let entries = entries.iter().filter_map(|name| entry(&layout, name)).collect();
        Ok(QuarantinePage { entries, more: end < names.len() })
    })
    .await
}

fn names(layout: &Layout) -> Result<Vec<String>, Refusal> {
    let directory = layout.quarantine();
    let failed = |error: &std::io::Error| disk::refusal("cannot list", &directory, error);
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed(&error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        names.extend(name.into_string().ok().filter(|name| read_name(name).is_some()));
    }
    Ok(names)
}

/// What the note says; of a note that cannot be read the name says enough.
fn entry(layout: &Layout, name: &str) -> Option<QuarantineEntry> {
    let (repository, since) = read_name(name)?;
    let note = layout.quarantine().join(name).with_extension("json");
    let note: Option<Note> = std::fs::read(note).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let (reason, bytes) =
        note.map_or_else(|| ("why is not known".to_owned(), 0), |note| (note.reason, note.bytes));
    Some(QuarantineEntry { repository, path: format!("{BELOW}{name}"), since, reason, bytes })
}

/// The last copy of a repository that was set aside.
fn last_of(layout: &Layout, id: RepositoryId) -> Result<Option<QuarantineEntry>, Refusal> {
    let names = names(layout)?;
    let own = names.iter().filter_map(|name| Some((read_name(name)?, name))).filter(|((of, _), _)| *of == id);
    Ok(own.max_by_key(|((_, time), _)| *time).and_then(|(_, name)| entry(layout, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_agent_gives_itself_mean_a_copy_in_quarantine() {
        let id = RepositoryId(7);
        assert_eq!(name_of("quarantine/7-1700000000000.git", id), Some("7-1700000000000.git"));
        for other in [
            "quarantine/8-1.git",
            "quarantine/7-1",
            "quarantine/7-01.git",
            "quarantine/../repositories/00/07/7.git",
            "quarantine/7-1.git/..",
            "repositories/00/07/7.git",
            "/quarantine/7-1.git",
            "quarantine/+7-1.git",
            "",
        ] {
            assert_eq!(name_of(other, id), None, "{other}");
        }
    }
}
