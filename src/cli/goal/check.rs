//! `trued goal check`: parses, prepares on the real engine, asks for the plan, lints.

use super::super::args::{Global, Output};
use super::super::client::Client;
use super::super::failure::{Exit, Failure};
use super::super::{output, program};
use super::files;
use crate::goal::lint::{RULES, Remark};
use crate::goal::{text, trial};
use crate::http::shapes::{CheckGoal, CheckedGoal};
use anyhow::Context as _;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Largest goal file.
const LARGEST_FILE: u64 = 1 << 18;

#[derive(Serialize)]
struct Outcome {
    file: String,
    good: bool,
    #[serde(flatten)]
    checked: CheckedGoal,
}

/// Checks files.
///
/// # Errors
/// When a file cannot be read, or nobody answers.
pub async fn run(global: &Global, files: &[PathBuf], database_url: Option<String>) -> anyhow::Result<Exit> {
    let database_url =
        database_url.map(|url| super::super::settings::database_url(global, Some(&url))).transpose()?;
    let mut all = Vec::new();
    for file in files {
        let text = read(global, file)?;
        let checked = if let Some(url) = &database_url {
            here(global, url, file, &text).await?
        } else {
            let ask = CheckGoal { path: file.display().to_string(), text };
            Client::new(global)?.post(&["goals", "check"], &ask).await?
        };
        tell(&checked);
        all.push(Outcome { file: file.display().to_string(), good: is_good(&checked), checked });
    }
    let failed = all.iter().any(|one| !one.good);
    match global.output {
        Output::Json => output::answer(global.output, &serde_json::json!({ "files": all }), String::new)?,
        Output::Table => {
            for one in all.iter().filter(|one| one.good) {
                let cost = one.checked.cost.map_or(String::new(), |cost| format!(", cost {cost:.0}"));
                output::line(&format!("{}: good{cost}", one.file));
            }
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Whether nothing refuses it.
pub fn is_good(checked: &CheckedGoal) -> bool {
    checked.problem.is_none() && !checked.remarks.iter().any(|remark| remark.refused)
}

/// Says what is wrong, and what might be.
pub fn tell(checked: &CheckedGoal) {
    checked.problem.iter().for_each(|problem| eprintln!("{problem}"));
    for remark in &checked.remarks {
        eprintln!("{}", shown(remark));
    }
}

/// A remark with why and what to do.
pub fn shown(remark: &Remark) -> String {
    let kind = if remark.refused { "refused" } else { "warning" };
    format!("{} ({kind}: {})\n  why: {}\n  fix: {}", remark.message, remark.id, remark.why, remark.fix)
}

/// Lists the rules.
///
/// # Errors
/// When they cannot be written.
pub fn rules(global: &Global) -> anyhow::Result<Exit> {
    output::answer(global.output, &serde_json::json!({ "rules": RULES }), || {
        let rows = RULES.iter().map(|rule| {
            let ignored = if rule.safety { "no" } else { "yes" };
            vec![rule.id.to_owned(), ignored.to_owned(), rule.why.to_owned(), rule.fix.to_owned()]
        });
        output::table(&["RULE", "MAY BE IGNORED", "WHY", "FIX"], rows)
    })?;
    Ok(Exit::Done)
}

/// Reads a goal file.
///
/// # Errors
/// When it cannot be read or is no goal's length.
pub fn read(global: &Global, file: &Path) -> anyhow::Result<String> {
    // Only for a hint: a configuration that cannot be read is no trouble here.
    let directory = files::directory(global).ok();
    if let Some(failure) = files::refused(directory.as_deref(), file) {
        return Err(failure.into());
    }
    let size = std::fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
    if size > LARGEST_FILE {
        let message = format!("{} has {size} bytes; a goal has {LARGEST_FILE} at most", file.display());
        return Err(Failure::new(Exit::Failed, message).into());
    }
    let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let wrong = |why| Failure::new(Exit::Failed, format!("{}: {why}", file.display())).into();
    text::utf8(bytes).map_err(wrong)
}

async fn here(global: &Global, url: &str, file: &Path, text: &str) -> anyhow::Result<CheckedGoal> {
    let (_, config) = super::super::settings::with_flags(global, &[])?;
    let db = super::super::migrate::open_existing(url).await?;
    let source = program::asking::source(&config, &db).await?;
    let repairs = program::files::repairs(global)?;
    let known = program::files::subjects(&repairs);
    match trial::check(file, text, &source, &known).await {
        Ok(checked) => Ok(CheckedGoal { problem: None, remarks: checked.remarks, cost: checked.plan.cost }),
        Err(problem) if problem.text => {
            Ok(CheckedGoal { problem: Some(problem.message), ..CheckedGoal::default() })
        }
        Err(problem) => Err(Failure::new(Exit::Unreachable, problem.message).into()),
    }
}
