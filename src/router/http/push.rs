//! Pushes at the front: the body as git packed it, and the answer as the room of pushes gives it.

use super::answers;
use crate::body::{ByteStream, unless_silent};
use crate::router::push::{self, Answer, Pushed, Pushing};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures::{StreamExt as _, stream};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// What is inflated at a time: packed, it becomes a thousand times as long at most.
const PIECE: usize = 4 * 1024;

/// Answers a push that is allowed; it holds its place among the requests that run until its answer has ended.
pub(super) async fn receive(
    pushing: &Arc<Pushing>,
    pushed: Pushed,
    request: Request,
    permit: OwnedSemaphorePermit,
    gone_after: Duration,
) -> Response {
    let (parts, body) = request.into_parts();
    let said = |name| parts.headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    if said(header::CONTENT_TYPE) != Some("application/x-git-receive-pack-request") {
        return answers::bad_request("this is not a request of git's");
    }
    // A client that is silent for so long is gone: it would hold its copies' turns, and its place.
    let plain = unless_silent(body.into_data_stream(), gone_after);
    let plain = match said(header::CONTENT_ENCODING) {
        None | Some("identity") => plain,
        Some("gzip" | "x-gzip") => inflated(plain),
        Some(_) => return answers::unsupported("bodies may be packed with gzip only"),
    };
    response(push::receive_pack(pushing, &pushed, plain).await, permit)
}

/// An answer, never to be kept by anybody between.
pub(super) fn response(answer: Answer, permit: OwnedSemaphorePermit) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, answer.content_type),
        (header::CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"),
        (header::PRAGMA, "no-cache"),
        (header::EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT"),
    ];
    let body = answer.body.map(move |block| {
        let _held = &permit;
        block
    });
    let mut response = (status, headers, Body::from_stream(body)).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
    }
    response
}

/// The body unpacked, piece by piece: never more in memory than a piece becomes.
fn inflated(packed: ByteStream) -> ByteStream {
    let packed = packed.flat_map(|block| {
        let pieces: Vec<io::Result<Bytes>> = match block {
            Ok(block) => {
                let starts = (0..block.len()).step_by(PIECE);
                starts.map(|at| Ok(block.slice(at..block.len().min(at + PIECE)))).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(pieces)
    });
    let state = Some((packed.boxed(), GzDecoder::new(Vec::new())));
    stream::unfold(state, async |state| {
        let (mut packed, mut gzip) = state?;
        loop {
            let (text, more) = match packed.next().await {
                Some(Ok(piece)) => {
                    (gzip.write_all(&piece).map(|()| Bytes::from(std::mem::take(gzip.get_mut()))), true)
                }
                Some(Err(error)) => (Err(error), false),
                None => (gzip.try_finish().map(|()| Bytes::from(std::mem::take(gzip.get_mut()))), false),
            };
            let failed = text.is_err();
            if more && !failed && text.as_ref().is_ok_and(Bytes::is_empty) {
                continue;
            }
            return Some((text, (more && !failed).then_some((packed, gzip))));
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    async fn inflate(packed: Vec<u8>, block: usize) -> io::Result<Vec<u8>> {
        let blocks: Vec<_> = packed.chunks(block).map(|one| Ok(Bytes::copy_from_slice(one))).collect();
        let mut all = Vec::new();
        let mut text = inflated(stream::iter(blocks).boxed());
        while let Some(some) = text.next().await {
            all.extend_from_slice(&some?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn a_packed_push_is_unpacked_whatever_the_blocks_and_a_broken_one_is_an_error() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&text).unwrap();
        let packed = encoder.finish().unwrap();
        for block in [1, 1_000, 100_000, packed.len()] {
            assert_eq!(inflate(packed.clone(), block).await.unwrap(), text, "{block}");
        }
        assert!(inflate(packed[..packed.len() / 2].to_vec(), 1_000).await.is_err(), "cut off");
        assert!(inflate(b"this is not gzip, to be sure".to_vec(), 7).await.is_err());
    }
}
