//! Versions of goals to which edits gave way, for all libraries of one process: one that did not see a version while it
//! stood on disk would have nothing to fall back on.

use crate::goal::Goal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The last one of each goal; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Fallbacks(Arc<Mutex<BTreeMap<String, Arc<Goal>>>>);

impl Fallbacks {
    pub(super) fn put(&self, goal: &Arc<Goal>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(goal.name.clone(), Arc::clone(goal));
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Goal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}
