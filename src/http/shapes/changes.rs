//! What is asked for to change something, and what it answers.

use crate::model::fleet::{Intent, ObjectFormat};
use crate::model::grant::{End, Role, SignedReceipt};
use crate::model::id::RepositoryId;
use serde::{Deserialize, Serialize};

/// Adds a fileserver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddFileserver {
    /// Its name.
    pub name: String,
    /// Its rack.
    pub rack: String,
    /// Address of its agent.
    pub url: String,
    /// Its public key: made where the command runs, the secret one never travels.
    pub public_key: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Adds a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddPart {
    /// Its name, and its id.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its public key.
    pub public_key: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a new part must know to start, its own secret aside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The fleet's id.
    pub fleet: String,
    /// All parts.
    pub parts: Vec<crate::model::grant::Part>,
    /// The checksum key; for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_key: Option<crate::model::checksum::ChecksumKey>,
}

/// Changes an intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetIntent {
    /// What is wanted.
    pub intent: Intent,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Changes how many copies are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWanted {
    /// How many.
    pub wanted: u32,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Releases a goal's brakes, or one brake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The goal.
    #[serde(default)]
    pub goal: Option<String>,
    /// The brake, by its whole name.
    #[serde(default)]
    pub brake: Option<String>,
    /// Why; demanded.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a change did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// One sentence.
    pub message: String,
    /// Whether something was written.
    pub changed: bool,
}

/// Asks for a plan to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanImport {
    /// The repository's name.
    pub name: String,
    /// The hash its objects are named by.
    pub object_format: ObjectFormat,
    /// Copies wanted.
    pub wanted: u32,
    /// Bytes of one copy, as estimated.
    pub bytes: i64,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A plan to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportPlan {
    /// The repository's future number; 0 for a plan that was only asked for.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// Copies wanted.
    pub wanted: u32,
    /// The fewest copies that make it exist.
    pub quorum: u32,
    /// Where copies are made, with a grant each.
    pub copies: Vec<ImportCopy>,
}

/// One copy of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportCopy {
    /// Where.
    pub to: End,
    /// Its rack.
    pub rack: String,
    /// The header to show there.
    pub grant: String,
}

/// Finishes an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishImport {
    /// The agents' words.
    pub receipts: Vec<SignedReceipt>,
}
