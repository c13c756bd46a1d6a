//! Whether a repository holds just these references: read as a stream, summed, compared. Nothing is kept.

use super::problem::{Answer, Problem};
use super::shapes::Compared;
use super::state::Api;
use crate::database::repositories;
use crate::model::checksum::{Checksum, ChecksumKey, Summer, Target};
use crate::model::fleet::ObjectFormat;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use futures::StreamExt as _;
use serde::Deserialize;

/// Longest line: a name and an object.
const LONGEST_LINE: usize = 16 * 1024;

/// The hash that objects are named by.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Asked {
    object_format: ObjectFormat,
}

/// `POST /api/v1/repositories/{name}/compare?object_format=`: the body is HEAD and references as in `model::wire`.
///
/// # Errors
/// When a line cannot be read, or the engine fails.
pub async fn compare(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    body: Body,
) -> Answer<Compared> {
    // Read before anything is said: an answer that does not wait for the body ends the connection, and the client's
    // next call goes out on it.
    let checksum = sum(&api.checksum_key, asked.object_format, body).await?;
    let Some(one) = repositories::by_name(&api.db, &name).await? else {
        return Ok(Json(Compared::default()));
    };
    let object_format = Some(one.object_format);
    let same = one.object_format == asked.object_format && one.checksum == Some(checksum);
    let is_empty = !same && (api.hooks.is_vacant)(one.id).await.map_err(Problem::refused)?;
    Ok(Json(Compared { exists: true, same, is_empty, object_format }))
}

async fn sum(key: &ChecksumKey, format: ObjectFormat, body: Body) -> Result<Checksum, Problem> {
    let mut summer = Summer::new(key, format);
    let mut chunks = body.into_data_stream();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Problem::bad_request(format!("the list broke off: {error}")))?;
        for byte in chunk {
            if byte == b'\n' {
                add(&mut summer, &rest)?;
                rest.clear();
            } else if rest.len() < LONGEST_LINE {
                rest.push(byte);
            } else {
                return Err(Problem::bad_request("a line of the list is too long"));
            }
        }
    }
    if rest.is_empty() { Ok(summer.finish()) } else { Err(Problem::bad_request("the list ends amid a line")) }
}

fn add(summer: &mut Summer, line: &[u8]) -> Result<(), Problem> {
    let odd = || Problem::bad_request("a line of the list cannot be read");
    if let Some(head) = line.strip_prefix(b"HEAD ") {
        summer.add_head(&target(head).ok_or_else(odd)?);
        return Ok(());
    }
    let space = line.iter().position(|byte| *byte == b' ').ok_or_else(odd)?;
    summer.add_reference(&line[space + 1..], &target(&line[..space]).ok_or_else(odd)?);
    Ok(())
}

fn target(text: &[u8]) -> Option<Target> {
    let text = std::str::from_utf8(text).ok()?;
    Some(match text.strip_prefix("ref:") {
        Some(to) => Target::Symbolic(to.to_owned()),
        None => Target::Object(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_streamed_list_has_the_checksum_that_agents_give_it() {
        let key = ChecksumKey { id: 1, secret: [9; 32] };
        let oid = "ab".repeat(20);
        let mut summer = Summer::new(&key, ObjectFormat::Sha1);
        summer.add_head(&Target::Symbolic("refs/heads/main".into()));
        summer.add_reference(b"refs/heads/\xff odd", &Target::Object(oid.clone()));
        summer.add_reference(b"refs/x", &Target::Symbolic("refs/heads/main".into()));
        let mut text = format!("HEAD ref:refs/heads/main\n{oid} refs/heads/").into_bytes();
        text.extend_from_slice(b"\xff odd\nref:refs/heads/main refs/x\n");
        let found = sum(&key, ObjectFormat::Sha1, Body::from(text)).await.unwrap();
        assert_eq!(found, summer.finish());
        assert!(sum(&key, ObjectFormat::Sha1, Body::from("HEAD x")).await.is_err());
    }
}
