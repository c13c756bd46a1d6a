//! Builders for the tests of the loops.

use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::id::{FileserverId, RackId};

/// A fileserver that serves, is online and counts, in a rack of its own.
pub(crate) fn fileserver(id: i64) -> Fileserver {
    Fileserver {
        id: FileserverId(id),
        name: format!("fs-{id}"),
        rack_id: RackId(id),
        rack: format!("rack-{id}"),
        url: format!("http://127.0.0.1:{}", 10_000 + id),
        intent: Intent::Serve,
        health: Health::Online,
        health_since: 0,
        offline_ms: 0,
        counts: true,
        empty_since: None,
        compared_start_id: Some("start-1".into()),
        start_id: Some("start-1".into()),
        root_id: Some("root-1".into()),
        capacity: 1 << 40,
        disk_used: 0,
        disk_free: 1 << 40,
        load: 0,
        processes: 0,
        weight: 100,
        agent_version: None,
        git_version: None,
        inventory_generation: 0,
        seen_at: None,
    }
}
