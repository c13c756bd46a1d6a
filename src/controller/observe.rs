//! The observe loop: asks every agent for its status, and writes what follows from it.
//!
//! Every controller asks, so that its brakes decide from what it hears itself; the one that
//! holds the lease writes. Each fileserver is asked at its own pace, however slow another is.

use super::detector::{Detector, Seen};
use super::inventory::{self, Compared};
use super::metrics::add;
use super::right::Right;
use super::verdict::{compared, other_root, verdict};
use super::voices::{self, weighed};
use super::{Shared, millis};
use crate::database::routing::{self, Voice};
use crate::database::{self, fileservers, parts};
use crate::fleet::CallError;
use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health};
use crate::model::grant::End;
use crate::model::id::FileserverId;
use crate::model::wire::{PartsList, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod news;

/// A controller that dies leaves writing to another after this long.
const LEASE: Duration = Duration::from_secs(6);
/// How often fileservers and parts are read from SQL: intents and additions are seen within it.
const REFRESH: Duration = Duration::from_secs(2);
/// How often a fileserver's quarantine is listed: what is found there goes after a week.
const LISTED_EVERY: Duration = Duration::from_hours(1);
/// Inventories that are compared at once.
const COMPARISONS: usize = 4;

/// A question that brought neither an answer nor an error for so long is asked again.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// What a controller knows of one fileserver.
struct Watched {
    row: Fileserver,
    detector: Detector,
    status: Option<Status>,
    asked: bool,
    ask_at: Instant,
    comparing: Option<AbortHandle>,
    /// When its quarantine was last listed.
    listed: Option<Instant>,
    trouble: Option<String>,
}

struct Observer {
    shared: Arc<Shared>,
    right: Right,
    /// Whether this controller writes.
    writes: bool,
    watched: BTreeMap<FileserverId, Watched>,
    parts: PartsList,
    /// What other parts saw lately.
    voices: Vec<Voice>,
    asks: JoinSet<(FileserverId, Result<Status, CallError>)>,
    /// Lists of parts on their way to agents.
    tellings: JoinSet<()>,
    comparisons: JoinSet<(FileserverId, Result<Compared, inventory::CompareError>)>,
}

/// Observes until stopped.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut observer = Observer {
        right: Right::new(&shared.database, "observe", &shared.holder, LEASE),
        shared,
        writes: false,
        watched: BTreeMap::new(),
        parts: PartsList { parts: Vec::new() },
        voices: Vec::new(),
        asks: JoinSet::new(),
        tellings: JoinSet::new(),
        comparisons: JoinSet::new(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = observer.observe() => {}
    }
    observer.right.release().await;
}

