//! Checking every object of a copy, politely; and what git says of it that is damage.
//!
//! A copy is judged as storage, not as history: what git dislikes about commits that were accepted long ago is the same
//! in every copy, and none of them is mended by it. What only speeds up reading (commit-graph, multi-pack-index) is
//! checked too; where that is wrong it is removed and made again by the next packing.

use super::objects::{At, broken};
use super::{disk, opened, packs, verify};
use crate::agent::git::{GitError, GitOutput, Pace};
use crate::agent::store::{Store, Work};
use crate::model::id::RepositoryId;
use crate::model::wire::{Progress, Refusal, RefusalCode, VerifyAnswer};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// The longest check; at a third of a disk's time 2 TB take as long.
const LONG: Duration = Duration::from_hours(72);
/// How much of git's words is kept.
const WORDS: usize = 2_000;
/// Complaints about content that every git of ours knows by name: they would only hide what matters.
const CONTENT: &[&str] = &[
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
    "fullPathname",
    "nullSha1",
];

/// Checks a copy whole. One that a cheap verification finds bad already is not looked at further.
pub(super) async fn scrub(store: &Store, id: RepositoryId, work: &Work) -> Result<VerifyAnswer, Refusal> {
    let mut answer = verify::verify(store, id, work).await?;
    if answer.checksum.is_none() {
        return Ok(answer);
    }
    let copy = opened::open(store, id).await?;
    let at = At { git: &store.git, repository: &copy.path, lock: None, cancel: &work.cancel };
    let problem = objects(at, work).await?;
    if problem.is_none() {
        mend_indexes(at).await?;
        answer.indexed &= packs::has_graph(&copy.path.join("objects"));
    }
    // References may have changed since: what is told of them is told of now.
    answer.checksum = Some(super::checksum(store, id).await?.checksum);
    answer.problem = problem;
    answer.deep = true;
    Ok(answer)
}

/// What is wrong with the objects, in git's words.
async fn objects(at: At<'_>, work: &Work) -> Result<Option<String>, Refusal> {
    let told = |doing: &str, worked: Duration| {
        let phase = format!("checking every object, {doing}: {} s", worked.as_secs());
        (work.progress)(Progress { phase, bytes: 0, total: 0 });
    };
    let git = at.git.command(Some(at.repository), fsck()).spawn().map_err(|error| broken(&error))?;
    match git.finish_at(Pace::default(), LONG, at.cancel, told).await {
        Ok(output) => judge(&output),
        Err(GitError::TooMuch(_)) => Ok(Some("git has more complaints than can be kept".to_owned())),
        Err(error) => Err(broken(&error)),
    }
}

fn fsck() -> Vec<OsString> {
    // Neither may answer for the objects themselves.
    let mut arguments: Vec<OsString> =
        ["-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false"].map(OsString::from).to_vec();
    for name in CONTENT {
        arguments.extend(["-c".into(), format!("fsck.{name}=ignore").into()]);
    }
    arguments
        .extend(["fsck", "--full", "--no-dangling", "--no-reflogs", "--no-progress"].map(OsString::from));
    arguments
}

