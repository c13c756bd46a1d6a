//! The references of a repository that is not an agent's own, read by the same rules, for importing it.

use super::references::References;
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::wire::Refusal;
use std::path::Path;

/// HEAD and all references of a repository anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// What HEAD points at.
    pub head: Target,
    /// HEAD and references in the text form of [`wire`](crate::model::wire).
    pub text: Vec<u8>,
    /// The objects that they name, each once.
    pub tips: Vec<String>,
}

/// Reads them from the files below git's own directory of a repository. Blocks.
///
/// # Errors
/// `Damaged`, naming what cannot be read.
pub fn foreign(git_directory: &Path, format: ObjectFormat) -> Result<Foreign, Refusal> {
    let references = References::read(git_directory, format)?;
    Ok(Foreign { text: references.to_text(), tips: references.tips(), head: references.head })
}
