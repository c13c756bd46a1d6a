//! Pushes on their way through this agent: announced, streamed, ready, prepared, ended; and who may end them.
//!
//! Each one is bounded in age, and all are bounded in number. A prepared one has a task of its own that holds the
//! right to push and ends the change whatever happens to its caller: by a verdict, by a fence, by a newer push, by
//! this machine's own clock, or because the agent stops. Nothing here survives the agent: what it left is mended at
//! its next start.

mod sessions;

use super::content::{self, Prepared};
use super::epochs::Purpose;
use super::server::Agent;
use crate::model::id::RepositoryId;
use crate::model::wire::push::{FinishAnswer, FinishRequest, PrepareRequest, Vote};
use crate::model::wire::{Refusal, RefusalCode};
use sessions::Taken;
pub(super) use sessions::{Finishing, Order, Pushes};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How long a git of an earlier agent is waited for before its repository is left to a settlement.
const ORPHANS: Duration = Duration::from_secs(15);

/// Bounds of pushes.
#[derive(Debug, Clone, Copy)]
pub struct PushSettings {
    /// Packs that are taken in at a time; more wait ten seconds and are then refused as busy. Default: 64.
    pub at_once: usize,
    /// Pushes between their announcement and their end. Default: 1,024.
    pub most: usize,
    /// How long one waits for its pack, or with its objects for its turn. Default: ten minutes.
    pub waits: Duration,
    /// How long it stays prepared after its vote, and for each of its commands. Default: ten seconds, and a
    /// millisecond.
    pub prepared: (Duration, Duration),
}

impl Default for PushSettings {
    fn default() -> Self {
        Self {
            at_once: 64,
            most: 1_024,
            waits: Duration::from_mins(10),
            prepared: (Duration::from_secs(10), Duration::from_millis(1)),
        }
    }
}

/// Prepares a push and votes. A caller that hangs up before the vote ends it.
///
/// # Errors
/// As [`content::prepare`]; `OldEpoch` behind a fence; `NotFound` where no such push is ready.
pub(super) async fn prepare(
    agent: &Arc<Agent>,
    id: RepositoryId,
    name: &str,
    epoch: i64,
    ask: PrepareRequest,
) -> Result<Vote, Refusal> {
    let taken = agent.pushes.take(id, name)?;
    let cancel = agent.tasks.token().child_token();
    let (tell, told) = oneshot::channel();
    let hung_up = cancel.clone().drop_guard();
    agent.tasks.spawn(stay(Arc::clone(agent), taken, epoch, ask, cancel, tell));
    let vote = told.await.unwrap_or_else(|_| Err(lost()));
    hung_up.disarm();
    vote
}

/// Ends a prepared push. The same again gets the same answer, for a while.
///
/// # Errors
/// `NotFound` where no such push is known, `Cancelled` where it has ended otherwise; as [`Prepared::commit`].
pub(super) async fn finish(
    agent: &Agent,
    id: RepositoryId,
    name: &str,
    epoch: i64,
    ask: &FinishRequest,
) -> Result<FinishAnswer, Refusal> {
    let orders = match agent.pushes.finish(id, name, epoch, ask.commit)? {
        Finishing::Prepared(orders) => orders,
        Finishing::Ended(answer) => return Ok(*answer),
    };
    let (reply, replied) = oneshot::channel();
    orders.send(Order { commit: ask.commit, reply }).await.map_err(|_| over())?;
    replied.await.unwrap_or_else(|_| Err(over()))
}

/// One push from its preparation to its end.
async fn stay(
    agent: Arc<Agent>,
    mut taken: Taken,
    epoch: i64,
    ask: PrepareRequest,
    cancel: CancellationToken,
    tell: oneshot::Sender<Result<Vote, Refusal>>,
) {
    let (store, id) = (Arc::clone(&agent.store), taken.id());
    let writer = match agent.epochs.push(id, epoch, Purpose::Prepare, &cancel).await {
        Ok(writer) => writer,
        Err(refusal) => return drop(tell.send(Err(refusal))),
    };
    let _marked = store.inventory.mark_writing(id);
    let prepared =
        async { content::prepare(&store, id, taken.ingested()?, epoch, &ask, &writer.cancel).await };
    let (prepared, vote) = match prepared.await {
        Ok(prepared) => prepared,
        Err(refusal) => return drop(tell.send(Err(refusal))),
    };
    let (orders, ordered) = mpsc::channel(1);
    let session = taken.prepared(epoch, orders);
    let heard = tell.send(Ok(vote)).is_ok();
    let order = if heard { verdict(&agent, &prepared, ordered, &writer.cancel).await } else { None };
    let (commit, reply) = order.map_or((false, None), |order| (order.commit, Some(order.reply)));
    let ended = if commit { prepared.commit(&store).await } else { prepared.abort(&store).await };
    match &ended {
        Ok(answer) => session.ended(reply.is_some().then(|| answer.clone())),
        Err(refusal) => {
            tracing::warn!(repository.id = id.0, push.epoch = epoch, %refusal, "a push did not end well");
        }
    }
    if let Some(reply) = reply {
        let _ = reply.send(ended);
    }
}

/// Waits for the verdict; none: a fence, a newer push, the agent's stop, or the clock ends it.
async fn verdict(
    agent: &Agent,
    prepared: &Prepared,
    mut ordered: mpsc::Receiver<Order>,
    cancel: &CancellationToken,
) -> Option<Order> {
    let (least, each) = agent.pushes.settings().prepared;
    let count = u32::try_from(prepared.count()).unwrap_or(u32::MAX);
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        order = ordered.recv() => order,
        () = tokio::time::sleep(least + each.saturating_mul(count)) => None,
    }
}

/// Before the agent serves: mends the repositories in which an earlier one left a push.
pub(super) async fn mend(agent: &Agent) {
    let left = content::pushes_that_broke_off(&agent.store).await.unwrap_or_else(|refusal| {
        tracing::warn!(%refusal, "cannot see which pushes broke off");
        Vec::new()
    });
    let until = tokio::time::Instant::now() + ORPHANS;
    for id in left {
        let writer = loop {
            match agent.epochs.try_write(id) {
                None if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                tried => break tried,
            }
        };
        let mended = match writer {
            Some(_writer) => content::mend(&agent.store, id).await,
            None => Err(Refusal::new(RefusalCode::Busy, "a git of an earlier agent still runs in it")),
        };
        if let Err(refusal) = mended {
            tracing::warn!(repository.id = id.0, %refusal, "cannot mend what a push left");
        }
    }
}

fn over() -> Refusal {
    Refusal::new(RefusalCode::Cancelled, "the prepared push has ended: fenced, too old, or the agent stops")
}

fn lost() -> Refusal {
    Refusal::new(RefusalCode::Failed, "the push was lost")
}
