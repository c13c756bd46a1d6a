//! `trued repo`: lists, one, wanted copies; importing is a room of its own.

use super::args::{Change, Global, RepoCommand, RepoVerb};
use super::client::Client;
use super::failure::Exit;
use super::import;
use super::output::{self, moment, moment_or_dash, size, yes_no};
use crate::clock;
use crate::http::shapes::{Changed, RepositoryList, RepositoryRow, RepositoryShown, SetHead, SetWanted};
use crate::model::amount::counted;
use crate::model::fleet::quorum;

mod removals;

/// Repositories asked for at a time.
const PAGE: usize = 500;

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: RepoCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        RepoVerb::Import(ask) => import::run(global, ask).await,
        RepoVerb::Create { name, replicas, object_format, change } => {
            import::create(global, &name, object_format, replicas, change.dry_run).await
        }
        RepoVerb::List { behind, removed, limit } => list(global, behind, removed, limit).await,
        RepoVerb::Remove { name, yes, change } => removals::remove(global, &name, yes, change).await,
        RepoVerb::Adopt { name, from, yes, change } => {
            removals::adopt(global, &name, from, yes, change).await
        }
        RepoVerb::Undelete { name, new_name, change } => {
            removals::undelete(global, &name, new_name, change).await
        }
        RepoVerb::Rename { name, new_name, change } => {
            removals::rename(global, &name, new_name, change).await
        }
        RepoVerb::Show { name } => show(global, &name).await,
        RepoVerb::SetHead { name, branch, change } => set_head(global, &name, branch, change).await,
        RepoVerb::SetReplicas { name, wanted, change } => set_replicas(global, &name, wanted, change).await,
    }
}

async fn list(global: &Global, behind: bool, removed: bool, limit: usize) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    let mut all = RepositoryList { repositories: Vec::new(), next: Some(String::new()) };
    while let Some(after) = all.next.take_if(|_| all.repositories.len() < limit) {
        let page = PAGE.min(limit - all.repositories.len());
        let query = [
            ("after", after),
            ("limit", page.to_string()),
            ("behind", behind.to_string()),
            ("removed", removed.to_string()),
        ];
        let page: RepositoryList = client.get(&["repositories"], &query).await?;
        all.repositories.extend(page.repositories);
        all.next = page.next;
    }
    output::answer(global.output, &all, || {
        if removed {
            return removals::table(&all.repositories);
        }
        let columns = ["ID", "NAME", "WANTED", "COUNTABLE", "GOOD", "VERSION", "SIZE"];
        output::table(&columns, all.repositories.iter().map(cells))
    })?;
    if all.next.is_some() {
        eprintln!("there are more; --limit shows more of them");
    }
    Ok(if behind && !all.repositories.is_empty() { Exit::Open } else { Exit::Done })
}

fn cells(row: &RepositoryRow) -> Vec<String> {
    vec![
        row.id.to_string(),
        row.name.clone(),
        row.wanted.to_string(),
        row.countable.to_string(),
        row.good.to_string(),
        row.version.to_string(),
        size(row.bytes),
    ]
}

async fn show(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let one: RepositoryShown = Client::new(global)?.get(&["repositories", name], &[]).await?;
    output::answer(global.output, &one, || render(&one))?;
    Ok(Exit::Done)
}

/// A repository with its copies, for people.
#[must_use]
pub fn render(one: &RepositoryShown) -> String {
    let now = clock::now();
    let rows = one.replicas.iter().map(|replica| {
        vec![
            replica.fileserver.clone(),
            replica.rack.clone(),
            replica.state.to_string(),
            yes_no(replica.in_sync).to_owned(),
            replica.checksum.clone().unwrap_or_else(|| "-".into()),
            moment_or_dash(replica.verified_at, now),
            replica.path.clone(),
        ]
    });
    let columns = ["FILESERVER", "RACK", "STATE", "IN SYNC", "CHECKSUM", "VERIFIED", "PATH"];
    format!(
        "{} (repository {}{})\n{}{} wanted; {}, {} must agree on a push; version {}; checksum {}\n{}\n{}{}",
        one.name,
        one.id,
        one.removed_at.map_or_else(String::new, |at| format!(", removed {}", moment(at, now))),
        one.clone_url.as_ref().map_or_else(String::new, |url| format!("{url}\n")),
        counted(one.wanted, "copy"),
        counted(one.seats, "seat"),
        quorum(one.seats),
        one.version,
        one.checksum.as_deref().unwrap_or("-"),
        one.pushes_wait.as_ref().map_or_else(String::new, |why| format!("pushes wait: {why}\n")),
        output::table(&columns, rows),
        removals::quarantined(&one.quarantined, now),
    )
}

async fn set_head(global: &Global, name: &str, branch: String, change: Change) -> anyhow::Result<Exit> {
    let ask = SetHead { branch, reason: change.reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.put(&["repositories", name, "head"], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

async fn set_replicas(global: &Global, name: &str, wanted: u32, change: Change) -> anyhow::Result<Exit> {
    let ask = SetWanted { wanted, reason: change.reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.put(&["repositories", name, "wanted"], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}
