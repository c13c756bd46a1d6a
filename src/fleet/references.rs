//! What a copy's references are, as its agent lists them.

use super::call;
use super::{Agents, CallError, Wish};
use crate::model::fleet::ObjectFormat;
use crate::model::grant::{Action, End};
use crate::model::id::RepositoryId;
use crate::model::push::Listing;
use reqwest::Method;
use std::time::Duration;

impl Agents {
    /// HEAD and all references of a copy, within `within`. Whether they are the definitive ones the caller sees by
    /// their checksum.
    ///
    /// # Errors
    /// As [`CallError`].
    pub async fn references(
        &self,
        to: &End,
        id: RepositoryId,
        format: ObjectFormat,
        within: Duration,
    ) -> Result<Listing, CallError> {
        let grant = self.sign(to, &Wish::about(Action::Read, Some(id)));
        let path = format!("/v1/repositories/{id}/references");
        let text = self.call(to, &grant, Method::GET, &path).bytes(within).await?;
        Listing::parse(&text, format).map_err(|error| call::unreadable(to, &error))
    }
}
