//! All references of one copy at one moment, as its agent lists them.

use super::super::checksum::{Checksum, ChecksumKey, Summer, Target};
use super::super::fleet::ObjectFormat;
use super::super::refname;
use super::super::wire::push::{Command, RefName};
use super::HEAD;
use std::collections::BTreeMap;

/// How deep git follows symbolic references.
const DEEPEST: usize = 5;

/// HEAD and all references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// What HEAD points at.
    pub head: Target,
    /// All references by name, symbolic ones as such.
    pub references: BTreeMap<RefName, Target>,
}

/// A list of references that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the list of references cannot be read: {0}")]
pub struct Unreadable(String);

impl Listing {
    /// Reads the text form of [`wire`](super::super::wire).
    ///
    /// # Errors
    /// When a line is not one, or the text ends amid a line.
    pub fn parse(text: &[u8], format: ObjectFormat) -> Result<Self, Unreadable> {
        let body = text.strip_suffix(b"\n").ok_or_else(|| Unreadable("it ends amid a line".to_owned()))?;
        let mut lines = body.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let (head, name) = line(first, format).ok_or_else(|| broken(first))?;
        // `HEAD <target>` stands the other way round.
        if name.0 != HEAD {
            return Err(Unreadable("it does not begin with HEAD".to_owned()));
        }
        let mut references = BTreeMap::new();
        for text in lines {
            let (target, name) = line(text, format).ok_or_else(|| broken(text))?;
            if name.0 == HEAD || references.insert(name, target).is_some() {
                return Err(broken(text));
            }
        }
        Ok(Self { head, references })
    }

    /// What HEAD or a reference points at.
    #[must_use]
    pub fn get(&self, name: &RefName) -> Option<&Target> {
        if name.0 == HEAD { Some(&self.head) } else { self.references.get(name) }
    }

    /// The reference that a name leads to: itself, or where symbolic ones end. It need not exist.
    /// None: they lead in a circle, or too far.
    #[must_use]
    pub fn resolve(&self, name: &RefName) -> Option<RefName> {
        let mut at = name.clone();
        for _ in 0..=DEEPEST {
            match self.get(&at) {
                Some(Target::Symbolic(to)) => at = RefName(to.clone().into_bytes()),
                _ => return refname::is_reference(&at.0).then_some(at),
            }
        }
        None
    }

    /// Does commands, as a copy would.
    pub fn apply(&mut self, commands: &[Command]) {
        for command in commands {
            match &command.new {
                Some(new) if command.name.0 == HEAD => self.head = new.clone(),
                Some(new) => drop(self.references.insert(command.name.clone(), new.clone())),
                None => drop(self.references.remove(&command.name)),
            }
        }
    }

    /// Its checksum.
    #[must_use]
    pub fn checksum(&self, key: &ChecksumKey, format: ObjectFormat) -> Checksum {
        let mut summer = Summer::new(key, format);
        summer.add_head(&self.head);
        for (name, target) in &self.references {
            summer.add_reference(&name.0, target);
        }
        summer.finish()
    }
}

fn broken(line: &[u8]) -> Unreadable {
    Unreadable(format!("a line says {:?}", line[..line.len().min(120)].escape_ascii().to_string()))
}

/// What a line points at, and its name.
fn line(text: &[u8], format: ObjectFormat) -> Option<(Target, RefName)> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    let (first, rest) = (&text[..space], &text[space + 1..]);
    if first == HEAD {
        return Some((target(rest, format)?, RefName(HEAD.to_vec())));
    }
    refname::is_reference(rest).then_some(())?;
    Some((target(first, format)?, RefName(rest.to_vec())))
}

fn target(text: &[u8], format: ObjectFormat) -> Option<Target> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix("ref:") {
        Some(to) => refname::is_target(to.as_bytes()).then(|| Target::Symbolic(to.to_owned())),
        None => is_object(text, format).then(|| Target::Object(text.to_owned())),
    }
}

/// Whether this names an object of this format, as git writes it; the null name does not.
pub(super) fn is_object(text: &str, format: ObjectFormat) -> bool {
    text.len() == format.hex_len()
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && text.bytes().any(|byte| byte != b'0')
}
