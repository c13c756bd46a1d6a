//! What may lie in a repository beside objects and references: the agent's own `config`, and nothing else that git
//! would obey.
//!
//! Git reads a repository's configuration before anything else, and honours programs and includes in it; it follows
//! `commondir` and alternates to other repositories; it believes `shallow` and grafts about history. So `config` is
//! compared before each use and written anew where it differs, and the rest is found, named and removed.

use super::disk;
use crate::model::fleet::ObjectFormat;
use crate::model::wire::{Refusal, RefusalCode};
use std::fs;
use std::path::{Path, PathBuf};

/// Files that git would obey, and that no copy of ours has.
const STRANGERS: &[(&str, &str)] = &[
    ("commondir", "it points at another repository"),
    ("objects/info/alternates", "it borrows objects from another repository"),
    ("objects/info/http-alternates", "it borrows objects from another repository"),
    ("config.worktree", "it holds a foreign configuration"),
    ("shallow", "its history is cut off"),
    ("info/grafts", "its history is grafted"),
    ("info/attributes", "it holds foreign attributes"),
];

/// What must be a plain file or directory and no link.
const PLAIN: &[&str] = &["HEAD", "packed-refs", "config", "refs", "objects", "objects/pack", "objects/info"];

/// The configuration of every copy.
pub(super) const fn config_text(format: ObjectFormat) -> &'static str {
    match format {
        ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
        ObjectFormat::Sha256 => {
            "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n\
             [extensions]\n\tobjectformat = sha256\n"
        }
    }
}

/// Which format a configuration names; only the two texts that are ours, and git's own wordings of them, are read.
pub(super) fn format_in(config: &str) -> ObjectFormat {
    let sha256 = config.lines().any(|line| {
        let mut words = line.split('=').map(str::trim);
        words.next().is_some_and(|key| key.eq_ignore_ascii_case("objectformat"))
            && words.next() == Some("sha256")
    });
    if sha256 { ObjectFormat::Sha256 } else { ObjectFormat::Sha1 }
}

/// Makes `config` the agent's own. Says so where it was not.
pub(super) fn settle_config(repository: &Path, format: ObjectFormat) -> Result<Option<String>, Refusal> {
    let path = repository.join("config");
    let text = config_text(format);
    let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    if !is_link && fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(None);
    }
    disk::write_whole(&path, text.as_bytes())?;
    Ok(Some("its config was not the agent's and was written anew".to_owned()))
}

/// Refuses what would lead git out of the repository; the rest of the strangers harm no reader.
pub(super) fn check_plain(repository: &Path) -> Result<(), Refusal> {
    for name in PLAIN {
        let kind = fs::symlink_metadata(repository.join(name)).map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
            return Err(damaged(format!("{name} is a link or a device")));
        }
    }
    if fs::symlink_metadata(repository.join("commondir")).is_ok() {
        return Err(damaged("commondir is there: it points at another repository".to_owned()));
    }
    for name in ["refs", "objects"] {
        if !repository.join(name).is_dir() {
            return Err(damaged(format!("{name} is not there")));
        }
    }
    Ok(())
}

/// What lies in a copy and does not belong there, one sentence each.
pub(super) fn strangers(repository: &Path) -> Vec<String> {
    let there = |name: &&(&str, &str)| fs::symlink_metadata(repository.join(name.0)).is_ok();
    let mut found: Vec<String> =
        STRANGERS.iter().filter(there).map(|(name, why)| format!("{name} is there: {why}")).collect();
    if !hooks(repository).is_empty() {
        found.push("hooks are there".to_owned());
    }
    found
}

/// Removes them; says what was removed.
pub(super) fn remove_strangers(repository: &Path) -> Result<Vec<String>, Refusal> {
    let mut removed = Vec::new();
    for (name, _) in STRANGERS {
        if remove_file(&repository.join(name))? {
            removed.push((*name).to_owned());
        }
    }
    for hook in hooks(repository) {
        if remove_file(&hook)? {
            removed.push(below(repository, &hook));
        }
    }
    Ok(removed)
}

