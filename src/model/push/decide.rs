//! Which commands of a push stand: each by its own old value against the references at one version, decided once for
//! all copies.
//!
//! The verdicts are those of git's own receive-pack for a bare repository, and so are the words, where it has any.
//! A client's command for a symbolic reference is one for what that leads to, as with git.

use super::super::checksum::Target;
use super::super::fleet::ObjectFormat;
use super::super::refname;
use super::super::wire::push::{Command, RefName};
use super::listing::{Listing, is_object};
use super::{HEAD, collides};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The longest part of a name between two slashes: a file's name, less `.lock`.
const LONGEST_PART: usize = 250;
/// The longest name: a path below the repository, less `.lock`.
const LONGEST_NAME: usize = 4_000;

/// How commands are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// All stand or none.
    pub atomic: bool,
    /// The server's own commands: they may change HEAD and symbolic references, and are not led on by those.
    pub by_server: bool,
    /// How objects are named.
    pub format: ObjectFormat,
}

/// Whether one command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It does.
    Stand,
    /// It does not.
    Refuse(Reason),
}

/// Why a command does not stand. Shown as git says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The name is none that a push may create or change.
    FunnyName,
    /// The name is too long for a file.
    TooLong,
    /// The new value is none.
    BadValue,
    /// It must not be there, and is.
    AlreadyExists,
    /// It must be there, and is not.
    DoesNotExist,
    /// It has another value than the client believes.
    Stale,
    /// `a` and `a/b` cannot both be.
    Conflict,
    /// A symbolic reference leads nowhere.
    BrokenSymbolic,
    /// A symbolic reference and its target are to become different things.
    Aliased,
    /// An earlier command of this push changes the same reference.
    Twice,
    /// It is the branch that HEAD points at.
    CurrentBranch,
    /// Another command of an atomic push does not stand.
    Atomic,
}

impl Reason {
    /// Git's words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::FunnyName => "funny refname",
            Self::TooLong => "refname too long",
            Self::BadValue => "invalid new value provided",
            Self::AlreadyExists => "reference already exists",
            Self::DoesNotExist => "reference does not exist",
            Self::Stale => "incorrect old value provided",
            Self::Conflict => "refname conflict",
            Self::BrokenSymbolic => "broken symref",
            Self::Aliased => "inconsistent aliased update",
            Self::Twice => "multiple updates for ref not allowed",
            Self::CurrentBranch => "deletion of the current branch prohibited",
            Self::Atomic => "atomic push failure",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.words())
    }
}

/// What was decided about one push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// One for each command, in their order.
    pub decisions: Vec<Decision>,
    /// What copies are told to do: those that stand and change something, by the name that they lead to, each with
    /// the value that it has now. None: nothing need be opened.
    pub commands: Vec<Command>,
}

/// Decides every command against the references as they are now.
#[must_use]
pub fn decide(commands: &[Command], now: &Listing, rules: Rules) -> Decided {
    let mut judged: Vec<Judged> = commands.iter().map(|command| judge(command, now, rules)).collect();
    judge_aliases(commands, &mut judged);
    judge_repeated(&mut judged);
    judge_conflicts(&mut judged, now, rules.atomic);
    for index in 0..judged.len() {
        if let Some(other) = judged[index].with {
            judged[index].refused = judged[other].refused;
        }
    }
    if rules.atomic && judged.iter().any(|one| one.refused.is_some()) {
        for one in &mut judged {
            one.refused.get_or_insert(Reason::Atomic);
        }
    }
    let decisions = judged.iter().map(|one| one.refused.map_or(Decision::Stand, Decision::Refuse));
    let decisions = decisions.collect();
    let done = judged.into_iter().filter(|one| one.refused.is_none() && !one.idle).map(|one| one.effect);
    Decided { decisions, commands: done.collect() }
}

/// One command on its way to a decision.
struct Judged {
    /// What it comes to.
    effect: Command,
    /// It was led on by a symbolic reference.
    led: bool,
    /// It stands without changing anything.
    idle: bool,
    /// It falls with the command of this index, which does what it asks for.
    with: Option<usize>,
    refused: Option<Reason>,
}

