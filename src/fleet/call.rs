//! One HTTP call: sent, bounded in time and size, its answer read or its refusal told.

use super::{CallError, Watch, lines};
use crate::model::grant::{End, GRANT_HEADER};
use crate::model::wire::{Refusal, RefusalCode};
use anyhow::Context as _;
use futures::StreamExt as _;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The largest answer of a short call.
const ANSWER_MOST: usize = 64 * 1024 * 1024;
/// How long long work may take to begin to answer.
const BEGINNING: Duration = Duration::from_mins(1);
/// How long a connection is kept for the next call: less than the ten seconds after which an agent hangs up on one that
/// says nothing, so that no call goes out just as that happens.
const IDLE: Duration = Duration::from_secs(5);
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);

/// A client for calls to agents: direct, never through a proxy or a redirect.
pub(super) fn client() -> anyhow::Result<reqwest::Client> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(8)
        .tcp_keepalive(Duration::from_secs(15))
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .context("cannot make an HTTP client")
}

/// A call that was not sent yet.
pub(super) struct Call<'a> {
    to: &'a End,
    request: RequestBuilder,
}

impl<'a> Call<'a> {
    pub(super) fn new(http: &reqwest::Client, to: &'a End, grant: &str, method: Method, path: &str) -> Self {
        let url = format!("{}{path}", to.url.trim_end_matches('/'));
        Self { to, request: http.request(method, url).header(GRANT_HEADER, grant) }
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        self.request = self.request.json(body);
        self
    }

    pub(super) fn body(mut self, body: reqwest::Body) -> Self {
        self.request = self.request.body(body);
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Its answer, begun within this time; what follows is the caller's to wait for.
    pub(super) async fn begun(self, within: Duration) -> Result<Response, CallError> {
        let to = self.to;
        timed(to, within, self.send()).await
    }

    /// Its answer, all of it within this time.
    pub(super) async fn answer<T: DeserializeOwned>(self, within: Duration) -> Result<T, CallError> {
        let to = self.to;
        let text = timed(to, within, self.text()).await?;
        serde_json::from_slice(&text).map_err(|error| unreadable(to, &error))
    }

    /// All of its answer as it is, within this time.
    pub(super) async fn bytes(self, within: Duration) -> Result<Vec<u8>, CallError> {
        let to = self.to;
        timed(to, within, self.text()).await
    }

    /// That it was done; what it answers does not matter.
    pub(super) async fn done(self, within: Duration) -> Result<(), CallError> {
        let to = self.to;
        timed(to, within, self.text()).await.map(drop)
    }

    /// The last of the lines of long work, for as long as it is watched.
    pub(super) async fn watched<T: DeserializeOwned>(self, watch: &Watch) -> Result<T, CallError> {
        let to = self.to;
        let work = async {
            // It may have to wait there for its turn, and for a predecessor to end.
            let answer = timed(to, watch.quiet.max(BEGINNING), self.send()).await?;
            lines::last(to, answer, watch).await
        };
        tokio::select! {
            biased;
            () = watch.cancel.cancelled() => Err(CallError::Cancelled),
            done = work => done,
        }
    }

    /// The whole answer, if it is one of success.
    pub(super) async fn text(self) -> Result<Vec<u8>, CallError> {
        let to = self.to;
        let answer = self.send().await?;
        read(to, answer).await
    }

    async fn send(self) -> Result<Response, CallError> {
        let to = self.to;
        let answer = self.request.send().await.map_err(|error| unreachable(to, &error))?;
        if answer.status().is_success() { Ok(answer) } else { Err(refusal(to, answer).await) }
    }
}

async fn timed<T>(
    to: &End,
    within: Duration,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::time::timeout(within, work)
        .await
        .unwrap_or_else(|_| Err(CallError::TimedOut { fileserver: to.name.clone(), after: within }))
}

async fn read(to: &End, answer: Response) -> Result<Vec<u8>, CallError> {
    let mut stream = answer.bytes_stream();
    let mut text = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| unreachable(to, &error))?;
        if text.len() + chunk.len() > ANSWER_MOST {
            return Err(unreadable(to, &format!("an answer of more than {ANSWER_MOST} bytes")));
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

/// The agent's own words; where there are none (a proxy answered, or not an agent), the status tells.
async fn refusal(to: &End, answer: Response) -> CallError {
    let status = answer.status();
    match read(to, answer).await {
        Err(error) => error,
        Ok(text) => match serde_json::from_slice::<Refusal>(&text) {
            Ok(refusal) => refusal.into(),
            Err(_) if status.is_server_error() => {
                Refusal::new(RefusalCode::Failed, format!("{} answered {status}", to.name)).into()
            }
            Err(_) => unreadable(to, &format!("an answer of {status}")),
        },
    }
}

pub(super) fn unreachable(to: &End, error: &(dyn std::error::Error + 'static)) -> CallError {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        why = format!("{why}: {inner}");
        source = inner.source();
    }
    CallError::Unreachable { fileserver: to.name.clone(), why }
}

pub(super) fn unreadable(to: &End, why: &dyn std::fmt::Display) -> CallError {
    CallError::Unreadable { fileserver: to.name.clone(), why: why.to_string() }
}
