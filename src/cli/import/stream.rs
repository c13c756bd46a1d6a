//! One pack, read once, to several agents at the same time, with bounded memory.

use super::progress::Progress;
use super::source::{Content, Source};
use crate::fleet::{CallError, Importer};
use crate::http::shapes::{ImportCopy, ImportPlan};
use crate::model::wire::RefusalCode;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Bytes read from git at a time.
const PIECE: usize = 64 * 1024;

/// Pieces that wait for one agent: 4 MiB.
const WAITING: usize = 64;

/// How long an agent may take nothing before it is dropped: longer than a sync of a busy disk.
const STALL: Duration = Duration::from_mins(1);

/// How long an agent may be silent after the last byte: it indexes what came.
const QUIET: Duration = Duration::from_hours(1);

/// How long git may take to end after its last byte.
const GIT_ENDS: Duration = Duration::from_mins(1);

/// The source cannot be read to its end: no second try will help.
#[derive(Debug, thiserror::Error)]
#[error("it is broken: git cannot read all of it: {0}")]
pub struct Broken(String);

type Piece = Result<Bytes, std::io::Error>;

/// Streams everything to all agents of the plan and returns those that took it.
///
/// # Errors
/// When git cannot read the source, or fewer than a quorum took it.
pub async fn to_all<'a>(
    source: &Source,
    content: &Content,
    plan: &'a ImportPlan,
    importer: &Importer,
    progress: &Progress,
) -> anyhow::Result<Vec<&'a ImportCopy>> {
    if content.tips.is_empty() {
        return Ok(plan.copies.iter().collect());
    }
    progress.phase("copying");
    let mut senders = Vec::new();
    let mut calls = Vec::new();
    for copy in &plan.copies {
        let (sender, receiver) = mpsc::channel::<Piece>(WAITING);
        senders.push((copy.to.name.as_str(), Some(sender)));
        let call = |pieces| {
            let body = reqwest::Body::wrap_stream(pieces);
            importer.pack(&copy.to, &copy.grant, plan.id, content.format, body, QUIET)
        };
        calls.push(once_there(receiver, call));
    }
    let fed = feed(source, content, &mut senders, progress);
    // The senders are dropped by the feeder when it ends: the calls end after it.
    let (fed, answers) = tokio::join!(fed, join_all(calls));
    fed?;
    let mut took = Vec::new();
    let mut last = None;
    for (copy, answer) in plan.copies.iter().zip(answers) {
        match answer {
            Ok(_) => took.push(copy),
            // Published by an earlier run: the finish compares it.
            Err(CallError::Refused(refusal)) if refusal.code == RefusalCode::Exists => took.push(copy),
            Err(error) => {
                progress.warn(&format!("{}: {error}", copy.to.name));
                last = Some(error);
            }
        }
    }
    if u32::try_from(took.len()).unwrap_or(u32::MAX) < plan.quorum {
        return Err(super::too_few(took.len(), plan, last).into());
    }
    Ok(took)
}

/// Streams HEAD and references, and a pack of everything that they lead to, as one body.
///
/// # Errors
/// When git cannot read the source; as the call.
pub async fn to_one<T, F: Future<Output = anyhow::Result<T>>>(
    source: &Source,
    content: &Content,
    progress: &Progress,
    call: impl FnOnce(reqwest::Body) -> F,
) -> anyhow::Result<T> {
    progress.phase("copying");
    let list = futures::stream::iter([Piece::Ok(Bytes::from(content.text.clone()))]);
    if content.tips.is_empty() {
        return call(reqwest::Body::wrap_stream(list)).await;
    }
    let (sender, receiver) = mpsc::channel::<Piece>(WAITING);
    let mut senders = [("the controller", Some(sender))];
    let fed = feed(source, content, &mut senders, progress);
    let called = once_there(receiver, |pieces| call(reqwest::Body::wrap_stream(list.chain(pieces))));
    match tokio::join!(fed, called) {
        (Err(broken), _) => Err(broken),
        (Ok(()), answer) => answer,
    }
}

