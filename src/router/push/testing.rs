//! A fleet for the tests of pushes and of settling: real SQL, real calls, agents whose copies are lists in memory.
//!
//! They keep the promises that agents make: epochs, fences, votes, what is prepared ends. Objects they take and forget.

use super::{Pushing, Settings};
use crate::database::pushes::{self, Open, Opened, Opening};
use crate::database::scratch::Scratch;
use crate::database::{Database, fileservers, repositories};
use crate::fleet::Agents;
use crate::model::chance::Chance;
use crate::model::checksum::{Checksum, ChecksumKey, Target};
use crate::model::contents::EpochsAnswer;
use crate::model::fleet::{Health, ObjectFormat, Repository};
use crate::model::grant::{Enrolment, GRANT_HEADER, Grant, Part, Role};
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::push::{Listing, after};
use crate::model::wire::push::{
    Command, FenceAnswer, FenceRequest, FinishAnswer, FinishRequest, IngestAnswer, IngestRequest,
    PrepareRequest, Ready, RefName, Vote,
};
use crate::model::wire::{CopyAnswer, Line, Refusal, RefusalCode};
use crate::queue::Nudge;
use crate::shutdown::Shutdown;
use crate::telemetry::PushMetrics;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use base64::Engine as _;
use futures::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const SECRET: [u8; 32] = [9; 32];

pub(crate) fn checksum_key() -> ChecksumKey {
    ChecksumKey { id: 1, secret: [7; 32] }
}

pub(crate) fn oid(digit: char) -> String {
    std::iter::repeat_n(digit, 40).collect()
}

pub(crate) fn name(text: &str) -> RefName {
    RefName(text.as_bytes().to_vec())
}

/// One copy.
pub(crate) struct Copy {
    pub(crate) listing: Listing,
    pub(crate) journal: i64,
    pub(crate) fence: i64,
    prepared: Option<(String, i64, i64, Vec<Command>)>,
    ingests: BTreeSet<String>,
}

/// All copies by fileserver, and what is wrong with agents, as `fs-1 prepare`: they do it and do not say so
/// (`… unheard`), refuse it (`… refused`), or never answer (`… silent`).
#[derive(Default)]
pub(crate) struct Disks {
    pub(crate) copies: BTreeMap<String, Copy>,
    pub(crate) troubles: BTreeSet<String>,
    pub(crate) bytes: BTreeMap<String, usize>,
    next: u64,
}

type Shared = Arc<Mutex<Disks>>;

impl Disks {
    /// Brings every copy to what is definitive, as resync does, and ends all troubles.
    pub(crate) fn heal(&mut self, definitive: Option<Checksum>) {
        self.troubles.clear();
        let good = self.copies.values().find(|copy| Some(sum(&copy.listing)) == definitive);
        let good = good.unwrap().listing.clone();
        for copy in self.copies.values_mut() {
            copy.listing = good.clone();
            copy.prepared = None;
        }
    }
}

#[derive(Clone)]
struct Agent {
    name: String,
    disks: Shared,
}

pub(crate) struct Fleet {
    pub(crate) scratch: Scratch,
    pub(crate) repository: Repository,
    pub(crate) disks: Shared,
    pub(crate) ids: Vec<FileserverId>,
    pub(crate) pushing: Arc<Pushing>,
    _running: JoinSet<()>,
}

/// What every copy has at first.
fn listing() -> Listing {
    let references = BTreeMap::from([(name("refs/heads/main"), Target::Object(oid('a')))]);
    Listing { head: Target::Symbolic("refs/heads/main".to_owned()), references }
}

