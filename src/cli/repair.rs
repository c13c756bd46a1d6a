//! `trued repair`: what there is, with the limits that hold, and a check of files.

use super::args::{Global, RepairCommand, RepairVerb};
use super::client::Client;
use super::failure::Exit;
use super::output::{self, age};
use super::program::files::repair_files;
use crate::http::shapes::{RepairList, RepairRow};
use crate::model::amount::counted;
use crate::repair::{Repair, library};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Runs it.
///
/// # Errors
/// When nobody answers, or a file cannot be read.
pub async fn run(global: &Global, ask: RepairCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        RepairVerb::List => list(global).await,
        RepairVerb::Show { name } => show(global, &name).await,
        RepairVerb::Check { files } => check(global, files),
    }
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let list: RepairList = Client::new(global)?.get(&["repairs"], &[]).await?;
    output::answer(global.output, &list, || {
        let columns =
            ["REPAIR", "SUBJECT", "STEP", "IN FLIGHT", "PER FILESERVER", "PER RACK", "PER MINUTE", "SUMMARY"];
        output::table(&columns, list.repairs.iter().map(cells))
    })?;
    Ok(Exit::Done)
}

fn cells(row: &RepairRow) -> Vec<String> {
    vec![
        row.name.clone(),
        row.subject.clone(),
        row.step.clone(),
        format!("{} of {}", row.in_flight, limit(row, "in_flight")),
        limit(row, "per_fileserver"),
        limit(row, "per_rack"),
        limit(row, "starts_per_minute"),
        row.summary.clone(),
    ]
}

/// A limit as it holds, with a mark where it was set at run time.
fn limit(row: &RepairRow, key: &str) -> String {
    let name = format!("{}.{key}", row.name);
    let found = row.limits.iter().find(|limit| limit.name == name);
    found.map_or_else(String::new, |limit| {
        let mark = if limit.owner == "run time" { "*" } else { "" };
        format!("{}{mark}", limit.value)
    })
}

async fn show(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let row: RepairRow = Client::new(global)?.get(&["repairs", name], &[]).await?;
    output::answer(global.output, &row, || shown(&row))?;
    Ok(Exit::Done)
}

fn shown(row: &RepairRow) -> String {
    let mut text = format!("REPAIR      {}: {}\n", row.name, row.summary);
    let step = if row.exec.is_empty() { row.step.clone() } else { row.exec.join(" ") };
    let _ = writeln!(text, "DOES        {step} to a {}; {} in flight", row.subject, row.in_flight);
    let _ = writeln!(text, "DEADLINE    {} and {} for each GiB", age(row.deadline_ms), age(row.per_gib_ms));
    let _ = writeln!(text, "RETRY       after {} to {}", age(row.first_ms), age(row.max_ms));
    let (lock, stuck) = (row.lock_after, row.stuck_after);
    let _ = writeln!(
        text,
        "ESCALATES   takes the write lock after {} without effect, a person after {stuck}",
        counted(lock, "attempt")
    );
    let _ = writeln!(text, "LIMITS");
    for limit in &row.limits {
        let _ = writeln!(
            text,
            "  {} = {} ({}; allowed: {})",
            limit.name, limit.value, limit.owner, limit.allowed
        );
    }
    text
}

/// Checks each file by itself, so that all that is wrong is said at once.
fn check(global: &Global, files: Vec<PathBuf>) -> anyhow::Result<Exit> {
    let files = if files.is_empty() { repair_files(global)? } else { files };
    let mut wrong = 0;
    for file in &files {
        match checked(file) {
            Ok(repair) => output::line(&format!("{}: ok: {}", file.display(), repair.summary)),
            Err(message) => {
                wrong += 1;
                output::line(&message);
            }
        }
    }
    Ok(if wrong == 0 { Exit::Done } else { Exit::Failed })
}

fn checked(file: &Path) -> Result<Repair, String> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = library::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Repair::parse(&name, &file.display().to_string(), &text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_checked_with_its_line_and_what_was_meant() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("verify.toml");
        let good = include_str!("../../repairs/verify.toml");
        std::fs::write(&file, good).unwrap();
        assert_eq!(checked(&file).unwrap().name, "verify");
        std::fs::write(&file, good.replace("per_rack", "per_rak")).unwrap();
        let said = checked(&file).unwrap_err();
        assert!(said.contains("verify.toml:") && said.contains("did you mean per_rack?"), "{said}");
        std::fs::write(&file, good.replace("\"verify\"", "\"verfy\"")).unwrap();
        let said = checked(&file).unwrap_err();
        assert!(said.contains("did you mean verify?"), "{said}");
    }
}
