//! Who changed what, and why.
use super::{Database, Doing, Result, on_writer};
use sqlx::types::Json;

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
pub async fn append(db: &Database, change: &Change<'_>) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* audit::append */ INSERT INTO audit (at, who, what, subject, reason, detail) \
         SELECT now, $1, $2, $3, $4, $5 FROM clock",
    )
    .bind(change.who).bind(change.what).bind(change.subject).bind(change.reason).bind(Json(&change.detail))
    .execute(p).await.map(drop))
    .doing("keeping who changed what")
}
