//! Bringing a copy to what the source has: mended where it can be, else made new and exchanged whole.
//!
//! Mending fetches objects, walks them, and applies the difference of the references. It is given up for damage: a
//! pack that is cut off, references that cannot be read, objects that are gone. Then a new copy is prepared first,
//! and only when it is complete does the old one go to quarantine and the new one take its place.

use super::install::Difference;
use super::objects::{self, At};
use super::peer::{self, Peer};
use super::references::References;
use super::{disk, hygiene, identity, overwritten, packs, quarantine, replicate};
use crate::agent::store::{Source, Store, Work};
use crate::model::amount::counted;
use crate::model::wire::{CopyAnswer, Identity, Progress, Refusal, RefusalCode, ResyncRequest};
use std::path::{Path, PathBuf};

/// Brings a copy to what the source has.
pub(super) async fn resync(
    store: &Store,
    source: &Source,
    ask: &ResyncRequest,
    work: &Work,
) -> Result<CopyAnswer, Refusal> {
    let id = ask.identity.repository;
    let place = store.layout.repository(id);
    let journalled = identity::read(&store.layout.identity(id)).map_or(0, |found| found.version);
    let there = tokio::fs::symlink_metadata(&place).await.is_ok();
    if there && journalled > ask.identity.version {
        let message = format!(
            "the copy of repository {id} journalled version {journalled}, above {}",
            ask.identity.version
        );
        return Err(Refusal::new(RefusalCode::HistoryLost, message));
    }
    if !there {
        return rebuild(store, source, ask, work, "it was not there").await;
    }
    if ask.rebuild {
        return rebuild(store, source, ask, work, "a new copy was asked for").await;
    }
    match mend(store, source, ask, work).await {
        Err(refusal) if refusal.code == RefusalCode::Damaged => {
            rebuild(store, source, ask, work, &refusal.message).await
        }
        ended => ended,
    }
}

/// Prepares a new copy, then exchanges it for the old one, if there is one.
async fn rebuild(
    store: &Store,
    source: &Source,
    ask: &ResyncRequest,
    work: &Work,
    why: &str,
) -> Result<CopyAnswer, Refusal> {
    let identity = &ask.identity;
    let prepared = replicate::prepare(store, source, identity, ask.bytes_per_second, work).await?;
    if work.cancel.is_cancelled() {
        prepared.staging.discard().await;
        return Err(peer::cancelled());
    }
    let aside = quarantine::set_aside(store, identity.repository, why).await?;
    let message = match &aside.path {
        Some(path) => format!("made new from {}, the old copy is in {path}: {why}", source.name),
        None => format!("made new from {}: {why}", source.name),
    };
    replicate::publish(store, identity, prepared, true, message).await
}

struct Mending<'a> {
    store: &'a Store,
    identity: &'a Identity,
    work: &'a Work,
    peer: Peer<'a>,
    place: PathBuf,
    lock: PathBuf,
}

async fn mend(
    store: &Store,
    source: &Source,
    ask: &ResyncRequest,
    work: &Work,
) -> Result<CopyAnswer, Refusal> {
    let identity = &ask.identity;
    let mending = Mending {
        store,
        identity,
        work,
        peer: Peer::new(store, source, &work.cancel),
        place: store.layout.repository(identity.repository),
        lock: store.layout.lock(identity.repository),
    };
    mending.run().await
}

