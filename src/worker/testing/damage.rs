//! What befalls copies, and what their inventories say of it.

use super::Fleet;
use crate::database::inventory::{Differences, record};

impl Fleet {
    /// Its inventory has flagged a copy.
    pub(in crate::worker) async fn flag(&self, number: usize, found: &str, generation: i64) {
        let seen = vec![(self.repository.id, generation)];
        let mut differences = Differences::default();
        match found {
            "missing" => differences.missing = seen,
            "changed" => differences.changed = seen,
            _ => differences.untracked = seen,
        }
        record(self.db(), self.ids[number - 1], &differences).await.unwrap();
    }

    /// Nothing stands there any more.
    pub(in crate::worker) fn lose(&self, number: usize) {
        let key = (format!("fs-{number}"), self.repository.id);
        self.disks.lock().unwrap().copies.remove(&key);
    }
}