/// Removes locks and unfinished files of gits that are gone: the caller holds the repository's lock, so none lives.
pub(super) fn remove_stale(repository: &Path) -> Result<Vec<String>, Refusal> {
    let mut removed = remove_stale_locks(repository)?;
    removed.extend(remove_unfinished(repository)?);
    Ok(removed)
}

/// Removes what dead gits left of changes of references. No push may be under way.
pub(super) fn remove_stale_locks(repository: &Path) -> Result<Vec<String>, Refusal> {
    let mut removed = Vec::new();
    let is_stale = |name: &str| is_lock(name) || name == "packed-refs.new";
    sweep(repository, repository, false, &is_stale, &mut removed)?;
    sweep(repository, &repository.join("refs"), true, &is_stale, &mut removed)?;
    sweep(repository, &repository.join("reftable"), false, &is_stale, &mut removed)?;
    Ok(removed)
}

/// Removes what dead gits left among objects. Pushes bring theirs whole, so they may go on beside this.
pub(super) fn remove_unfinished(repository: &Path) -> Result<Vec<String>, Refusal> {
    let mut removed = Vec::new();
    let is_unfinished = |name: &str| name.starts_with("tmp_") || is_lock(name);
    sweep(repository, &repository.join("objects"), true, &is_unfinished, &mut removed)?;
    Ok(removed)
}

fn is_lock(name: &str) -> bool {
    name.as_bytes().ends_with(b".lock")
}

fn sweep(
    repository: &Path,
    directory: &Path,
    deep: bool,
    is_stale: &dyn Fn(&str) -> bool,
    removed: &mut Vec<String>,
) -> Result<(), Refusal> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            if deep {
                sweep(repository, &entry.path(), deep, is_stale, removed)?;
            }
        } else if is_stale(&entry.file_name().to_string_lossy()) && remove_file(&entry.path())? {
            removed.push(below(repository, &entry.path()));
        }
    }
    Ok(())
}

fn hooks(repository: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(repository.join("hooks")) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_none_or(|ending| ending != "sample")).collect()
}

fn remove_file(path: &Path) -> Result<bool, Refusal> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(false),
        Ok(metadata) if metadata.is_dir() => disk::remove_tree(path)?,
        Ok(_) => fs::remove_file(path).map_err(|error| disk::refusal("cannot remove", path, &error))?,
    }
    Ok(true)
}

fn below(repository: &Path, path: &Path) -> String {
    path.strip_prefix(repository).unwrap_or(path).display().to_string()
}

fn damaged(what: String) -> Refusal {
    Refusal::new(RefusalCode::Damaged, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_config_is_replaced_and_told() {
        let place = tempfile::tempdir().unwrap();
        assert!(settle_config(place.path(), ObjectFormat::Sha256).unwrap().is_some(), "none was there");
        assert_eq!(settle_config(place.path(), ObjectFormat::Sha256).unwrap(), None);
        assert_eq!(
            format_in(&fs::read_to_string(place.path().join("config")).unwrap()),
            ObjectFormat::Sha256
        );
        fs::write(place.path().join("config"), "[core]\n\thooksPath = /tmp\n").unwrap();
        assert!(settle_config(place.path(), ObjectFormat::Sha256).unwrap().is_some());
    }

    #[test]
    fn locks_that_gits_left_are_removed_and_references_are_not() {
        let place = tempfile::tempdir().unwrap();
        for directory in ["refs/heads/x", "objects/pack", "objects/ab"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        let stale = [
            "HEAD.lock",
            "packed-refs.lock",
            "refs/heads/x/y.lock",
            "objects/pack/tmp_pack_1",
            "objects/ab/tmp_obj_2",
        ];
        for file in stale.iter().chain(&["HEAD", "refs/heads/x/z"]) {
            fs::write(place.path().join(file), "").unwrap();
        }
        let mut removed = remove_stale(place.path()).unwrap();
        removed.sort();
        let mut expected = stale.map(str::to_owned);
        expected.sort();
        assert_eq!(removed, expected);
        assert!(place.path().join("refs/heads/x/z").exists());
    }
}
