//! The beginning of an answer, held back until it is worth telling: up to that moment another copy can take over.
//!
//! An answer that is short is held whole, so that a fileserver which dies in the middle of it is not noticed at all;
//! a long one begins after 128 KiB, or a second. So the first byte that a client sees is later than the first
//! that git wrote, and much less often the wrong one.

use crate::fleet::{Blocks, CallError};
use bytes::Bytes;
use futures::StreamExt as _;
use std::time::Duration;
use tokio::time::Instant;

/// What is held back at most.
pub const HELD: usize = 128 << 10;
/// For how long, once something came.
pub const HELD_FOR: Duration = Duration::from_secs(1);

/// The beginning of an answer, and what follows.
pub struct Held {
    /// What came so far.
    pub begun: Vec<Bytes>,
    /// What follows; none: that was all.
    pub rest: Option<Blocks>,
}

/// Whether the beginning says that this copy does not have what is wanted; another one may.
#[must_use]
pub fn lacks_what_is_wanted(begun: &[Bytes]) -> bool {
    let first: Vec<u8> = begun.iter().flatten().take(64).copied().collect();
    first.get(4..).is_some_and(|words| words.starts_with(b"ERR upload-pack: not our ref"))
}

/// Waits for the beginning of an answer; the first block must come before `until`.
///
/// # Errors
/// When the stream broke before it was worth telling, or nothing came.
pub async fn hold(mut blocks: Blocks, fileserver: &str, until: Instant) -> Result<Held, CallError> {
    let silent = || CallError::TimedOut { fileserver: fileserver.to_owned(), after: HELD_FOR };
    let first = tokio::time::timeout_at(until, blocks.next()).await.map_err(|_| silent())?;
    let Some(first) = first else {
        let why = "an empty answer".to_owned();
        return Err(CallError::Unreadable { fileserver: fileserver.to_owned(), why });
    };
    let first = first?;
    let (mut size, mut begun) = (first.len(), vec![first]);
    let enough = Instant::now() + HELD_FOR;
    while size < HELD {
        match tokio::time::timeout_at(enough, blocks.next()).await {
            Err(_) => break,
            Ok(None) => return Ok(Held { begun, rest: None }),
            Ok(Some(block)) => {
                let block = block?;
                size += block.len();
                begun.push(block);
            }
        }
    }
    Ok(Held { begun, rest: Some(blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(all: Vec<Result<Bytes, CallError>>) -> Blocks {
        futures::stream::iter(all).boxed()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn gone() -> CallError {
        CallError::Unreachable { fileserver: "fs".into(), why: "reset".into() }
    }

    #[tokio::test]
    async fn a_short_answer_that_breaks_is_an_error_and_not_an_answer() {
        let short = Bytes::from_static(b"0008NAK\n");
        assert!(hold(blocks(vec![Ok(short.clone()), Err(gone())]), "fs", soon()).await.is_err());
        let whole = hold(blocks(vec![Ok(short.clone()), Ok(short)]), "fs", soon()).await.unwrap();
        assert!(whole.rest.is_none() && whole.begun.len() == 2);
        assert!(hold(blocks(vec![]), "fs", soon()).await.is_err(), "empty");
    }

    #[tokio::test]
    async fn a_long_answer_begins_once_enough_of_it_came() {
        let large = Bytes::from(vec![1; HELD / 2]);
        let all = vec![Ok(large.clone()), Ok(large.clone()), Ok(large), Err(gone())];
        let held = hold(blocks(all), "fs", soon()).await.unwrap();
        assert_eq!(held.begun.len(), 2);
        assert!(held.rest.is_some());
    }

    #[tokio::test]
    async fn a_slow_one_begins_after_a_second_and_a_silent_one_never() {
        let slow = futures::stream::iter([Ok(Bytes::from_static(b"x"))]).chain(futures::stream::pending());
        let held = hold(slow.boxed(), "fs", soon()).await.unwrap();
        assert!(held.rest.is_some());
        let silent =
            hold(futures::stream::pending().boxed(), "fs", Instant::now() + Duration::from_millis(50)).await;
        assert!(matches!(silent, Err(CallError::TimedOut { .. })));
    }

    #[test]
    fn a_copy_without_the_wanted_object_is_known_by_gits_words() {
        let words = |text: &'static str| lacks_what_is_wanted(&[Bytes::from_static(text.as_bytes())]);
        assert!(words("0047ERR upload-pack: not our ref 0123"));
        assert!(lacks_what_is_wanted(&[
            Bytes::from_static(b"0047ERR upl"),
            Bytes::from_static(b"oad-pack: not our ref 1")
        ]));
        assert!(!words("0008NAK\n") && !words("00"));
    }
}
