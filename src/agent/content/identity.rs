//! The file beside a repository that says what it is. Other rooms keep words of their own in it: they stay.

use super::disk;
use crate::model::wire::{Identity, Refusal, RefusalCode};
use serde_json::{Map, Value};
use std::path::Path;

/// What the file says; none: it is not there or cannot be read.
pub(in crate::agent) fn read(path: &Path) -> Option<Identity> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Writes it, whole or not at all.
pub(super) fn write(path: &Path, identity: &Identity) -> Result<(), Refusal> {
    let found = std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut words: Map<String, Value> = found.unwrap_or_default();
    let unwritable = |error: &serde_json::Error| {
        Refusal::new(RefusalCode::Failed, format!("cannot write down what a copy is: {error}"))
    };
    let new = serde_json::to_value(identity).map_err(|error| unwritable(&error))?;
    if let Value::Object(new) = new {
        words.extend(new);
    }
    let text = serde_json::to_vec_pretty(&words).map_err(|error| unwritable(&error))?;
    disk::write_whole(path, &text)
}
