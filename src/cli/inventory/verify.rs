//! `trued inventory verify`: disks against the database, read only.

use super::walk::Disk;
use super::{Asked, Room};
use crate::cli::args::Global;
use crate::cli::failure::Exit;
use crate::cli::output::{self, counted};
use crate::database::{inventory, repositories};
use crate::model::contents::Held;
use crate::model::fleet::{Replica, ReplicaState, Repository};
use crate::model::id::{FileserverId, RepositoryId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Differences that are listed.
const LISTED: usize = 10_000;
/// Rows of one page.
const PAGE: i64 = 1_000;

/// What was compared, and what differs.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Fileservers that were asked.
    fileservers: Vec<String>,
    /// Copies that were compared.
    compared: u64,
    /// Differences in all.
    different: u64,
    /// The first of them.
    differences: Vec<Difference>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    fileserver: String,
    repository: i64,
    name: String,
    /// `missing`, `untracked`, `checksum`, `damaged`, `identity`, `history-lost`.
    what: &'static str,
    /// What the database says, and what the disk says.
    said: String,
}

pub(super) async fn run(global: &Global, asked: &Asked) -> anyhow::Result<Exit> {
    let room = Room::open(global, asked, false).await?;
    let places = room.fileservers(&asked.fileservers).await?;
    let mut report = Report::default();
    for place in places {
        report.fileservers.push(place.end.name.clone());
        compare(&room, Disk::new(place), &mut report).await?;
    }
    output::answer(global.output, &report, || text(&report))?;
    room.db.close().await;
    Ok(if report.different == 0 { Exit::Done } else { Exit::Open })
}

/// Compares one disk, a page of it at a time.
async fn compare(room: &Room, mut disk: Disk, report: &mut Report) -> anyhow::Result<()> {
    let mut after = RepositoryId(0);
    loop {
        disk.fill(&room.agents).await?;
        let held = disk.take();
        // Past the last page the disk has nothing, however much the database has.
        let through = if disk.is_read() { RepositoryId(i64::MAX) } else { disk.through };
        let expected = expected(room, disk.place.id, after, through).await?;
        let here = Here { fileserver: &disk.place.end.name, id: disk.place.id };
        look(room, &here, &held, &expected, report).await?;
        if disk.is_read() {
            return Ok(());
        }
        after = through;
    }
}

/// What the database believes there, above `after` and up to `through`.
async fn expected(
    room: &Room,
    fileserver: FileserverId,
    mut after: RepositoryId,
    through: RepositoryId,
) -> anyhow::Result<BTreeSet<RepositoryId>> {
    let mut all = BTreeSet::new();
    loop {
        let page = inventory::expected(&room.db, fileserver, after, PAGE).await?;
        let full = i64::try_from(page.len()).unwrap_or(0) >= PAGE;
        all.extend(page.iter().copied().filter(|id| *id <= through));
        match page.last() {
            Some(last) if full && *last < through => after = *last,
            _ => return Ok(all),
        }
    }
}

struct Here<'a> {
    fileserver: &'a str,
    id: FileserverId,
}

async fn look(
    room: &Room,
    here: &Here<'_>,
    held: &[Held],
    expected: &BTreeSet<RepositoryId>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ids: BTreeSet<RepositoryId> =
        held.iter().map(|one| one.repository).chain(expected.iter().copied()).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    for some in ids.chunks(1_000) {
        let rows = repositories::by_ids(&room.db, some).await?;
        let rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
        let replicas = repositories::replicas_of(&room.db, some).await?;
        for id in some {
            let replica =
                replicas.iter().find(|one| one.repository_id == *id && one.fileserver_id == here.id);
            let held = held.iter().find(|one| one.repository == *id);
            report.compared += 1;
            if let Some((what, said)) = difference(rows.get(id), replica, held) {
                let name = rows.get(id).map(|row| row.name.clone());
                let name = name.or_else(|| Some(held?.identity.as_ref()?.name.clone())).unwrap_or_default();
                report.add(Difference {
                    fileserver: here.fileserver.to_owned(),
                    repository: id.0,
                    name,
                    what,
                    said,
                });
            }
        }
    }
    Ok(())
}

impl Report {
    fn add(&mut self, difference: Difference) {
        self.different += 1;
        if self.differences.len() < LISTED {
            self.differences.push(difference);
        }
    }
}

