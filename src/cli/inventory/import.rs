//! `trued inventory import`: the database's rows anew, from disks alone.

use super::decide::{Decision, decide};
use super::walk::{self, Disk, Place};
use super::{Asked, Room};
use crate::cli::args::Global;
use crate::cli::failure::{Exit, Failure};
use crate::cli::{enrolment, output};
use crate::database::audit::{self, Change as Audited};
use crate::database::fleet::Fleet;
use crate::database::rebuild::{self, Restored};
use crate::database::{fileservers, fleet, parts, repositories};
use crate::model::grant::{End, Part, Role};
use crate::model::id::RepositoryId;
use serde::Serialize;
use std::path::Path;

/// Repositories in one transaction.
const TOGETHER: usize = 200;
/// Conflicts that are listed.
const LISTED: usize = 10_000;

/// What was made, or would be.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Whether nothing was written.
    dry_run: bool,
    /// Fileservers that were asked.
    fileservers: Vec<String>,
    /// Repositories made.
    repositories: u64,
    /// Copies made.
    copies: u64,
    /// Of those, in sync.
    in_sync: u64,
    /// Repositories that the database knows already.
    known: u64,
    /// The highest number of a repository on any disk.
    highest: i64,
    /// What does not fit together.
    conflicts: Vec<Conflict>,
    /// Whether there were more than are listed.
    more_conflicts: bool,
}

#[derive(Debug, Serialize)]
struct Conflict {
    repository: i64,
    name: String,
    what: String,
}

pub(super) async fn run(
    global: &Global,
    asked: &Asked,
    key_from: Option<&Path>,
    dry_run: bool,
) -> anyhow::Result<Exit> {
    let room = Room::open(global, asked, true).await?;
    same_fleet(&room, key_from).await?;
    let places = places(&room, &asked.fileservers).await?;
    let mut report = Report {
        dry_run,
        fileservers: places.iter().map(|place| place.end.name.clone()).collect(),
        ..Report::default()
    };
    let mut disks: Vec<Disk> = places.into_iter().map(Disk::new).collect();
    let mut batch = Vec::new();
    while let Some(copies) = walk::next(&room.agents, &mut disks).await? {
        let Some(id) = copies.first().map(|(_, _, held)| held.repository) else { break };
        batch.push((id, decide(id, &copies)));
        if batch.len() == TOGETHER {
            write(&room, std::mem::take(&mut batch), &mut report).await?;
        }
    }
    write(&room, batch, &mut report).await?;
    let highest = disks.iter().map(|disk| disk.highest).max().unwrap_or(RepositoryId(0));
    report.highest = highest.0;
    if !dry_run {
        rebuild::never_again(&room.db, highest).await?;
        let detail = serde_json::json!({ "repositories": report.repositories, "copies": report.copies });
        let what = Audited { who: "local", what: "inventory.import", subject: "fleet", reason: None, detail };
        audit::append(&room.db, &what).await?;
    }
    output::answer(global.output, &report, || text(&report))?;
    room.db.close().await;
    Ok(Exit::Done)
}

/// Sees to it that the database is of the controller's fleet; an empty one becomes so.
async fn same_fleet(room: &Room, key_from: Option<&Path>) -> anyhow::Result<()> {
    let ours = &room.controller;
    let key = match key_from {
        Some(path) => enrolment::read(path, Role::Agent)?.checksum_key,
        None => ours.checksum_key.clone(),
    };
    let found = match (fleet::find(&room.db).await?, key) {
        (Some(found), _) => found,
        (None, Some(checksum_key)) => {
            fleet::ensure(&room.db, &Fleet { fleet_id: ours.fleet.clone(), checksum_key }).await?
        }
        (None, None) => {
            return Err(Failure::usage(
                "the database is empty, and nobody has said the fleet's checksum key",
            )
            .hint("name an agent's enrolment file with --key-from")
            .into());
        }
    };
    if found.fleet_id != ours.fleet {
        return Err(Failure::new(
            Exit::Unsafe,
            format!("the database is of fleet {}, the controller of fleet {}", found.fleet_id, ours.fleet),
        )
        .hint("import into an empty database")
        .into());
    }
    Ok(parts::add(&room.db, &ours.part).await?)
}

