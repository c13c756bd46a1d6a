//! What the agent says of itself, from facts that are gathered beside the requests: a sick disk must
//! not make the answer late, it must be in the answer.
//!
//! Every two seconds the disk, the load and the root are looked at; every ten the self-test writes,
//! syncs and runs git in a scratch repository.

use super::durable::{self, Sync};
use super::epochs::Seen;
use super::git::load;
use super::layout::Layout;
use super::root::{self, Owner};
use super::space::Sums;
use super::store::Store;
use crate::model::wire::Status;
use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(2);
const TEST_EVERY: Duration = Duration::from_secs(10);
/// A disk that takes longer than this for one small look does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A self-test that takes longer than this has failed.
const TEST_PATIENCE: Duration = Duration::from_secs(20);

/// Gathers facts.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) start_id: String,
    owner: Owner,
    facts: Mutex<Facts>,
}

#[derive(Debug, Clone, Default)]
struct Facts {
    sums: Option<Sums>,
    load: i64,
    root: Option<String>,
    test: Option<String>,
}

impl Monitor {
    pub(super) fn new(owner: Owner) -> Arc<Self> {
        Arc::new(Self { start_id: root::fresh_id(), owner, facts: Mutex::default() })
    }

    /// The answer. Touches no disk.
    pub(super) fn status(
        &self,
        store: &Store,
        parts_digest: String,
        long_reads: i64,
        highest: Seen,
    ) -> Status {
        let facts = self.facts().clone();
        let sums =
            facts.sums.unwrap_or(Sums { capacity: 0, used: 0, free: 0, reserved: 0, whole_disk: false });
        let (inventory_generation, inventory_complete) = store.inventory.progress();
        Status {
            fileserver: store.fileserver.clone(),
            start_id: self.start_id.clone(),
            root_id: self.owner.root_id.clone(),
            root: store.layout.root().display().to_string(),
            capacity: sums.capacity,
            whole_disk: sums.whole_disk,
            disk_used: sums.used,
            disk_free: sums.free,
            load: facts.load,
            processes: store.git.running(),
            long_reads,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            git_version: store.git.version().to_owned(),
            inventory_generation,
            inventory_complete,
            parts_digest,
            locks_removed: store.inventory.locks_removed(),
            highest_repair_epoch: highest.repair,
            highest_push_epoch: highest.push,
            trouble: facts.root.or(facts.test).or_else(|| store.inventory.trouble()),
        }
    }

    /// Looks once: before the first answer, then every two seconds.
    pub(super) async fn look(&self, store: &Arc<Store>) {
        let (asked, owner) = (Arc::clone(store), self.owner.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let root = root_trouble(&asked.layout, &owner);
            (root, asked.space.sums(), load())
        });
        let looked = tokio::time::timeout(PATIENCE, looking).await;
        let mut facts = self.facts();
        match looked {
            Ok(Ok((root, sums, load))) => {
                facts.load = load;
                let cannot = |error: &io::Error| format!("cannot ask how much space is free: {error}");
                facts.root = root.or_else(|| sums.as_ref().err().map(cannot));
                facts.sums = sums.ok().or(facts.sums);
            }
            Ok(Err(_)) | Err(_) => {
                facts.root = Some(format!("the root does not answer within {} s", PATIENCE.as_secs()));
            }
        }
    }

    /// Looks until it is cancelled.
    pub(super) async fn watch(self: Arc<Self>, store: Arc<Store>, cancel: CancellationToken) {
        every(LOOK_EVERY, &cancel, || self.look(&store)).await;
    }

    /// Tests until it is cancelled.
    pub(super) async fn test(self: Arc<Self>, store: Arc<Store>, cancel: CancellationToken) {
        every(TEST_EVERY, &cancel, async || {
            let trouble = match tokio::time::timeout(TEST_PATIENCE, self_test(&store, &cancel)).await {
                Ok(tested) => tested.err(),
                Err(_) => Some(format!("the self-test took longer than {} s", TEST_PATIENCE.as_secs())),
            };
            if trouble != self.facts().test
                && let Some(trouble) = &trouble
            {
                tracing::warn!(trouble, "the self-test failed");
            }
            self.facts().test = trouble;
        })
        .await;
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn every<F: Future<Output = ()>>(
    pause: Duration,
    cancel: &CancellationToken,
    mut act: impl FnMut() -> F,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = act() => {}
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn root_trouble(layout: &Layout, expected: &Owner) -> Option<String> {
    match root::owner(layout) {
        Ok(Some(owner)) if owner == *expected => None,
        Ok(Some(_)) => Some("the root is another's: its fleet.json changed".to_owned()),
        Ok(None) => Some("the root is gone: it has no fleet.json".to_owned()),
        Err(error) => Some(format!("the root cannot be read: {error}")),
    }
}

/// Writes, syncs, and runs git. A full disk is no trouble here: the sums say it, and reads go on.
async fn self_test(store: &Arc<Store>, cancel: &CancellationToken) -> Result<(), String> {
    let directory = store.layout.self_test();
    let (file, began) = (directory.join("written"), crate::clock::now().to_string());
    let written = tokio::task::spawn_blocking(move || durable::write(&file, began.as_bytes(), Sync::Durable));
    match written.await.map_err(io::Error::other).flatten() {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
        Err(error) => return Err(format!("cannot write and sync below the root: {error}")),
        Ok(()) => {}
    }
    let repository = directory.join("scratch.git");
    if !repository.join("HEAD").exists() {
        let mut arguments: Vec<OsString> =
            ["init", "--bare", "--quiet", "--template=", "--"].map(Into::into).into();
        arguments.push(std::path::absolute(&repository).unwrap_or(repository.clone()).into());
        run(store.git.command(None, arguments), b"", cancel).await?;
    }
    let arguments = ["hash-object", "-w", "--stdin"].map(Into::into).into();
    run(store.git.command(Some(&repository), arguments), b"self-test\n", cancel).await
}

async fn run(
    command: super::git::GitCommand,
    input: &[u8],
    cancel: &CancellationToken,
) -> Result<(), String> {
    match command.run(input, 4096, TEST_PATIENCE, cancel).await {
        Ok(output) if output.code == Some(0) => Ok(()),
        Ok(output) if output.stderr.contains("No space left on device") => Ok(()),
        Ok(output) => Err(format!("git failed in the scratch repository: {}", output.stderr.trim())),
        Err(super::git::GitError::Cancelled) => Ok(()),
        Err(error) => Err(format!("git failed in the scratch repository: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::enrolment;
    use super::*;

    #[test]
    fn a_root_that_is_gone_or_another_s_is_trouble() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let owner = root::take(&layout, &enrolment("fleet", "alpha")).unwrap().owner;
        assert_eq!(root_trouble(&layout, &owner), None);
        let other = Owner { root_id: "another".into(), ..owner.clone() };
        assert!(root_trouble(&layout, &other).unwrap().contains("another's"));
        std::fs::remove_file(layout.fleet_file()).unwrap();
        assert!(root_trouble(&layout, &owner).unwrap().contains("gone"));
    }
}
