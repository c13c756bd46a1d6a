//! What a client is shown before it pushes: the references of one copy, and what may be asked for.
//!
//! Only what SQL holds definitive is shown. There is no `.have`: copies share no objects with others.

use super::pktline::{encode, flush};
use super::view::View;
use super::{Answer, Pushing};
use crate::database::pushes;
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::push::Listing;
use crate::model::wire::push::RefName;
use bytes::BytesMut;

const TYPE: &str = "application/x-git-receive-pack-advertisement";

/// How often a copy that shows other references than SQL's is asked again: somebody pushes.
const ROUNDS: u32 = 20;

/// Nobody's push can tell which of them is to go on.
const LOST: &str = "the copies of this repository have committed more than the database knows: nobody can push until an \
    operator has decided which one to go on from (HISTORY_LOST)";

/// Answers `info/refs?service=git-receive-pack`. `version`: what the client's `Git-Protocol` asks for. Version 2 has no
/// pushes: git then speaks version 0.
pub async fn advertise(pushing: &Pushing, repository: RepositoryId, version: u8) -> Answer {
    for round in 0..ROUNDS {
        let view = match View::read(pushing, repository).await {
            Ok(Some(view)) => view,
            Ok(None) => return Answer::sentence(404, "there is no such repository"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a push could not be routed");
                return Answer::sentence(503, "the database is away: nobody can push now");
            }
        };
        if view.takers.is_empty() {
            return Answer::sentence(503, "no copy of this repository can be reached now");
        }
        if let Some(shown) = view.references(pushing).await {
            return Answer::whole(
                200,
                TYPE,
                body(&shown.listing, view.repository.object_format, version).freeze(),
            );
        }
        if round == 0 && is_lost(pushing, repository).await {
            return Answer::sentence(503, LOST);
        }
        tokio::time::sleep(pushing.chance.around(std::time::Duration::from_millis(100))).await;
    }
    Answer::sentence(503, "no copy of this repository shows the references that it ought to have now")
}

/// Whether waiting cannot help: nobody pushes, the database went back. Not known is no.
async fn is_lost(pushing: &Pushing, repository: RepositoryId) -> bool {
    pushes::is_history_lost(&pushing.database, repository).await.unwrap_or(false)
}

fn body(listing: &Listing, format: ObjectFormat, version: u8) -> BytesMut {
    let mut text = BytesMut::new();
    encode(&mut text, b"# service=git-receive-pack\n");
    flush(&mut text);
    if version == 1 {
        encode(&mut text, b"version 1\n");
    }
    let mut words = Some(capabilities(format));
    for (name, oid) in visible(listing) {
        reference(&mut text, &oid, &name.0, words.take());
    }
    if let Some(words) = words {
        reference(&mut text, &"0".repeat(format.hex_len()), b"capabilities^{}", Some(words));
    }
    flush(&mut text);
    text
}

fn capabilities(format: ObjectFormat) -> String {
    format!(
        "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options \
         object-format={format} agent=trued/{}",
        env!("CARGO_PKG_VERSION")
    )
}

/// References with the objects that they come to; those that lead nowhere are not shown.
fn visible(listing: &Listing) -> impl Iterator<Item = (&RefName, String)> {
    listing.references.iter().filter_map(|(name, target)| match target {
        Target::Object(oid) => Some((name, oid.clone())),
        Target::Symbolic(_) => match listing.get(&listing.resolve(name)?) {
            Some(Target::Object(oid)) => Some((name, oid.clone())),
            _ => None,
        },
    })
}

fn reference(to: &mut BytesMut, oid: &str, name: &[u8], words: Option<String>) {
    let mut line = BytesMut::from(oid.as_bytes());
    line.extend_from_slice(b" ");
    line.extend_from_slice(name);
    if let Some(words) = words {
        line.extend_from_slice(b"\0 ");
        line.extend_from_slice(words.as_bytes());
    }
    line.extend_from_slice(b"\n");
    encode(to, &line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(text: &str) -> Listing {
        Listing::parse(text.as_bytes(), ObjectFormat::Sha1).unwrap()
    }

    fn oid(digit: &str) -> String {
        digit.repeat(40)
    }

    #[test]
    fn references_are_shown_with_what_they_come_to() {
        let text = format!(
            "HEAD ref:refs/heads/main\n{} refs/heads/main\nref:refs/heads/main refs/heads/same\nref:refs/heads/gone refs/heads/x\n",
            oid("a")
        );
        let shown = body(&listing(&text), ObjectFormat::Sha1, 0);
        let shown = String::from_utf8(shown.to_vec()).unwrap();
        assert!(shown.starts_with("001f# service=git-receive-pack\n0000"), "{shown}");
        assert!(shown.contains(&format!("{} refs/heads/main\0 report-status", oid("a"))), "{shown}");
        assert!(shown.contains(&format!("{} refs/heads/same\n", oid("a"))), "{shown}");
        assert!(
            !shown.contains("refs/heads/x") && !shown.contains("HEAD") && shown.ends_with("0000"),
            "{shown}"
        );
    }

    #[test]
    fn an_empty_repository_shows_what_may_be_asked_for() {
        let shown = body(&listing("HEAD ref:refs/heads/main\n"), ObjectFormat::Sha1, 1);
        let shown = String::from_utf8(shown.to_vec()).unwrap();
        assert!(shown.contains("000eversion 1\n"), "{shown}");
        assert!(shown.contains(&format!("{} capabilities^{{}}\0 report-status", oid("0"))), "{shown}");
        assert!(shown.contains("object-format=sha1"));
    }
}
