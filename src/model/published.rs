//! Which tables and views goals may read, and which they may not.
//!
//! The database grants by this list, goal sessions on SQLite look by it, and a test
//! finds a table that stands in neither half.

/// What goals may read, by name.
pub const PUBLISHED: [&str; 31] = [
    "adoptions",
    "attempt_history",
    "attempts",
    "audit",
    "brakes",
    "clock",
    "countable_replicas",
    "counters",
    "evaluations",
    "fileserver_flows",
    "fileservers",
    "finding_history",
    "findings",
    "goal_settings",
    "goal_states",
    "imports",
    "inventory",
    "leases",
    "limits",
    "lost_histories",
    "observations",
    "pauses",
    "pushes",
    "quarantine",
    "racks",
    "replicas",
    "repositories",
    "stops",
    "suspect",
    "suspects",
    "tombstones",
];

/// What they may not: keys, passwords, and the migrations' own notes.
pub const PRIVATE: [&str; 4] = ["_sqlx_migrations", "fleet", "goals_role", "parts"];
