//! What this router thinks of each fileserver: the detectors, heartbeats for those that are offline, and what is told
//! to SQL of it. A view is this router's alone; the fleet's health is the controllers' to decide.

use super::choose::Seen;
use super::detector::{Detector, Ended, Sight};
use crate::database::Database;
use crate::database::routing::{self, Observed, Place};
use crate::fleet::Agents;
use crate::model::chance::Chance;
use crate::model::grant::End;
use crate::model::id::FileserverId;
use crate::telemetry::metrics::router::RouterMetrics;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two heartbeats of an offline fileserver.
const BEAT: Duration = Duration::from_secs(1);
/// Longest wait for one.
const BEAT_WITHIN: Duration = Duration::from_secs(1);
/// Time between two reports to SQL: twice within the age at which a voice is no longer heard.
const REPORT: Duration = Duration::from_secs(5);
/// What was seen longer ago is not reported: silence is no voice.
const FRESH: Duration = Duration::from_secs(10);
/// For so long a fileserver that said that it is busy comes last.
const BUSY_FOR: Duration = Duration::from_secs(5);
/// More fileservers than any fleet has.
const MOST: usize = 20_000;

/// All views.
#[derive(Debug)]
pub struct Views {
    agents: Agents,
    metrics: Arc<RouterMetrics>,
    all: Mutex<BTreeMap<FileserverId, View>>,
}

#[derive(Debug)]
struct View {
    end: End,
    detector: Detector,
    running: i64,
    busy_until: Option<Instant>,
    load: Option<i64>,
    /// When a request or a heartbeat last said something of it.
    heard: Option<Instant>,
}

/// A request that is on its way to a fileserver. Dropped without a word, it says nothing.
#[derive(Debug)]
pub struct Trying {
    views: Arc<Views>,
    fileserver: FileserverId,
    trial: bool,
    said: bool,
}

impl Views {
    /// No view of anything yet.
    #[must_use]
    pub fn new(agents: Agents, metrics: Arc<RouterMetrics>) -> Self {
        Self { agents, metrics, all: Mutex::default() }
    }

    /// How a fileserver is seen now.
    pub fn seen(&self, fileserver: FileserverId, now: Instant) -> Seen {
        let all = self.lock();
        let Some(view) = all.get(&fileserver) else {
            return Seen { sight: Sight::Online, may_try: true, running: 0, busy: false, load: None };
        };
        Seen {
            sight: view.detector.sight(),
            may_try: view.detector.may_try(),
            running: view.running,
            busy: view.busy_until.is_some_and(|until| until > now),
            load: view.load,
        }
    }

    /// A request goes to a fileserver.
    pub fn begin(self: &Arc<Self>, place: &Place) -> Trying {
        let mut all = self.lock();
        if all.len() >= MOST {
            all.retain(|_, view| view.running > 0);
        }
        let view = all.entry(place.fileserver).or_insert_with(|| View {
            end: place.end.clone(),
            detector: Detector::default(),
            running: 0,
            busy_until: None,
            load: None,
            heard: None,
        });
        view.end = place.end.clone();
        view.running += 1;
        let trial = view.detector.begin();
        Trying { views: Arc::clone(self), fileserver: place.fileserver, trial, said: false }
    }

    /// It said that it is busy.
    pub fn busy(&self, fileserver: FileserverId, now: Instant) {
        if let Some(view) = self.lock().get_mut(&fileserver) {
            view.busy_until = Some(now + BUSY_FOR);
        }
    }

    fn ended(&self, fileserver: FileserverId, ended: Ended, trial: bool, now: Instant) {
        let mut all = self.lock();
        let Some(view) = all.get_mut(&fileserver) else { return };
        if ended != Ended::Silent {
            view.heard = Some(now);
        }
        if view.detector.end(ended, trial) {
            tell(view);
            // Later words of SQL are newer than those of a heartbeat from before.
            view.load = view.load.filter(|_| view.detector.sight() != Sight::Online);
        }
        self.count(&all);
    }

    fn beaten(&self, fileserver: FileserverId, load: Option<i64>, now: Instant) {
        let mut all = self.lock();
        let Some(view) = all.get_mut(&fileserver) else { return };
        view.heard = Some(now);
        view.load = load;
        if view.detector.beat(load.is_some()) {
            tell(view);
        }
        self.count(&all);
    }

    fn count(&self, all: &BTreeMap<FileserverId, View>) {
        let offline = all.values().filter(|view| view.detector.sight() != Sight::Online).count();
        self.metrics.offline(offline);
    }

    /// Those that get heartbeats.
    fn silent(&self) -> Vec<(FileserverId, End)> {
        let all = self.lock();
        let silent = all.iter().filter(|(_, view)| view.detector.sight() != Sight::Online);
        silent.map(|(id, view)| (*id, view.end.clone())).collect()
    }

    /// What is known freshly enough to be told.
    fn fresh(&self, now: Instant) -> Vec<Observed> {
        let all = self.lock();
        let fresh = all.iter().filter(|(_, view)| view.heard.is_some_and(|at| at + FRESH > now));
        let observed = |(id, view): (&FileserverId, &View)| Observed {
            fileserver: *id,
            online: view.detector.sight() == Sight::Online,
        };
        fresh.map(observed).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileserverId, View>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(view: &View) {
    let name = &view.end.name;
    match view.detector.sight() {
        Sight::Online => tracing::info!(fileserver.name = name, "a fileserver serves this router again"),
        Sight::Probation => tracing::debug!(fileserver.name = name, "a fileserver answers again: a trial"),
        Sight::Offline => tracing::warn!(fileserver.name = name, "a fileserver is offline for this router"),
    }
}

impl Trying {
    /// It ended, and says something or nothing.
    pub fn end(&mut self, ended: Ended) {
        if !self.said {
            self.said = true;
            self.views.ended(self.fileserver, ended, self.trial, Instant::now());
        }
    }
}

impl Trying {
    /// It had begun to serve, and broke off in the middle.
    pub fn broke(&mut self) {
        self.said = true;
        self.views.ended(self.fileserver, Ended::Badly, false, Instant::now());
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.end(Ended::Silent);
        if let Some(view) = self.views.lock().get_mut(&self.fileserver) {
            view.running -= 1;
        }
    }
}

/// Asks those that are offline how they are, until stopped.
pub async fn beat(views: Arc<Views>, chance: Arc<Chance>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(chance.around(BEAT)) => {}
        }
        let mut asks: FuturesUnordered<_> = views
            .silent()
            .into_iter()
            .map(|(id, end)| {
                let agents = views.agents.clone();
                async move {
                    let asked = tokio::time::timeout(BEAT_WITHIN, agents.status(&end, BEAT_WITHIN)).await;
                    let well = asked.ok().and_then(Result::ok).filter(|status| status.trouble.is_none());
                    (id, well.map(|status| status.load))
                }
            })
            .collect();
        while let Some((id, load)) = asks.next().await {
            views.beaten(id, load, Instant::now());
        }
    }
}

/// Tells SQL what was seen, until stopped.
pub async fn report(views: Arc<Views>, db: Database, name: String, rack: String, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(REPORT) => {}
        }
        let fresh = views.fresh(Instant::now());
        if fresh.is_empty() {
            continue;
        }
        let write = tokio::time::timeout(REPORT, routing::observe(&db, &name, &rack, &fresh));
        if let Ok(Err(error)) = write.await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "what was seen of fileservers could not be written");
        }
    }
}
