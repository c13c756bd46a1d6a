//! The repairs of a directory.
use super::file::Repair;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All repairs, by name.
#[derive(Debug, Clone, Default)]
pub struct Repairs {
    /// By name.
    pub by_name: BTreeMap<String, Arc<Repair>>,
}
