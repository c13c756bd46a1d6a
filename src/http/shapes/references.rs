//! Changing references without a push.

use serde::{Deserialize, Serialize};

/// Points HEAD at a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetHead {
    /// The branch, by its short or its full name.
    pub branch: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// One reference and its values: an object's name in hexadecimal, or another reference's full name; none where it
/// does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceChange {
    /// Its full name, or `HEAD`.
    pub name: String,
    /// What it must be now.
    pub old: Option<String>,
    /// What it becomes.
    pub new: Option<String>,
}

/// Changes references by the vote of their copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeReferences {
    /// Which, at most 1,000.
    pub changes: Vec<ReferenceChange>,
    /// All or none. Default: yes.
    #[serde(default = "yes")]
    pub atomic: bool,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
}

const fn yes() -> bool {
    true
}

/// How one change ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceChanged {
    /// Its full name.
    pub name: String,
    /// Why it was not changed, as a push would be told; none: it was, or is so already.
    pub refused: Option<String>,
}

/// How they ended, in the order asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferencesChanged {
    /// Each.
    pub changes: Vec<ReferenceChanged>,
}
