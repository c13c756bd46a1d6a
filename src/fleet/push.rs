//! Calls that take a push, and those that settle one.
//!
//! Each has its deadline as an argument. None is repeated here: a prepare or a bring that was not heard may have been
//! done, and a finish may be asked again with the same answer.

use super::{Agents, CallError, LONG_GRANT, SHORT_GRANT, Watch, Wish};
use crate::model::Millis;
use crate::model::grant::{Action, End, GRANT_HEADER};
use crate::model::id::RepositoryId;
use crate::model::wire::push::{
    FenceAnswer, FenceRequest, FinishAnswer, FinishRequest, IngestAnswer, IngestRequest, PrepareRequest,
    Ready, Vote,
};
use crate::model::wire::{CopyAnswer, ResyncRequest};
use bytes::Bytes;
use futures::Stream;
use reqwest::Method;
use std::time::Duration;

/// Read access to a push that nobody has decided on yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PushedObjects {
    /// A URL for git.
    pub url: String,
    /// The header that lets one in, whole: for `http.extraHeader`.
    pub header: String,
}

impl Agents {
    /// Announces a push: what it asks for.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn ingest(
        &self,
        to: &End,
        id: RepositoryId,
        ask: &IngestRequest,
        within: Duration,
    ) -> Result<IngestAnswer, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Push, Some(id)));
        let path = format!("/v1/repositories/{id}/pushes");
        self.call(to, &grant, Method::POST, &path).json(ask).answer(within).await
    }

    /// Streams the pack of an announced push, or nothing, as fast as the agent takes it; answers when its objects are
    /// checked. A stream that ends with an error ends the ingest.
    ///
    /// # Errors
    /// As [`CallError`]; refused as `Rejected` with git's words.
    pub async fn send_pack<S>(
        &self,
        to: &End,
        id: RepositoryId,
        ingest: &str,
        pack: S,
        watch: &Watch,
    ) -> Result<Ready, CallError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let wish = Wish { holds_for: LONG_GRANT, ..Wish::about(Action::Push, Some(id)) };
        let path = format!("/v1/repositories/{id}/pushes/{ingest}/pack");
        let call = self.call(to, &self.sign(to, &wish), Method::PUT, &path);
        call.body(reqwest::Body::wrap_stream(pack)).watched(watch).await
    }

    /// Where git can read what a copy has and, beside it, what a push brought; open to whoever shows the header, for
    /// so long.
    #[must_use]
    pub fn pushed_objects(
        &self,
        at: &End,
        id: RepositoryId,
        ingest: &str,
        lasting: Duration,
    ) -> PushedObjects {
        let holds_for = Millis::try_from(lasting.as_millis()).unwrap_or(SHORT_GRANT);
        let grant = self.sign(at, &Wish { holds_for, ..Wish::about(Action::Read, Some(id)) });
        PushedObjects {
            url: format!("{}/v1/repositories/{id}/pushes/{ingest}/git", at.url.trim_end_matches('/')),
            header: format!("{GRANT_HEADER}: {grant}"),
        }
    }

    /// Prepares the commands that stand, under the push's epoch, and brings the copy's vote.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn prepare(
        &self,
        to: &End,
        id: RepositoryId,
        ingest: &str,
        epoch: i64,
        ask: &PrepareRequest,
        within: Duration,
    ) -> Result<Vote, CallError> {
        let path = format!("/v1/repositories/{id}/pushes/{ingest}/prepare");
        self.call(to, &self.push_grant(to, id, epoch), Method::POST, &path).json(ask).answer(within).await
    }

    /// Tells the verdict. What is answered as committed is on disk.
    ///
    /// # Errors
    /// As [`CallError`]; `Cancelled` when the prepared change has ended otherwise, `NotFound` when it is not known.
    pub async fn finish(
        &self,
        to: &End,
        id: RepositoryId,
        ingest: &str,
        epoch: i64,
        ask: &FinishRequest,
        within: Duration,
    ) -> Result<FinishAnswer, CallError> {
        let path = format!("/v1/repositories/{id}/pushes/{ingest}/finish");
        self.call(to, &self.push_grant(to, id, epoch), Method::POST, &path).json(ask).answer(within).await
    }

    /// Forgets a push that was not prepared.
    ///
    /// # Errors
    /// As [`CallError`]; `Busy` when it is prepared.
    pub async fn drop_ingest(
        &self,
        to: &End,
        id: RepositoryId,
        ingest: &str,
        within: Duration,
    ) -> Result<(), CallError> {
        let grant = self.sign(to, &Wish::about(Action::Push, Some(id)));
        let path = format!("/v1/repositories/{id}/pushes/{ingest}");
        self.call(to, &grant, Method::DELETE, &path).done(within).await
    }

    /// Ends a copy's part in pushes that are over, and tells what it has. `epoch` is the settler's own: from now on
    /// lower ones settle nothing there any more.
    ///
    /// # Errors
    /// As [`CallError`]; `OldEpoch` when somebody else settles.
    pub async fn fence(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &FenceRequest,
        within: Duration,
    ) -> Result<FenceAnswer, CallError> {
        let wish = Wish { epoch: Some(epoch), ..Wish::about(Action::Settle, Some(id)) };
        let path = format!("/v1/repositories/{id}/fence");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).answer(within).await
    }

    /// Brings a fenced copy to what the source has, under the settler's epoch.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn bring(
        &self,
        to: &End,
        source: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &ResyncRequest,
        watch: &Watch,
    ) -> Result<CopyAnswer, CallError> {
        let wish = Wish {
            action: Action::Settle,
            repository: Some(id),
            source: Some(source),
            epoch: Some(epoch),
            holds_for: LONG_GRANT,
        };
        let path = format!("/v1/repositories/{id}/bring");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).watched(watch).await
    }

    fn push_grant(&self, to: &End, id: RepositoryId, epoch: i64) -> String {
        self.sign(to, &Wish { epoch: Some(epoch), ..Wish::about(Action::Push, Some(id)) })
    }
}
