//! Brakes in a dispatch round: looked at, told once, applied to the findings at hand.
//!
//! The causes are pure (`brakes`); what a brake is, and whose findings it holds, is in SQL,
//! so that it outlives this controller and a person sees it.

use super::Shared;
use super::brakes::{self, Scene};
use super::metrics::{add, set};
use super::millis;
use crate::clock;
use crate::database::{self, brakes as kept};
use crate::model::brake::{BLIND, Brake, START};
use crate::model::finding::Finding;
use crate::model::fleet::Fileserver;
use crate::model::id::FindingId;
use crate::repair::view::FleetView;
use std::collections::{BTreeMap, BTreeSet};

/// Findings that one round gives back of each brake that no longer holds.
const RELEASED: i64 = 10_000;

/// What was told of brakes so far.
#[derive(Debug, Default)]
pub(super) struct Braking {
    holding: BTreeSet<String>,
}

impl Braking {
    /// Looks at the causes, remembers what became of each brake, releases what none holds any more.
    pub(super) async fn look(
        &mut self,
        shared: &Shared,
        fileservers: &[Fileserver],
    ) -> database::Result<Vec<Brake>> {
        let db = &shared.database;
        let mut rows = kept::all(db).await?;
        let sight = shared.sight();
        let scene = Scene {
            sight: sight.as_ref(),
            seen_at: clock::now(),
            fileservers,
            rack_grace: millis(shared.settings.rack_grace),
            now: db.now().await?,
        };
        let looks = brakes::looks(&scene, &rows);
        if !looks.is_empty() {
            kept::look(db, &looks).await?;
            rows = kept::all(db).await?;
        }
        if rows.iter().any(|brake| !brake.holds) {
            kept::release(db, RELEASED).await?;
        }
        self.tell(shared, &rows);
        Ok(rows)
    }

    /// Says once that a brake begins to hold, and once that it no longer does.
    fn tell(&mut self, shared: &Shared, rows: &[Brake]) {
        let holding: Vec<&Brake> = rows.iter().filter(|brake| brake.holds).collect();
        for Brake { name, reason, .. } in holding.iter().filter(|brake| !self.holding.contains(&brake.name)) {
            if name == START {
                // Each start waits a moment for the agents: no news.
                tracing::info!("repairs wait until the agents were heard");
            } else {
                tracing::warn!(
                    target: "trued::event", kind = "brake", name, reason,
                    "the brake {name} holds repairs: {reason}",
                );
            }
        }
        for name in self.holding.iter().filter(|name| !holding.iter().any(|brake| brake.name == **name)) {
            tracing::info!(target: "trued::event", kind = "brake", name, "the brake {name} holds no more");
        }
        self.holding = holding.iter().map(|brake| brake.name.clone()).collect();
        let all = self.holding.iter().any(|name| name == START || name == BLIND);
        set(&shared.metrics.braked, u64::from(all));
        set(&shared.metrics.brakes, self.holding.len() as u64);
    }
}

/// Holds those that a brake holds; returns the others, and how many were held.
pub(super) async fn hold(
    shared: &Shared,
    found: Vec<Finding>,
    fleet: &FleetView,
    rows: &[Brake],
) -> database::Result<(Vec<Finding>, u64)> {
    if !rows.iter().any(|brake| brake.holds) {
        return Ok((found, 0));
    }
    let (mut free, mut held): (Vec<Finding>, BTreeMap<String, Vec<FindingId>>) = Default::default();
    for finding in found {
        let repair = finding.repair.as_ref().and_then(|name| shared.repairs.get(name));
        match brakes::keeper(&finding, repair.map(|repair| repair.step), fleet, rows) {
            Some(name) => held.entry(name).or_default().push(finding.id),
            None => free.push(finding),
        }
    }
    let mut many = 0;
    for (name, findings) in held {
        many += kept::hold(&shared.database, &name, &findings).await?;
    }
    add(&shared.metrics.held, many);
    Ok((free, many))
}
