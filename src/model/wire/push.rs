//! Pushes, as an agent sees them: objects first, then a prepared change of references, a vote, a verdict.
//!
//! An **ingest** is what a router streams to an agent before the push is opened: objects in a
//! directory of their own, checked, seen by nobody. Prepare moves them in and holds git's
//! reference transaction open; finish ends it one way or the other. A fence ends all of it.

use crate::model::checksum::{Checksum, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A reference's full name, or `HEAD`. Git allows any bytes but a few.
///
/// As JSON it is a string; a name that is not UTF-8 is `base64:` and its bytes (no
/// reference's name holds a colon).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(pub Vec<u8>);

impl fmt::Display for RefName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", String::from_utf8_lossy(&self.0))
    }
}

/// What marks a name that is not UTF-8.
const ENCODED: &str = "base64:";

impl Serialize for RefName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => to.serialize_str(&format!("{ENCODED}{}", STANDARD.encode(&self.0))),
        }
    }
}

impl<'de> Deserialize<'de> for RefName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.strip_prefix(ENCODED) {
            Some(encoded) => STANDARD.decode(encoded).map(Self).map_err(serde::de::Error::custom),
            None => Ok(Self(text.into_bytes())),
        }
    }
}

/// One reference that a push changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Which one.
    pub name: RefName,
    /// What it must be now; none: it must not exist.
    pub old: Option<Target>,
    /// What it becomes; none: it is deleted.
    pub new: Option<Target>,
}

/// Begin to take a push's objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestRequest {
    /// All that the client asks for; each new value must be connected once the pack is in.
    pub commands: Vec<Command>,
    /// The largest pack, in bytes; 0: no bound but the disk's.
    #[serde(default)]
    pub most_bytes: i64,
}

/// Where to send the objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestAnswer {
    /// Names the ingest in what follows.
    pub ingest: String,
    /// The highest epoch of any push of this repository that was heard of here: the next one's must be above it, also
    /// where the database went back.
    #[serde(default)]
    pub pushed: i64,
}

/// The objects are here, whole and connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Bytes of the pack as received.
    pub bytes: i64,
    /// Objects in it.
    pub objects: i64,
    /// Commands whose new value is not connected or missing here, with git's words; the others stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<Unfit>,
}

/// One command that cannot stand here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// Its reference.
    pub name: RefName,
    /// Why, in git's words.
    pub why: String,
}

/// Prepare references for a push that is open in SQL. The grant carries its epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareRequest {
    /// The version that it builds on.
    pub base_version: i64,
    /// The commands that stand, as decided when it was opened, each with the value that it has now.
    pub commands: Vec<Command>,
}

/// A copy's vote: it counts only if both checksums are what SQL expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Of the references as they are.
    pub before: Checksum,
    /// Of the references as they will be.
    pub after: Checksum,
    /// The highest version that was committed here.
    pub journal_version: i64,
}

/// End a prepared push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishRequest {
    /// Whether a quorum agreed.
    pub commit: bool,
}

/// How it ended here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishAnswer {
    /// Whether the references were changed, and are on disk with their directories.
    pub committed: bool,
    /// Of the references as they are now.
    pub checksum: Checksum,
    /// Bytes of the copy on disk.
    pub bytes: i64,
}

/// End whatever runs of this push epoch or a lower one, and refuse them from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceRequest {
    /// The highest epoch that is over.
    pub epoch: i64,
}

/// What stands behind the fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceAnswer {
    /// Of the references, once nothing of the fenced epochs runs.
    pub checksum: Checksum,
    /// The highest version that was committed here.
    pub journal_version: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_come_back_as_they_were() {
        for name in [&b"refs/heads/main"[..], b"refs/heads/\xff\xfe", "refs/heads/größe".as_bytes()] {
            let name = RefName(name.to_vec());
            let text = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<RefName>(&text).unwrap(), name, "{text}");
        }
        assert!(serde_json::from_str::<RefName>("\"base64:!\"").is_err());
    }
}
