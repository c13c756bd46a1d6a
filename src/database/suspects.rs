//! The table `suspect`, kept equal to the view `suspects` by differences.
use super::{Database, Result};

/// What a refresh did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Rows put in.
    pub added: u64,
    /// Rows taken out.
    pub removed: u64,
}

/// Makes the table equal to the view, in one transaction; analyzes it when it changed much.
///
/// # Errors
/// When the engine fails; then goals over suspects are unknown.
pub async fn refresh(_db: &Database) -> Result<Refreshed> {
    todo!()
}
