//! A client's request, kept so that it can be sent to the next copy as well.
//!
//! Git sends all of a request before it reads the answer, and agents read all of it before they answer, so a request
//! is taken whole where it is small. One that is larger than is kept is streamed to a single copy.

use axum::body::{Body, BodyDataStream, Bytes};
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is kept of one request: 150,000 wants and haves.
pub const KEPT: usize = 8 << 20;
/// What is kept of all, in KiB.
const KEPT_OF_ALL: usize = 64 << 10;
/// A client that sends nothing for this long is gone.
const STALLED: Duration = Duration::from_secs(10);

/// Room for all requests that are kept.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(KEPT_OF_ALL)))
    }
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Nothing came.
    #[error("the request stalled")]
    Stalled,
    /// The client is gone.
    #[error("the request was broken off")]
    Broken,
}

/// A request: what is kept of it, and what is not.
#[derive(Debug)]
pub struct Replay {
    kept: Vec<Bytes>,
    rest: Option<BodyDataStream>,
    sent: bool,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Replay {
    /// Takes a request, as far as it is kept.
    ///
    /// # Errors
    /// When the client stalls or is gone.
    pub async fn take(body: Body, room: &Room, most: usize) -> Result<Self, NotTaken> {
        let mut blocks = body.into_data_stream();
        let (mut kept, mut size, mut taken) = (Vec::new(), 0, Vec::new());
        loop {
            let Some(block) = next(&mut blocks).await? else {
                return Ok(Self { kept, rest: None, sent: false, _room: taken });
            };
            size += block.len();
            let kib = u32::try_from(block.len().div_ceil(1024)).unwrap_or(u32::MAX);
            let permit = Arc::clone(&room.0).try_acquire_many_owned(kib);
            let full = size > most || permit.is_err();
            kept.push(block);
            taken.extend(permit);
            if full {
                return Ok(Self { kept, rest: Some(blocks), sent: false, _room: taken });
            }
        }
    }

    /// The request, to be sent; none: it was sent already, and is not kept whole.
    pub fn body(&mut self) -> Option<reqwest::Body> {
        if let Some(rest) = self.rest.take() {
            self.sent = true;
            let kept = futures::stream::iter(std::mem::take(&mut self.kept)).map(Ok);
            let rest = futures::stream::unfold(Some(rest), |rest| async move {
                let mut blocks = rest?;
                match next(&mut blocks).await {
                    Ok(None) => None,
                    Ok(Some(block)) => Some((Ok(block), Some(blocks))),
                    Err(error) => Some((Err(error), None)),
                }
            });
            return Some(reqwest::Body::wrap_stream(kept.chain(rest)));
        }
        if self.sent {
            return None;
        }
        if let [whole] = self.kept.as_slice() {
            return Some(whole.clone().into());
        }
        Some(self.kept.concat().into())
    }
}

async fn next(blocks: &mut BodyDataStream) -> Result<Option<Bytes>, NotTaken> {
    match tokio::time::timeout(STALLED, blocks.next()).await {
        Err(_) => Err(NotTaken::Stalled),
        Ok(Some(Err(_))) => Err(NotTaken::Broken),
        Ok(Some(Ok(block))) => Ok(Some(block)),
        Ok(None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(blocks: usize, size: usize) -> Body {
        let block = Bytes::from(vec![7; size]);
        Body::from_stream(futures::stream::iter(
            (0..blocks).map(move |_| Ok::<_, std::io::Error>(block.clone())),
        ))
    }

    #[tokio::test]
    async fn a_small_request_can_be_sent_as_often_as_there_are_copies() {
        let room = Room::default();
        let mut one = Replay::take(body(3, 1_000), &room, KEPT).await.unwrap();
        for _ in 0..3 {
            let sent = one.body().unwrap();
            assert_eq!(sent.as_bytes().map(<[u8]>::len), Some(3_000));
        }
        drop(one);
        assert_eq!(room.0.available_permits(), KEPT_OF_ALL, "room is given back");
    }

    #[tokio::test]
    async fn a_large_request_is_streamed_once_and_not_kept() {
        let room = Room::default();
        let mut one = Replay::take(body(10, 1_000), &room, 4_000).await.unwrap();
        let sent = one.body().unwrap();
        assert!(sent.as_bytes().is_none(), "a stream");
        assert!(one.body().is_none());
    }

    #[tokio::test]
    async fn when_there_is_no_room_it_is_streamed_too() {
        let room = Room(Arc::new(Semaphore::new(1)));
        let mut one = Replay::take(body(2, 1_000), &room, KEPT).await.unwrap();
        assert!(one.body().is_some() && one.body().is_none());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_no_request() {
        let broken =
            futures::stream::iter([Ok(Bytes::from_static(b"0032want")), Err(std::io::Error::other("gone"))]);
        let taken = Replay::take(Body::from_stream(broken), &Room::default(), KEPT).await;
        assert_eq!(taken.unwrap_err(), NotTaken::Broken);
    }
}
