//! The line before a repository: a push is decided and opened when the ones before it have ended.
//!
//! Whatever came in between, references are read again and every command is decided again. A row whose router is gone is
//! settled by whoever meets it. Waiting is bounded, and ends with a sentence.

use super::Pushing;
use super::commands::Asked;
use super::ready::Gathered;
use super::view::View;
use crate::database;
use crate::database::pushes::{self, Ahead, Open, Opened, Opening, WriteLock};
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::push::{Decided, Decision, Rules, after, decide};
use crate::model::wire::push::{Command, RefName};
use crate::settle::Ended;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shortest look at what is ahead.
const LOOK: Duration = Duration::from_millis(40);

/// What became of a push at the line's head.
pub(super) enum Placed {
    /// It is open.
    Open(Open, Judged),
    /// Nothing changes: no command stands, or those that do are so already.
    Nothing(Judged),
    /// It cannot be opened, in words for people.
    Refused(String),
    /// Its client went away.
    Gone,
}

/// What was decided of each command, in the client's order: none stands against it, or why not.
pub(super) struct Judged {
    /// By command.
    pub(super) refused: Vec<(RefName, Option<String>)>,
    /// What copies are told.
    pub(super) commands: Vec<Command>,
}

/// Waits in line, and opens the push.
pub(super) async fn open(
    pushing: &Pushing,
    id: RepositoryId,
    asked: &Asked,
    barred: &BTreeMap<RefName, String>,
    gathered: &Gathered,
    gone: &CancellationToken,
) -> database::Result<Placed> {
    let until = Instant::now() + pushing.settings.line;
    let mut why = "other pushes to this repository".to_owned();
    while Instant::now() < until {
        if gone.is_cancelled() {
            return Ok(Placed::Gone);
        }
        match turn(pushing, id, asked, barred, gathered).await? {
            Turn::Over(placed) => return Ok(placed),
            Turn::Again(reason) => why = reason,
            Turn::Ahead(ahead) => why = wait(pushing, id, ahead).await?,
        }
        tokio::time::sleep(pushing.chance.around(LOOK)).await;
    }
    Ok(Placed::Refused(format!("waited {} s for {why}: try again", pushing.settings.line.as_secs())))
}

enum Turn {
    Over(Placed),
    Again(String),
    Ahead(Ahead),
}

async fn turn(
    pushing: &Pushing,
    id: RepositoryId,
    asked: &Asked,
    barred: &BTreeMap<RefName, String>,
    gathered: &Gathered,
) -> database::Result<Turn> {
    let standing = pushes::standing(&pushing.database, id).await?;
    if let Some(lock) = standing.lock {
        return Ok(Turn::Over(Placed::Refused(locked(&lock))));
    }
    if let Some(ahead) = standing.ahead {
        return Ok(Turn::Ahead(ahead));
    }
    let Some(view) = View::read(pushing, id).await? else {
        return Ok(Turn::Over(Placed::Refused("the repository was removed".to_owned())));
    };
    let Some(shown) = view.references(pushing).await else {
        return Ok(Turn::Again("a copy that shows the references that it ought to have".to_owned()));
    };
    let rules = Rules {
        atomic: asked.wishes.atomic,
        by_server: asked.by_server,
        format: view.repository.object_format,
    };
    let judged = judge(asked, barred, |commands| decide(commands, &shown.listing, rules));
    if judged.commands.is_empty() {
        return Ok(Turn::Over(Placed::Nothing(judged)));
    }
    let Some(new) = after(&pushing.checksum_key, &shown.base, &judged.commands) else {
        return Ok(Turn::Again("checksums under the fleet's present key".to_owned()));
    };
    let ready: Vec<FileserverId> = gathered.ready.iter().map(|taker| taker.place.id).collect();
    let opening = Opening {
        repository: id,
        router: &pushing.router,
        base_version: shown.version,
        commands: &judged.commands,
        new,
        ready: &ready,
        lease_ms: pushing.lease_ms(),
        above: gathered.ready.iter().map(|taker| taker.pushed).max().unwrap_or(0),
    };
    Ok(match pushes::open(&pushing.database, &opening).await? {
        Opened::Open(open) => Turn::Over(Placed::Open(open, judged)),
        Opened::Removed => Turn::Over(Placed::Refused("the repository was removed".to_owned())),
        Opened::Locked(lock) => Turn::Over(Placed::Refused(locked(&lock))),
        Opened::Moved => Turn::Again("other pushes to this repository".to_owned()),
        Opened::Busy(ahead) => Turn::Ahead(ahead),
        Opened::TooFew(few) => Turn::Over(Placed::Refused(format!("{few}: try again"))),
    })
}

