//! `trued repo import` and `create`: a plan from the API, the content straight to agents, their words back.
//!
//! The source is read once and streamed to all agents at the same time. An agent that stalls is
//! dropped; as long as a quorum is left the import goes on, and what is missing is a finding.
//! A second run goes on where the first one ended. A source that will not do is refused with a
//! sentence, and the others are imported all the same.

pub mod find;
pub mod progress;
pub mod source;
pub mod stream;

use super::args::{Global, Import, Output};
use super::client::Client;
use super::failure::{Exit, Failure, sentence};
use super::output::{self, size};
use crate::fleet::Importer;
use crate::http::shapes::{
    Changed, Compared, FinishImport, ImportCopy, ImportPlan, PlanImport, RepositoryShown,
};
use crate::model::amount::counted;
use crate::model::fleet::ObjectFormat;
use crate::model::grant::SignedReceipt;
use crate::model::wire::{Identity, ImportRequest, RefusalCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use progress::Progress;
use serde::Serialize;
use source::{Content, Source};

/// What became of one source.
#[derive(Debug, Clone, Serialize)]
pub struct Imported {
    /// Where it was read.
    pub source: String,
    /// The repository's name.
    pub name: String,
    /// `imported`, `populated` (it was there, and empty), `there` (already), `planned` (dry run), `refused`.
    pub outcome: &'static str,
    /// Its number.
    pub id: Option<i64>,
    /// Copies made.
    pub copies: usize,
    /// Copies wanted; 0 where nothing was made. Those that are missing are made when there is room.
    pub wanted: u32,
    /// What else is to be said.
    pub message: String,
}

/// What all imports of one command share.
struct Imports<'a> {
    client: Client,
    importer: Importer,
    git: source::Runner,
    ask: &'a Import,
}

