//! The lines of long work: progress as long as it lasts, then one that says how it ended.

use super::call::{unreachable, unreadable};
use super::{CallError, Watch};
use crate::model::grant::End;
use crate::model::wire::Line;
use futures::StreamExt as _;
use reqwest::Response;
use serde::de::DeserializeOwned;

/// The longest line that is taken.
const LINE_MOST: usize = 1024 * 1024;

/// Reads to the last line. A stream that ends without one was broken off.
pub(super) async fn last<T: DeserializeOwned>(
    to: &End,
    answer: Response,
    watch: &Watch,
) -> Result<T, CallError> {
    let mut stream = answer.bytes_stream();
    let mut buffer: Vec<u8> = Vec::new();
    // Silence is counted from line to line: bytes that never make one are no sign of work.
    let mut heard = tokio::time::Instant::now();
    loop {
        let next = tokio::time::timeout_at(heard + watch.quiet, stream.next()).await;
        let chunk = match next {
            Err(_) => return Err(CallError::TimedOut { fileserver: to.name.clone(), after: watch.quiet }),
            Ok(None) => return Err(broken_off(to)),
            Ok(Some(Err(error))) => return Err(unreachable(to, &error)),
            Ok(Some(Ok(chunk))) => chunk,
        };
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            heard = tokio::time::Instant::now();
            if let Some(ended) = take::<T>(to, &line, watch) {
                return ended;
            }
        }
        if buffer.len() > LINE_MOST {
            return Err(unreadable(to, &format!("a line of more than {LINE_MOST} bytes")));
        }
    }
}

fn take<T: DeserializeOwned>(to: &End, line: &[u8], watch: &Watch) -> Option<Result<T, CallError>> {
    match serde_json::from_slice::<Line<T>>(line) {
        Ok(Line::Progress(progress)) => {
            watch.progress.send_replace(Some(progress));
            None
        }
        Ok(Line::Done(done)) => Some(Ok(done)),
        Ok(Line::Error(refusal)) => Some(Err(refusal.into())),
        Err(error) => Some(Err(unreadable(to, &error))),
    }
}

fn broken_off(to: &End) -> CallError {
    CallError::Unreachable { fileserver: to.name.clone(), why: "its answer was broken off".to_owned() }
}