/// Settles what is ahead where its router is gone; says what is waited for.
async fn wait(pushing: &Pushing, id: RepositoryId, ahead: Ahead) -> database::Result<String> {
    if ahead.left_ms >= 0 {
        let undecided = ahead.undecided.map(|why| format!("a person to decide the push before: {why}"));
        return Ok(undecided.unwrap_or_else(|| "the push before".to_owned()));
    }
    Ok(match pushing.settler().settle(id, None).await? {
        Ended::Waits(why) => format!("the push before, whose router is gone ({why})"),
        Ended::Person(why) => format!("a person to decide the push before: {why}"),
        Ended::Nothing | Ended::Committed | Ended::Aborted => "the push before".to_owned(),
    })
}

/// Why nobody pushes now, and for how long.
pub(super) fn locked(lock: &WriteLock) -> String {
    let seconds = lock.left_ms.max(0) / 1000 + 1;
    let why = if lock.reason.is_empty() { "it is being repaired" } else { &lock.reason };
    format!("nobody can push to this repository for about {seconds} s: {why}")
}

/// Puts together what policy, copies and references say of each command.
fn judge(
    asked: &Asked,
    barred: &BTreeMap<RefName, String>,
    decided: impl FnOnce(&[Command]) -> Decided,
) -> Judged {
    let free: Vec<Command> =
        asked.commands.iter().filter(|command| !barred.contains_key(&command.name)).cloned().collect();
    let any_barred = free.len() < asked.commands.len();
    if any_barred && asked.wishes.atomic {
        let why = |name| barred.get(name).cloned().unwrap_or_else(|| "atomic push failure".to_owned());
        let refused = asked.commands.iter().map(|one| (one.name.clone(), Some(why(&one.name))));
        return Judged { refused: refused.collect(), commands: Vec::new() };
    }
    let decided = decided(&free);
    let mut decisions = decided.decisions.iter();
    let refused = asked.commands.iter().map(|command| {
        let why = match barred.get(&command.name) {
            Some(why) => Some(why.clone()),
            None => match decisions.next() {
                Some(Decision::Stand) => None,
                Some(Decision::Refuse(reason)) => Some(reason.words().to_owned()),
                None => Some("it was not decided".to_owned()),
            },
        };
        (command.name.clone(), why)
    });
    Judged { refused: refused.collect(), commands: decided.commands }
}

#[cfg(test)]
mod tests {
    use super::super::commands::Wishes;
    use super::*;
    use crate::model::push::Reason;

    fn name(text: &str) -> RefName {
        RefName(text.as_bytes().to_vec())
    }

    fn asked(atomic: bool) -> Asked {
        let commands =
            ["a", "b", "c"].map(|text| Command { name: name(text), old: None, new: None }).to_vec();
        Asked {
            commands,
            wishes: Wishes { atomic, ..Wishes::default() },
            options: Vec::new(),
            by_server: false,
        }
    }

    fn second_refused(commands: &[Command]) -> Decided {
        let decisions = commands.iter().map(|command| {
            if command.name == name("c") { Decision::Refuse(Reason::Stale) } else { Decision::Stand }
        });
        Decided { decisions: decisions.collect(), commands: vec![commands[0].clone()] }
    }

    #[test]
    fn each_command_has_its_own_verdict_in_the_clients_order() {
        let barred = BTreeMap::from([(name("b"), "protected".to_owned())]);
        let judged = judge(&asked(false), &barred, second_refused);
        let said: Vec<_> =
            judged.refused.iter().map(|(name, why)| (name.to_string(), why.as_deref())).collect();
        let stale = Some("incorrect old value provided");
        assert_eq!(said, [("a".into(), None), ("b".into(), Some("protected")), ("c".into(), stale)]);
        assert_eq!(judged.commands.len(), 1);
    }

    #[test]
    fn of_an_atomic_push_nothing_stands_where_one_command_is_barred() {
        let barred = BTreeMap::from([(name("b"), "protected".to_owned())]);
        let judged = judge(&asked(true), &barred, |_| panic!("nothing is left to decide"));
        assert!(judged.commands.is_empty());
        assert!(judged.refused.iter().all(|(_, why)| why.is_some()));
    }
}
