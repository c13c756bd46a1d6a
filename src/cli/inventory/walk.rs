//! All copies of several fileservers side by side, repository by repository, with a page of each in memory.

use super::super::failure::{Exit, Failure};
use crate::fleet::{Agents, CallError};
use crate::model::contents::Held;
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use std::collections::VecDeque;
use std::time::Duration;

/// Copies in one page.
const PAGE: i64 = 200;
/// An agent that has just started is asked again so often, a second apart.
const TRIES: u32 = 120;

/// One fileserver that is asked.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Its number.
    pub(super) id: FileserverId,
    /// Its agent.
    pub(super) end: End,
}

/// One fileserver's copies, in the order of their repositories.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) place: Place,
    /// Copies that were read and not taken.
    held: VecDeque<Held>,
    /// How far was read.
    pub(super) through: RepositoryId,
    more: bool,
    /// The highest number that ever stood there.
    pub(super) highest: RepositoryId,
}

impl Disk {
    pub(super) fn new(place: Place) -> Self {
        let zero = RepositoryId(0);
        Self { place, held: VecDeque::new(), through: zero, more: true, highest: zero }
    }

    /// Reads the next page, if one is left and all of the last one was taken. `false`: nothing is left.
    pub(super) async fn fill(&mut self, agents: &Agents) -> anyhow::Result<bool> {
        while self.held.is_empty() && self.more {
            let page = patient(agents, &self.place.end, self.through).await?;
            self.through = page.through;
            self.more = page.more;
            self.highest = self.highest.max(page.highest);
            self.held = page.held.into();
        }
        Ok(!self.held.is_empty())
    }

    /// Takes all that was read.
    pub(super) fn take(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held).into()
    }

    /// Whether all was read.
    pub(super) const fn is_read(&self) -> bool {
        !self.more
    }

    fn next(&self) -> Option<RepositoryId> {
        self.held.front().map(|held| held.repository)
    }
}

/// The copies of the next repository, on whichever disks; none: nothing is left.
pub(super) async fn next(
    agents: &Agents,
    disks: &mut [Disk],
) -> anyhow::Result<Option<Vec<(FileserverId, String, Held)>>> {
    for disk in disks.iter_mut() {
        disk.fill(agents).await?;
    }
    let Some(id) = disks.iter().filter_map(Disk::next).min() else { return Ok(None) };
    let here = disks.iter_mut().filter(|disk| disk.next() == Some(id));
    let copies = here.filter_map(|disk| {
        let held = disk.held.pop_front()?;
        Some((disk.place.id, disk.place.end.name.clone(), held))
    });
    Ok(Some(copies.collect()))
}

/// Asks until the agent's first sweep is over.
async fn patient(
    agents: &Agents,
    to: &End,
    after: RepositoryId,
) -> anyhow::Result<crate::model::contents::ContentsPage> {
    let mut tries = 0;
    loop {
        match agents.contents(to, after, PAGE).await {
            Ok(page) => return Ok(page),
            Err(CallError::Refused(refusal))
                if refusal.code == crate::model::wire::RefusalCode::Busy && tries < TRIES =>
            {
                tries += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error @ (CallError::Unreachable { .. } | CallError::TimedOut { .. })) => {
                return Err(Failure::new(Exit::Unreachable, error.to_string())
                    .hint("every fileserver must answer; name those that do with --fileserver")
                    .into());
            }
            Err(error) => return Err(anyhow::Error::new(error).context(format!("asking {}", to.name))),
        }
    }
}