/// Tells damage from what git dislikes.
fn judge(output: &GitOutput) -> Result<Option<String>, Refusal> {
    if output.ok() {
        return Ok(None);
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines = || output.stderr.lines().chain(stdout.lines()).filter(|line| !line.trim().is_empty());
    let mut damage = lines().filter(|line| !is_dislike(line)).peekable();
    if damage.peek().is_none() && output.code.is_some() && lines().next().is_some() {
        return Ok(None);
    }
    let mut words: String = damage.take(20).collect::<Vec<_>>().join("; ");
    if words.is_empty() {
        words = output.words();
    }
    if output.code.is_none() || is_ours(&words) {
        return Err(Refusal::new(RefusalCode::Failed, format!("checking objects was broken off: {words}")));
    }
    words.truncate(words.floor_char_boundary(WORDS));
    Ok(Some(words))
}

/// Git's words for what the repository says, or for a reference that points at nothing: both are so in every copy.
fn is_dislike(line: &str) -> bool {
    const BEGINNINGS: &[&str] =
        &["error in ", "warning in ", "warning: ", "notice: ", "dangling ", "unreachable ", "Checking "];
    let points_at_nothing = line.contains("pointer 0000000000000000000000000000000000000000");
    BEGINNINGS.iter().any(|one| line.starts_with(one))
        || points_at_nothing
        || line.ends_with(": not a commit")
}

/// Words for what ails this machine rather than the copy.
fn is_ours(words: &str) -> bool {
    ["out of memory", "Out of memory", "Cannot allocate memory", "Too many open files"]
        .iter()
        .any(|one| words.contains(one))
}

/// Checks what speeds up reading, and removes what is wrong with it.
async fn mend_indexes(at: At<'_>) -> Result<(), Refusal> {
    let objects = at.repository.join("objects");
    if packs::has_graph(&objects)
        && !at.ask(&["commit-graph", "verify", "--no-progress"], b"", 1 << 20).await?.ok()
    {
        tracing::warn!(repository = %at.repository.display(), "a commit-graph was wrong and is removed");
        remove(&objects, &["info/commit-graph", "info/commit-graphs"]).await?;
    }
    if objects.join("pack/multi-pack-index").is_file()
        && !at.ask(&["multi-pack-index", "verify", "--no-progress"], b"", 1 << 20).await?.ok()
    {
        tracing::warn!(repository = %at.repository.display(), "a multi-pack-index was wrong and is removed");
        remove(&objects, &["pack/multi-pack-index"]).await?;
    }
    Ok(())
}

async fn remove(objects: &Path, names: &'static [&'static str]) -> Result<(), Refusal> {
    let objects = objects.to_path_buf();
    disk::blocking(move || {
        for name in names {
            let path = objects.join(name);
            match std::fs::symlink_metadata(&path) {
                Err(_) => {}
                Ok(metadata) if metadata.is_dir() => disk::remove_tree(&path)?,
                Ok(_) => std::fs::remove_file(&path)
                    .map_err(|error| disk::refusal("cannot remove", &path, &error))?,
            }
        }
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, stderr: &str, stdout: &str) -> Option<String> {
        let (stdout, stderr) = (stdout.as_bytes().to_vec(), stderr.to_owned());
        judge(&GitOutput { code: Some(code), stdout, stderr }).unwrap()
    }

    #[test]
    fn damage_is_told_from_what_git_dislikes() {
        assert_eq!(said(0, "notice: No default references", ""), None);
        assert_eq!(
            said(1, "error in commit 12ab: missingAuthor: invalid format - expected 'author' line", ""),
            None
        );
        let nothing = format!("error: refs/s/x: invalid sha1 pointer {}", "0".repeat(40));
        assert_eq!(said(2, &nothing, ""), None);
        let empty = "error: object file ./objects/ab/cd is empty";
        assert_eq!(said(1, &format!("warning in tree 12: x\n{empty}"), ""), Some(empty.to_owned()));
        assert_eq!(said(2, "", "missing blob 12ab"), Some("missing blob 12ab".to_owned()));
        assert!(said(128, "", "").unwrap().contains("128"), "silence is not consent");
    }

    #[test]
    fn a_machine_without_memory_says_nothing_about_the_copy() {
        let stderr = "fatal: Out of memory, malloc failed".to_owned();
        let killed = GitOutput { code: None, stdout: vec![], stderr: String::new() };
        assert_eq!(judge(&killed).unwrap_err().code, RefusalCode::Failed);
        let starved = GitOutput { code: Some(128), stdout: vec![], stderr };
        assert_eq!(judge(&starved).unwrap_err().code, RefusalCode::Failed);
    }
}
