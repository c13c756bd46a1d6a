//! How an engine would answer a goal's query: its plan for people, its cost, and the large tables that it would read
//! whole. Nothing is run. A small fleet's planner rightly reads whole tables, so on PostgreSQL a second plan is asked
//! for with that forbidden: what is read whole even then will be read whole when the fleet has grown.

use super::{CHECK_TIMEOUT, Place, Problem, Source, postgres, sqlite, within};
use crate::goal::Goal;
use serde::{Deserialize, Serialize};

/// Tables that grow with the fleet or with time: reading one whole takes seconds, every two minutes.
pub const LARGE: [&str; 5] = ["repositories", "replicas", "finding_history", "attempt_history", "audit"];

/// Rows from which any table is large.
pub const MANY: i64 = 100_000;

/// A query's plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In the engine's words, indented by depth.
    pub lines: Vec<String>,
    /// The planner's estimate in its own unit; SQLite gives none.
    pub cost: Option<f64>,
    /// Large tables that would be read whole.
    pub scans: Vec<Scan>,
}

/// A large table that would be read whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Scan {
    /// Its name.
    pub table: String,
    /// Its rows now, where they are counted.
    pub rows: Option<i64>,
}

impl Source {
    /// Asks the engine how it would answer; runs nothing.
    ///
    /// # Errors
    /// As the check.
    pub async fn plan(&self, goal: &Goal) -> Result<Plan, Problem> {
        let place = self.place(goal)?;
        let trace = postgres::Trace::default();
        let asking = async {
            match place {
                Place::Sqlite(door) => sqlite::plan::plan(door, goal).await,
                Place::Postgres(door) => postgres::plan::plan(door, goal, &trace).await,
            }
        };
        within(goal, place, CHECK_TIMEOUT, &trace, asking).await
    }
}

/// Tables that are read whole, each once, with the rows that the fleet's counters have of them.
pub(super) fn scans(tables: Vec<String>, counters: &[(String, i64)]) -> Vec<Scan> {
    let rows = |table: &str| counters.iter().find(|(name, _)| name == table).map(|(_, rows)| *rows);
    let mut scans: Vec<_> = tables.into_iter().map(|table| Scan { rows: rows(&table), table }).collect();
    scans.sort();
    scans.dedup();
    scans
}
