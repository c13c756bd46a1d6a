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
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// Commands of one transaction: a bound on how long git holds its locks.
const TRANSACTION: usize = 10_000;
/// More than so many are not written one by one.
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
    for (name, target) in &references.list {
        if let Target::Symbolic(to) = target {
            write_symbolic(repository, name, to)?;
        }
    }
    let text = packed(references.list.iter().map(|(name, target)| (name, target)));
    write(&repository.join("packed-refs"), &text)?;
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
    pub(super) async fn apply(&self, at: At<'_>, format: ObjectFormat) -> Result<(), Refusal> {
        for batch in self.deletions.chunks(TRANSACTION) {
            let mut input = Vec::new();
            for name in batch {
                command(&mut input, b"delete ", name, &[b""]);
            }
            update(at, &input).await?;
        }
        self.update(at, format).await?;
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

    /// Creates and changes plain references: a few by git, many by one new `packed-refs`, for twelve thousand files
    /// that are each synced take a minute on a slow disk.
    async fn update(&self, at: At<'_>, format: ObjectFormat) -> Result<(), Refusal> {
        if self.updates.len() > MANY {
            let (repository, updates) = (at.repository.to_path_buf(), self.updates.clone());
            disk::blocking(move || repack(&repository, &updates, format)).await?;
            return objects::pack_references(at).await;
        }
        let mut input = Vec::new();
        for (name, oid) in &self.updates {
            command(&mut input, b"update ", name, &[oid.as_bytes(), b""]);
        }
        update(at, &input).await
    }

    /// Git syncs the files; the directories that name them are ours to sync.
    async fn sync(&self, at: At<'_>) -> Result<(), Refusal> {
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
    let arguments = ["update-ref", "--no-deref", "--stdin", "-z"].map(OsString::from).to_vec();
    at.demand(arguments, input, RefusalCode::Damaged).await
}

/// Writes all plain references into one file, as git would: under its lock, synced, renamed, and then without the
/// loose files that would hide it.
fn repack(repository: &Path, updates: &[(Vec<u8>, String)], format: ObjectFormat) -> Result<(), Refusal> {
    let mut all: BTreeMap<Vec<u8>, Target> = References::read(repository, format)?.list.into_iter().collect();
    all.extend(updates.iter().map(|(name, oid)| (name.clone(), Target::Object(oid.clone()))));
    let lock = repository.join("packed-refs.lock");
    let put = || -> std::io::Result<()> {
        let mut file = fs::File::create_new(&lock)?;
        file.write_all(&packed(all.iter()))?;
        file.sync_all()?;
        fs::rename(&lock, repository.join("packed-refs"))
    };
    put().map_err(|error| disk::refusal("cannot write", &lock, &error))?;
    disk::sync_directory(repository)?;
    for (name, _) in updates {
        let loose = repository.join(std::ffi::OsStr::from_bytes(name));
        if fs::symlink_metadata(&loose).is_ok_and(|metadata| !metadata.is_dir()) {
            fs::remove_file(&loose).map_err(|error| disk::refusal("cannot remove", &loose, &error))?;
        }
    }
    Ok(())
}

/// The text of `packed-refs`. It does not claim to know what tags peel to: git adds that.
fn packed<'a>(references: impl Iterator<Item = (&'a Vec<u8>, &'a Target)>) -> Vec<u8> {
    let mut text = b"# pack-refs with: sorted \n".to_vec();
    for (name, target) in references {
        if let Target::Object(oid) = target {
            text.extend_from_slice(oid.as_bytes());
            text.push(b' ');
            text.extend_from_slice(name);
            text.push(b'\n');
        }
    }
    text
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
