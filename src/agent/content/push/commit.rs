//! Committing what is prepared, and mending what a death left amid it.
//!
//! Committed means on disk: git's files, the directories that name them, the version beside the repository. A commit
//! that broke off is gone on with, never back: that it began means that a quorum agreed.

use super::super::references::References;
use super::super::{disk, identity, opened};
use super::prepare::Prepared;
use super::record::Record;
use super::transaction::{self, Place};
use crate::agent::store::Store;
use crate::model::checksum::Checksum;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::push::{self, Transactions};
use crate::model::wire::push::{Command, FinishAnswer};
use crate::model::wire::{Identity, Refusal, RefusalCode};
use crate::shutdown::reached;
use std::sync::Arc;

impl Prepared {
    /// Changes the references and syncs them. On an error they are what they were, or, if the disk failed, neither.
    ///
    /// # Errors
    /// `Failed`, `Rejected` with git's words, `DiskFull`.
    pub async fn commit(mut self, store: &Store) -> Result<FinishAnswer, Refusal> {
        reached("push.committing");
        if let Err(refusal) = self.change(store).await {
            tracing::warn!(repository.id = self.place.id.0, why = refusal.message, "a commit broke off");
            let ended = go_on(store, &self.place, self.format, &self.record).await?;
            if ended != self.record.after {
                Record::forget(store, self.place.id).await?;
                noted(store, self.place.id, self.as_expected, self.came).await;
                return Err(refusal);
            }
        }
        reached("push.committed");
        conclude(store, &self.place, self.format, &self.record, self.identity).await?;
        let bytes = noted(store, self.place.id, self.as_expected, self.came).await;
        Ok(FinishAnswer { committed: true, checksum: self.record.after, bytes })
    }

    async fn change(&mut self, store: &Store) -> Result<(), Refusal> {
        if let Some(transaction) = self.transaction.take() {
            transaction.commit().await?;
        }
        reached("push.between");
        transaction::run(store, &self.place, &self.order.second).await?;
        transaction::symbolic(store, &self.place, &self.record.commands).await
    }
}

/// Syncs, compares, and writes the version down: after that it is done.
async fn conclude(
    store: &Store,
    place: &Place,
    format: ObjectFormat,
    record: &Record,
    identity: Identity,
) -> Result<(), Refusal> {
    let (repository, commands) = (place.repository.clone(), record.commands.clone());
    disk::blocking(move || transaction::sync_directories(&repository, &commands)).await?;
    if checksum(store, place, format).await? != record.after {
        return Err(Refusal::new(RefusalCode::Damaged, "the references are not what the push makes of them"));
    }
    reached("push.synced");
    let beside = store.layout.identity(place.id);
    let identity = Identity { version: record.base_version + 1, ..identity };
    disk::blocking(move || identity::write(&beside, &identity)).await?;
    reached("push.journalled");
    Record::forget(store, place.id).await
}

/// Tells the inventory that this was the agent's own doing; bytes of the copy.
pub(super) async fn noted(store: &Store, id: RepositoryId, as_expected: bool, came: i64) -> i64 {
    let inventory = Arc::clone(&store.inventory);
    let known = inventory.bytes(id);
    let noted = tokio::task::spawn_blocking(move || inventory.pushed(id, as_expected)).await;
    if let Ok(Err(error)) = noted {
        // Not lost: the sweep finds it and has it verified.
        tracing::warn!(repository.id = id.0, %error, "cannot note what a repository looks like");
    }
    match store.inventory.bytes(id) {
        0 => known.saturating_add(came),
        bytes => bytes,
    }
}

/// Mends a repository in which a push was prepared when the agent died. No git of it runs any more, and the caller
/// has the references to himself.
///
/// # Errors
/// `Failed`; `NotFound` where the repository is gone.
pub async fn mend(store: &Store, id: RepositoryId) -> Result<(), Refusal> {
    let Some(record) = Record::find(store, id).await? else {
        return Record::forget(store, id).await;
    };
    let copy = match opened::open(store, id).await {
        Err(refusal) if refusal.code == RefusalCode::NotFound => return Record::forget(store, id).await,
        opened => opened?,
    };
    let place = Place { id, repository: copy.path, lock: store.layout.lock(id) };
    let beside = store.layout.identity(id);
    let identity = disk::blocking(move || Ok(identity::read(&beside))).await?;
    // Of a push that was concluded only the record was left.
    let Some(identity) = identity.filter(|identity| identity.version <= record.base_version) else {
        return Record::forget(store, id).await;
    };
    let ended = go_on(store, &place, copy.format, &record).await?;
    if ended == record.after {
        tracing::info!(
            repository.id = id.0,
            push.epoch = record.epoch,
            "went on with a push that was committed"
        );
        return conclude(store, &place, copy.format, &record, identity).await;
    }
    Record::forget(store, id).await
}

/// Clears the locks, and does the rest of what was begun. What the references are then.
async fn go_on(
    store: &Store,
    place: &Place,
    format: ObjectFormat,
    record: &Record,
) -> Result<Checksum, Refusal> {
    transaction::clear_locks(store, place).await?;
    let repository = place.repository.clone();
    let references = disk::blocking(move || References::read(&repository, format)).await?;
    let found = references.checksum(&store.key, format);
    let Some(rest) = rest(store, &references, &found, record) else { return Ok(found) };
    let Transactions { first, second } = push::transactions(&rest);
    transaction::run(store, place, &first).await?;
    transaction::run(store, place, &second).await?;
    transaction::symbolic(store, place, &rest).await?;
    checksum(store, place, format).await
}

/// The commands that are still to be done; none: nothing was begun, all is done, or it is something else.
fn rest(store: &Store, now: &References, found: &Checksum, record: &Record) -> Option<Vec<Command>> {
    if *found == record.before || *found == record.after {
        return None;
    }
    let value = |command: &Command| now.get(&command.name.0);
    let (done, rest): (Vec<Command>, Vec<Command>) =
        record.commands.iter().cloned().partition(|command| value(command) == command.new.as_ref());
    (push::after(&store.key, &record.before, &done).as_ref() == Some(found)).then_some(rest)
}

async fn checksum(store: &Store, place: &Place, format: ObjectFormat) -> Result<Checksum, Refusal> {
    let repository = place.repository.clone();
    let references = disk::blocking(move || References::read(&repository, format)).await?;
    Ok(references.checksum(&store.key, format))
}
