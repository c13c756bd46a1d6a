//! The facts that a plan is made from: read once, at one moment.
//!
//! A view is small: all fileservers (hundreds), and only the repositories that the
//! round's findings and the live attempts are about.

use crate::model::fleet::{Fileserver, Health, Replica, ReplicaState, Repository};
use crate::model::id::{FileserverId, RackId, RepositoryId};
use crate::model::per_id::PerId;
use std::collections::BTreeMap;

/// The fleet as one dispatch round sees it: all fileservers, and the repositories that its findings are about.
#[derive(Debug, Clone, Default)]
pub struct FleetView {
    /// All fileservers.
    pub fileservers: BTreeMap<FileserverId, Fileserver>,
    /// Repositories that findings or live attempts are about.
    pub repositories: BTreeMap<RepositoryId, RepositoryView>,
    /// Bytes on their way to each fileserver, by live attempts.
    pub arriving: PerId<FileserverId, i64>,
    /// Bytes about to leave each fileserver: copies that no longer count, and those that live attempts move away.
    pub leaving: PerId<FileserverId, i64>,
    /// Largest share of a disk that may be filled, in hundredths.
    pub fill_limit: i64,
}

/// One repository with its replicas.
#[derive(Debug, Clone)]
pub struct RepositoryView {
    /// The repository.
    pub repository: Repository,
    /// Its replicas, any state.
    pub replicas: Vec<Replica>,
}

impl FleetView {
    /// Bytes that a fileserver may still take: below the fill limit, below what its agent says is
    /// free, and less what is on its way. Never negative.
    #[must_use]
    pub fn room(&self, fileserver: &Fileserver) -> i64 {
        let ceiling = i128::from(fileserver.capacity) * i128::from(self.fill_limit) / 100;
        let below_limit = ceiling - i128::from(fileserver.disk_used);
        let arriving = self.arriving.get(fileserver.id);
        let room = below_limit.min(i128::from(fileserver.disk_free)) - i128::from(arriving);
        i64::try_from(room.max(0)).unwrap_or(i64::MAX)
    }

    /// Bytes that a fileserver will hold when all that is under way has ended. Balance looks at this; room does not:
    /// what is about to leave is still there.
    #[must_use]
    pub fn load(&self, fileserver: &Fileserver) -> i128 {
        let sum = |sums: &PerId<FileserverId, i64>| i128::from(sums.get(fileserver.id));
        (i128::from(fileserver.disk_used) + sum(&self.arriving) - sum(&self.leaving)).max(0)
    }

    /// Countable replicas of a repository in each rack: live, on fileservers that count. A replica that
    /// no longer counts does not occupy its rack.
    #[must_use]
    pub fn racks_of(&self, repository: &RepositoryView) -> BTreeMap<RackId, u32> {
        let mut racks = BTreeMap::new();
        for replica in repository.replicas.iter().filter(|one| one.state == ReplicaState::Live) {
            if let Some(fileserver) = self.fileservers.get(&replica.fileserver_id).filter(|one| one.counts) {
                *racks.entry(fileserver.rack_id).or_insert(0) += 1;
            }
        }
        racks
    }

    /// The name of a fileserver, for people.
    #[must_use]
    pub fn name(&self, id: FileserverId) -> String {
        self.fileservers.get(&id).map_or_else(|| id.to_string(), |one| one.name.clone())
    }
}

impl RepositoryView {
    /// Its replica on a fileserver.
    #[must_use]
    pub fn on(&self, fileserver: FileserverId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.fileserver_id == fileserver)
    }

    /// Whether a replica can be copied from: it has the definitive checksum, and reads.
    #[must_use]
    pub fn is_definitive(&self, replica: &Replica) -> bool {
        replica.in_sync
            && replica.checksum.is_some()
            && replica.checksum == self.repository.checksum
            && matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving)
    }
}

/// Whether a fileserver answers, and its root is the one that its replicas were written to.
#[must_use]
pub fn answers(fileserver: &Fileserver) -> bool {
    fileserver.health == Health::Online && fileserver.empty_since.is_none()
}
