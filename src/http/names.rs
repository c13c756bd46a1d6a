//! Names for subjects: people know repositories and fileservers by name, and goals return their numbers.

use super::problem::Problem;
use super::state::Api;
use crate::database::{fileservers, repositories};
use crate::model::finding::Subject;
use crate::model::id::RepositoryId;
use std::collections::{BTreeMap, BTreeSet};

/// Repositories whose names one statement reads.
const IDS: usize = 5_000;

/// The names of subjects, by their texts (`repository:7`); of those that have none, or are gone, nothing.
///
/// # Errors
/// When the engine fails.
pub async fn of<'a>(
    api: &Api,
    subjects: impl Iterator<Item = &'a Subject> + Clone,
) -> Result<BTreeMap<String, String>, Problem> {
    let ids: BTreeSet<RepositoryId> = subjects.clone().filter_map(Subject::repository).collect();
    let ids: Vec<RepositoryId> = ids.into_iter().collect();
    let mut repositories = BTreeMap::new();
    for some in ids.chunks(IDS) {
        let rows = repositories::by_ids(&api.db, some).await?;
        repositories.extend(rows.into_iter().map(|row| (row.id, row.name)));
    }
    let servers = if subjects.clone().any(|subject| subject.fileserver().is_some()) {
        fileservers::all(&api.db).await?
    } else {
        Vec::new()
    };
    let servers: BTreeMap<_, _> = servers.into_iter().map(|server| (server.id, server.name)).collect();
    let named = subjects.filter_map(|subject| {
        let repository = subject.repository().and_then(|id| repositories.get(&id));
        let server = subject.fileserver().and_then(|id| servers.get(&id));
        let name = match (subject, repository, server) {
            (Subject::Repository(_), Some(name), _) | (Subject::Fileserver(_), _, Some(name)) => name.clone(),
            (Subject::Replica(..), Some(name), Some(server)) => format!("{name} on {server}"),
            _ => return None,
        };
        Some((subject.to_string(), name))
    });
    Ok(named.collect())
}
