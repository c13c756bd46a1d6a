//! Putting references in place: all at once where nobody reads yet, as a difference where somebody may.

use super::disk;
use super::objects::{self, At};
use super::references::{Reference, References};
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::wire::{Refusal, RefusalCode};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// Commands of one transaction: a bound on how long git holds its locks.
const TRANSACTION: usize = 10_000;
/// So many loose references at once are packed afterwards.
const MANY: usize = 500;

/// Writes HEAD and all references of a copy that has none and that nobody reads: tens of thousands cost one file.
/// Their objects must be there.
pub(super) async fn fresh(at: At<'_>, references: &References, format: ObjectFormat) -> Result<(), Refusal> {
    let (repository, wanted) = (at.repository.to_path_buf(), references.clone());
    disk::blocking(move || write_fresh(&repository, &wanted)).await?;
    if references.list.iter().any(|(_, target)| matches!(target, Target::Object(_))) {
        objects::pack_references(at).await?;
    }
    let (repository, wanted) = (at.repository.to_path_buf(), references.clone());
    disk::blocking(move || {
        if References::read(&repository, format)? == wanted {
            Ok(())
        } else {
            Err(Refusal::new(
                RefusalCode::Failed,
                "the references that were installed are not those that were asked for",
            ))
        }
    })
    .await
}

fn write_fresh(repository: &Path, references: &References) -> Result<(), Refusal> {
    // An earlier try may have left some.
    disk::remove_tree(&repository.join("refs"))?;
    for directory in ["refs/heads", "refs/tags"] {
        let directory = repository.join(directory);
        fs::create_dir_all(&directory).map_err(|error| disk::refusal("cannot make", &directory, &error))?;
    }
    let mut packed = b"# pack-refs with: sorted \n".to_vec();
    for (name, target) in &references.list {
        match target {
            Target::Object(oid) => {
                packed.extend_from_slice(oid.as_bytes());
                packed.push(b' ');
                packed.extend_from_slice(name);
                packed.push(b'\n');
            }
            Target::Symbolic(to) => write_symbolic(repository, name, to)?,
        }
    }
    write(&repository.join("packed-refs"), &packed)?;
    let head = match &references.head {
        Target::Object(oid) => format!("{oid}\n"),
        Target::Symbolic(to) => format!("ref: {to}\n"),
    };
    write(&repository.join("HEAD"), head.as_bytes())
}

fn write_symbolic(repository: &Path, name: &[u8], to: &str) -> Result<(), Refusal> {
    let path = repository.join(std::ffi::OsStr::from_bytes(name));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| disk::refusal("cannot make", parent, &error))?;
    }
    write(&path, format!("ref: {to}\n").as_bytes())
}

fn write(path: &Path, content: &[u8]) -> Result<(), Refusal> {
    fs::write(path, content).map_err(|error| disk::refusal("cannot write", path, &error))
}

/// What must be done to references to make one list of another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// References that must not be there, or that change their kind.
    deletions: Vec<Vec<u8>>,
    /// Plain ones to create or change.
    updates: Vec<(Vec<u8>, String)>,
    /// Symbolic ones to create or change.
    symbolic: Vec<(Vec<u8>, String)>,
    /// HEAD, if it differs.
    head: Option<Target>,
}

impl Difference {
    /// From what is there to what is wanted.
    pub(super) fn between(there: &References, wanted: &References) -> Self {
        let old: BTreeMap<&[u8], &Target> = by_name(&there.list);
        let new: BTreeMap<&[u8], &Target> = by_name(&wanted.list);
        let mut difference = Self::default();
        for (name, target) in &old {
            let same_kind = new.get(name).is_some_and(|wanted| is_symbolic(wanted) == is_symbolic(target));
            if !same_kind {
                difference.deletions.push(name.to_vec());
            }
        }
        for (name, target) in new.iter().filter(|(name, target)| old.get(*name) != Some(*target)) {
            match target {
                Target::Object(oid) => difference.updates.push((name.to_vec(), oid.clone())),
                Target::Symbolic(to) => difference.symbolic.push((name.to_vec(), to.clone())),
            }
        }
        difference.head = (there.head != wanted.head).then(|| wanted.head.clone());
        difference
    }

    /// How many references are created, changed or deleted; one that changes its kind counts once.
    pub(super) fn count(&self) -> i64 {
        let created: std::collections::BTreeSet<&Vec<u8>> = self
            .deletions
            .iter()
            .chain(self.updates.iter().map(|(name, _)| name))
            .chain(self.symbolic.iter().map(|(name, _)| name))
            .collect();
        i64::try_from(created.len()).unwrap_or(i64::MAX) + i64::from(self.head.is_some())
    }

