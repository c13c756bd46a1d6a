//! What the agents in memory do when copies are taken away, and calls that stop half-way.

use super::super::Worker;
use super::{Agent, Disks, Fleet, Open, SECRET, act, line, quick};
use crate::database::Database;
use crate::model::checksum::Checksum;
use crate::model::grant::{GRANT_HEADER, Grant};
use crate::model::id::RepositoryId;
use crate::model::wire::{PurgeAnswer, PurgeRequest, Purged, QuarantineAnswer};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Every call: one that is frozen waits until it is let go, before it acts or after.
pub(super) async fn answer(
    State(agent): State<Agent>,
    Path((id, what)): Path<(i64, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = ed25519_dalek::SigningKey::from_bytes(&SECRET).verifying_key();
    let grant = Grant::open(headers[GRANT_HEADER].to_str().unwrap(), |_| Some(key)).unwrap();
    let call = format!("{} {what}", grant.destination.name);
    let frozen = agent.disks.lock().unwrap().frozen.get(&call).copied();
    let now =
        |agent: &Agent| act(State(agent.clone()), Path((id, what.clone())), headers.clone(), body.clone());
    let Some(first) = frozen else { return now(&agent).await };
    let done = if first { Some(now(&agent).await) } else { None };
    agent.open.fetch_add(1, Ordering::SeqCst);
    let _open = Open(Arc::clone(&agent.open));
    while agent.disks.lock().unwrap().frozen.contains_key(&call) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    match done {
        Some(done) => done,
        None => now(&agent).await,
    }
}

pub(super) fn set_aside(disks: &mut Disks, place: &(String, RepositoryId)) -> Response {
    let (here, id) = place;
    let mine = disks.quarantined.keys().filter(|(on, _)| on == here).map(|(_, path)| path.clone());
    let mut path: Option<String> = mine.max();
    if let Some(copy) = disks.copies.remove(place) {
        let new = format!("quarantine/{id}-{}.git", disks.quarantined.len());
        disks.quarantined.insert((here.clone(), new.clone()), copy);
        path = Some(new);
    }
    axum::Json(QuarantineAnswer { path, bytes: 100 }).into_response()
}

pub(super) fn purge(disks: &mut Disks, place: &(String, RepositoryId), body: &Bytes) -> Response {
    let ask: PurgeRequest = serde_json::from_slice(body).unwrap();
    let existed = match ask.what {
        Purged::Place { .. } => disks.copies.remove(place).is_some(),
        Purged::Quarantined { path } => disks.quarantined.remove(&(place.0.clone(), path)).is_some(),
    };
    line(&PurgeAnswer { existed, bytes: 100 })
}

impl Fleet {
    /// Stops a call, such as `fs-4 quarantine`, before it acts or after.
    pub(in crate::worker) fn freeze(&self, call: &str, after_acting: bool) {
        self.disks.lock().unwrap().frozen.insert(call.to_owned(), after_acting);
    }

    /// Lets all calls go.
    pub(in crate::worker) fn thaw(&self) {
        self.disks.lock().unwrap().frozen.clear();
    }

    /// Runs a worker in a runtime of its own, with connections of its own, so that it can die at once.
    pub(in crate::worker) fn work_apart(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, worker, url) = (runtime.unwrap(), self.worker(quick()), self.scratch.url().to_owned());
        runtime.spawn(async move {
            let database = Database::open(&url).await.unwrap();
            Worker { database, ..worker }.run(CancellationToken::new()).await;
        });
        self.apart = Some(runtime);
    }

    /// Ends it where it stands, as kill -9 does, and its attempt's lease with it.
    pub(in crate::worker) async fn kill_worker(&mut self) {
        if let Some(runtime) = self.apart.take() {
            runtime.shutdown_background();
        }
        self.until_open(0).await;
        let expired = "UPDATE attempts SET lease_until = 0 WHERE state = 'running' RETURNING 1";
        self.number_if_any(expired).await;
        crate::database::attempts::take_lost(self.db(), 10).await.unwrap();
    }

    /// As `number`, where there may be no row.
    pub(in crate::worker) async fn number_if_any(&self, text: &'static str) -> Option<i64> {
        if self.scratch.url().starts_with("sqlite:") {
            let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
            return sqlx::query_scalar(text).fetch_optional(&pool).await.unwrap();
        }
        let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
        let found: Option<i32> = sqlx::query_scalar(text).fetch_optional(&pool).await.unwrap();
        found.map(i64::from)
    }

    /// What the copy at its place has on disk; the outer none: nothing stands there.
    #[allow(clippy::option_option, reason = "nothing there, and there but damaged, are two things")]
    pub(in crate::worker) fn on_disk(&self, number: usize) -> Option<Option<Checksum>> {
        let key = (format!("fs-{number}"), self.repository.id);
        self.disks.lock().unwrap().copies.get(&key).copied()
    }

    /// Copies at their places, on any disk, that have a checksum.
    pub(in crate::worker) fn good_on_disks(&self, checksum: Checksum) -> usize {
        let disks = self.disks.lock().unwrap();
        disks.copies.values().filter(|copy| **copy == Some(checksum)).count()
    }

    /// Every copy that SQL takes for good has this checksum, and it is the definitive one.
    pub(in crate::worker) async fn set_sums(&self, byte: u8) {
        let sum = vec![byte; 32];
        for text in
            ["UPDATE repositories SET checksum = $1", "UPDATE replicas SET checksum = $1 WHERE in_sync"]
        {
            if self.scratch.url().starts_with("sqlite:") {
                let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
                sqlx::query(text).bind(&sum).execute(&pool).await.unwrap();
            } else {
                let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
                sqlx::query(text).bind(&sum).execute(&pool).await.unwrap();
            }
        }
    }
}
