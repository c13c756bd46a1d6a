//! What an attempt is decided from, read once from SQL, and whether its plan is still true.

use super::outcome::Outcome;
use crate::database::{self, Database, fileservers, pushes, repositories};
use crate::model::attempt::{Plan, Step};
use crate::model::fleet::{Fileserver, Health, Intent, Replica, ReplicaState, Repository};
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::Identity;
use std::collections::BTreeMap;

/// One repository, its replicas, and all fileservers.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The repository.
    pub(super) repository: Repository,
    /// Its replicas, any state.
    pub(super) replicas: Vec<Replica>,
    /// All fileservers.
    pub(super) fileservers: BTreeMap<FileserverId, Fileserver>,
    /// The epoch of the last closed push: checksums are taken behind a fence up to it. A push that is open is not
    /// ended by that.
    pub(super) fence: i64,
}

/// The two ends of a step, as agents are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    /// The destination's number.
    pub(super) here: FileserverId,
    /// What is changed or looked at.
    pub(super) destination: End,
    /// What is copied from.
    pub(super) source: Option<End>,
}

impl Facts {
    /// Reads them; none: there is no such repository.
    pub(super) async fn read(db: &Database, id: RepositoryId) -> database::Result<Option<Self>> {
        let Some(repository) = repositories::by_ids(db, &[id]).await?.pop() else { return Ok(None) };
        let replicas = repositories::replicas_of(db, &[id]).await?;
        let fileservers = fileservers::all(db).await?.into_iter().map(|one| (one.id, one)).collect();
        let Some(fence) = pushes::closed_epoch(db, id).await? else { return Ok(None) };
        Ok(Some(Self { repository, replicas, fileservers, fence }))
    }

    /// Whether something was pushed since they were read, or is being pushed.
    pub(super) async fn moved(&self, db: &Database) -> database::Result<bool> {
        let now = repositories::by_ids(db, &[self.repository.id]).await?.pop();
        let same = now.is_some_and(|now| {
            now.version == self.repository.version && now.push_epoch == self.repository.push_epoch
        });
        Ok(!same || pushes::standing(db, self.repository.id).await?.ahead.is_some())
    }

    /// The replica on a fileserver.
    pub(super) fn replica(&self, on: FileserverId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.fileserver_id == on)
    }

    /// A fileserver's name, for people.
    pub(super) fn name(&self, id: FileserverId) -> String {
        self.fileservers.get(&id).map_or_else(|| format!("fileserver {id}"), |one| one.name.clone())
    }

    /// What a copy of the repository is, to be written beside it.
    pub(super) fn identity(&self) -> Identity {
        Identity {
            repository: self.repository.id,
            name: self.repository.name.clone(),
            object_format: self.repository.object_format,
            wanted: self.repository.wanted,
            version: self.repository.version,
        }
    }

    /// Whether a plan can still be done as it is written.
    ///
    /// # Errors
    /// With the ending that the attempt has instead.
    pub(super) fn ends(&self, plan: &Plan) -> Result<Ends, Outcome> {
        if self.repository.removed_at.is_some() {
            return Err(Outcome::Stale("the repository was removed".into()));
        }
        let here =
            plan.destination_id.ok_or_else(|| Outcome::Stale("the plan names no fileserver".into()))?;
        let destination = self.reachable(here)?;
        match plan.step {
            Step::Verify | Step::Resync | Step::Scrub | Step::Repack => self.has_copy(here)?,
            Step::Resume => self.is_changing(here)?,
            Step::Remove | Step::Purge => self.has_row(here)?,
            Step::Replicate | Step::Move => self.takes_copy(here)?,
            Step::Settle | Step::Exec => {
                return Err(Outcome::Stale("it is done to no single replica".into()));
            }
        }
        let source = match (plan.step, plan.source_id) {
            (
                Step::Verify
                | Step::Scrub
                | Step::Repack
                | Step::Resume
                | Step::Remove
                | Step::Purge
                | Step::Settle
                | Step::Exec,
                _,
            ) => None,
            (_, None) => return Err(Outcome::Stale("the plan names no source".into())),
            (_, Some(id)) => Some(self.source(id, here)?),
        };
        Ok(Ends { here, destination, source })
    }

    fn reachable(&self, id: FileserverId) -> Result<End, Outcome> {
        reachable(self.fileservers.get(&id), id)
    }

    fn has_copy(&self, on: FileserverId) -> Result<(), Outcome> {
        match self.replica(on).map(|replica| replica.state) {
            Some(ReplicaState::Live | ReplicaState::Leaving) => Ok(()),
            Some(state) => Err(Outcome::Stale(format!("the replica on {} is {state}", self.name(on)))),
            None => Err(Outcome::Stale(format!("there is no replica on {} any more", self.name(on)))),
        }
    }

    fn is_changing(&self, on: FileserverId) -> Result<(), Outcome> {
        match self.replica(on).map(|replica| replica.state) {
            Some(ReplicaState::Creating | ReplicaState::Removing) => Ok(()),
            Some(state) => Err(Outcome::Stale(format!("the replica on {} is {state}", self.name(on)))),
            None => Err(Outcome::Stale(format!("there is no replica on {} any more", self.name(on)))),
        }
    }

    /// A replica that can go, or whose going was begun.
    fn has_row(&self, on: FileserverId) -> Result<(), Outcome> {
        match self.replica(on).map(|replica| replica.state) {
            Some(ReplicaState::Removing) => Ok(()),
            _ => self.has_copy(on),
        }
    }

    fn takes_copy(&self, on: FileserverId) -> Result<(), Outcome> {
        if let Some(replica) = self.replica(on).filter(|replica| replica.state != ReplicaState::Creating) {
            return Err(Outcome::Stale(format!(
                "{} has a replica already, {}",
                self.name(on),
                replica.state
            )));
        }
        match self.fileservers.get(&on).map(|one| one.intent) {
            Some(Intent::Serve) => Ok(()),
            _ => Err(Outcome::Stale(format!("{} takes no new replicas any more", self.name(on)))),
        }
    }

    fn source(&self, id: FileserverId, destination: FileserverId) -> Result<End, Outcome> {
        let definitive = self.repository.checksum;
        let good = self.replica(id).is_some_and(|replica| {
            matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving)
                && replica.in_sync
                && replica.checksum.is_some()
                && replica.checksum == definitive
        });
        if !good || id == destination {
            let name = self.name(id);
            return Err(Outcome::Stale(format!("{name} no longer has the definitive checksum")));
        }
        self.reachable(id)
    }
}

/// How a fileserver's agent is called.
///
/// # Errors
/// With the ending that the attempt has instead, when it is not there now.
pub(super) fn reachable(fileserver: Option<&Fileserver>, id: FileserverId) -> Result<End, Outcome> {
    let Some(fileserver) = fileserver else {
        return Err(Outcome::Stale(format!("fileserver {id} left the fleet")));
    };
    if fileserver.health == Health::Offline {
        return Err(Outcome::Away(format!("fileserver {} is offline", fileserver.name)));
    }
    if fileserver.empty_since.is_some() {
        return Err(Outcome::Away(format!("the root of fileserver {} is another one", fileserver.name)));
    }
    Ok(End { name: fileserver.name.clone(), url: fileserver.url.clone() })
}
