//! What is in flight, and whether one more attempt may join it.
//!
//! Everything is counted from the live attempts, queued ones included, plus what this
//! round admitted: there is no counter that could drift. Each count is kept in a *pool*:
//! one for a repair's ordinary work, one for its last copies. A pool has the repair's
//! limits to itself, so ordinary work can fill its own pool and never that of last
//! copies. The start rate binds ordinary work alone; last copies are few, back off, and
//! are bound by what is in flight.

use crate::model::attempt::{Attempt, Plan};
use crate::model::finding::{Deferral, Lane};
use crate::model::fleet::Fileserver;
use crate::model::id::{FileserverId, RackId};
use crate::model::per_id::PerId;
use crate::repair::Repair;
use crate::repair::pressure::Pressure;
use crate::repair::view::FleetView;
use std::collections::{BTreeMap, BTreeSet};

/// Whose limits an attempt is counted against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    Ordinary,
    LastCopies,
}

impl Share {
    const fn of(lane: Lane) -> Self {
        match lane {
            Lane::Last => Self::LastCopies,
            Lane::Common | Lane::Fileserver(_) => Self::Ordinary,
        }
    }
}

/// What one pool has in flight.
#[derive(Debug, Default)]
struct Pool {
    in_flight: u32,
    at_fileserver: PerId<FileserverId, u32>,
    in_rack: PerId<RackId, u32>,
}

/// The counts of one round.
#[derive(Debug)]
pub struct Limits<'a> {
    fleet: &'a FleetView,
    fleet_in_flight: u32,
    in_fleet: BTreeMap<Share, u32>,
    pools: BTreeMap<Share, BTreeMap<String, Pool>>,
    started: BTreeMap<String, u32>,
    busy: PerId<FileserverId, u32>,
    arriving: PerId<FileserverId, i64>,
}

impl<'a> Limits<'a> {
    /// Counts the live attempts. `started`: attempts admitted in the last minute, by repair.
    pub fn new(
        fleet: &'a FleetView,
        fleet_in_flight: u32,
        running: &[Attempt],
        started: &BTreeMap<String, u32>,
    ) -> Self {
        let mut limits = Self {
            fleet,
            fleet_in_flight,
            in_fleet: BTreeMap::new(),
            pools: BTreeMap::new(),
            started: started.clone(),
            busy: PerId::default(),
            arriving: PerId::default(),
        };
        for attempt in running {
            limits.count(attempt.lane, &attempt.repair, &attempt.plan);
        }
        limits
    }

    /// Why a repair has no attempt to give in a lane, whatever its plan; `None`: it may have.
    pub fn exhausted(&self, lane: Lane, repair: &Repair) -> Option<Deferral> {
        let share = Share::of(lane);
        let at_limit = |limit| Deferral::RepairAtLimit { repair: repair.name.clone(), limit };
        if get(&self.in_fleet, &share) >= self.fleet_in_flight {
            return Some(Deferral::FleetAtLimit { limit: self.fleet_in_flight });
        }
        if self.pool(share, &repair.name).is_some_and(|pool| pool.in_flight >= repair.throttle.in_flight) {
            return Some(at_limit(repair.throttle.in_flight));
        }
        let starts = repair.throttle.starts_per_minute;
        let too_fast = share == Share::Ordinary && get(&self.started, &repair.name) >= starts;
        too_fast.then(|| at_limit(starts))
    }

    /// This round's answers for plans of a repair in a lane.
    pub fn pressure<'b>(&'b self, lane: Lane, repair: &'b Repair) -> PoolPressure<'a, 'b> {
        PoolPressure { limits: self, repair, pool: self.pool(Share::of(lane), &repair.name) }
    }

    /// Takes the fleet, the repair, both fileservers and their racks for one attempt: all of them, or none.
    ///
    /// # Errors
    /// With the limit that is in the way; then nothing was taken.
    pub fn take(&mut self, lane: Lane, repair: &Repair, plan: &Plan) -> Result<(), Deferral> {
        self.allows(lane, repair, plan)?;
        self.count(lane, &repair.name, plan);
        *self.started.entry(repair.name.clone()).or_insert(0) += 1;
        // A resync that cannot mend a copy makes it anew beside the old one: it may need all of its bytes.
        if let Some(here) = plan.destination_id.filter(|_| plan.step.brings_bytes()) {
            let arriving = self.arriving.slot(here);
            *arriving = arriving.saturating_add(plan.bytes);
        }
        Ok(())
    }

    /// Whether [`Limits::take`] would take.
    ///
    /// # Errors
    /// With the limit that is in the way.
    pub fn allows(&self, lane: Lane, repair: &Repair, plan: &Plan) -> Result<(), Deferral> {
        let pressure = self.pressure(lane, repair);
        let barred = ends(plan).into_iter().find_map(|id| pressure.barred(id));
        self.exhausted(lane, repair).or(barred).map_or(Ok(()), Err)
    }

    fn pool(&self, share: Share, repair: &str) -> Option<&Pool> {
        self.pools.get(&share)?.get(repair)
    }

    fn count(&mut self, lane: Lane, repair: &str, plan: &Plan) {
        let share = Share::of(lane);
        *self.in_fleet.entry(share).or_insert(0) += 1;
        let pool = self.pools.entry(share).or_default().entry(repair.to_owned()).or_default();
        pool.in_flight += 1;
        let mut racks = BTreeSet::new();
        for id in ends(plan) {
            *self.busy.slot(id) += 1;
            *pool.at_fileserver.slot(id) += 1;
            racks.extend(self.fleet.fileservers.get(&id).map(|one| one.rack_id));
        }
        // An attempt within one rack is one attempt of that rack.
        for rack in racks {
            *pool.in_rack.slot(rack) += 1;
        }
    }
}

/// The ends of a plan, each once: a program of an operator's own may have none.
fn ends(plan: &Plan) -> BTreeSet<FileserverId> {
    plan.source_id.into_iter().chain(plan.destination_id).collect()
}

fn get<K: Ord>(counts: &BTreeMap<K, u32>, key: &K) -> u32 {
    counts.get(key).copied().unwrap_or(0)
}

/// What one pool of a repair may still do.
#[derive(Debug)]
pub struct PoolPressure<'a, 'b> {
    limits: &'b Limits<'a>,
    repair: &'b Repair,
    /// None: nothing of it is in flight.
    pool: Option<&'b Pool>,
}

impl Pressure for PoolPressure<'_, '_> {
    fn arriving(&self, id: FileserverId) -> i64 {
        self.limits.arriving.get(id)
    }

    fn busy(&self, id: FileserverId) -> u32 {
        self.limits.busy.get(id)
    }

    fn barred(&self, id: FileserverId) -> Option<Deferral> {
        let (pool, throttle) = (self.pool?, &self.repair.throttle);
        if pool.at_fileserver.get(id) >= throttle.per_fileserver {
            let fileserver = self.limits.fleet.name(id);
            return Some(Deferral::FileserverAtLimit { fileserver, limit: throttle.per_fileserver });
        }
        let fileserver = self.limits.fleet.fileservers.get(&id)?;
        (pool.in_rack.get(fileserver.rack_id) >= throttle.per_rack)
            .then(|| Deferral::RackAtLimit { rack: fileserver.rack.clone(), limit: throttle.per_rack })
    }

    fn is_barred(&self, one: &Fileserver) -> bool {
        let throttle = &self.repair.throttle;
        self.pool.is_some_and(|pool| {
            pool.at_fileserver.get(one.id) >= throttle.per_fileserver
                || pool.in_rack.get(one.rack_id) >= throttle.per_rack
        })
    }
}
