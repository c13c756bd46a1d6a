//! HEAD and all references of a repository, of all namespaces, symbolic ones as such: read, written as text, summed.
//!
//! Read from the files themselves (git's files format): a listing by git leaves out symbolic references that point at
//! nothing and passes over broken ones with a warning, and here either must be seen.

mod read;

use crate::model::checksum::{Checksum, ChecksumKey, Summer, Target};
use crate::model::fleet::ObjectFormat;
use crate::model::refname;
use std::collections::{BTreeSet, HashSet};

/// One reference: its name's bytes and what it points at.
pub(super) type Reference = (Vec<u8>, Target);

/// HEAD, and the references sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct References {
    /// What HEAD points at.
    pub(super) head: Target,
    /// Sorted by name's bytes, each name once.
    pub(super) list: Vec<Reference>,
}

impl References {
    /// Reads the text form; every name and target is checked, so that none of them can become a foreign path.
    pub(super) fn parse(text: &[u8], format: ObjectFormat) -> Result<Self, String> {
        let body = text.strip_suffix(b"\n").ok_or("the list of references ends amid a line")?;
        let mut lines = body.split(|byte| *byte == b'\n');
        let first = lines.next().and_then(|line| line.strip_prefix(b"HEAD "));
        let head = target(first.ok_or("the list of references does not begin with HEAD")?, format)?;
        if let Target::Symbolic(to) = &head
            && !refname::is_reference(to.as_bytes())
        {
            return Err(format!("HEAD cannot point at {to:?}"));
        }
        let mut list = lines.map(|line| reference(line, format)).collect::<Result<Vec<_>, _>>()?;
        list.sort();
        let references = Self { head, list };
        references.check_names()?;
        Ok(references)
    }

    /// What HEAD or a reference points at.
    pub(super) fn get(&self, name: &[u8]) -> Option<&Target> {
        if name == b"HEAD" {
            return Some(&self.head);
        }
        let found = self.list.binary_search_by(|(other, _)| other.as_slice().cmp(name));
        found.ok().map(|index| &self.list[index].1)
    }

    /// The text form: HEAD, then a line each, sorted.
    pub(super) fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(64 * (self.list.len() + 1));
        push_target(&mut text, None, &self.head);
        for (name, target) in &self.list {
            push_target(&mut text, Some(name), target);
        }
        text
    }

    /// Their checksum.
    pub(super) fn checksum(&self, key: &ChecksumKey, format: ObjectFormat) -> Checksum {
        let mut summer = Summer::new(key, format);
        summer.add_head(&self.head);
        for (name, target) in &self.list {
            summer.add_reference(name, target);
        }
        summer.finish()
    }

    /// The objects that HEAD and references name, each once.
    pub(super) fn tips(&self) -> Vec<String> {
        let targets = self.list.iter().map(|(_, target)| target).chain([&self.head]);
        let objects = targets.filter_map(|target| match target {
            Target::Object(oid) => Some(oid.as_str()),
            Target::Symbolic(_) => None,
        });
        objects.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
    }

    /// How many there are, HEAD aside.
    pub(super) fn count(&self) -> i64 {
        i64::try_from(self.list.len()).unwrap_or(i64::MAX)
    }

    /// Names stand once, and none lies above another: files cannot hold both `a` and `a/b`.
    fn check_names(&self) -> Result<(), String> {
        let names: HashSet<&[u8]> = self.list.iter().map(|(name, _)| name.as_slice()).collect();
        if names.len() != self.list.len() {
            return Err("the list of references has a name twice".to_owned());
        }
        for (name, _) in &self.list {
            if let Some(above) = refname::above(name).find(|above| names.contains(above)) {
                return Err(format!("{} and {} cannot both be", above.escape_ascii(), name.escape_ascii()));
            }
        }
        Ok(())
    }
}

fn reference(line: &[u8], format: ObjectFormat) -> Result<Reference, String> {
    let space = line.iter().position(|byte| *byte == b' ');
    let (to, name) = line.split_at(space.ok_or("a line of the list of references has no name")?);
    let name = &name[1..];
    if !refname::is_reference(name) {
        return Err(format!("{:?} is not a reference's name", name.escape_ascii().to_string()));
    }
    Ok((name.to_vec(), target(to, format)?))
}

fn target(text: &[u8], format: ObjectFormat) -> Result<Target, String> {
    let unreadable = || format!("a reference cannot point at {:?}", text.escape_ascii().to_string());
    let words = std::str::from_utf8(text).map_err(|_| unreadable())?;
    match words.strip_prefix("ref:") {
        Some(to) if refname::is_target(to.as_bytes()) => Ok(Target::Symbolic(to.to_owned())),
        None => object(words.as_bytes(), format).map(Target::Object).ok_or_else(unreadable),
        Some(_) => Err(unreadable()),
    }
}

/// An object's name in lower case, if these bytes are one of this format; the null name is none.
fn object(text: &[u8], format: ObjectFormat) -> Option<String> {
    let hex = text.len() == format.hex_len() && text.iter().all(u8::is_ascii_hexdigit);
    let null = text.iter().all(|byte| *byte == b'0');
    (hex && !null).then(|| String::from_utf8_lossy(text).to_ascii_lowercase())
}

fn push_target(text: &mut Vec<u8>, name: Option<&[u8]>, target: &Target) {
    if name.is_none() {
        text.extend_from_slice(b"HEAD ");
    }
    match target {
        Target::Object(oid) => text.extend_from_slice(oid.as_bytes()),
        Target::Symbolic(to) => {
            text.extend_from_slice(b"ref:");
            text.extend_from_slice(to.as_bytes());
        }
    }
    if let Some(name) = name {
        text.push(b' ');
        text.extend_from_slice(name);
    }
    text.push(b'\n');
}

#[cfg(test)]
mod tests;
