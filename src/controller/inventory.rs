//! Comparing what an agent sees on its disk with what SQL believes is there.
//!
//! After each start of an agent all of it, by merging two lists in the order of repository
//! ids, a bounded page at a time; from then on only what changed since a generation. Only
//! differences are written. What is in the making there (a copy, a repair, an import) is
//! passed over, and the generation stays below it, so that it is looked at again.

use crate::database::{Database, DatabaseError, attempts, inventory, repositories};
use crate::fleet::{Agents, CallError};
use crate::model::fleet::ReplicaState;
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::InventoryEntry;
use std::collections::BTreeSet;

pub(super) mod quarantine;
mod window;

use window::Window;

/// Rows of one page, from the agent and from SQL.
const PAGE: i64 = 1_000;
const LAST: RepositoryId = RepositoryId(i64::MAX);

/// Why a comparison did not end.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompareError {
    /// The agent did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// SQL did not answer.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// It is another start's inventory by now.
    #[error("the agent was started again meanwhile")]
    Restarted,
    /// A page that ends nowhere.
    #[error("the agent sent a page that does not go on")]
    Stuck,
}

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    /// The start it belongs to.
    pub(super) start_id: String,
    /// Everything up to here was compared.
    pub(super) generation: i64,
    /// Whether it was all of it.
    pub(super) whole: bool,
    /// Believed, not there.
    pub(super) missing: usize,
    /// Changed without the agent's doing.
    pub(super) changed: usize,
    /// There, not believed.
    pub(super) untracked: usize,
    /// With versions that the database does not know.
    pub(super) ahead: usize,
    /// Rows that were written.
    pub(super) rows: u64,
}

/// Compares one fileserver: what changed `since` a generation, or everything.
///
/// # Errors
/// When either side did not answer to the end; what was written until then is true all the same.
pub(super) async fn compare(
    db: &Database,
    agents: &Agents,
    id: FileserverId,
    to: &End,
    start_id: &str,
    since: Option<i64>,
) -> Result<Compared, CompareError> {
    let busy = busy(db, id).await?;
    let mut walk = Walk { db, id, busy, whole: since.is_none(), held: i64::MAX, sum: empty(start_id, since) };
    let (mut after, mut generation) = (RepositoryId(0), None);
    loop {
        let page = agents.inventory(to, since.unwrap_or(-1), after, PAGE).await?;
        if page.start_id != start_id {
            return Err(CompareError::Restarted);
        }
        // The first page's: what changes while we read is read again next time.
        generation.get_or_insert(page.generation);
        let last = page.entries.last().map(|entry| entry.repository);
        let through =
            if page.more { last.filter(|last| *last > after).ok_or(CompareError::Stuck)? } else { LAST };
        if walk.whole {
            walk.whole_page(after, through, &page.entries).await?;
        } else {
            walk.changes(&page.entries).await?;
        }
        after = through;
        if !page.more {
            break;
        }
    }
    walk.sum.generation = generation.unwrap_or(0).min(walk.held.saturating_sub(1));
    inventory_compared(db, id, &walk.sum).await?;
    Ok(walk.sum)
}

async fn inventory_compared(db: &Database, id: FileserverId, sum: &Compared) -> Result<(), CompareError> {
    use crate::database::fileservers::inventory_compared;
    Ok(inventory_compared(db, id, &sum.start_id, sum.generation).await?)
}

fn empty(start_id: &str, since: Option<i64>) -> Compared {
    let start_id = start_id.to_owned();
    Compared {
        start_id,
        generation: 0,
        whole: since.is_none(),
        missing: 0,
        changed: 0,
        untracked: 0,
        ahead: 0,
        rows: 0,
    }
}

/// Repositories that a live attempt is changing there.
async fn busy(db: &Database, id: FileserverId) -> Result<BTreeSet<RepositoryId>, CompareError> {
    let live = attempts::live(db).await?;
    let there = live.into_iter().filter(|attempt| attempt.plan.destination_id == Some(id));
    Ok(there.filter_map(|attempt| attempt.plan.repository_id).collect())
}

struct Walk<'a> {
    db: &'a Database,
    id: FileserverId,
    busy: BTreeSet<RepositoryId>,
    whole: bool,
    /// The lowest generation that was passed over.
    held: i64,
    sum: Compared,
}

impl Walk<'_> {
    /// Everything in (`after`, `through`]: one page of the agent's against as many of SQL's as
    /// it takes, so that an almost empty disk needs no more memory than a full one.
    async fn whole_page(
        &mut self,
        mut after: RepositoryId,
        through: RepositoryId,
        entries: &[InventoryEntry],
    ) -> Result<(), CompareError> {
        while after < through {
            let mut expected = inventory::expected(self.db, self.id, after, PAGE).await?;
            let full = i64::try_from(expected.len()).unwrap_or(0) >= PAGE;
            let end = expected.last().copied().filter(|_| full).map_or(through, |last| last.min(through));
            expected.retain(|id| *id <= end);
            let inside: Vec<_> = entries
                .iter()
                .filter(|one| one.repository > after && one.repository <= end)
                .cloned()
                .collect();
            self.window(&inside, expected.into_iter().collect()).await?;
            after = end;
        }
        Ok(())
    }

    /// Only what changed: of what is not on the page nothing is said.
    async fn changes(&mut self, entries: &[InventoryEntry]) -> Result<(), CompareError> {
        if entries.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = entries.iter().map(|entry| entry.repository).collect();
        let replicas = repositories::replicas_of(self.db, &ids).await?;
        let expected = replicas
            .iter()
            .filter(|replica| replica.fileserver_id == self.id)
            .filter(|replica| matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving))
            .map(|replica| replica.repository_id)
            .collect();
        self.window(entries, expected).await
    }

    async fn window(
        &mut self,
        entries: &[InventoryEntry],
        expected: BTreeSet<RepositoryId>,
    ) -> Result<(), CompareError> {
        let strange: Vec<_> = entries
            .iter()
            .filter(|entry| entry.present && !expected.contains(&entry.repository))
            .map(|entry| entry.repository)
            .collect();
        let known = if strange.is_empty() {
            BTreeSet::new()
        } else {
            inventory::known(self.db, self.id, &strange).await?.into_iter().collect()
        };
        let window =
            Window { entries, expected: &expected, known: &known, busy: &self.busy, whole: self.whole };
        let (mut differences, held) = window.differences();
        let journalled = window.journalled();
        if !journalled.is_empty() {
            // Asked after the agent was: see there.
            differences.ahead = inventory::ahead(self.db, &journalled).await?;
        }
        self.held = self.held.min(held.unwrap_or(i64::MAX));
        self.sum.ahead += differences.ahead.len();
        self.sum.missing += differences.missing.len();
        self.sum.changed += differences.changed.len();
        self.sum.untracked += differences.untracked.len();
        if differences != inventory::Differences::default() {
            self.sum.rows += inventory::record(self.db, self.id, &differences).await?;
        }
        Ok(())
    }
}
