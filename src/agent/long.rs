//! Long work: it runs in a task of its own, its answer is a line at least every second, and a caller
//! that hangs up ends it.
//!
//! The work is told to end through its token and is always waited for, so that what it holds (a
//! repository's right to write) is given back only when nothing of it is left.

use super::store::Work;
use crate::model::wire::{Line, Progress, Refusal, RefusalCode};
use crate::shutdown::Shutdown;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures::{FutureExt as _, StreamExt as _};
use serde::Serialize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// A line comes at least this often.
const BEAT: Duration = Duration::from_millis(800);
/// How long a caller may take to read the last line.
const LAST_LINE: Duration = Duration::from_secs(30);

/// Runs work and answers with its lines. `cancel` is cancelled when the caller hangs up.
pub(super) fn lines<T, F, Fut>(tasks: &Shutdown, cancel: CancellationToken, work: F) -> Response
where
    T: Serialize + Send + 'static,
    F: FnOnce(Work) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, Refusal>> + Send,
{
    let (sender, receiver) = mpsc::channel::<Bytes>(4);
    let hung_up = cancel.clone().drop_guard();
    let (progress, seen) = watch::channel(Progress { phase: "beginning".to_owned(), bytes: 0, total: 0 });
    let told =
        Work { cancel: cancel.clone(), progress: Arc::new(move |now| drop(progress.send_replace(now))) };
    tasks.spawn(async move {
        let mut running = std::pin::pin!(caught(work(told)));
        let mut beat = tokio::time::interval(BEAT);
        let ended = loop {
            tokio::select! {
                ended = &mut running => break ended,
                _ = beat.tick() => {
                    let line = text(&Line::<T>::Progress(seen.borrow().clone()));
                    // A full channel is a slow reader: the next line says the same and more.
                    if let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(line) {
                        cancel.cancel();
                    }
                }
            }
        };
        let last = match ended {
            Ok(answer) => Line::Done(answer),
            Err(refusal) => Line::Error(refusal),
        };
        // Nobody to hear it any more: the caller asks again and finds what was done.
        let _ = sender.send_timeout(text(&last), LAST_LINE).await;
    });
    let lines = futures::stream::unfold((receiver, hung_up), |(mut receiver, hung_up)| async move {
        receiver.recv().await.map(|line| (line, (receiver, hung_up)))
    });
    let body = Body::from_stream(lines.map(Ok::<_, std::convert::Infallible>));
    ([(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")], body)
        .into_response()
}

/// Runs work whose answer is one value. A caller that hangs up cancels the token; the work is waited
/// for by its owner all the same.
///
/// # Errors
/// The work's own.
pub(super) async fn owned<T, F, Fut>(
    tasks: &Shutdown,
    cancel: CancellationToken,
    work: F,
) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: FnOnce(Work) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, Refusal>> + Send,
{
    let (sender, receiver) = oneshot::channel();
    let told = Work { cancel: cancel.clone(), progress: Arc::new(|_| {}) };
    let _hung_up = cancel.drop_guard();
    tasks.spawn(async move {
        let _ = sender.send(caught(work(told)).await);
    });
    receiver.await.unwrap_or_else(|_| Err(Refusal::new(RefusalCode::Failed, "the work was lost")))
}

/// A panic is a failure of this work alone.
async fn caught<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("work for a caller panicked");
        Err(Refusal::new(RefusalCode::Failed, "the agent met an error of its own, see its log"))
    })
}

fn text<T: Serialize>(line: &Line<T>) -> Bytes {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(response: Response) -> Vec<Line<u32>> {
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        body.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn lines_come_while_the_work_goes_on_and_the_last_one_is_the_answer() {
        let tasks = Shutdown::new();
        let (end, ended) = oneshot::channel::<()>();
        let response = lines(&tasks, CancellationToken::new(), |work| async move {
            (work.progress)(Progress { phase: "copying".into(), bytes: 5, total: 9 });
            ended.await.unwrap();
            Ok(3_u32)
        });
        let mut body = response.into_body().into_data_stream();
        let began = std::time::Instant::now();
        for _ in 0..3 {
            let line: Line<u32> = serde_json::from_slice(&body.next().await.unwrap().unwrap()).unwrap();
            assert!(matches!(&line, Line::Progress(progress) if progress.bytes == 5), "{line:?}");
        }
        assert!(began.elapsed() >= BEAT, "lines are paced");
        end.send(()).unwrap();
        let rest = read(Response::new(Body::from_stream(body))).await;
        assert_eq!(rest.last(), Some(&Line::Done(3)));
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_ends_the_work_and_it_is_waited_for() {
        let tasks = Shutdown::new();
        let (began, mut wait) = mpsc::channel(1);
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let response = lines(&tasks, CancellationToken::new(), move |work| async move {
            began.send(()).await.unwrap();
            work.cancel.cancelled().await;
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
            Err::<u32, _>(Refusal::new(RefusalCode::Cancelled, "ended"))
        });
        wait.recv().await.unwrap();
        drop(response);
        assert!(tasks.finish(Duration::from_secs(10)).await);
        assert!(ended.load(std::sync::atomic::Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_is_the_answer_of_that_work_alone() {
        let tasks = Shutdown::new();
        let response =
            lines::<u32, _, _>(&tasks, CancellationToken::new(), |_| async { panic!("in a test") });
        let lines = read(response).await;
        assert!(matches!(lines.last(), Some(Line::Error(refusal)) if refusal.code == RefusalCode::Failed));
    }
}
