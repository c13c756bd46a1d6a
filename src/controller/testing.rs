//! Builders for the tests of the loops: fileservers, and a controller over real SQL with
//! agents that are a table in memory.

use super::{Controller, Metrics, Pace, Settings};
use crate::database::scratch::Scratch;
use crate::database::{Database, fileservers, repositories};
use crate::fleet::Agents;
use crate::goal::library::Library;
use crate::goal::session::Source;
use crate::model::chance::Chance;
use crate::model::checksum::Checksum;
use crate::model::fleet::{Fileserver, Health, Intent, ObjectFormat};
use crate::model::goal::{GoalState, GoalStatus};
use crate::model::grant::{Enrolment, Part, Role};
use crate::model::id::{FileserverId, RackId, RepositoryId};
use crate::model::wire::{InventoryEntry, InventoryPage, Status};
use crate::queue::{Nudge, Reminders};
use crate::repair::Repairs;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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
        root: Some("/root-1".into()),
        capacity: 1 << 40,
        disk_used: 0,
        disk_free: 1 << 40,
        load: 0,
        processes: 0,
        long_reads: 0,
        weight: 100,
        agent_version: None,
        git_version: None,
        inventory_generation: 0,
        seen_at: Some(0),
    }
}

/// A goal that was never evaluated.
pub(super) fn goal_status(goal: &str) -> GoalStatus {
    GoalStatus {
        goal: goal.into(),
        state: GoalState::Unknown,
        findings: 0,
        at_least: false,
        evaluated_at: None,
        finished_at: None,
        took_ms: None,
        error: None,
        failures: 0,
        file_error: None,
        digest: None,
        ended: None,
        gave_way: None,
        gave_way_at: None,
    }
}

/// What one agent in memory is.
#[derive(Clone)]
struct Machine {
    dead: bool,
    start: String,
    root: String,
    generation: i64,
    entries: BTreeMap<RepositoryId, InventoryEntry>,
}

type Machines = Arc<Mutex<BTreeMap<String, Machine>>>;

/// Real SQL, a directory of goals, and agents that answer for their status and inventory.
pub(super) struct Stage {
    scratch: Scratch,
    directory: tempfile::TempDir,
    machines: Machines,
    pub(super) ids: Vec<FileserverId>,
    pub(super) nudge: Nudge,
    pub(super) metrics: Arc<Metrics>,
    running: JoinSet<()>,
    /// What its controllers know of repairs.
    pub(super) repairs: Repairs,
    /// Other databases that goals may name.
    pub(super) databases: Vec<(String, String)>,
}

/// Settings under which nothing waits long.
pub(super) fn quick() -> Settings {
    let pace = Pace {
        online: Duration::from_millis(100),
        suspect: Duration::from_millis(50),
        offline: Duration::from_millis(50),
        timeout: Duration::from_secs(5),
        ..Pace::default()
    };
    Settings {
        reload: Duration::from_millis(200),
        dispatch: Duration::from_millis(50),
        grace: Duration::from_secs(1),
        pace,
        ..Settings::default()
    }
}

pub(super) async fn stage(scratch: Scratch, many: u8) -> Stage {
    let (machines, mut running, mut ids) = (Machines::default(), JoinSet::new(), Vec::new());
    for number in 1..=many {
        let name = format!("fs-{number}");
        let (start, root) = ("start-1".to_owned(), format!("root-{number}"));
        let machine = Machine { dead: false, start, root, generation: 1, entries: BTreeMap::new() };
        machines.lock().unwrap().insert(name.clone(), machine);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/status", get(status))
            .route("/v1/inventory", get(inventory))
            .with_state((name.clone(), Arc::clone(&machines)));
        running.spawn(async move { axum::serve(listener, router).await.unwrap() });
        ids.push(add(scratch.database(), &name, number, &url).await);
    }
    let directory = tempfile::tempdir().unwrap();
    let (nudge, metrics) = (Nudge::new(), Arc::new(Metrics::default()));
    let repairs = crate::repair::library::shipped().unwrap();
    Stage { scratch, directory, machines, ids, nudge, metrics, running, repairs, databases: Vec::new() }
}

async fn add(db: &Database, name: &str, number: u8, url: &str) -> FileserverId {
    let public_key = base64::engine::general_purpose::STANDARD.encode([number; 32]);
    let part = Part { id: name.to_owned(), name: name.to_owned(), role: Role::Agent, public_key };
    let id = fileservers::add(db, name, &format!("rack-{number}"), url, &part).await.unwrap();
    let health = Health::Online;
    let verdict =
        fileservers::Verdict { id, health, health_since: 1, offline_ms: 0, counts: true, empty_since: None };
    fileservers::record_verdicts(db, &[verdict]).await.unwrap();
    id
}

impl Stage {
    pub(super) fn db(&self) -> &Database {
        self.scratch.database()
    }