/// So many fileservers, each with a copy.
pub(crate) async fn fleet(scratch: Scratch, many: u8) -> Fleet {
    let disks = Shared::default();
    let (mut running, mut ids) = (JoinSet::new(), Vec::new());
    for number in 1..=many {
        let agent = Agent { name: format!("fs-{number}"), disks: Arc::clone(&disks) };
        let copy =
            Copy { listing: listing(), journal: 1, fence: 0, prepared: None, ingests: BTreeSet::new() };
        disks.lock().unwrap().copies.insert(agent.name.clone(), copy);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        ids.push(fileserver(scratch.database(), number, &url).await);
        running.spawn(async move { axum::serve(listener, routes(agent)).await.unwrap() });
    }
    let db = scratch.database();
    let import =
        repositories::plan_import(db, "a/b", ObjectFormat::Sha1, many.into(), 10, &ids).await.unwrap();
    let holders: Vec<_> = ids.iter().map(|id| (*id, 100)).collect();
    let sum = listing().checksum(&checksum_key(), ObjectFormat::Sha1);
    let repository = repositories::finish_import(db, import.id, &sum, &holders).await.unwrap();
    let pushing = Arc::new(pushing(db.clone()));
    Fleet { scratch, repository, disks, ids, pushing, _running: running }
}

fn routes(agent: Agent) -> Router {
    Router::new()
        .route("/v1/repositories/{id}/references", get(references))
        .route("/v1/repositories/{id}/pushes", post(ingest))
        .route("/v1/repositories/{id}/pushes/{ingest}/pack", put(pack))
        .route("/v1/repositories/{id}/pushes/{ingest}/prepare", post(prepare))
        .route("/v1/repositories/{id}/pushes/{ingest}/finish", post(finish))
        .route("/v1/repositories/{id}/pushes/{ingest}", delete(forget))
        .route("/v1/repositories/{id}/fence", post(fence))
        .route("/v1/repositories/{id}/epochs", get(epochs))
        .route("/v1/repositories/{id}/bring", post(bring))
        .with_state(agent)
}

async fn fileserver(db: &Database, number: u8, url: &str) -> FileserverId {
    let name = format!("fs-{number}");
    let public_key = base64::engine::general_purpose::STANDARD.encode([number; 32]);
    let part = Part { id: name.clone(), name: name.clone(), role: Role::Agent, public_key };
    let id = fileservers::add(db, &name, &format!("rack-{number}"), url, &part).await.unwrap();
    let health = Health::Online;
    let verdict =
        fileservers::Verdict { id, health, health_since: 1, offline_ms: 0, counts: true, empty_since: None };
    fileservers::record_verdicts(db, &[verdict]).await.unwrap();
    id
}

fn pushing(database: Database) -> Pushing {
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = ed25519_dalek::SigningKey::from_bytes(&SECRET);
    let public_key = base64.encode(key.verifying_key().to_bytes());
    let part = Part { id: "r".into(), name: "r".into(), role: Role::Router, public_key };
    let secret_key = base64.encode(SECRET);
    let enrolment = Enrolment { fleet: "fleet".into(), part, secret_key, parts: vec![], checksum_key: None };
    let settings = Settings {
        references: 1_000,
        largest: 1 << 20,
        line: Duration::from_secs(4),
        stall: Duration::from_millis(300),
        call: Duration::from_secs(2),
        patience: Duration::from_secs(1),
        alive: Duration::from_millis(50),
        outcome: Duration::from_millis(500),
        ..Settings::default()
    };
    Pushing {
        database,
        agents: Agents::new(&enrolment).unwrap(),
        checksum_key: checksum_key(),
        router: "r".into(),
        settings,
        judge: None,
        nudge: Nudge::new(),
        metrics: PushMetrics::default(),
        chance: Arc::new(Chance::new(1)),
        tasks: Shutdown::new(),
    }
}

impl Fleet {
    pub(crate) fn db(&self) -> &Database {
        self.scratch.database()
    }

    pub(crate) fn trouble(&self, what: &str) {
        self.disks.lock().unwrap().troubles.insert(what.to_owned());
    }

    /// What a reference is on each copy.
    pub(crate) fn on_disks(&self, reference: &str) -> Vec<Option<char>> {
        let disks = self.disks.lock().unwrap();
        let first = |copy: &Copy| match copy.listing.get(&name(reference)) {
            Some(Target::Object(oid)) => oid.chars().next(),
            _ => None,
        };
        disks.copies.values().map(first).collect()
    }

    pub(crate) async fn in_sync(&self) -> Vec<bool> {
        let all = repositories::replicas_of(self.db(), &[self.repository.id]).await.unwrap();
        all.into_iter().map(|replica| replica.in_sync).collect()
    }

    pub(crate) async fn now(&self) -> Repository {
        repositories::by_ids(self.db(), &[self.repository.id]).await.unwrap().pop().unwrap()
    }

