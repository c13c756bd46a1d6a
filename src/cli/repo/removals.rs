//! Removing repositories, bringing them back, other names.

use crate::cli::args::{Change, Global};
use crate::cli::client::Client;
use crate::cli::confirm::confirmed;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{self, counted, moment, moment_or_dash, size};
use crate::clock;
use crate::http::shapes::{
    AdoptCopy, Changed, QuarantinedShown, RemoveRepository, RenameRepository, RepositoryRow, RepositoryShown,
    UndeleteRepository,
};
use crate::model::Millis;
use std::io::Write as _;

pub(super) async fn remove(global: &Global, name: &str, yes: bool, change: Change) -> anyhow::Result<Exit> {
    let Some(reason) = change.reason.filter(|reason| !reason.trim().is_empty()) else {
        return Err(Failure::usage("a repository is not removed without --reason").into());
    };
    let client = Client::new(global)?;
    if !yes && !change.dry_run {
        let one: RepositoryShown = client.get(&["repositories", name], &[]).await?;
        confirm(&one.name, one.replicas.len())?;
    }
    let ask = RemoveRepository { reason, dry_run: change.dry_run };
    let changed: Changed = client.post(&["repositories", name, "remove"], &ask).await?;
    said(global, &changed)
}

/// Asks for the name typed back.
fn confirm(name: &str, copies: usize) -> anyhow::Result<()> {
    eprint!("This removes {name} with its {}. Type its name to go on: ", counted(copies as u64, "copy"));
    std::io::stderr().flush()?;
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed)?;
    if typed.trim() == name {
        return Ok(());
    }
    Err(Failure::new(Exit::Unsafe, format!("{name} was not typed back: nothing is removed"))
        .hint("--yes removes without asking")
        .into())
}

pub(super) async fn adopt(
    global: &Global,
    name: &str,
    from: String,
    yes: bool,
    change: Change,
) -> anyhow::Result<Exit> {
    let Some(reason) = change.reason.filter(|reason| !reason.trim().is_empty()) else {
        return Err(Failure::usage("a copy is not adopted without --reason").into());
    };
    if !change.dry_run {
        let what = format!("what {from} has becomes definitive, whatever was pushed to other copies");
        confirmed(name, &what, yes)?;
    }
    let ask = AdoptCopy { from, reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.post(&["repositories", name, "adopt"], &ask).await?;
    said(global, &changed)
}

pub(super) async fn undelete(
    global: &Global,
    name: &str,
    new_name: Option<String>,
    change: Change,
) -> anyhow::Result<Exit> {
    let ask = UndeleteRepository { name: new_name, reason: change.reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.post(&["repositories", name, "undelete"], &ask).await?;
    said(global, &changed)
}

pub(super) async fn rename(
    global: &Global,
    name: &str,
    new_name: String,
    change: Change,
) -> anyhow::Result<Exit> {
    let ask = RenameRepository { name: new_name, reason: change.reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.put(&["repositories", name, "name"], &ask).await?;
    said(global, &changed)
}

fn said(global: &Global, changed: &Changed) -> anyhow::Result<Exit> {
    output::answer(global.output, changed, || changed.message.clone())?;
    Ok(Exit::Done)
}

/// Removed repositories, for people.
pub(super) fn table(rows: &[RepositoryRow]) -> String {
    let now = clock::now();
    let cells = rows.iter().map(|row| {
        vec![row.id.to_string(), row.name.clone(), moment_or_dash(row.removed_at, now), size(row.bytes)]
    });
    output::table(&["ID", "NAME", "REMOVED", "SIZE"], cells)
}

/// Copies that were set aside, for people; nothing where there is none.
pub(super) fn quarantined(all: &[QuarantinedShown], now: Millis) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|one| {
        vec![
            one.fileserver.clone(),
            moment(one.since, now),
            size(one.bytes),
            one.path.clone(),
            one.reason.clone(),
        ]
    });
    let columns = ["SET ASIDE ON", "SINCE", "SIZE", "PATH", "WHY"];
    format!("\n{}", output::table(&columns, rows))
}