impl Mending<'_> {
    async fn run(&self) -> Result<CopyAnswer, Refusal> {
        self.say("looking at what is here");
        let (cleared, there) = self.look().await?;
        let wanted = self.peer.references(self.identity.repository, self.identity.object_format).await?;
        let moved = self.complete(&wanted).await?;
        self.say("applying references");
        let difference = Difference::between(&there, &wanted);
        if difference.count() > 0 {
            overwritten::keep(self.store, self.identity.repository, &there).await?;
            let applied = difference.apply(self.at(), self.identity.object_format).await;
            // Whatever was done was the agent's own doing, also when it was cut short.
            self.store.touched(self.identity.repository).await;
            applied?;
        }
        self.record(&wanted, &difference, moved, &cleared).await
    }

    fn at(&self) -> At<'_> {
        At {
            git: &self.store.git,
            repository: &self.place,
            lock: Some(&self.lock),
            cancel: &self.work.cancel,
        }
    }

    fn say(&self, phase: &str) {
        (self.work.progress)(Progress { phase: phase.to_owned(), bytes: 0, total: 0 });
    }

    /// Clears what does not belong in the copy, checks its packs, reads its references. `Damaged`: not to be mended.
    async fn look(&self) -> Result<(Vec<String>, References), Refusal> {
        let (place, format) = (self.place.clone(), self.identity.object_format);
        let (id, inventory) = (self.identity.repository.0, std::sync::Arc::clone(&self.store.inventory));
        disk::blocking(move || {
            let mut cleared = hygiene::remove_strangers(&place)?;
            let stale = hygiene::remove_stale(&place)?;
            for path in &stale {
                tracing::warn!(repository.id = id, path, "removed what a dead git left");
            }
            inventory.note_locks(stale.iter().filter(|path| path.as_bytes().ends_with(b".lock")).count());
            cleared.extend(stale);
            hygiene::check_plain(&place)?;
            if hygiene::settle_config(&place, format)?.is_some() {
                cleared.push("config".to_owned());
            }
            let objects = packs::scan(&place)?;
            packs::check_trailers(&place, &objects.packs, format)?;
            Ok((cleared, References::read(&place, format)?))
        })
        .await
    }

    /// Fetches the tips that are not here, and walks everything that the wanted references lead to. Returns the
    /// bytes that came.
    async fn complete(&self, wanted: &References) -> Result<i64, Refusal> {
        let tips = wanted.tips();
        let missing = objects::missing(self.at(), &tips).await?;
        let before = scan_bytes(&self.place).await?;
        if !missing.is_empty() {
            self.say("fetching objects");
            let fetched = objects::fetch(self.at(), &self.peer, self.identity.repository, &missing).await;
            self.store.touched(self.identity.repository).await;
            fetched?;
            let place = self.place.clone();
            disk::blocking(move || disk::sync_tree(&place.join("objects"))).await?;
        }
        let moved = scan_bytes(&self.place).await?.saturating_sub(before).max(0);
        self.say("checking connectivity");
        objects::connected(self.at(), &tips).await?;
        Ok(moved)
    }

    /// Reads back what is there now: that, and not what was meant, is what the answer says.
    async fn record(
        &self,
        wanted: &References,
        difference: &Difference,
        moved: i64,
        cleared: &[String],
    ) -> Result<CopyAnswer, Refusal> {
        let (place, format) = (self.place.clone(), self.identity.object_format);
        let (beside, identity) =
            (self.store.layout.identity(self.identity.repository), self.identity.clone());
        let (found, bytes) = disk::blocking(move || {
            let found = References::read(&place, format)?;
            identity::write(&beside, &identity)?;
            Ok((found, disk::usage(&place)))
        })
        .await?;
        let generation = self.store.touched(self.identity.repository).await;
        if found != *wanted {
            let what = "the references are not the source's after the difference was applied";
            return Err(Refusal::new(RefusalCode::Damaged, what));
        }
        Ok(CopyAnswer {
            checksum: found.checksum(&self.store.key, format),
            moved,
            bytes,
            references_changed: difference.count(),
            rebuilt: false,
            generation,
            message: sentence(self.peer.name(), difference.count(), cleared),
        })
    }
}

fn sentence(source: &str, changed: i64, cleared: &[String]) -> String {
    let mut text = match changed {
        0 => format!("no reference differs from {source}"),
        some => format!("{} brought to what {source} has", counted(some, "reference")),
    };
    if !cleared.is_empty() {
        let shown = &cleared[..cleared.len().min(5)];
        text.push_str("; cleared ");
        text.push_str(&shown.join(", "));
        if shown.len() < cleared.len() {
            text.push_str(" and more");
        }
    }
    text
}

async fn scan_bytes(place: &Path) -> Result<i64, Refusal> {
    let place = place.to_path_buf();
    disk::blocking(move || Ok(packs::scan(&place)?.bytes())).await
}
