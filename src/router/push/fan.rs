//! One stream to many copies at once, each through a bounded buffer.
//!
//! All go at the pace of the slowest one that still moves; one that takes nothing for too long is dropped, and its call
//! hangs up, so that its agent never takes a part for the whole. Little is held: a few pieces for each copy.

use crate::body::{ByteStream, drain};
use crate::model::id::FileserverId;
use bytes::Bytes;
use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Largest piece that is handed on.
const PIECE: usize = 64 * 1024;
/// Pieces that wait for one copy.
const WAITING: usize = 8;

/// The way to one copy.
pub(super) struct Lane {
    id: FileserverId,
    to: Option<mpsc::Sender<io::Result<Bytes>>>,
    cut: CancellationToken,
}

/// Why pouring ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum PourError {
    /// The client's stream broke.
    #[error("the push broke off")]
    Broken(#[source] io::Error),
    /// More than is taken.
    #[error("the pack is larger than {0} bytes, which is the most that is taken here")]
    TooLarge(u64),
    /// Nobody takes it any more.
    #[error("no copy takes the pack")]
    Nobody,
}

/// A lane, what comes out at its end, and what tells whoever sends that it was cut: then its call hangs up.
pub(super) fn lane(
    id: FileserverId,
) -> (Lane, impl Stream<Item = io::Result<Bytes>> + Send + 'static, CancellationToken) {
    let (to, from) = mpsc::channel(WAITING);
    let cut = CancellationToken::new();
    let stream = futures::stream::unfold(Some((from, cut.clone())), |open| async move {
        let (mut from, cut) = open?;
        tokio::select! {
            biased;
            // The last thing that is heard of it.
            () = cut.cancelled() => Some((Err(broken_off()), None)),
            piece = from.recv() => piece.map(|piece| (piece, Some((from, cut)))),
        }
    });
    (Lane { id, to: Some(to), cut: cut.clone() }, stream, cut)
}

/// An end that is none: whoever reads sees an error, and not a whole pack.
fn broken_off() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "broken off")
}

/// Pours a stream into all lanes; returns how many bytes. Lanes are closed when it is done, and broken when it failed.
pub(super) async fn pour(
    mut body: ByteStream,
    mut lanes: Vec<Lane>,
    stall: Duration,
    most: u64,
) -> Result<u64, PourError> {
    let mut bytes = 0;
    while let Some(chunk) = body.next().await {
        let mut chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                lanes.iter_mut().for_each(Lane::cut);
                return Err(PourError::Broken(error));
            }
        };
        bytes += chunk.len() as u64;
        if most > 0 && bytes > most {
            lanes.iter_mut().for_each(Lane::cut);
            drain(body).await;
            return Err(PourError::TooLarge(most));
        }
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(PIECE));
            join_all(lanes.iter_mut().map(|lane| lane.give(piece.clone(), stall))).await;
        }
        if lanes.iter().all(|lane| lane.to.is_none()) {
            drain(body).await;
            return Err(PourError::Nobody);
        }
    }
    Ok(bytes)
}

impl Lane {
    async fn give(&mut self, piece: Bytes, stall: Duration) {
        let Some(to) = &self.to else { return };
        match tokio::time::timeout(stall, to.send(Ok(piece))).await {
            Ok(Ok(())) => {}
            // Its call has ended and says why.
            Ok(Err(_)) => self.to = None,
            Err(_) => {
                tracing::info!(fileserver.id = %self.id, "a copy that takes nothing is left out of a push");
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        self.cut.cancel();
        self.to = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(chunks: Vec<io::Result<Bytes>>) -> ByteStream {
        futures::stream::iter(chunks).boxed()
    }

    fn chunk(size: usize) -> Bytes {
        Bytes::from(vec![7; size])
    }

    #[tokio::test]
    async fn every_lane_gets_every_byte() {
        let (one, from_one, _) = lane(FileserverId(1));
        let (two, from_two, _) = lane(FileserverId(2));
        let sums = async |stream: std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>| {
            stream.map(|piece| piece.unwrap().len()).collect::<Vec<_>>().await
        };
        let poured =
            pour(body(vec![Ok(chunk(200_000)), Ok(chunk(1))]), vec![one, two], Duration::from_secs(5), 0);
        let (poured, first, second) =
            tokio::join!(poured, sums(Box::pin(from_one)), sums(Box::pin(from_two)));
        assert_eq!(poured.unwrap(), 200_001);
        assert_eq!((first.iter().sum::<usize>(), first.iter().max()), (200_001, Some(&PIECE)));
        assert_eq!(first, second);
    }

    #[tokio::test]
    async fn one_that_takes_nothing_is_dropped_and_the_others_go_on() {
        let (stuck, _kept, cut) = lane(FileserverId(1));
        let (good, from_good, _) = lane(FileserverId(2));
        let chunks = (0..WAITING + 3).map(|_| Ok(chunk(10))).collect();
        let all = from_good.map(|piece| piece.unwrap().len()).collect::<Vec<_>>();
        let poured = pour(body(chunks), vec![stuck, good], Duration::from_millis(50), 0);
        let (poured, all) = tokio::join!(poured, all);
        assert_eq!(poured.unwrap(), 110);
        assert_eq!(all.len(), WAITING + 3);
        assert!(cut.is_cancelled(), "its call is told to hang up");
    }

    #[tokio::test]
    async fn a_stream_that_breaks_or_is_too_large_ends_no_lane_as_if_it_were_whole() {
        for (chunks, most) in [
            (vec![Ok(chunk(10)), Err(io::Error::other("gone"))], 0),
            (vec![Ok(chunk(10)), Ok(chunk(10))], 15),
        ] {
            let (one, stream, _) = lane(FileserverId(1));
            let (poured, seen) = tokio::join!(
                pour(body(chunks), vec![one], Duration::from_secs(5), most),
                stream.collect::<Vec<_>>()
            );
            assert!(poured.is_err());
            assert!(seen.last().unwrap().is_err(), "{seen:?}");
        }
    }

    #[tokio::test]
    async fn with_nobody_left_it_ends() {
        let (one, stream, _) = lane(FileserverId(1));
        drop(stream);
        let poured = pour(body(vec![Ok(chunk(1))]), vec![one], Duration::from_secs(5), 0).await;
        assert!(matches!(poured, Err(PourError::Nobody)));
    }
}
