//! The server's own changes: HEAD, and references without a client's push, on the same path and by the same vote.
//!
//! No pack comes but for a repository that is populated: what a reference is to lead to must be there. They may change what
//! no client may: HEAD and symbolic references, and those that `push.protected` keeps from clients.

use super::Pushing;
use super::commands::{Asked, Wishes};
use super::fan::{Lane, PourError, pour};
use super::ready::Intake;
use super::receive::{Task, in_the_way};
use super::view::View;
use crate::body::{ByteStream, drain};
use crate::model::checksum::Target;
use crate::model::id::RepositoryId;
use crate::model::push::{Listing, quorum};
use crate::model::wire::push::{Command, RefName};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Each reference, in the order asked for, and why it was not changed.
pub type Ended = Vec<(RefName, Option<String>)>;

/// Tries against pushes that change HEAD's branch in between.
const TRIES: usize = 3;

/// Changes references, each by its old value; `atomic`: all or none. It goes on when nobody waits for it any more.
///
/// # Errors
/// In words for people, when it could not be decided: nothing is changed.
pub async fn change(
    pushing: &Arc<Pushing>,
    id: RepositoryId,
    commands: Vec<Command>,
    atomic: bool,
) -> Result<Ended, String> {
    let view = read(pushing, id).await?;
    run(pushing, &view, commands, atomic, None).await
}

/// Whether a repository has no reference: then it may be populated.
///
/// # Errors
/// In words for people, when no copy shows its references.
pub async fn vacant(pushing: &Arc<Pushing>, id: RepositoryId) -> Result<bool, String> {
    let view = read(pushing, id).await?;
    Ok(listing(pushing, &view).await?.references.is_empty())
}

/// Populates a repository that is vacant: all references at once, and HEAD, with a pack of everything that they lead to.
///
/// # Errors
/// In words for people: nothing is changed.
pub async fn populate(
    pushing: &Arc<Pushing>,
    id: RepositoryId,
    wanted: Listing,
    pack: ByteStream,
) -> Result<(), String> {
    let view = read(pushing, id).await?;
    let now = listing(pushing, &view).await?;
    if !now.references.is_empty() {
        drain(pack).await;
        return Err("it is not empty".to_owned());
    }
    let create = |(name, new)| Command { name, old: None, new: Some(new) };
    let mut commands: Vec<Command> = wanted.references.into_iter().map(create).collect();
    if now.head != wanted.head {
        let name = RefName(crate::model::push::HEAD.to_vec());
        commands.push(Command { name, old: Some(now.head), new: Some(wanted.head) });
    }
    if commands.is_empty() {
        return Ok(());
    }
    let ended = run(pushing, &view, commands, true, Some(pack)).await?;
    match ended.into_iter().find_map(|(name, refused)| Some((name, refused?))) {
        Some((name, why)) => Err(format!("{name}: {why}")),
        None => Ok(()),
    }
}

/// Points HEAD at a branch, there or not yet.
///
/// # Errors
/// In words for people: nothing is changed.
pub async fn set_head(pushing: &Arc<Pushing>, id: RepositoryId, branch: &str) -> Result<(), String> {
    let new = Target::Symbolic(branch.to_owned());
    let mut why = String::new();
    for _ in 0..TRIES {
        let view = read(pushing, id).await?;
        let now = listing(pushing, &view).await?;
        let name = RefName(crate::model::push::HEAD.to_vec());
        let command = Command { name, old: Some(now.head), new: Some(new.clone()) };
        match run(pushing, &view, vec![command], true, None).await?.pop() {
            Some((_, Some(refused))) => why = refused,
            Some((_, None)) | None => return Ok(()),
        }
    }
    Err(why)
}

async fn read(pushing: &Pushing, id: RepositoryId) -> Result<View, String> {
    match View::read(pushing, id).await {
        Ok(Some(view)) => Ok(view),
        Ok(None) => Err("there is no such repository".to_owned()),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a change could not be routed");
            Err("the database is away: nothing can be changed now".to_owned())
        }
    }
}

async fn listing(pushing: &Arc<Pushing>, view: &View) -> Result<Listing, String> {
    match view.references(pushing).await {
        Some(shown) => Ok(shown.listing),
        None => Err("no copy shows the references that it ought to have: try again".to_owned()),
    }
}

async fn run(
    pushing: &Arc<Pushing>,
    view: &View,
    commands: Vec<Command>,
    atomic: bool,
    pack: Option<ByteStream>,
) -> Result<Ended, String> {
    let begun = Instant::now();
    if let Some(why) = in_the_way(pushing, view).await {
        return Err(why);
    }
    let wishes = Wishes { atomic, ..Wishes::default() };
    let asked = Asked { commands, wishes, options: Vec::new(), by_server: true };
    let (lanes, intake) = Intake::begin(pushing, view, &asked.commands).await;
    if lanes.len() < quorum(view.repository.seats) as usize {
        let have = lanes.len();
        intake.leave(pushing);
        return Err(format!("{have} copies can be changed now, too few to agree: try again"));
    }
    let bytes = match send(pushing, lanes, pack).await {
        Ok(bytes) => bytes,
        Err(why) => {
            intake.leave(pushing);
            return Err(why);
        }
    };
    let task = Task {
        pushing: Arc::clone(pushing),
        id: view.repository.id,
        asked,
        barred: BTreeMap::new(),
        inquiry: None,
        intake,
        bytes,
        begun,
    };
    let (tell, told) = oneshot::channel();
    pushing.tasks.spawn(async move {
        let _ = tell.send(task.run(CancellationToken::new()).await);
    });
    let told = told.await.map_err(|_| "the program stops".to_owned())?;
    match told.words {
        // Nobody knows yet how it ended.
        Some(words) => Err(words),
        None => Ok(told.report.references),
    }
}

/// Sends a pack to all copies that take it; none: nothing comes, and the lanes are closed.
async fn send(pushing: &Pushing, lanes: Vec<Lane>, pack: Option<ByteStream>) -> Result<u64, String> {
    let Some(pack) = pack else { return Ok(0) };
    match pour(pack, lanes, pushing.settings.stall, pushing.settings.largest).await {
        Ok(bytes) => Ok(bytes),
        // Why nobody takes it, their answers say.
        Err(PourError::Nobody) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}
