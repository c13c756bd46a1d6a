//! Removing repositories, bringing them back, other names; copies that were set aside.

use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// Removes a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveRepository {
    /// Why; demanded.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Brings a removed repository back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndeleteRepository {
    /// Under another name than it had.
    #[serde(default)]
    pub name: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Gives a repository another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameRepository {
    /// The new name.
    pub name: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// One copy that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedShown {
    /// Its fileserver.
    pub fileserver: String,
    /// Where it is, below that agent's root.
    pub path: String,
    /// When it was set aside.
    pub since: Millis,
    /// Why.
    pub reason: String,
    /// Bytes on disk.
    pub bytes: i64,
}

/// Adopts what one copy has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptCopy {
    /// The fileserver where it stands, by name.
    pub from: String,
    /// Why; demanded.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}