impl Observer {
    async fn observe(&mut self) {
        let mut refresh_at = Instant::now();
        loop {
            if Instant::now() >= refresh_at {
                self.refresh().await;
                refresh_at = Instant::now() + REFRESH;
            }
            self.ask_due();
            let next = self.next_ask().map_or(refresh_at, |at| at.min(refresh_at));
            tokio::select! {
                Some(Ok((id, answer))) = self.asks.join_next() => self.heard(id, answer).await,
                Some(_) = self.tellings.join_next() => {}
                Some(Ok((id, done))) = self.comparisons.join_next() => self.compared(id, done).await,
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Reads fileservers and parts, and whether this controller writes.
    async fn refresh(&mut self) {
        self.writes = self.right.held().await;
        let read = async {
            let rows = fileservers::all(&self.shared.database).await?;
            let parts = parts::list(&self.shared.database).await?;
            let now = self.shared.database.now().await?;
            let voices = routing::voices(&self.shared.database, voices::YOUNGER).await?;
            Ok::<_, database::DatabaseError>((rows, parts, now, voices))
        };
        match read.await {
            Ok((rows, parts, now, voices)) => {
                self.voices = voices;
                self.shared.set_clock(now);
                self.parts = PartsList { parts };
                self.adopt(rows);
            }
            Err(error) => {
                // What they saw is old by now.
                self.voices.clear();
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "fileservers could not be read; those known are asked on");
            }
        }
    }

    /// Takes over what SQL says: new fileservers, gone ones, changed intents and addresses.
    fn adopt(&mut self, rows: Vec<Fileserver>) {
        let (now, writes) = (self.now(), self.writes);
        let online: BTreeSet<_> =
            rows.iter().filter(|row| row.health == Health::Online).map(|row| row.id).collect();
        let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let first = self.shared.sight().is_none();
        self.shared.see(|sight| {
            if first {
                sight.expected = online;
            }
            sight.expected.retain(|id| ids.contains(id));
            sight.heard.retain(|id| ids.contains(id));
            sight.silent.retain(|id, _| ids.contains(id));
        });
        self.watched.retain(|id, _| ids.contains(id));
        for row in rows {
            let watched = self.watched.entry(row.id).or_insert_with(|| Watched {
                detector: Detector::resume(&row, now),
                row: row.clone(),
                status: None,
                asked: false,
                ask_at: Instant::now(),
                comparing: None,
                listed: None,
                trouble: None,
            });
            if !writes {
                // Whoever writes accounts for the time offline.
                watched.detector.offline_ms = row.offline_ms;
            }
            watched.row = row;
        }
    }

    fn ask_due(&mut self) {
        let (now, pace) = (Instant::now(), self.shared.settings.pace);
        let due = |one: &Watched| one.ask_at <= now && (!one.asked || one.ask_at + GIVEN_UP <= now);
        for (id, watched) in self.watched.iter_mut().filter(|(_, one)| due(one)) {
            watched.asked = true;
            watched.ask_at = now;
            let (id, to, agents) = (*id, end(&watched.row), self.shared.agents.clone());
            add(&self.shared.metrics.statuses, 1);
            self.asks.spawn(async move {
                let ask = agents.status(&to, pace.timeout);
                // The client's own bound is taken at its word, and once more from outside.
                let answer = tokio::time::timeout(pace.timeout * 2, ask).await;
                let late = CallError::TimedOut { fileserver: to.name.clone(), after: pace.timeout };
                (id, answer.unwrap_or(Err(late)))
            });
        }
    }

    fn next_ask(&self) -> Option<Instant> {
        self.watched.values().filter(|one| !one.asked).map(|one| one.ask_at).min()
    }

    /// One agent answered, or did not.
    async fn heard(&mut self, id: FileserverId, answer: Result<Status, CallError>) {
        let (now, pace) = (self.now(), self.shared.settings.pace);
        let Some(watched) = self.watched.get_mut(&id) else { return };
        let seen = match &answer {
            Ok(status) if status.trouble.is_some() => Seen::Troubled,
            Ok(_) => Seen::Answered,
            Err(_) => Seen::Missed,
        };
        let was = watched.detector.health;
        let changed = watched.detector.observe(weighed(seen, id, &self.voices), now, pace.forget);
        watched.asked = false;
        watched.ask_at += watched.detector.interval(&pace);
        add(&self.shared.metrics.statuses_missed, u64::from(seen != Seen::Answered));
        news::note_sight(&self.shared, id, seen, self.shared.here(now));
        news::note_trouble(watched, &answer);
        if changed {
            news::announce(watched, was, &answer, self.writes);
        }
        let written = match answer {
            Ok(status) if self.writes => self.write_status(id, status, now).await,
            Ok(status) => {
                watched.status = Some(status);
                Ok(())
            }
            Err(_) => {
                let empty_since = watched.row.empty_since;
                self.write_verdict(id, empty_since).await
            }
        };
        if let Err(error) = written {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what was observed could not be written"
            );
        }
    }

    /// Writes a status and what follows from it, and begins to compare the inventory where
    /// something is to be compared.
    async fn write_status(&mut self, id: FileserverId, status: Status, now: Millis) -> database::Result<()> {
        let Some(row) = self.watched.get(&id).map(|watched| watched.row.clone()) else { return Ok(()) };
        let empty_since = self.empty_since(&row, &status, now).await?;
        fileservers::record_status(&self.shared.database, id, &status, now).await?;
        self.give_parts(&row, &status);
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.status = Some(status);
        }
        self.write_verdict(id, empty_since).await?;
        self.compare(id);
        Ok(())
    }

    /// Since when the root is another one than the one that held the replicas; an empty
    /// root that SQL believes nothing on is simply adopted when its inventory is compared.
    async fn empty_since(
        &self,
        row: &Fileserver,
        status: &Status,
        now: Millis,
    ) -> database::Result<Option<Millis>> {
        if !other_root(row, status) {
            return Ok(None);
        }
        let counts = fileservers::replica_counts(&self.shared.database).await?;
        let holds = counts.iter().any(|(id, replicas)| *id == row.id && *replicas > 0);
        if holds && row.empty_since.is_none() {
            news::announce_empty(row);
        }
        Ok(holds.then(|| row.empty_since.unwrap_or(now)))
    }

