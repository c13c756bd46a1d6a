//! The facts that a plan is made from: read once, at one moment.
use crate::model::fleet::{Fileserver, Replica, Repository};
use crate::model::id::{FileserverId, RepositoryId};
use std::collections::BTreeMap;

/// The fleet as one dispatch round sees it: all fileservers, and the repositories that its findings are about.
#[derive(Debug, Clone, Default)]
pub struct FleetView {
    /// All fileservers.
    pub fileservers: BTreeMap<FileserverId, Fileserver>,
    /// Repositories that findings or live attempts are about.
    pub repositories: BTreeMap<RepositoryId, RepositoryView>,
    /// Bytes on their way to each fileserver: by live attempts, and by what this round admitted.
    pub arriving: BTreeMap<FileserverId, i64>,
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
