//! Comparing a copy with its disk: what it is, what its references sum to, whether its packs and tips are there.

use super::objects::{self, At};
use super::packs::{self, Objects};
use super::references::References;
use super::{disk, hygiene, identity, opened};
use crate::agent::store::{Store, Work};
use crate::model::id::RepositoryId;
use crate::model::wire::{Progress, Refusal, RefusalCode, VerifyAnswer};

/// What was seen of a copy before anything was judged.
#[derive(Default)]
struct Seen {
    bytes: i64,
    packs: i64,
    loose: i64,
    indexed: bool,
}

/// Verifies one copy; what is wrong with it is an answer.
pub(super) async fn verify(store: &Store, id: RepositoryId, work: &Work) -> Result<VerifyAnswer, Refusal> {
    // Before anything is looked at: what changes from here on is flagged again and verified again, never missed.
    let generation = store.touched(id).await;
    let journal_version = identity::read(&store.layout.identity(id)).map_or(0, |found| found.version);
    let mut answer = VerifyAnswer {
        checksum: None,
        problem: None,
        journal_version,
        bytes: 0,
        packs: 0,
        loose: 0,
        indexed: false,
        generation,
        deep: false,
    };
    let mut seen = Seen::default();
    match look(store, id, work, &mut seen, &mut answer.problem).await {
        Ok(references) => {
            let format = references.1;
            answer.checksum = Some(references.0.checksum(&store.key, format));
        }
        Err(refusal) => match refusal.code {
            RefusalCode::NotFound => answer.problem = Some("not there".to_owned()),
            RefusalCode::Damaged => answer.problem = Some(refusal.message),
            _ => return Err(refusal),
        },
    }
    (answer.bytes, answer.packs, answer.loose) = (seen.bytes, seen.packs, seen.loose);
    answer.indexed = seen.indexed;
    Ok(answer)
}

async fn look(
    store: &Store,
    id: RepositoryId,
    work: &Work,
    seen: &mut Seen,
    note: &mut Option<String>,
) -> Result<(References, crate::model::fleet::ObjectFormat), Refusal> {
    let copy = opened::open(store, id).await?;
    note.clone_from(&copy.mended);
    say(work, "measuring");
    let path = copy.path.clone();
    let (bytes, objects): (i64, Objects) =
        disk::blocking(move || Ok((disk::usage(&path), packs::scan(&path)?))).await?;
    let count = i64::try_from(objects.packs.len()).unwrap_or(i64::MAX);
    *seen = Seen { bytes, packs: count, loose: objects.loose, indexed: objects.indexed };
    say(work, "checking packs and references");
    let (path, format) = (copy.path.clone(), copy.format);
    let references = disk::blocking(move || {
        if let Some(stranger) = hygiene::strangers(&path).into_iter().next() {
            return Err(Refusal::new(RefusalCode::Damaged, stranger));
        }
        packs::check_trailers(&path, &objects.packs, format)?;
        References::read(&path, format)
    })
    .await?;
    say(work, "looking for tips");
    let at = At { git: &store.git, repository: &copy.path, lock: None, cancel: &work.cancel };
    let missing = objects::missing(at, &references.tips()).await?;
    if let [first, rest @ ..] = missing.as_slice() {
        let message = format!("objects that references name are gone: {first} and {} more", rest.len());
        return Err(Refusal::new(RefusalCode::Damaged, message));
    }
    Ok((references, format))
}

fn say(work: &Work, phase: &str) {
    (work.progress)(Progress { phase: phase.to_owned(), bytes: 0, total: 0 });
}
