//! Rows on their way to whoever takes them: in batches, up to the goal's bound, names of repositories turned into ids.

use super::{Names, Problem, explain};
use crate::goal::Goal;
use crate::goal::contract;
use crate::model::finding::Exception;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Rows in a batch.
const BATCH: usize = 500;

/// Who takes the rows, and who knows repositories' names.
pub struct Taker {
    pub to: mpsc::Sender<Vec<Exception>>,
    pub names: Option<Arc<dyn Names>>,
    /// Until when rows past the goal's bound are sent too; none: they are not.
    pub beyond: Option<Instant>,
}

/// Collects rows into batches, and stops at the goal's bound.
pub struct Sending<'a> {
    goal: &'a Goal,
    taker: Taker,
    by_name: bool,
    batch: Vec<Exception>,
    named: Vec<Map<String, Json>>,
    pub rows: u64,
}

impl<'a> Sending<'a> {
    pub fn new(goal: &'a Goal, taker: Taker) -> Self {
        Self { goal, taker, by_name: goal.is_by_name(), batch: Vec::new(), named: Vec::new(), rows: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.rows >= self.goal.max_rows && self.taker.beyond.is_none_or(|until| Instant::now() >= until)
    }

    pub async fn row(&mut self, values: Map<String, Json>) -> Result<(), Problem> {
        self.rows += 1;
        if self.by_name {
            self.named.push(values);
        } else {
            let row = self.exception(self.rows, values)?;
            self.batch.push(row);
        }
        if self.batch.len() + self.named.len() >= BATCH { self.flush().await } else { Ok(()) }
    }

    pub async fn flush(&mut self) -> Result<(), Problem> {
        self.identify().await?;
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let sent = self.taker.to.send(batch).await;
        sent.map_err(|_| {
            Problem::away(format!("{}: nobody takes its rows any more", self.goal.path.display()))
        })
    }

    fn exception(&self, row: u64, values: Map<String, Json>) -> Result<Exception, Problem> {
        contract::exception(self.goal.subject, row, values).map_err(|(message, column)| {
            match explain::find_word(&self.goal.query.text, &column) {
                Some(place) => Problem::text(self.goal.at(self.goal.query.file_offset(place), message)),
                None => self.wrong(&message),
            }
        })
    }

    fn wrong(&self, message: &str) -> Problem {
        Problem::text(format!("{}: {message}", self.goal.path.display()))
    }

    /// Gives the rows that wait under a name their ids. One that the fleet does not know is an error: passed
    /// over, an exception would be taken for none.
    async fn identify(&mut self) -> Result<(), Problem> {
        let waiting = std::mem::take(&mut self.named);
        let first = self.rows - waiting.len() as u64 + 1;
        let names: Vec<String> = waiting.iter().filter_map(name_of).map(str::to_owned).collect();
        let ids = if names.is_empty() { BTreeMap::new() } else { self.ids(&names).await? };
        for (row, mut values) in (first..).zip(waiting) {
            let id = match name_of(&values) {
                None => return Err(self.wrong(&format!("row {row}: column \"repository_name\" is no name"))),
                Some(name) => ids.get(name).copied().ok_or_else(|| {
                    self.wrong(&format!(
                        "row {row}: the fleet has no repository \"{name}\"; leave it out, or return names it may \
                         not have with `-- subject: key`"
                    ))
                })?,
            };
            values.insert("repository_id".to_owned(), Json::from(id.0));
            let row = self.exception(row, values)?;
            self.batch.push(row);
        }
        Ok(())
    }

    async fn ids(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<String, crate::model::id::RepositoryId>, Problem> {
        let Some(known) = &self.taker.names else {
            return Err(Problem::away(format!(
                "{}: nobody here knows repositories' names",
                self.goal.path.display()
            )));
        };
        let ids = known.ids(names).await;
        ids.map_err(|why| Problem::away(format!("{}: {why}", self.goal.path.display())))
    }
}

fn name_of(values: &Map<String, Json>) -> Option<&str> {
    values.get("repository_name").and_then(Json::as_str)
}
