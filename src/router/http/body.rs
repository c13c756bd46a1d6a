//! The body of a read: what was held back, then what follows, block by block, counted to its end.
//!
//! A stream that breaks ends the connection instead of the body: git then says that the other end hung up.

use crate::router::reads::{Begun, Following};
use crate::telemetry::metrics::router::RouterMetrics;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// An agent that sends nothing for this long in the middle of an answer is given up; git says that it is alive every
/// five seconds.
const SILENT: Duration = Duration::from_secs(90);

/// A read that is counted once, and holds its place among those that run.
#[derive(Debug)]
pub struct Counted {
    metrics: Arc<RouterMetrics>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    /// It runs.
    #[must_use]
    pub fn new(metrics: Arc<RouterMetrics>, permit: OwnedSemaphorePermit) -> Self {
        metrics.running(1);
        Self { metrics, ended: false, _permit: permit }
    }

    /// It ended like this.
    pub fn end(mut self, outcome: &'static str) {
        self.note(outcome);
    }

    fn note(&mut self, outcome: &'static str) {
        if !self.ended {
            self.ended = true;
            self.metrics.read(outcome);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Whoever reads it went away, or it would have been ended.
        self.note("abandoned");
        self.metrics.running(-1);
    }
}

/// The body of a read that began.
pub fn of(begun: Begun, mut counted: Counted) -> Body {
    let Begun { head, rest, .. } = begun;
    let Some(rest) = rest else {
        let whole: Vec<u8> = head.concat();
        counted.metrics.bytes(whole.len());
        counted.note("served");
        return Body::from(whole);
    };
    let passing = Passing { head: head.into_iter(), rest: Some(rest), counted };
    Body::from_stream(futures::stream::unfold(passing, Passing::next))
}

struct Passing {
    head: std::vec::IntoIter<Bytes>,
    rest: Option<Following>,
    counted: Counted,
}

impl Passing {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if let Some(block) = self.head.next() {
            self.counted.metrics.bytes(block.len());
            return Some((Ok(block), self));
        }
        let mut rest = self.rest.take()?;
        let why = match tokio::time::timeout(SILENT, rest.blocks.next()).await {
            Ok(Some(Ok(block))) => {
                self.counted.metrics.bytes(block.len());
                self.rest = Some(rest);
                return Some((Ok(block), self));
            }
            Ok(None) => {
                self.counted.note("served");
                return None;
            }
            Ok(Some(Err(error))) => error.to_string(),
            Err(_) => "the fileserver fell silent".to_owned(),
        };
        tracing::warn!(why, "a read broke off");
        rest.trying.broke();
        self.counted.note("broken");
        Some((Err(io::Error::other(why)), self))
    }
}
