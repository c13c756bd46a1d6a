//! An empty repository is populated by the vote of its copies, as by a push.

use super::fileservers::record;
use super::problem::{Answer, Problem};
use super::references::present;
use super::shapes::Changed;
use super::state::Api;
use crate::body::{ByteStream, drain, unless_silent};
use crate::model::fleet::{ObjectFormat, Repository};
use crate::model::push::Listing;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use serde::Deserialize;
use std::time::Duration;

/// Most bytes of a list of references: some hundred thousand.
const LONGEST: usize = 64 << 20;

/// Longest silence of a client: git may count for minutes, but then it has not called yet.
const SILENT: Duration = Duration::from_mins(2);

/// How the body is to be read.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Asked {
    object_format: ObjectFormat,
    /// Bytes of the list that the body begins with; a pack follows.
    references: usize,
}

/// `POST /api/v1/repositories/{name}/populate?object_format=&references=BYTES`: the body is HEAD and references as in
/// `model::wire`, so many bytes of them, and a pack of everything that they lead to.
///
/// # Errors
/// When there is no such repository, it is not empty, the list cannot be read, too few copies agree, or the engine fails.
pub async fn populate(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    body: Body,
) -> Answer<Changed> {
    let mut pack = unless_silent(body.into_data_stream(), SILENT);
    let (one, listing, rest) = match begin(&api, &name, asked, &mut pack).await {
        Ok(begun) => begun,
        Err(problem) => {
            drain(pack).await;
            return Err(problem);
        }
    };
    let count = listing.references.len();
    let pack = futures::stream::iter((!rest.is_empty()).then_some(Ok(rest))).chain(pack).boxed();
    let ended = (api.hooks.populate)(one.id, listing, pack).await;
    let detail = serde_json::json!({ "id": one.id, "references": count, "error": ended.as_ref().err() });
    record(&api, "repo.populate", &one.name, None, detail).await?;
    ended.map_err(Problem::refused)?;
    let message = format!("{} references came to {}", count, one.name);
    Ok(Json(Changed { message, changed: true }))
}

/// The repository, what it is to hold, and what came of the pack already.
async fn begin(
    api: &Api,
    name: &str,
    asked: Asked,
    body: &mut ByteStream,
) -> Result<(Repository, Listing, Bytes), Problem> {
    let one = present(api, name).await?;
    if one.object_format != asked.object_format {
        let (here, there) = (one.object_format, asked.object_format);
        return Err(Problem::refused(format!("{name} names objects by {here}, these are named by {there}")));
    }
    let (text, rest) = list(body, asked.references).await?;
    let listing = Listing::parse(&text, asked.object_format)
        .map_err(|error| Problem::bad_request(format!("the list of references: {error}")))?;
    Ok((one, listing, rest))
}

/// The list, and what came of the pack with its last piece.
async fn list(body: &mut ByteStream, length: usize) -> Result<(Bytes, Bytes), Problem> {
    if length > LONGEST {
        return Err(Problem::bad_request(format!("a list of references has {LONGEST} bytes at most")));
    }
    let mut text = BytesMut::new();
    while text.len() < length {
        let piece =
            body.next().await.ok_or_else(|| Problem::bad_request("the list of references is cut off"))?;
        text.extend_from_slice(
            &piece.map_err(|error| Problem::bad_request(format!("the list broke off: {error}")))?,
        );
    }
    let mut text = text.freeze();
    let list = text.split_to(length);
    Ok((list, text))
}
