//! Bodies of requests: bounded in time and bytes, whoever sends them.

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use std::io;
use std::time::Duration;

/// A body's bytes, as they come.
pub type ByteStream = BoxStream<'static, io::Result<Bytes>>;

/// What a client that is refused is heard out for.
const DRAIN: u64 = 256 << 20;
const DRAIN_FOR: Duration = Duration::from_secs(30);

/// The same blocks; silence for longer than `within` ends them with an error, as any other error does.
pub fn unless_silent<S, E>(blocks: S, within: Duration) -> ByteStream
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    futures::stream::unfold(Some(blocks.boxed()), move |open| async move {
        let mut blocks = open?;
        match tokio::time::timeout(within, blocks.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(block))) => Some((Ok(block), Some(blocks))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Err(_) => {
                let why = format!("the client sent nothing for {} s", within.as_secs());
                Some((Err(io::Error::new(io::ErrorKind::TimedOut, why)), None))
            }
        }
    })
    // Whoever reads the rest of it may find that there is none.
    .fuse()
    .boxed()
}

/// Reads a body to its end for nobody: a client that is not heard out may not read why. Bounded by bytes and time.
pub async fn drain(mut body: ByteStream) {
    let mut left = DRAIN;
    let read = async {
        while let Some(Ok(chunk)) = body.next().await {
            left = left.saturating_sub(chunk.len() as u64);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_FOR, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn silence_ends_a_body_with_an_error_and_nothing_follows() {
        let first = stream::iter([Ok::<_, io::Error>(Bytes::from("PACK"))]);
        let silent = first.chain(stream::pending());
        let heard: Vec<_> = unless_silent(silent, Duration::from_millis(20)).collect().await;
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[0].as_ref().unwrap(), "PACK");
        assert_eq!(heard[1].as_ref().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_is_refused_is_heard_out_and_not_for_ever() {
        drain(stream::iter([Ok(Bytes::from("PACK")), Err(io::Error::other("gone"))]).boxed()).await;
        let piece = Bytes::from(vec![0; 1 << 20]);
        drain(stream::repeat_with(move || Ok(piece.clone())).boxed()).await;
    }
}
