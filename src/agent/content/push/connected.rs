//! Whether everything that a push's new values lead to is here: asked once for all, and where that fails, part by
//! part, so that one bad command takes no other with it.

use super::super::objects::{LONG, broken, refused};
use super::ingest::Ingested;
use crate::agent::store::Store;
use crate::model::checksum::Target;
use crate::model::wire::push::{Command, Unfit};
use crate::model::wire::{Refusal, RefusalCode};
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// Walks for one push. Who sends more bad values than these tell apart has the rest refused unseen.
const MOST_WALKS: usize = 200;
/// Git's words for a value that is not whole.
const INCOMPLETE: &str = "missing necessary objects";

/// The commands whose new value cannot be here.
pub(super) async fn unfit(
    store: &Store,
    ingested: &Ingested,
    commands: &[Command],
    cancel: &CancellationToken,
) -> Result<Vec<Unfit>, Refusal> {
    let asking = Asking { store, ingested, cancel };
    let oids: BTreeSet<&str> = commands.iter().filter_map(new_object).collect();
    let kinds = asking.kinds(&oids).await?;
    let there: Vec<&str> = oids.into_iter().filter(|oid| kinds.contains_key(*oid)).collect();
    let cut_off = asking.cut_off(&there).await?;
    let unfit = commands.iter().filter_map(|command| {
        let oid = new_object(command)?;
        let why = match kinds.get(oid) {
            Some(_) if cut_off.contains(oid) => INCOMPLETE.to_owned(),
            Some(kind) if kind != "commit" && is_branch(command) => {
                format!("trying to write non-commit object {oid} to branch '{}'", command.name)
            }
            Some(_) => return None,
            None => INCOMPLETE.to_owned(),
        };
        Some(Unfit { name: command.name.clone(), why })
    });
    Ok(unfit.collect())
}

fn new_object(command: &Command) -> Option<&str> {
    match &command.new {
        Some(Target::Object(oid)) => Some(oid),
        _ => None,
    }
}

fn is_branch(command: &Command) -> bool {
    command.name.0 == b"HEAD" || command.name.0.starts_with(b"refs/heads/")
}

struct Asking<'a> {
    store: &'a Store,
    ingested: &'a Ingested,
    cancel: &'a CancellationToken,
}

impl Asking<'_> {
    /// What kind of object each of these is; those that are not here are left out.
    async fn kinds(&self, oids: &BTreeSet<&str>) -> Result<BTreeMap<String, String>, Refusal> {
        if oids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let arguments = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
        let most = oids.iter().map(|oid| oid.len() + 32).sum();
        let command = self.ingested.git(self.store, &arguments);
        let answer = command.run(&lines(oids.iter().copied()), most, LONG, self.cancel).await;
        let answer = answer.map_err(|error| broken(&error))?;
        if !answer.ok() {
            return Err(refused(RefusalCode::Damaged, &answer));
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        let known =
            text.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| *kind != "missing");
        Ok(known.map(|(oid, kind)| (oid.to_owned(), kind.to_owned())).collect())
    }

    /// Which of these lead to something that is not here.
    async fn cut_off(&self, oids: &[&str]) -> Result<BTreeSet<String>, Refusal> {
        let (mut cut_off, mut parts, mut walks) = (BTreeSet::new(), vec![oids], 0);
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            walks += 1;
            if walks <= MOST_WALKS && self.is_whole(part).await? {
                continue;
            }
            if part.len() == 1 || walks > MOST_WALKS {
                cut_off.extend(part.iter().map(|oid| (*oid).to_owned()));
            } else {
                let (one, two) = part.split_at(part.len() / 2);
                parts.extend([one, two]);
            }
        }
        Ok(cut_off)
    }

    /// Walks from these to what references lead to already.
    async fn is_whole(&self, oids: &[&str]) -> Result<bool, Refusal> {
        let arguments = ["rev-list", "--objects", "--stdin", "--not", "--all", "--quiet"];
        let command = self.ingested.git(self.store, &arguments);
        let answer = command.run(&lines(oids.iter().copied()), 1 << 20, LONG, self.cancel).await;
        answer.map(|answer| answer.ok()).map_err(|error| broken(&error))
    }
}

fn lines<'a>(oids: impl Iterator<Item = &'a str>) -> Vec<u8> {
    oids.fold(Vec::new(), |mut text, oid| {
        text.extend_from_slice(oid.as_bytes());
        text.push(b'\n');
        text
    })
}
