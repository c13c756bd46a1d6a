//! Streaming an import to agents under grants that the API signed.

use super::CallError;
use super::call::{self, Call};
use crate::model::fleet::ObjectFormat;
use crate::model::grant::End;
use crate::model::id::RepositoryId;
use crate::model::wire::{ImportAnswer, ImportRequest, PackAnswer};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use reqwest::Method;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A pack is indexed at this many bytes a second at the least: so long an agent may be silent after its last byte.
const INDEXED_PER_SECOND: u64 = 1024 * 1024;
/// Installing references and walking objects.
const FINISHING: Duration = Duration::from_hours(2);

/// Streams an import to agents under grants that the API signed.
#[derive(Debug, Clone)]
pub struct Importer {
    http: reqwest::Client,
}

impl Importer {
    /// A client without a key of its own.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { http: call::client()? })
    }

    /// Streams a pack to one agent's staging; an agent that takes nothing for `quiet` is given up.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn pack(
        &self,
        to: &End,
        grant: &str,
        id: RepositoryId,
        object_format: ObjectFormat,
        pack: reqwest::Body,
        quiet: Duration,
    ) -> Result<PackAnswer, CallError> {
        let path = format!("/v1/repositories/{id}/import/pack?object_format={object_format}");
        let pulse = Arc::new(Mutex::new(Pulse { taken: Some(Instant::now()), bytes: 0, ended: false }));
        let body = reqwest::Body::wrap_stream(pulsed(pack, Arc::clone(&pulse)));
        let call = Call::new(&self.http, to, grant, Method::PUT, &path).body(body);
        tokio::select! {
            answer = call.text() => serde_json::from_slice(&answer?).map_err(|error| call::unreadable(to, &error)),
            after = stalled(&pulse, quiet) => Err(CallError::TimedOut { fileserver: to.name.clone(), after }),
        }
    }

    /// Finishes an import on one agent.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn finish(
        &self,
        to: &End,
        grant: &str,
        id: RepositoryId,
        ask: &ImportRequest,
    ) -> Result<ImportAnswer, CallError> {
        let path = format!("/v1/repositories/{id}/import");
        Call::new(&self.http, to, grant, Method::POST, &path).json(ask).answer(FINISHING).await
    }
}

/// What is known of a stream: when the agent last took something (none: it is we who have nothing to give just now).
struct Pulse {
    taken: Option<Instant>,
    bytes: u64,
    ended: bool,
}

type Shared = Arc<Mutex<Pulse>>;

fn with<T>(pulse: &Shared, look: impl FnOnce(&mut Pulse) -> T) -> T {
    look(&mut pulse.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The same bytes; each time that one is asked for, the agent has taken what came before.
fn pulsed(pack: reqwest::Body, pulse: Shared) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let stream = axum::body::Body::new(pack).into_data_stream();
    futures::stream::unfold((stream, pulse), |(mut stream, pulse)| async move {
        with(&pulse, |pulse| pulse.taken = None);
        let chunk = stream.next().await;
        with(&pulse, |pulse| {
            pulse.taken = Some(Instant::now());
            match &chunk {
                Some(Ok(bytes)) => pulse.bytes += bytes.len() as u64,
                _ => pulse.ended = true,
            }
        });
        chunk.map(|chunk| (chunk, (stream, pulse)))
    })
}

/// Ends when the agent has taken nothing for too long; says how long that was.
async fn stalled(pulse: &Shared, quiet: Duration) -> Duration {
    loop {
        let (taken, allowed) = with(pulse, |pulse| {
            let indexing = Duration::from_secs(pulse.bytes / INDEXED_PER_SECOND);
            (pulse.taken, if pulse.ended { quiet + indexing } else { quiet })
        });
        match taken {
            None => tokio::time::sleep(quiet).await,
            Some(taken) if taken.elapsed() >= allowed => return allowed,
            Some(taken) => tokio::time::sleep_until(taken + allowed).await,
        }
    }
}
