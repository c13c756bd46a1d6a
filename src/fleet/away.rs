//! Calls that take copies away.

use super::{Agents, CallError, MEASURING, SHORT, Watch, Wish};
use crate::model::grant::{Action, End};
use crate::model::id::RepositoryId;
use crate::model::wire::{PurgeAnswer, PurgeRequest, QuarantineAnswer, QuarantinePage, QuarantineRequest};
use reqwest::Method;

impl Agents {
    /// Sets a copy aside.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn quarantine(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &QuarantineRequest,
    ) -> Result<QuarantineAnswer, CallError> {
        let wish = Wish { epoch: Some(epoch), ..Wish::about(Action::Repair, Some(id)) };
        let path = format!("/v1/repositories/{id}/quarantine");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).answer(MEASURING).await
    }

    /// Unlinks a copy for good.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn purge(
        &self,
        to: &End,
        id: RepositoryId,
        epoch: i64,
        ask: &PurgeRequest,
        watch: &Watch,
    ) -> Result<PurgeAnswer, CallError> {
        let wish = Wish { epoch: Some(epoch), ..Wish::about(Action::Repair, Some(id)) };
        let path = format!("/v1/repositories/{id}/purge");
        self.call(to, &self.sign(to, &wish), Method::POST, &path).json(ask).watched(watch).await
    }

    /// One page of what is in quarantine.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn quarantined(
        &self,
        to: &End,
        after: &str,
        limit: usize,
    ) -> Result<QuarantinePage, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Observe, None));
        let path = format!("/v1/quarantine?after={after}&limit={limit}");
        self.call(to, &grant, Method::GET, &path).answer(SHORT).await
    }
}