/// Imports everything below the paths.
///
/// # Errors
/// When nothing can be asked at all; a source that is refused makes the exit code 1.
pub async fn run(global: &Global, ask: Import) -> anyhow::Result<Exit> {
    let found = find::below(&ask.paths)?;
    if ask.name.is_some() && found.len() != 1 {
        let message = format!("--name is for a single repository, and there are {}", found.len());
        return Err(Failure::usage(message).into());
    }
    let imports = Imports {
        client: Client::new(global)?,
        importer: Importer::new()?,
        git: source::Runner::new()?,
        ask: &ask,
    };
    let mut done = Vec::new();
    for path in &found {
        let name = ask.name.clone().unwrap_or_else(|| find::name_of(path));
        let name = format!("{}{name}", ask.prefix);
        let outcome = match imports.one(path, &name).await {
            Ok(outcome) => outcome,
            // Nobody there is not the source's fault: the others would only say the same.
            Err(error) if super::failure::exit_of(&error) == Exit::Unreachable => return Err(error),
            Err(error) => refused(path, &name, &error),
        };
        if global.output == Output::Table {
            tell(&outcome);
        }
        done.push(outcome);
    }
    let failed = done.iter().filter(|one| one.outcome == "refused").count();
    if global.output == Output::Json {
        output::line(&serde_json::to_string_pretty(&serde_json::json!({ "imports": done }))?);
    }
    if failed > 0 {
        eprintln!("{failed} of {} were refused", done.len());
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

/// Creates an empty repository: the same path with an empty content.
///
/// # Errors
/// When the name is taken, or nobody answers.
pub async fn create(
    global: &Global,
    name: &str,
    format: ObjectFormat,
    wanted: u32,
    dry_run: bool,
) -> anyhow::Result<Exit> {
    let client = Client::new(global)?;
    let importer = Importer::new()?;
    let content = Content::empty(format);
    let ask = PlanImport { name: name.to_owned(), object_format: format, wanted, bytes: 0, dry_run };
    let plan: ImportPlan = client.post(&["imports"], &ask).await?;
    if dry_run {
        output::line(&format!("{name} would be created on {}", places(&plan)));
        return Ok(Exit::Done);
    }
    let all: Vec<_> = plan.copies.iter().collect();
    let shown = finish(&client, &importer, &plan, &content, &all).await?;
    output::answer(global.output, &shown, || super::repo::render(&shown))?;
    Ok(Exit::Done)
}

impl Imports<'_> {
    async fn one(&self, path: &std::path::Path, name: &str) -> anyhow::Result<Imported> {
        let source = Source::open(&self.git, path).await?;
        let content = source.content().await?;
        match self.there(path, name, &content).await? {
            There::No => {}
            There::Same(there) => return Ok(there),
            There::Empty => return self.populate(path, name, &source, &content).await,
        }
        let ask = PlanImport {
            name: name.to_owned(),
            object_format: content.format,
            wanted: self.ask.replicas,
            bytes: source.bytes(),
            dry_run: self.ask.dry_run,
        };
        let plan: ImportPlan = self.client.post(&["imports"], &ask).await?;
        let base = Imported {
            source: path.display().to_string(),
            name: name.to_owned(),
            outcome: "planned",
            id: None,
            copies: plan.copies.len(),
            wanted: plan.wanted,
            message: format!("{}, on {}", size(source.bytes()), places(&plan)),
        };
        if self.ask.dry_run {
            return Ok(base);
        }
        let progress = Progress::new(name, source.bytes());
        let taken = match stream::to_all(&source, &content, &plan, &self.importer, &progress).await {
            Ok(taken) => taken,
            Err(error) => {
                self.give_up(&plan, &error).await?;
                return Err(error);
            }
        };
        progress.phase("publishing");
        let shown = finish(&self.client, &self.importer, &plan, &content, &taken).await?;
        progress.end();
        Ok(Imported {
            outcome: "imported",
            id: Some(shown.id.0),
            copies: shown.replicas.len(),
            message: names(&shown),
            ..base
        })
    }

    /// Forgets the plan for a source that will never be whole; any other one is gone on with later.
    async fn give_up(&self, plan: &ImportPlan, error: &anyhow::Error) -> anyhow::Result<()> {
        if error.is::<stream::Broken>() {
            let path = ["imports", &plan.id.to_string(), "abandon"];
            let _: Changed = self.client.post(&path, &serde_json::json!({})).await?;
        }
        Ok(())
    }

    /// A repository that is there and empty is populated: by the vote of its copies, as by a push.
    async fn populate(
        &self,
        path: &std::path::Path,
        name: &str,
        source: &Source,
        content: &Content,
    ) -> anyhow::Result<Imported> {
        let base = Imported {
            source: path.display().to_string(),
            name: name.to_owned(),
            outcome: "planned",
            id: None,
            copies: 0,
            wanted: 0,
            message: format!("{}, into the repository that is there, which is empty", size(source.bytes())),
        };
        if self.ask.dry_run {
            return Ok(base);
        }
        let progress = Progress::new(name, source.bytes());
        let call = async |body| -> anyhow::Result<Changed> {
            let length = content.text.len().to_string();
            let query = [("object_format", content.format.to_string()), ("references", length)];
            self.client.stream(&["repositories", name, "populate"], &query, body).await
        };
        stream::to_one(source, content, &progress, call).await?;
        progress.end();
        let shown: RepositoryShown = self.client.get(&["repositories", name], &[]).await?;
        Ok(Imported {
            outcome: "populated",
            id: Some(shown.id.0),
            copies: shown.replicas.len(),
            wanted: shown.wanted,
            message: names(&shown),
            ..base
        })
    }

    /// What is there already with the same content is passed over.
    async fn there(&self, path: &std::path::Path, name: &str, content: &Content) -> anyhow::Result<There> {
        let query = [("object_format", content.format.to_string())];
        let text = content.text.clone();
        let compared: Compared =
            self.client.ask_about(&["repositories", name, "compare"], &query, text).await?;
        if !compared.exists {
            return Ok(There::No);
        }
        if !compared.same {
            return match compared.object_format {
                Some(here) if compared.is_empty && here != content.format => {
                    Err(other_format(name, here, content.format).into())
                }
                _ if compared.is_empty => Ok(There::Empty),
                _ => Err(other_content(name).into()),
            };
        }
        Ok(There::Same(Imported {
            source: path.display().to_string(),
            name: name.to_owned(),
            outcome: "there",
            id: None,
            copies: 0,
            wanted: 0,
            message: "already there, with the same content".to_owned(),
        }))
    }
}

/// What there is of a name already.
enum There {
    No,
    /// With the same content.
    Same(Imported),
    /// With none yet.
    Empty,
}

fn other_content(name: &str) -> Failure {
    Failure::new(Exit::Failed, format!("there is a repository {name:?} already, with other content"))
}

fn other_format(name: &str, here: ObjectFormat, there: ObjectFormat) -> Failure {
    let words = format!(
        "there is a repository {name:?} already, whose objects are named by {here}, and not by {there}"
    );
    Failure::new(Exit::Failed, words)
}

fn refused(path: &std::path::Path, name: &str, error: &anyhow::Error) -> Imported {
    Imported {
        source: path.display().to_string(),
        name: name.to_owned(),
        outcome: "refused",
        id: None,
        copies: 0,
        wanted: 0,
        message: sentence(error),
    }
}

fn tell(one: &Imported) {
    let id = one.id.map_or(String::new(), |id| format!(" (repository {id})"));
    let copies = made(one);
    let line = match one.outcome {
        "imported" => format!("imported {}{id}: {copies} on {}{}", one.name, one.message, missing(one)),
        "populated" => {
            format!(
                "populated {}{id}, which was empty: {copies} on {}{}",
                one.name,
                one.message,
                missing(one)
            )
        }
        "planned" if one.copies == 0 => format!("would import {}: {}", one.name, one.message),
        "planned" => format!("would import {}: {copies}, {}", one.name, one.message),
        "there" => format!("passed over {}: {}", one.name, one.message),
        _ => {
            eprintln!("refused {}: {}", one.source, one.message);
            return;
        }
    };
    output::line(&line);
}

/// `3 copies`, or `2 of 3 copies`.
fn made(one: &Imported) -> String {
    let (copies, wanted) = (one.copies, usize::try_from(one.wanted).unwrap_or(usize::MAX));
    if copies < wanted {
        return format!("{copies} of {}", counted(i64::from(one.wanted), "copy"));
    }
    counted(i64::try_from(copies).unwrap_or(i64::MAX), "copy")
}

fn missing(one: &Imported) -> String {
    if one.copies < usize::try_from(one.wanted).unwrap_or(usize::MAX) {
        return format!("; what is missing is made when there is room: trued why {}", one.name);
    }
    String::new()
}

fn places(plan: &ImportPlan) -> String {
    plan.copies.iter().map(|copy| format!("{} ({})", copy.to.name, copy.rack)).collect::<Vec<_>>().join(", ")
}

fn names(shown: &RepositoryShown) -> String {
    shown
        .replicas
        .iter()
        .map(|replica| format!("{} ({})", replica.fileserver, replica.rack))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Has the agents publish what they took, and brings their words to the API.
async fn finish(
    client: &Client,
    importer: &Importer,
    plan: &ImportPlan,
    content: &Content,
    copies: &[&ImportCopy],
) -> anyhow::Result<RepositoryShown> {
    let ask = ImportRequest {
        identity: Identity {
            repository: plan.id,
            name: plan.name.clone(),
            object_format: content.format,
            wanted: plan.wanted,
            version: 1,
        },
        head: content.head.clone(),
        references: STANDARD.encode(&content.text),
    };
    let words =
        join_all(copies.iter().map(|copy| importer.finish(&copy.to, &copy.grant, plan.id, &ask))).await;
    let mut receipts: Vec<SignedReceipt> = Vec::new();
    let mut last = None;
    for (word, copy) in words.into_iter().zip(copies) {
        match word {
            Ok(answer) => receipts.push(answer.receipt),
            Err(error) => {
                eprintln!("{}: {}: {error}", plan.name, copy.to.name);
                last = Some(error);
            }
        }
    }
    if u32::try_from(receipts.len()).unwrap_or(u32::MAX) < plan.quorum {
        return Err(too_few(receipts.len(), plan, last).into());
    }
    client.post(&["imports", &plan.id.to_string(), "finish"], &FinishImport { receipts }).await
}

fn too_few(have: usize, plan: &ImportPlan, last: Option<crate::fleet::CallError>) -> Failure {
    let full = matches!(&last, Some(crate::fleet::CallError::Refused(refusal)) if refusal.code == RefusalCode::DiskFull);
    let why = last.map_or(String::new(), |error| format!(": {error}"));
    let message =
        format!("{have} of {} copies were made, {} are needed{why}", plan.copies.len(), plan.quorum);
    let failure = Failure::new(Exit::Failed, message);
    if full {
        failure.hint("free space on fileservers, or add one; `trued fileserver list` shows what is free")
    } else {
        failure.hint("run the same command again: it goes on where this one ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_are_missing_are_told() {
        let mut one = refused(std::path::Path::new("/src"), "a", &anyhow::anyhow!("x"));
        (one.copies, one.wanted) = (3, 3);
        assert_eq!((made(&one), missing(&one)), ("3 copies".to_owned(), String::new()));
        one.copies = 2;
        let said = "; what is missing is made when there is room: trued why a";
        assert_eq!((made(&one), missing(&one)), ("2 of 3 copies".to_owned(), said.to_owned()));
    }
}