/// The fileservers that are asked; those that the database does not know are made, with the parts that their agents
/// believe.
async fn places(room: &Room, named: &[String]) -> anyhow::Result<Vec<Place>> {
    let mut chosen = Vec::new();
    for one in named {
        let Some((name, place)) = one.split_once('=') else {
            chosen.push(one.clone());
            continue;
        };
        let Some((rack, url)) = place.split_once('@') else {
            return Err(Failure::usage(format!("{one:?} is not NAME=RACK@URL")).into());
        };
        let end = End { name: name.to_owned(), url: url.to_owned() };
        let believed = room.agents.parts(&end).await;
        let believed = believed.map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))?;
        let agent = believed.parts.iter().find(|part| part.role == Role::Agent && part.name == name);
        let agent = agent
            .ok_or_else(|| Failure::usage(format!("the agent at {url} knows of no fileserver {name}")))?;
        let id = fileservers::add(&room.db, name, rack, url, agent).await?;
        // Its disk is about to be read whole. Did it not count until a controller has looked, all its copies would
        // seem to be missing, and be made once more.
        fileservers::count(&room.db, id).await?;
        for part in &believed.parts {
            add_part(room, part).await?;
        }
        chosen.push(name.to_owned());
    }
    let places = room.fileservers(&chosen).await?;
    if places.is_empty() {
        return Err(Failure::usage("the database knows no fileserver")
            .hint("name each as --fileserver NAME=RACK@URL")
            .into());
    }
    Ok(places)
}

/// Other parts come back with their keys. A fileserver's part comes with its fileserver.
async fn add_part(room: &Room, part: &Part) -> anyhow::Result<()> {
    if part.role != Role::Agent {
        parts::add(&room.db, part).await?;
    }
    Ok(())
}

async fn write(room: &Room, batch: Vec<(RepositoryId, Decision)>, report: &mut Report) -> anyhow::Result<()> {
    let restored: Vec<Restored> = batch.iter().filter_map(|(_, one)| one.restored.clone()).collect();
    let rebuilt = rebuild::restore(&room.db, &restored, report.dry_run).await?;
    let ids: Vec<_> = batch.iter().map(|(id, _)| *id).collect();
    let rows = repositories::by_ids(&room.db, &ids).await?;
    for (id, decision) in batch {
        let name = decision.restored.as_ref().map(|one| one.name.clone()).unwrap_or_default();
        let mut conflicts = decision.conflicts;
        if let Some(one) = decision.restored.filter(|_| rebuilt.made.contains(&id)) {
            report.repositories += 1;
            report.copies += one.copies.len() as u64;
            report.in_sync += one.copies.iter().filter(|copy| copy.in_sync).count() as u64;
        } else {
            report.known += 1;
            conflicts.clear();
            let row = rows.iter().find(|row| row.id == id);
            let newest = restored.iter().find(|one| one.id == id).map_or(0, |one| one.version);
            if let Some(row) = row.filter(|row| row.version < newest) {
                conflicts.push(format!(
                    "HISTORY_LOST: the database has version {}, a disk {newest}; its row stays",
                    row.version
                ));
            }
        }
        if let Some((_, other)) = rebuilt.renamed.iter().find(|(one, _)| *one == id) {
            conflicts.push(format!("another repository has its name: it is made as {other}"));
        }
        for what in conflicts {
            report.more_conflicts |= report.conflicts.len() >= LISTED;
            if report.conflicts.len() < LISTED {
                report.conflicts.push(Conflict { repository: id.0, name: name.clone(), what });
            }
        }
    }
    Ok(())
}

fn text(report: &Report) -> String {
    let verb = if report.dry_run { "would be made" } else { "made" };
    let mut lines = vec![
        format!("FILESERVERS  {} asked: {}", report.fileservers.len(), report.fileservers.join(", ")),
        format!(
            "REPOSITORIES {} {verb}, {} known already; numbers up to {} are not given again",
            report.repositories, report.known, report.highest
        ),
        format!("COPIES       {} {verb}, {} of them in sync", report.copies, report.in_sync),
    ];
    if !report.conflicts.is_empty() {
        let rows = report
            .conflicts
            .iter()
            .map(|one| vec![one.repository.to_string(), one.name.clone(), one.what.clone()]);
        lines.push(String::new());
        lines.push(output::table(&["REPOSITORY", "NAME", "CONFLICT"], rows));
    }
    if report.more_conflicts {
        lines.push(format!("more than {LISTED} conflicts: the rest is not listed"));
    }
    lines.join("\n")
}
