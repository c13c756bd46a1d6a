//! Making a repository from what a client streams: a pack into staging, then references over it, exactly.
//!
//! Nothing is judged that git itself can read: old histories hold odd objects. What must hold is that everything
//! that a reference leads to is there.

use super::objects::{self, At};
use super::references::References;
use super::staging::Staging;
use super::{disk, install, opened, packs};
use crate::agent::git::RunningGit;
use crate::agent::store::{Reservation, Store, Work};
use crate::clock;
use crate::model::checksum::Checksum;
use crate::model::fleet::ObjectFormat;
use crate::model::grant::Receipt;
use crate::model::id::RepositoryId;
use crate::model::wire::{ImportAnswer, ImportRequest, PackAnswer, Progress, Refusal, RefusalCode};
use base64::Engine as _;
use std::ffi::OsString;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// What a staged pack is called in staging.
const KIND: &str = "import";
/// The longest that a pack may take to be indexed after its last byte.
const INDEXING: Duration = Duration::from_hours(2);

/// Takes a pack into staging.
pub(super) async fn pack(
    store: &Store,
    id: RepositoryId,
    format: ObjectFormat,
    pack: impl AsyncRead + Send + Unpin,
    work: &Work,
) -> Result<PackAnswer, Refusal> {
    if tokio::fs::symlink_metadata(store.layout.repository(id)).await.is_ok() {
        return Err(Refusal::new(RefusalCode::Exists, format!("repository {id} is here already")));
    }
    let staging = Staging::begin(store, id, KIND, format).await?;
    match index(store, &staging, pack, work).await {
        Ok(bytes) => {
            let path = staging.path().to_path_buf();
            let objects = disk::blocking(move || packs::count_packed(&path)).await?;
            staging.sync().await?;
            staging.keep();
            Ok(PackAnswer { bytes, objects })
        }
        Err(refusal) => {
            staging.discard().await;
            Err(refusal)
        }
    }
}

/// Streams into `index-pack`, which names every object by its content and writes the index.
async fn index(
    store: &Store,
    staging: &Staging,
    pack: impl AsyncRead + Send + Unpin,
    work: &Work,
) -> Result<i64, Refusal> {
    let arguments = ["index-pack", "--stdin"].map(OsString::from).to_vec();
    let mut git = store
        .git
        .command(Some(staging.path()), arguments)
        .spawn()
        .map_err(|error| objects::broken(&error))?;
    let fed = tokio::select! {
        biased;
        () = work.cancel.cancelled() => Err(super::peer::cancelled()),
        fed = feed(store, &mut git, pack, work) => fed,
    };
    let (bytes, _room) = match fed {
        Ok(fed) => fed,
        Err(refusal) => {
            git.end().await;
            return Err(refusal);
        }
    };
    (work.progress)(Progress { phase: "indexing".to_owned(), bytes, total: bytes });
    let answer = git.finish(INDEXING, &work.cancel).await.map_err(|error| objects::broken(&error))?;
    if answer.ok() { Ok(bytes) } else { Err(objects::refused(RefusalCode::BadRequest, &answer)) }
}

async fn feed(
    store: &Store,
    git: &mut RunningGit,
    mut pack: impl AsyncRead + Send + Unpin,
    work: &Work,
) -> Result<(i64, Reservation), Refusal> {
    let mut room = store.reserve(0)?;
    let mut bytes: i64 = 0;
    let mut buffer = vec![0; 128 * 1024];
    let Some(mut stdin) = git.stdin.take() else { return Ok((0, room)) };
    loop {
        let count = pack.read(&mut buffer).await.map_err(|error| {
            Refusal::new(RefusalCode::Cancelled, format!("the client's stream broke off: {error}"))
        })?;
        if count == 0 {
            return Ok((bytes, room));
        }
        let came = i64::try_from(count).unwrap_or(0);
        bytes = bytes.saturating_add(came);
        room.came(came)?;
        if stdin.write_all(&buffer[..count]).await.is_err() {
            // Git has ended and says why by its exit.
            return Ok((bytes, room));
        }
        (work.progress)(Progress { phase: "receiving".to_owned(), bytes, total: 0 });
    }
}

/// Installs references over what was staged and publishes the copy.
pub(super) async fn finish(
    store: &Store,
    id: RepositoryId,
    ask: &ImportRequest,
) -> Result<ImportAnswer, Refusal> {
    let format = ask.identity.object_format;
    if ask.identity.repository != id {
        return Err(bad("the request names another repository than its path"));
    }
    let references = wanted(ask)?;
    let checksum = references.checksum(&store.key, format);
    if tokio::fs::symlink_metadata(store.layout.repository(id)).await.is_ok() {
        return existing(store, id, checksum).await;
    }
    let staging = match Staging::resume(store, id, KIND) {
        Some(staging) => staging,
        None => Staging::begin(store, id, KIND, format).await?,
    };
    build(store, &staging, &references, format).await?;
    staging.publish(store, &ask.identity).await?;
    store.touched(id).await;
    answer(store, id, checksum, false).await
}

/// The list that was sent, with the HEAD that was sent beside it.
fn wanted(ask: &ImportRequest) -> Result<References, Refusal> {
    let text = base64::engine::general_purpose::STANDARD.decode(&ask.references);
    let text = text.map_err(|error| bad(&format!("the list of references is not base64: {error}")))?;
    let references = References::parse(&text, ask.identity.object_format).map_err(|what| bad(&what))?;
    if references.head == ask.head {
        Ok(references)
    } else {
        Err(bad("HEAD is not what the list of references says"))
    }
}

async fn build(
    store: &Store,
    staging: &Staging,
    references: &References,
    format: ObjectFormat,
) -> Result<(), Refusal> {
    // Not cut short when the client goes: a finish that is half done is done again by the next request.
    let cancel = CancellationToken::new();
    let at = At { git: &store.git, repository: staging.path(), lock: None, cancel: &cancel };
    let tips = references.tips();
    let missing = objects::missing(at, &tips).await?;
    if let Some(first) = missing.first() {
        return Err(bad(&format!("object {first} is named by a reference and was not sent")));
    }
    objects::connected(at, &tips).await.map_err(|refusal| match refusal.code {
        RefusalCode::Damaged => bad(&format!("what was sent is not complete: {}", refusal.message)),
        _ => refusal,
    })?;
    install::fresh(at, references, format).await
}

/// Done before: the same content is an answer, another one is in the way.
async fn existing(store: &Store, id: RepositoryId, wanted: Checksum) -> Result<ImportAnswer, Refusal> {
    let copy = opened::open(store, id).await?;
    let (path, format) = (copy.path, copy.format);
    let found = disk::blocking(move || References::read(&path, format)).await?;
    if found.checksum(&store.key, format) != wanted {
        return Err(Refusal::new(
            RefusalCode::Exists,
            format!("repository {id} is here already, with other content"),
        ));
    }
    answer(store, id, wanted, true).await
}

async fn answer(
    store: &Store,
    id: RepositoryId,
    checksum: Checksum,
    existed: bool,
) -> Result<ImportAnswer, Refusal> {
    let path = store.layout.repository(id);
    let bytes = disk::blocking(move || Ok(disk::usage(&path))).await?;
    let receipt = Receipt {
        fleet: store.fleet.clone(),
        fileserver: store.fileserver.clone(),
        repository: id,
        checksum,
        bytes,
        at: clock::now(),
    };
    Ok(ImportAnswer { receipt: receipt.sign(&store.signer), checksum, existed })
}

fn bad(what: &str) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, what)
}