    /// Writes the verdict, if it differs from what is there.
    async fn write_verdict(&mut self, id: FileserverId, empty_since: Option<Millis>) -> database::Result<()> {
        let grace = millis(self.shared.settings.grace);
        let Some(watched) = self.watched.get_mut(&id).filter(|_| self.writes) else { return Ok(()) };
        let row = &watched.row;
        let compared = compared(row, watched.status.as_ref());
        let Some(verdict) = verdict(row, &watched.detector, empty_since, compared, grace) else {
            return Ok(());
        };
        fileservers::record_verdicts(&self.shared.database, std::slice::from_ref(&verdict)).await?;
        if verdict.counts != row.counts {
            news::announce_counts(row, &verdict);
            // Goals of placement see another fleet from now on.
            self.shared.nudge.dispatch();
        }
        let row = &mut watched.row;
        (row.health, row.health_since, row.offline_ms) =
            (verdict.health, verdict.health_since, verdict.offline_ms);
        (row.counts, row.empty_since) = (verdict.counts, verdict.empty_since);
        Ok(())
    }

    /// Tells an agent whom it may believe, where its list is another one.
    fn give_parts(&mut self, row: &Fileserver, status: &Status) {
        if self.parts.parts.is_empty() || status.parts_digest == self.parts.digest() {
            return;
        }
        let (agents, to, parts) = (self.shared.agents.clone(), end(row), self.parts.clone());
        // Not waited for: an agent that takes long must not hold up the others.
        self.tellings.spawn(async move {
            let put = tokio::time::timeout(Duration::from_secs(5), agents.put_parts(&to, &parts)).await;
            match put {
                Ok(Ok(())) => tracing::debug!(fileserver.name = to.name, "told whom to believe"),
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        fileserver.name = to.name,
                        error,
                        "an agent did not take the list of parts"
                    );
                }
                Err(_) => tracing::warn!(fileserver.name = to.name, "an agent took no list of parts in time"),
            }
        });
    }

    /// Begins a comparison where the agent's start is new, or something changed.
    fn compare(&mut self, id: FileserverId) {
        if self.comparisons.len() >= COMPARISONS {
            return;
        }
        let Some(watched) = self.watched.get_mut(&id) else { return };
        if watched.comparing.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Some(status) = &watched.status else { return };
        let ready = status.inventory_complete && watched.row.empty_since.is_none();
        let whole = !compared(&watched.row, Some(status));
        let changed = status.inventory_generation > watched.row.inventory_generation;
        let list = whole || watched.listed.is_none_or(|at| at.elapsed() >= LISTED_EVERY);
        if !ready || !(whole || changed || list) {
            return;
        }
        watched.listed = if list { Some(Instant::now()) } else { watched.listed };
        let since = if whole { None } else { Some(watched.row.inventory_generation) };
        let (shared, to, start) = (Arc::clone(&self.shared), end(&watched.row), status.start_id.clone());
        let task = self.comparisons.spawn(async move {
            if list {
                note_quarantine(&shared, id, &to).await;
            }
            (id, inventory::compare(&shared.database, &shared.agents, id, &to, &start, since).await)
        });
        watched.comparing = Some(task);
    }

    /// A comparison ended: the fileserver may count again.
    async fn compared(&mut self, id: FileserverId, done: Result<Compared, inventory::CompareError>) {
        add(&self.shared.metrics.comparisons, 1);
        let Some(watched) = self.watched.get_mut(&id) else { return };
        let compared = match done {
            Ok(compared) => compared,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(fileserver.name = watched.row.name, error, "an inventory was not compared");
                return;
            }
        };
        watched.row.compared_start_id = Some(compared.start_id.clone());
        watched.row.root_id = watched.status.as_ref().map(|status| status.root_id.clone());
        watched.row.inventory_generation = compared.generation;
        if compared.whole || compared.rows > 0 {
            news::announce_compared(&watched.row, &compared);
        }
        let empty_since = watched.row.empty_since;
        if let Err(error) = self.write_verdict(id, empty_since).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a verdict could not be written");
        }
    }

    /// Now, by the database's clock.
    fn now(&self) -> Millis {
        self.shared.now()
    }
}

fn end(row: &Fileserver) -> End {
    End { name: row.name.clone(), url: row.url.clone() }
}

/// What was not noted now is noted an hour later: it goes after a week.
async fn note_quarantine(shared: &Shared, id: FileserverId, to: &End) {
    match inventory::quarantine::note(&shared.database, &shared.agents, id, to).await {
        Ok(0) => {}
        Ok(new) => tracing::info!(fileserver.name = to.name, new, "copies in quarantine were noted"),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(fileserver.name = to.name, error, "a quarantine was not listed");
        }
    }
}
