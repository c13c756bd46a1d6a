//! A right that one controller of several holds: a lease in SQL by name, renewed in time.

use crate::database::{Database, leases};
use std::time::Duration;
use tokio::time::Instant;

/// One named right, as seen by one holder.
#[derive(Debug)]
pub(super) struct Right {
    database: Database,
    name: String,
    holder: String,
    ttl: Duration,
    /// Until when it is surely ours: from before the asking, by the steady clock.
    ours_until: Option<Instant>,
}

impl Right {
    pub(super) fn new(database: &Database, name: &str, holder: &str, ttl: Duration) -> Self {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        Self { database: database.clone(), name, holder, ttl, ours_until: None }
    }

    /// Whether it is ours, asking SQL when the half of it is over. An error is a no.
    pub(super) async fn held(&mut self) -> bool {
        let asked = Instant::now();
        if self.ours_until.is_some_and(|until| until > asked + self.ttl / 2) {
            return true;
        }
        self.ours_until = self.ask().await.then(|| asked + self.ttl);
        self.ours_until.is_some()
    }

    /// Gives it back.
    pub(super) async fn release(&mut self) {
        if self.ours_until.take().is_some()
            && let Err(error) = leases::release(&self.database, &self.name, &self.holder).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(lease = self.name, error, "a lease could not be given back, it runs out");
        }
    }

    async fn ask(&self) -> bool {
        let ttl = super::millis(self.ttl);
        match leases::acquire(&self.database, &self.name, &self.holder, ttl).await {
            Ok(ours) => ours,
            Err(error) => {
                // A database that takes no writes is told of once, by its keeper: each goal asks once a second.
                let error = &error as &dyn std::error::Error;
                if self.database.standing().trouble().is_some() {
                    tracing::debug!(lease = self.name, error, "a lease could not be taken");
                } else {
                    tracing::warn!(lease = self.name, error, "a lease could not be taken");
                }
                false
            }
        }
    }
}
