//! Preparing a push: objects moved in, git's transaction held open, all of it written down, and then the vote.

use super::super::references::References;
use super::super::{disk, identity, opened};
use super::ingest::Ingested;
use super::record::Record;
use super::rejected;
use super::transaction::{self, Place, Transaction};
use crate::agent::store::Store;
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::push::{self, HEAD, Transactions};
use crate::model::refname;
use crate::model::wire::push::{Command, FinishAnswer, PrepareRequest, Vote};
use crate::model::wire::{Identity, Refusal, RefusalCode};
use crate::shutdown::reached;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// A change of references that waits for its verdict. It must be ended by [`Prepared::commit`] or
/// [`Prepared::abort`]; a git that is dropped undoes it as well, a moment later.
#[derive(Debug)]
pub struct Prepared {
    pub(super) place: Place,
    pub(super) format: ObjectFormat,
    pub(super) order: Transactions,
    pub(super) transaction: Option<Transaction>,
    pub(super) record: Record,
    pub(super) identity: Identity,
    /// Whether the copy looked as the agent left it.
    pub(super) as_expected: bool,
    /// Bytes that came with it.
    pub(super) came: i64,
}

/// Prepares a push and votes. Nothing that a reader sees was changed when it fails.
///
/// # Errors
/// `NotFound`, `Damaged`; `HistoryLost` when a higher version was committed here than the caller knows; `Rejected`
/// with git's words; `BadRequest`, `Cancelled`, `Failed`.
pub async fn prepare(
    store: &Store,
    id: RepositoryId,
    ingested: &mut Ingested,
    epoch: i64,
    ask: &PrepareRequest,
    cancel: &CancellationToken,
) -> Result<(Prepared, Vote), Refusal> {
    let copy = opened::open(store, id).await?;
    check(&ask.commands, copy.format)?;
    let identity = known(store, id, ask.base_version).await?;
    let as_expected = is_as_expected(store, id).await?;
    ingested.move_in().await?;
    reached("push.moved-in");
    let came = ingested.bytes;
    let place = Place { id, repository: copy.path, lock: store.layout.lock(id) };
    let order = push::transactions(&ask.commands);
    let held = hold(store, &place, copy.format, epoch, ask, &order, cancel).await;
    let (transaction, record) = match held {
        Ok(held) => held,
        Err(refusal) => {
            // Objects came all the same, and that was the agent's own doing.
            super::commit::noted(store, id, as_expected, came).await;
            return Err(refusal);
        }
    };
    let vote = Vote { before: record.before, after: record.after, journal_version: identity.version };
    let format = copy.format;
    let prepared = Prepared { place, format, order, transaction, record, identity, as_expected, came };
    reached("push.prepared");
    Ok((prepared, vote))
}

/// Prepares what git can, and writes all of it down.
async fn hold(
    store: &Store,
    place: &Place,
    format: ObjectFormat,
    epoch: i64,
    ask: &PrepareRequest,
    order: &Transactions,
    cancel: &CancellationToken,
) -> Result<(Option<Transaction>, Record), Refusal> {
    let held = transaction::prepare(store, place, &order.first, cancel).await?;
    match record(store, place, format, epoch, ask).await {
        Ok(record) => Ok((held, record)),
        Err(refusal) => {
            undo(store, place, held).await;
            Err(refusal)
        }
    }
}

impl Prepared {
    /// Undoes it: nothing was changed but that objects came which no reference leads to.
    ///
    /// # Errors
    /// `Failed`.
    pub async fn abort(self, store: &Store) -> Result<FinishAnswer, Refusal> {
        undo(store, &self.place, self.transaction).await;
        Record::forget(store, self.place.id).await?;
        let bytes = super::commit::noted(store, self.place.id, self.as_expected, self.came).await;
        Ok(FinishAnswer { committed: false, checksum: self.record.before, bytes })
    }

    /// How many references it changes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.record.commands.len()
    }
}

async fn undo(store: &Store, place: &Place, held: Option<Transaction>) {
    if let Some(transaction) = held {
        transaction.abort(store, place).await;
    }
}

async fn is_as_expected(store: &Store, id: RepositoryId) -> Result<bool, Refusal> {
    let (inventory, place) = (std::sync::Arc::clone(&store.inventory), store.layout.repository(id));
    disk::blocking(move || {
        inventory.is_as_expected(id).map_err(|error| disk::refusal("cannot look at", &place, &error))
    })
    .await
}

/// What the copy is, by what stands beside it: the version must be one that the caller knows of.
async fn known(store: &Store, id: RepositoryId, base_version: i64) -> Result<Identity, Refusal> {
    let beside = store.layout.identity(id);
    let found = disk::blocking(move || Ok(identity::read(&beside))).await?;
    let identity = found.ok_or_else(|| {
        Refusal::new(RefusalCode::Damaged, format!("nothing beside repository {id} says what it is"))
    })?;
    if identity.version > base_version {
        let message = format!(
            "the copy of repository {id} journalled version {}, above {base_version}",
            identity.version
        );
        return Err(Refusal::new(RefusalCode::HistoryLost, message));
    }
    Ok(identity)
}

/// Reads the references, which nobody else changes now, and writes down what they are and will be.
async fn record(
    store: &Store,
    place: &Place,
    format: ObjectFormat,
    epoch: i64,
    ask: &PrepareRequest,
) -> Result<Record, Refusal> {
    let repository = place.repository.clone();
    let references = disk::blocking(move || References::read(&repository, format)).await?;
    compare(&ask.commands, &references)?;
    let before = references.checksum(&store.key, format);
    let after = push::after(&store.key, &before, &ask.commands);
    let after =
        after.ok_or_else(|| Refusal::new(RefusalCode::Failed, "the checksum key changed meanwhile"))?;
    let commands = ask.commands.clone();
    let record = Record { epoch, base_version: ask.base_version, before, after, commands };
    record.keep(store, place.id).await?;
    Ok(record)
}

/// Each reference must have the value that the push builds on; git compares only those of plain ones.
fn compare(commands: &[Command], references: &References) -> Result<(), Refusal> {
    for command in commands {
        if references.get(&command.name.0) != command.old.as_ref() {
            return Err(rejected(format!("{} has another value here than the push builds on", command.name)));
        }
    }
    Ok(())
}

/// Nothing that is no reference or no value reaches git.
fn check(commands: &[Command], format: ObjectFormat) -> Result<(), Refusal> {
    let bad = |command: &Command, why| {
        Err(Refusal::new(RefusalCode::BadRequest, format!("{}: {why}", command.name)))
    };
    let is_value = |value: &Target| match value {
        Target::Object(oid) => {
            oid.len() == format.hex_len() && oid.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        Target::Symbolic(to) => refname::is_target(to.as_bytes()),
    };
    let mut names = BTreeSet::new();
    for command in commands {
        let is_head = command.name.0 == HEAD && command.old.is_some() && command.new.is_some();
        if !is_head && !refname::is_reference(&command.name.0) {
            return bad(command, "no reference has such a name");
        }
        if !command.old.iter().chain(&command.new).all(is_value) {
            return bad(command, "a reference cannot have such a value");
        }
        if !names.insert(&command.name) {
            return bad(command, "it is changed twice");
        }
    }
    if commands.is_empty() {
        return Err(Refusal::new(RefusalCode::BadRequest, "there is nothing to prepare"));
    }
    Ok(())
}