/// The worst difference between a row and a disk.
fn difference(
    row: Option<&Repository>,
    replica: Option<&Replica>,
    held: Option<&Held>,
) -> Option<(&'static str, String)> {
    let believed = replica.filter(|one| matches!(one.state, ReplicaState::Live | ReplicaState::Leaving));
    match (row, replica, held) {
        (_, _, None) => {
            believed.map(|one| ("missing", format!("the database: {}; the disk: nothing", one.state)))
        }
        (None, _, Some(_)) | (_, None, Some(_)) => {
            Some(("untracked", "the database: no copy here; the disk: one".to_owned()))
        }
        (Some(row), Some(replica), Some(held)) => differs(row, replica, held),
    }
}

fn differs(row: &Repository, replica: &Replica, held: &Held) -> Option<(&'static str, String)> {
    let version = held.identity.as_ref().map_or(0, |identity| identity.version);
    if version > row.version {
        return Some(("history-lost", format!("the database: version {}; the disk: {version}", row.version)));
    }
    // What is being made or removed is not believed to be anything yet.
    if !matches!(replica.state, ReplicaState::Live | ReplicaState::Leaving) {
        return None;
    }
    if held.checksum.is_none() {
        let why = held.problem.as_deref().unwrap_or("its references cannot be read");
        return replica.checksum.is_some().then(|| ("damaged", format!("the disk: {why}")));
    }
    if held.checksum != replica.checksum {
        let believed = if replica.in_sync { "in sync" } else { "not in sync" };
        let is = if held.checksum == row.checksum { "the definitive references" } else { "other references" };
        return Some(("checksum", format!("the database: {believed}; the disk: {is}")));
    }
    let said = held.identity.as_ref();
    let same = said.is_some_and(|said| said.name == row.name && said.object_format == row.object_format);
    (!same).then(|| {
        let name = said.map_or("nothing that can be read", |said| said.name.as_str());
        ("identity", format!("the database: {}; beside the copy: {name}", row.name))
    })
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    if !report.differences.is_empty() {
        let rows = report.differences.iter().map(|one| {
            vec![
                one.fileserver.clone(),
                one.repository.to_string(),
                one.name.clone(),
                one.what.to_owned(),
                one.said.clone(),
            ]
        });
        lines.push(output::table(&["FILESERVER", "REPOSITORY", "NAME", "DIFFERENCE", "SAID"], rows));
    }
    lines.push(format!(
        "{} compared on {}, {} differ",
        counted(report.compared, "copy"),
        counted(report.fileservers.len() as u64, "fileserver"),
        report.different
    ));
    if report.different > LISTED as u64 {
        lines.push(format!("the first {LISTED} are listed"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checksum::Checksum;
    use crate::model::contents::EpochsAnswer;
    use crate::model::wire::Identity;
    use crate::repair::testing::{definitive, repository};

    fn held(version: i64, checksum: Option<Checksum>) -> Held {
        let row = repository(1, &[1]).repository;
        let (id, format, name) = (row.id, row.object_format, row.name);
        let identity = Identity { repository: id, name, object_format: format, wanted: 3, version };
        let (problem, epochs) = (None, EpochsAnswer::default());
        Held { repository: id, identity: Some(identity), checksum, problem, bytes: 1, epochs }
    }

    fn what(replica: Option<&Replica>, held: Option<&Held>) -> Option<&'static str> {
        let row = repository(1, &[1]).repository;
        difference(Some(&row), replica, held).map(|(what, _)| what)
    }

    #[test]
    fn each_difference_has_its_name_and_the_worst_is_told() {
        let replica = repository(1, &[1]).replicas.remove(0);
        let (good, other) = (definitive(), Checksum { key: 1, sum: [9; 32] });
        assert_eq!(what(Some(&replica), Some(&held(1, Some(good)))), None);
        assert_eq!(what(Some(&replica), None), Some("missing"));
        assert_eq!(what(None, Some(&held(1, Some(good)))), Some("untracked"));
        assert_eq!(difference(None, None, Some(&held(1, Some(good)))).unwrap().0, "untracked");
        assert_eq!(what(Some(&replica), Some(&held(1, Some(other)))), Some("checksum"));
        assert_eq!(what(Some(&replica), Some(&held(1, None))), Some("damaged"));
        assert_eq!(what(Some(&replica), Some(&held(2, Some(other)))), Some("history-lost"));
        let mut renamed = held(1, Some(good));
        renamed.identity.as_mut().unwrap().name = "old".into();
        assert_eq!(what(Some(&replica), Some(&renamed)), Some("identity"));
        let made = Replica { state: ReplicaState::Creating, ..replica };
        assert_eq!(what(Some(&made), Some(&held(1, Some(other)))), None);
        assert_eq!(what(Some(&made), None), None);
    }
}