    /// Does it. Deletions come first, in transactions of their own: `a` must be gone before `a/b` can be.
    pub(super) async fn apply(&self, at: At<'_>) -> Result<(), Refusal> {
        for batch in self.deletions.chunks(TRANSACTION) {
            let mut input = Vec::new();
            for name in batch {
                command(&mut input, b"delete ", name, &[b""]);
            }
            update(at, &input).await?;
        }
        for batch in self.updates.chunks(TRANSACTION) {
            let mut input = Vec::new();
            for (name, oid) in batch {
                command(&mut input, b"update ", name, &[oid.as_bytes(), b""]);
            }
            create(at, &input, self.is_large()).await?;
        }
        for (name, to) in &self.symbolic {
            symbolic(at, name, to).await?;
        }
        match &self.head {
            Some(Target::Symbolic(to)) => symbolic(at, b"HEAD", to).await?,
            Some(Target::Object(oid)) => {
                let mut input = Vec::new();
                command(&mut input, b"update ", b"HEAD", &[oid.as_bytes(), b""]);
                update(at, &input).await?;
            }
            None => {}
        }
        self.sync(at).await
    }

    /// Whether so much is created that it is packed, and synced, at the end and not one by one.
    fn is_large(&self) -> bool {
        self.updates.len() > MANY
    }

    /// Git syncs the files; the directories that name them are ours to sync.
    async fn sync(&self, at: At<'_>) -> Result<(), Refusal> {
        if self.is_large() {
            return objects::pack_references(at).await;
        }
        let repository = at.repository.to_path_buf();
        disk::blocking(move || {
            disk::sync_tree(&repository.join("refs"))?;
            disk::sync_directory(&repository)
        })
        .await
    }
}

fn by_name(list: &[Reference]) -> BTreeMap<&[u8], &Target> {
    list.iter().map(|(name, target)| (name.as_slice(), target)).collect()
}

const fn is_symbolic(target: &Target) -> bool {
    matches!(target, Target::Symbolic(_))
}

/// One command of `update-ref --stdin -z`; an old value that is empty is not compared: the lock is the caller's.
fn command(input: &mut Vec<u8>, verb: &[u8], name: &[u8], values: &[&[u8]]) {
    input.extend_from_slice(verb);
    input.extend_from_slice(name);
    input.push(0);
    for value in values {
        input.extend_from_slice(value);
        input.push(0);
    }
}

async fn update(at: At<'_>, input: &[u8]) -> Result<(), Refusal> {
    create(at, input, false).await
}

/// `synced_later`: twelve thousand loose references, each synced by itself, take a minute on a slow disk, and are
/// packed into one file right after.
async fn create(at: At<'_>, input: &[u8], synced_later: bool) -> Result<(), Refusal> {
    let fsync = synced_later.then_some(["-c", "core.fsync=none"]);
    let command = ["update-ref", "--no-deref", "--stdin", "-z"];
    let arguments = fsync.into_iter().flatten().chain(command).map(OsString::from).collect();
    at.demand(arguments, input, RefusalCode::Damaged).await
}

async fn symbolic(at: At<'_>, name: &[u8], to: &str) -> Result<(), Refusal> {
    let arguments = vec!["symbolic-ref".into(), OsString::from_vec(name.to_vec()), to.into()];
    at.demand(arguments, b"", RefusalCode::Damaged).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lines: &[(&str, &str)]) -> References {
        let lines: Vec<String> = lines.iter().map(|(to, name)| format!("{to} {name}")).collect();
        References::parse(
            format!("HEAD ref:refs/heads/main\n{}\n", lines.join("\n")).as_bytes(),
            ObjectFormat::Sha1,
        )
        .unwrap()
    }

    #[test]
    fn what_changes_its_kind_is_deleted_first_and_counted_once() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let there =
            list(&[(&one, "refs/heads/a"), (&one, "refs/heads/same"), ("ref:refs/heads/a", "refs/x/s")]);
        let wanted = list(&[(&two, "refs/heads/a/b"), (&one, "refs/heads/same"), (&two, "refs/x/s")]);
        let difference = Difference::between(&there, &wanted);
        assert_eq!(difference.deletions, [b"refs/heads/a".to_vec(), b"refs/x/s".to_vec()]);
        assert_eq!(difference.updates.len(), 2);
        assert_eq!(difference.count(), 3);
        assert_eq!(Difference::between(&there, &there), Difference::default());
    }
}
