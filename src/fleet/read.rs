//! Git's smart HTTP for readers, as a router asks it of an agent: begun within a time, then streamed.

use super::call::unreachable;
use super::{Agents, CallError, Wish};
use crate::model::grant::{Action, End};
use crate::model::id::RepositoryId;
use crate::model::wire::read::{DEADLINE_HEADER, FILTERS_HEADER, Filter};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use reqwest::Method;
use std::time::Duration;

/// What a client asks for, apart from its words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitRead {
    /// The protocol, validated: `version=2`, say.
    pub protocol: Option<&'static str>,
    /// Filters that it may ask for.
    pub filters: Vec<Filter>,
    /// Whether its words are packed with gzip.
    pub gzip: bool,
}

/// What an agent's git writes, block by block.
pub type Blocks = BoxStream<'static, Result<Bytes, CallError>>;

impl Agents {
    /// Begins to read: the advertisement, or with a body the answer to it. Within `within` the agent has begun to
    /// answer, which it does with git's first block.
    ///
    /// # Errors
    /// As [`CallError`]; so do the blocks that follow.
    pub async fn read_git(
        &self,
        to: &End,
        id: RepositoryId,
        ask: &GitRead,
        body: Option<reqwest::Body>,
        within: Duration,
    ) -> Result<Blocks, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Read, Some(id)));
        let (method, path) = if body.is_some() {
            (Method::POST, format!("/v1/repositories/{id}/git/git-upload-pack"))
        } else {
            (Method::GET, format!("/v1/repositories/{id}/git/info/refs?service=git-upload-pack"))
        };
        let mut call = self.call(to, &grant, method, &path);
        call = call.header(DEADLINE_HEADER, &within.as_millis().to_string());
        if let Some(protocol) = ask.protocol {
            call = call.header("git-protocol", protocol);
        }
        if !ask.filters.is_empty() {
            call = call.header(FILTERS_HEADER, &Filter::join(&ask.filters));
        }
        if let Some(body) = body {
            call = call.header("content-type", "application/x-git-upload-pack-request");
            call = if ask.gzip { call.header("content-encoding", "gzip") } else { call };
            call = call.body(body);
        }
        let answer = call.begun(within).await?;
        let to = to.clone();
        Ok(answer.bytes_stream().map(move |block| block.map_err(|error| unreachable(&to, &error))).boxed())
    }
}
