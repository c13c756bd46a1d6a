//! The rules of a push: who votes, which commands stand, what the references become, what votes mean, how a push
//! whose router is gone is settled.
//!
//! Plain data in, a decision out: routers, workers, agents and the explored model call the same functions. The rules
//! of voters, votes and settling were found by exploring a model of them. Nothing here may be left out without one:
//! without seats, the fence or the comparison with the base, pushes that were acknowledged are lost.

mod decide;
mod listing;
mod settle;
mod tally;
mod voters;

pub use super::fleet::quorum;
pub use decide::{Decided, Decision, Reason, Rules, decide};
pub use listing::{Listing, Unreadable};
pub use settle::{Fenced, Open, Settled, Unsettled, settle};
pub use tally::{Ballot, Tally, Verdict, tally};
pub use voters::{Candidate, Chosen, TooFew, choose};

use super::checksum::{Checksum, ChecksumKey, Summer};
use super::refname;
use super::wire::push::{Command, RefName};
use std::collections::BTreeSet;
use std::ops::Bound;

/// The name that is no reference's, and that a server's own commands may change.
pub const HEAD: &[u8] = b"HEAD";

/// What the checksum becomes when these commands are done, each with the value that its reference has now.
/// None: the checksum was taken under another key.
#[must_use]
pub fn after(key: &ChecksumKey, before: &Checksum, commands: &[Command]) -> Option<Checksum> {
    let mut summer = Summer::resume(key, before)?;
    for command in commands {
        let is_head = command.name.0 == HEAD;
        match &command.old {
            Some(old) if is_head => summer.remove_head(old),
            Some(old) => summer.remove_reference(&command.name.0, old),
            None => {}
        }
        match &command.new {
            Some(new) if is_head => summer.add_head(new),
            Some(new) => summer.add_reference(&command.name.0, new),
            None => {}
        }
    }
    Some(summer.finish())
}

/// The commands of one push in the order in which a copy does them. Git holds the first ones prepared while votes
/// are counted; the second ones need names that the first ones free, so no git can prepare them before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Everything that can be prepared at once.
    pub first: Vec<Command>,
    /// Creations below or above a name that the first ones delete: mostly none.
    pub second: Vec<Command>,
}

/// Puts commands in order: deletions before what takes their place as a directory, or in their directory.
#[must_use]
pub fn transactions(commands: &[Command]) -> Transactions {
    let gone: BTreeSet<&[u8]> =
        commands.iter().filter(|command| command.new.is_none()).map(|command| &command.name.0[..]).collect();
    let mut order = Transactions::default();
    for command in commands {
        let waits = command.new.is_some() && collides(&gone, &command.name);
        if waits { &mut order.second } else { &mut order.first }.push(command.clone());
    }
    order
}

/// Whether one of these names lies above this one or below it: `a` and `a/b` cannot both be.
fn collides(names: &BTreeSet<&[u8]>, name: &RefName) -> bool {
    let mut below = name.0.clone();
    below.push(b'/');
    let first_below = names.range::<[u8], _>((Bound::Included(&below[..]), Bound::Unbounded)).next();
    refname::above(&name.0).any(|above| names.contains(above))
        || first_below.is_some_and(|found| found.starts_with(&below))
}

#[cfg(test)]
mod tests;