    pub(super) fn goal(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(format!("{name}.sql")), text).unwrap();
    }

    pub(super) fn remove_goal(&self, name: &str) {
        std::fs::remove_file(self.directory.path().join(format!("{name}.sql"))).unwrap();
    }

    /// A repository with copies on the first so many fileservers.
    pub(super) async fn repository(&self, name: &str, wanted: u32, copies: usize) -> RepositoryId {
        let on = &self.ids[..copies];
        let db = self.db();
        let import = repositories::plan_import(db, name, ObjectFormat::Sha1, wanted, 10, on).await.unwrap();
        let holders: Vec<_> = on.iter().map(|id| (*id, 100)).collect();
        let checksum = Checksum { key: 1, sum: [1; 32] };
        let made = repositories::finish_import(db, import.id, &checksum, &holders).await.unwrap();
        for number in 1..=copies {
            self.note(&format!("fs-{number}"), made.id, true);
        }
        made.id
    }

    fn note(&self, machine: &str, repository: RepositoryId, present: bool) {
        let mut machines = self.machines.lock().unwrap();
        let machine = machines.get_mut(machine).unwrap();
        machine.generation += 1;
        let generation = machine.generation;
        let entry =
            InventoryEntry { repository, generation, present, changed: false, bytes: 100, version: 0 };
        machine.entries.insert(repository, entry);
    }

    pub(super) fn hold(&self, machine: &str, repository: RepositoryId) {
        self.note(machine, repository, true);
    }

    pub(super) fn lose(&self, machine: &str, repository: RepositoryId) {
        self.note(machine, repository, false);
    }

    fn with(&self, machine: &str, change: impl FnOnce(&mut Machine)) {
        change(self.machines.lock().unwrap().get_mut(machine).unwrap());
    }

    pub(super) fn kill(&self, machine: &str) {
        self.with(machine, |machine| machine.dead = true);
    }

    pub(super) fn revive(&self, machine: &str) {
        self.with(machine, |machine| (machine.dead, machine.start) = (false, "start-2".into()));
    }

    pub(super) fn replace_root(&self, machine: &str) {
        self.with(machine, |machine| {
            (machine.start, machine.root) = ("start-2".into(), "another".into());
            machine.entries.clear();
        });
    }

    /// Runs a controller; it ends with the token.
    pub(super) async fn run(&mut self, settings: Settings) -> CancellationToken {
        let repairs = Arc::new(self.repairs.clone());
        let subjects = repairs.by_name.values().map(|repair| (repair.name.clone(), repair.subject)).collect();
        let mut source = Source::new(self.scratch.url()).unwrap();
        for (name, url) in &self.databases {
            source = source.with_database(name, url).unwrap();
        }
        let goals = Library::load(self.directory.path(), source.clone(), subjects).await.unwrap();
        let controller = Controller {
            name: "c".into(),
            settings,
            database: self.db().clone(),
            source,
            goals,
            repairs,
            agents: Agents::new(&enrolment()).unwrap(),
            reminders: Reminders::in_process(),
            pace: Arc::new(std::sync::atomic::AtomicU32::new(100)),
            nudge: self.nudge.clone(),
            metrics: Arc::clone(&self.metrics),
            chance: Arc::new(Chance::new(self.running.len() as u64)),
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        self.running.spawn(async move { controller.run(token).await });
        stop
    }

    pub(super) fn rounds(&self) -> u64 {
        self.metrics.rounds.load(Ordering::Relaxed)
    }

    pub(super) fn statuses(&self) -> u64 {
        self.metrics.statuses.load(Ordering::Relaxed)
    }

    pub(super) async fn number(&self, text: &'static str) -> i64 {
        if self.scratch.url().starts_with("sqlite:") {
            let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
            return sqlx::query_scalar(text).fetch_one(&pool).await.unwrap();
        }
        let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
        sqlx::query_scalar(text).fetch_one(&pool).await.unwrap()
    }

    /// Makes a situation that no room makes.
    pub(super) async fn write(&self, text: &'static str) {
        if self.scratch.url().starts_with("sqlite:") {
            let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
            sqlx::query(text).execute(&pool).await.unwrap();
            return;
        }
        let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
        sqlx::query(text).execute(&pool).await.unwrap();
    }

    /// Waits for it, so long as a machine may take that has other things to do.
    pub(super) async fn until(&self, what: &str, is: impl AsyncFn(&Self) -> bool) {
        let holds = async {
            while !is(self).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(90), holds).await.is_ok(), "never came: {what}");
    }
}

fn enrolment() -> Enrolment {
    let base64 = base64::engine::general_purpose::STANDARD;
    let secret = [7; 32];
    let key = ed25519_dalek::SigningKey::from_bytes(&secret);
    let public_key = base64.encode(key.verifying_key().to_bytes());
    let part = Part { id: "c".into(), name: "c".into(), role: Role::Controller, public_key };
    let (fleet, secret_key) = ("fleet".into(), base64.encode(secret));
    Enrolment { fleet, part, secret_key, parts: vec![], checksum_key: None }
}

async fn status(State((name, machines)): State<(String, Machines)>) -> Response {
    let machine = machines.lock().unwrap()[&name].clone();
    if machine.dead {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let status = Status {
        fileserver: name,
        start_id: machine.start,
        root: format!("/{}", machine.root),
        root_id: machine.root,
        capacity: 1 << 40,
        disk_used: 1,
        disk_free: 1 << 40,
        load: 0,
        processes: 0,
        long_reads: 0,
        whole_disk: false,
        agent_version: "1".into(),
        git_version: "2".into(),
        inventory_generation: machine.generation,
        inventory_complete: true,
        parts_digest: String::new(),
        locks_removed: 0,
        highest_repair_epoch: 0,
        highest_push_epoch: 0,
        trouble: None,
    };
    axum::Json(status).into_response()
}

#[derive(serde::Deserialize)]
struct Asked {
    since: i64,
    after: RepositoryId,
    limit: usize,
}

async fn inventory(
    State((name, machines)): State<(String, Machines)>,
    Query(asked): Query<Asked>,
) -> Response {
    let machine = machines.lock().unwrap()[&name].clone();
    let wanted = |entry: &&InventoryEntry| entry.generation > asked.since && entry.repository > asked.after;
    let mut entries: Vec<_> =
        machine.entries.values().filter(wanted).take(asked.limit + 1).cloned().collect();
    let more = entries.len() > asked.limit;
    entries.truncate(asked.limit);
    let (start_id, generation) = (machine.start, machine.generation);
    axum::Json(InventoryPage { start_id, generation, entries, more }).into_response()
}