/// Makes a call once its body begins: git may count for minutes before its first byte, and an agent takes a client
/// that is silent for so long to be gone.
async fn once_there<F: Future>(
    mut receiver: mpsc::Receiver<Piece>,
    call: impl FnOnce(BoxStream<'static, Piece>) -> F,
) -> F::Output {
    let first = futures::stream::iter(receiver.recv().await);
    call(first.chain(pieces(receiver)).boxed()).await
}

fn pieces(receiver: mpsc::Receiver<Piece>) -> impl futures::Stream<Item = Piece> + Send {
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

type Senders<'a> = [(&'a str, Option<mpsc::Sender<Piece>>)];

async fn feed(
    source: &Source,
    content: &Content,
    senders: &mut Senders<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let outcome = pump(source, content, senders, progress).await;
    for (_, sender) in senders.iter_mut() {
        if let (Some(sender), Err(error)) = (sender.take(), &outcome) {
            // A broken stream, not an ended one: the agent throws away what came.
            let broken = std::io::Error::other(error.to_string());
            let _ = tokio::time::timeout(STALL, sender.send(Err(broken))).await;
        }
    }
    outcome
}

async fn pump(
    source: &Source,
    content: &Content,
    senders: &mut Senders<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut git = source.pack()?;
    let (stdin, stdout) = (git.stdin.take(), git.stdout.take());
    let tips = async {
        let Some(mut stdin) = stdin else { return };
        for tip in &content.tips {
            // Git that ends early says why by its exit.
            if stdin.write_all(tip.as_bytes()).await.is_err() || stdin.write_all(b"\n").await.is_err() {
                return;
            }
        }
        let _ = stdin.shutdown().await;
    };
    let copying = async {
        let Some(mut stdout) = stdout else { return anyhow::Ok(true) };
        let mut sent = 0_u64;
        loop {
            let mut piece = vec![0; PIECE];
            let count = stdout.read(&mut piece).await?;
            if count == 0 {
                return Ok(true);
            }
            piece.truncate(count);
            if !offer(&Bytes::from(piece), senders, progress).await {
                // Not an error of the source: the answers of the agents say what is wrong, if anything is.
                return Ok(false);
            }
            sent += count as u64;
            progress.sent(sent);
        }
    };
    // Tips go in while the pack comes out, and no longer than it does.
    let mut copying = std::pin::pin!(copying);
    let whole = tokio::select! {
        biased;
        ended = &mut copying => ended?,
        () = tips => copying.await?,
    };
    if !whole {
        return Ok(());
    }
    let ended = git.finish(GIT_ENDS, &CancellationToken::new()).await?;
    if ended.code == Some(0) {
        return Ok(());
    }
    let words = ended.stderr.trim().replace('\n', "; ");
    Err(Broken(words).into())
}

/// Gives one piece to every agent that still takes pieces; whether any is left.
async fn offer(piece: &Bytes, senders: &mut Senders<'_>, progress: &Progress) -> bool {
    let sends = senders.iter_mut().map(|(name, slot)| async move {
        let Some(sender) = slot else { return };
        match tokio::time::timeout(STALL, sender.send(Ok(piece.clone()))).await {
            Ok(Ok(())) => {}
            // Its call has ended, with an answer of its own.
            Ok(Err(_)) => *slot = None,
            Err(_) => {
                progress.warn(&format!("{name} takes nothing and is dropped"));
                let _ = sender.try_send(Err(std::io::Error::other("stalled")));
                *slot = None;
            }
        }
    });
    join_all(sends).await;
    senders.iter().any(|(_, slot)| slot.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn nobody_is_called_before_git_has_begun_and_nothing_is_lost_by_that() {
        let (sender, receiver) = mpsc::channel(4);
        let called = AtomicBool::new(false);
        let call = once_there(receiver, async |pieces: BoxStream<'static, Piece>| {
            called.store(true, Ordering::Relaxed);
            pieces.map(|piece| piece.unwrap().to_vec()).concat().await
        });
        let feed = async {
            tokio::task::yield_now().await;
            assert!(!called.load(Ordering::Relaxed), "there is nothing to send yet");
            for piece in ["PACK", " and", " more"] {
                sender.send(Ok(Bytes::from(piece))).await.unwrap();
            }
            drop(sender);
        };
        let (sent, ()) = tokio::join!(call, feed);
        assert_eq!(sent, b"PACK and more");
    }
}
