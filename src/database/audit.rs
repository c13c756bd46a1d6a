//! Who changed what, and why.
use super::{Database, Result};

/// One change by a person.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    /// Who.
    pub who: &'a str,
    /// What, for example `fileserver.quiesce`.
    pub what: &'a str,
    /// To what: a name.
    pub subject: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
    /// Old and new values.
    pub detail: serde_json::Value,
}

/// Keeps it.
///
/// # Errors
/// When the engine fails.
pub async fn append(_db: &Database, _change: &Change<'_>) -> Result<()> {
    todo!()
}