    /// Opens a push of a router that does nothing more; its lease is over at once if it is `dead`.
    pub(crate) async fn left_open(&self, commands: &[Command], dead: bool) -> Open {
        let base = self.now().await;
        let new = after(&checksum_key(), &base.checksum.unwrap(), commands).unwrap();
        let ask = Opening {
            repository: base.id,
            router: "gone",
            base_version: base.version,
            commands,
            new,
            ready: &self.ids,
            lease_ms: if dead { -1 } else { 60_000 },
            above: 0,
        };
        match pushes::open(self.db(), &ask).await.unwrap() {
            Opened::Open(open) => open,
            other => panic!("{other:?}"),
        }
    }

    /// What a copy has after these commands, as if it had committed them.
    pub(crate) fn done_on(&self, number: usize, commands: &[Command]) {
        let mut disks = self.disks.lock().unwrap();
        let copy = disks.copies.get_mut(&format!("fs-{number}")).unwrap();
        copy.listing.apply(commands);
        copy.journal += 1;
    }
}

impl Agent {
    /// What the trouble with a call is, if there is one.
    fn trouble(&self, what: &str) -> Option<&'static str> {
        let disks = self.disks.lock().unwrap();
        let kinds = ["unheard", "refused", "silent"];
        kinds.into_iter().find(|kind| disks.troubles.contains(&format!("{} {what} {kind}", self.name)))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Copy) -> T) -> T {
        change(self.disks.lock().unwrap().copies.get_mut(&self.name).unwrap())
    }

    /// Does a call, or not, and answers it, or not.
    async fn act(&self, what: &str, work: impl FnOnce(&mut Copy) -> Response) -> Response {
        match self.trouble(what) {
            None => self.with(work),
            Some("refused") => refuse(RefusalCode::Rejected),
            Some("silent") => std::future::pending().await,
            Some(_) => {
                self.with(work);
                refuse(RefusalCode::Failed)
            }
        }
    }
}

fn sum(listing: &Listing) -> Checksum {
    listing.checksum(&checksum_key(), ObjectFormat::Sha1)
}

fn refuse(code: RefusalCode) -> Response {
    (StatusCode::CONFLICT, axum::Json(Refusal::new(code, format!("refused: {code}")))).into_response()
}

fn line<T: serde::Serialize + Clone>(done: &T) -> Response {
    format!("{}\n", serde_json::to_string(&Line::Done(done.clone())).unwrap()).into_response()
}

fn grant(headers: &HeaderMap) -> Grant {
    let key = ed25519_dalek::SigningKey::from_bytes(&SECRET).verifying_key();
    Grant::open(headers[GRANT_HEADER].to_str().unwrap(), |_| Some(key)).unwrap()
}

fn show(target: &Target) -> String {
    match target {
        Target::Object(oid) => oid.clone(),
        Target::Symbolic(to) => format!("ref:{to}"),
    }
}

async fn references(State(agent): State<Agent>) -> Response {
    agent
        .act("references", |copy| {
            let mut text = format!("HEAD {}\n", show(&copy.listing.head));
            for (name, target) in &copy.listing.references {
                let _ = writeln!(text, "{} {name}", show(target));
            }
            text.into_response()
        })
        .await
}

async fn ingest(State(agent): State<Agent>, axum::Json(ask): axum::Json<IngestRequest>) -> Response {
    assert!(!ask.commands.is_empty());
    let number = {
        let mut disks = agent.disks.lock().unwrap();
        disks.next += 1;
        disks.next
    };
    let ingest = format!("i{number}");
    agent
        .act("ingest", |copy| {
            copy.ingests.insert(ingest.clone());
            axum::Json(IngestAnswer { ingest, pushed: copy.fence }).into_response()
        })
        .await
}