fn judge(command: &Command, now: &Listing, rules: Rules) -> Judged {
    let named = check_name(command, rules).and_then(|()| check_value(command, rules));
    let target = match &named {
        Ok(()) if !rules.by_server => now.resolve(&command.name).ok_or(Reason::BrokenSymbolic),
        _ => Ok(command.name.clone()),
    };
    let refused = named.err().or(target.as_ref().err().copied());
    let name = target.unwrap_or_else(|_| command.name.clone());
    let value = now.get(&name).cloned();
    let refused =
        refused.or_else(|| check_current(command, &name, now)).or_else(|| check_old(command, value.as_ref()));
    Judged {
        led: name != command.name,
        idle: value == command.new,
        with: None,
        effect: Command { name, old: value, new: command.new.clone() },
        refused,
    }
}

fn check_name(command: &Command, rules: Rules) -> Result<(), Reason> {
    let name = &command.name.0[..];
    if rules.by_server && name == HEAD && command.new.is_some() {
        return Ok(());
    }
    // Git creates nothing directly below `refs/`, and deletes what is there.
    let rest = name.strip_prefix(b"refs/").unwrap_or_default();
    let deep = rest.contains(&b'/') || command.new.is_none();
    if name.len() > LONGEST_NAME || name.split(|byte| *byte == b'/').any(|part| part.len() > LONGEST_PART) {
        return Err(Reason::TooLong);
    }
    if deep && refname::is_reference(name) { Ok(()) } else { Err(Reason::FunnyName) }
}

fn check_value(command: &Command, rules: Rules) -> Result<(), Reason> {
    let fits = match &command.new {
        None => true,
        Some(Target::Object(oid)) => is_object(oid, rules.format),
        Some(Target::Symbolic(to)) => rules.by_server && refname::is_reference(to.as_bytes()),
    };
    if fits { Ok(()) } else { Err(Reason::BadValue) }
}

fn check_current(command: &Command, name: &RefName, now: &Listing) -> Option<Reason> {
    let is_current = matches!(&now.head, Target::Symbolic(to) if to.as_bytes() == name.0);
    (command.new.is_none() && command.old.is_some() && is_current).then_some(Reason::CurrentBranch)
}

fn check_old(command: &Command, value: Option<&Target>) -> Option<Reason> {
    match (&command.old, value) {
        (None, None) => None,
        (None, Some(_)) if command.new.is_some() => Some(Reason::AlreadyExists),
        (Some(_), None) => Some(Reason::DoesNotExist),
        (Some(old), Some(value)) if old == value => None,
        (_, Some(_)) => Some(Reason::Stale),
    }
}

/// A symbolic reference and its target in one push must become the same; then the target's command does it.
fn judge_aliases(commands: &[Command], judged: &mut [Judged]) {
    let by_name: BTreeMap<&RefName, usize> =
        commands.iter().enumerate().rev().map(|(index, command)| (&command.name, index)).collect();
    for index in 0..judged.len() {
        if !judged[index].led || judged[index].refused == Some(Reason::FunnyName) {
            continue;
        }
        let Some(&other) = by_name.get(&judged[index].effect.name) else { continue };
        if commands[other].old == commands[index].old && commands[other].new == commands[index].new {
            judged[index].with = Some(other);
            judged[index].idle = true;
        } else {
            judged[index].refused = Some(Reason::Aliased);
            judged[other].refused = Some(Reason::Aliased);
        }
    }
}

/// Of several commands for one reference the first one that stands by itself does.
fn judge_repeated(judged: &mut [Judged]) {
    let mut seen = BTreeSet::new();
    for one in judged.iter_mut().filter(|one| one.refused.is_none() && one.with.is_none()) {
        if !seen.insert(one.effect.name.clone()) {
            one.refused = Some(Reason::Twice);
        }
    }
}

/// Names that are created must find their place free of what is there, is not deleted, or was created before.
/// An atomic push is one transaction, in which no name can take the place of another.
fn judge_conflicts(judged: &mut [Judged], now: &Listing, atomic: bool) {
    let mut names: BTreeSet<&[u8]> = now.references.keys().map(|name| &name.0[..]).collect();
    let (gone, made): (Vec<usize>, Vec<usize>) = (0..judged.len())
        .filter(|index| judged[*index].refused.is_none() && !judged[*index].idle)
        .filter(|index| judged[*index].effect.old.is_none() != judged[*index].effect.new.is_none())
        .partition(|index| judged[*index].effect.new.is_none());
    let mut refused = Vec::new();
    if !atomic {
        for index in gone {
            names.remove(&judged[index].effect.name.0[..]);
        }
    }
    for index in made {
        let name = &judged[index].effect.name;
        if collides(&names, name) {
            refused.push(index);
        } else {
            names.insert(&name.0);
        }
    }
    for index in refused {
        judged[index].refused = Some(Reason::Conflict);
    }
}