async fn pack(State(agent): State<Agent>, Path((_, ingest)): Path<(i64, String)>, body: Body) -> Response {
    if agent.trouble("pack") == Some("silent") {
        return std::future::pending().await;
    }
    let (mut stream, mut bytes) = (body.into_data_stream(), 0);
    while let Some(chunk) = stream.next().await {
        let Ok(chunk) = chunk else { return refuse(RefusalCode::Cancelled) };
        bytes += chunk.len();
    }
    agent.disks.lock().unwrap().bytes.insert(agent.name.clone(), bytes);
    let bytes = i64::try_from(bytes).unwrap();
    agent
        .act("pack", |copy| {
            if copy.ingests.contains(&ingest) {
                line(&Ready { bytes, objects: 1, unfit: Vec::new() })
            } else {
                refuse(RefusalCode::NotFound)
            }
        })
        .await
}

async fn prepare(
    State(agent): State<Agent>,
    Path((_, ingest)): Path<(i64, String)>,
    headers: HeaderMap,
    axum::Json(ask): axum::Json<PrepareRequest>,
) -> Response {
    let epoch = grant(&headers).epoch.unwrap();
    agent
        .act("prepare", |copy| {
            if epoch <= copy.fence {
                return refuse(RefusalCode::OldEpoch);
            }
            if !copy.ingests.contains(&ingest) || copy.prepared.is_some() {
                return refuse(RefusalCode::Busy);
            }
            let mut then = copy.listing.clone();
            then.apply(&ask.commands);
            let vote = Vote { before: sum(&copy.listing), after: sum(&then), journal_version: copy.journal };
            copy.prepared = Some((ingest, epoch, ask.base_version, ask.commands));
            axum::Json(vote).into_response()
        })
        .await
}

async fn finish(
    State(agent): State<Agent>,
    Path((_, ingest)): Path<(i64, String)>,
    headers: HeaderMap,
    axum::Json(ask): axum::Json<FinishRequest>,
) -> Response {
    let epoch = grant(&headers).epoch.unwrap();
    agent
        .act("finish", |copy| {
            let mine = copy.prepared.take_if(|(of, held, ..)| *of == ingest && *held == epoch);
            let Some((_, _, base_version, commands)) = mine else { return refuse(RefusalCode::NotFound) };
            copy.ingests.remove(&ingest);
            if ask.commit {
                copy.listing.apply(&commands);
                copy.journal = base_version + 1;
            }
            let checksum = sum(&copy.listing);
            axum::Json(FinishAnswer { committed: ask.commit, checksum, bytes: 70 }).into_response()
        })
        .await
}

async fn forget(State(agent): State<Agent>, Path((_, ingest)): Path<(i64, String)>) -> StatusCode {
    agent.with(|copy| copy.ingests.remove(&ingest));
    StatusCode::NO_CONTENT
}

async fn fence(
    State(agent): State<Agent>,
    headers: HeaderMap,
    axum::Json(ask): axum::Json<FenceRequest>,
) -> Response {
    let epoch = grant(&headers).epoch.unwrap();
    agent
        .act("fence", |copy| {
            if epoch <= copy.fence {
                return refuse(RefusalCode::OldEpoch);
            }
            copy.fence = copy.fence.max(ask.epoch);
            copy.prepared = None;
            let checksum = sum(&copy.listing);
            axum::Json(FenceAnswer { checksum, journal_version: copy.journal }).into_response()
        })
        .await
}

async fn epochs(State(agent): State<Agent>) -> Response {
    agent.with(|copy| axum::Json(EpochsAnswer { repair: 0, push: copy.fence }).into_response())
}

async fn bring(State(agent): State<Agent>, headers: HeaderMap, _: Bytes) -> Response {
    let grant = grant(&headers);
    let source = grant.source.unwrap().name;
    let theirs = {
        let disks = agent.disks.lock().unwrap();
        let copy = &disks.copies[&source];
        (copy.listing.clone(), copy.journal)
    };
    agent
        .act("bring", |copy| {
            if grant.epoch.unwrap() <= copy.fence {
                return refuse(RefusalCode::OldEpoch);
            }
            (copy.listing, copy.journal) = theirs;
            let (checksum, message) = (sum(&copy.listing), "brought".to_owned());
            let (moved, bytes, references_changed, rebuilt, generation) = (1, 1, 1, false, 0);
            line(&CopyAnswer { checksum, moved, bytes, references_changed, rebuilt, generation, message })
        })
        .await
}

/// The repository of every fleet here.
pub(crate) const ID: RepositoryId = RepositoryId(1);
