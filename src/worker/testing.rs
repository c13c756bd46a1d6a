//! A fleet for the worker's tests: real SQL, real calls, agents that are a table in memory.

use super::{Programs, Recheck, Settings, Worker};
use crate::database::findings::{Merge, MergeInto};
use crate::database::scratch::Scratch;
use crate::database::{Database, attempts, fileservers, findings, repositories};
use crate::fleet::Agents;
use crate::model::attempt::{Plan, Step};
use crate::model::chance::Chance;
use crate::model::checksum::Checksum;
use crate::model::contents::EpochsAnswer;
use crate::model::finding::{Exception, Finding, Hints, Lane, Subject};
use crate::model::fleet::{Health, ObjectFormat, Replica, Repository};
use crate::model::grant::{Enrolment, GRANT_HEADER, Grant, Part, Role};
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::{
    ChecksumAnswer, CopyAnswer, Line, Progress, Refusal, RefusalCode, RepackAnswer, VerifyAnswer,
};
use crate::queue::Reminders;
use crate::repair::Repairs;
use crate::repair::testing::repair;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod asking;
mod away;
mod damage;

pub(super) const SECRET: [u8; 32] = [7; 32];

pub(super) fn sum(byte: u8) -> Checksum {
    Checksum { key: 1, sum: [byte; 32] }
}

/// What the agents of a fleet hold and do.
#[derive(Default)]
pub(super) struct Disks {
    /// What each copy has; none: damaged.
    pub(super) copies: BTreeMap<(String, RepositoryId), Option<Checksum>>,
    /// Long work on these fileservers never ends.
    pub(super) hanging: BTreeSet<String>,
    /// Long work on these fileservers is refused.
    pub(super) refusing: BTreeMap<String, RefusalCode>,
    /// Copies made on these fileservers come out with other references: something was pushed meanwhile.
    pub(super) stale: BTreeSet<String>,
    /// The highest repair epoch seen of each repository.
    pub(super) epochs: BTreeMap<RepositoryId, i64>,
    /// Calls, as `fs-1 resync`.
    pub(super) calls: Vec<String>,
    /// What each copy that was set aside has, by its path.
    pub(super) quarantined: BTreeMap<(String, String), Option<Checksum>>,
    /// Calls that wait until they are let go, as `fs-1 quarantine`; `true`: what they ask for is done before.
    pub(super) frozen: BTreeMap<String, bool>,
}

#[derive(Clone)]
struct Agent {
    disks: Arc<Mutex<Disks>>,
    /// Long calls that are open now.
    open: Arc<AtomicUsize>,
}

/// A fleet with one repository at version 1, its definitive checksum `sum(1)`.
pub(super) struct Fleet {
    pub(super) scratch: Scratch,
    pub(super) repository: Repository,
    pub(super) disks: Arc<Mutex<Disks>>,
    pub(super) ids: Vec<FileserverId>,
    pub(super) holds: Arc<AtomicBool>,
    repairs: Repairs,
    open: Arc<AtomicUsize>,
    running: JoinSet<()>,
    apart: Option<tokio::runtime::Runtime>,
}

struct Held(Arc<AtomicBool>);

/// A recheck that panics: a fault in the worker itself.
pub(super) struct Faulty;

impl Recheck for Faulty {
    fn holds<'a>(&'a self, _: &'a str, _: &'a Subject) -> BoxFuture<'a, Option<bool>> {
        async { panic!("a fault") }.boxed()
    }
}

impl Recheck for Held {
    fn holds<'a>(&'a self, _: &'a str, _: &'a Subject) -> BoxFuture<'a, Option<bool>> {
        let holds = self.0.load(Ordering::SeqCst);
        async move { Some(holds) }.boxed()
    }
}

fn enrolment() -> Enrolment {
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = ed25519_dalek::SigningKey::from_bytes(&SECRET);
    let public_key = base64.encode(key.verifying_key().to_bytes());
    let part = Part { id: "w".into(), name: "w".into(), role: Role::Worker, public_key };
    let (fleet, secret_key) = ("fleet".into(), base64.encode(SECRET));
    Enrolment { fleet, part, secret_key, parts: vec![], checksum_key: None }
}

/// So many fileservers `fs-1`, `fs-2` …, the first `copies` of them with a whole copy.
pub(super) async fn fleet(scratch: Scratch, many: u8, copies: usize) -> Fleet {
    let (disks, open) = (Arc::new(Mutex::new(Disks::default())), Arc::new(AtomicUsize::new(0)));
    let (mut running, mut ids) = (JoinSet::new(), Vec::new());
    for number in 1..=many {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let agent = Agent { disks: Arc::clone(&disks), open: Arc::clone(&open) };
        let router = Router::new()
            .route("/v1/repositories/{id}/epochs", get(epochs))
            .route("/v1/repositories/{id}/{what}", post(away::answer))
            .with_state(agent);
        running.spawn(async move { axum::serve(listener, router).await.unwrap() });
        ids.push(fileserver(scratch.database(), number, &url).await);
    }
    let repository = repository(scratch.database(), &ids[..copies]).await;
    for number in 1..=copies {
        disks.lock().unwrap().copies.insert((format!("fs-{number}"), repository.id), Some(sum(1)));
    }
    let (holds, repairs) = (Arc::new(AtomicBool::new(true)), Repairs::default());
    Fleet { scratch, repository, disks, ids, holds, repairs, open, running, apart: None }
}

async fn fileserver(db: &Database, number: u8, url: &str) -> FileserverId {
    let name = format!("fs-{number}");
    let public_key = base64::engine::general_purpose::STANDARD.encode([number; 32]);
    let part = Part { id: name.clone(), name: name.clone(), role: Role::Agent, public_key };
    let id = fileservers::add(db, &name, &format!("rack-{number}"), url, &part).await.unwrap();
    fileservers::record_verdicts(db, &[verdict(id, Health::Online)]).await.unwrap();
    id
}

pub(super) fn verdict(id: FileserverId, health: Health) -> fileservers::Verdict {
    fileservers::Verdict { id, health, health_since: 1, offline_ms: 0, counts: true, empty_since: None }
}

async fn repository(db: &Database, on: &[FileserverId]) -> Repository {
    let import = repositories::plan_import(db, "a/b", ObjectFormat::Sha1, 3, 10, on).await.unwrap();
    let holders: Vec<_> = on.iter().map(|id| (*id, 100)).collect();
    repositories::finish_import(db, import.id, &sum(1), &holders).await.unwrap()
}

impl Fleet {
    pub(super) fn db(&self) -> &Database {
        self.scratch.database()
    }

    /// Opens a finding and admits an attempt for it.
    pub(super) async fn admit(&self, step: Step, source: Option<usize>, destination: usize) {
        let plan = self.plan(step, source, destination);
        let subject = match step {
            Step::Replicate => Subject::Repository(self.repository.id),
            _ => Subject::Replica(self.repository.id, self.ids[destination - 1]),
        };
        self.admit_plan("a-goal", subject, plan).await;
    }

    /// The same, about any subject.
    pub(super) async fn admit_about(
        &self,
        subject: Subject,
        step: Step,
        source: Option<usize>,
        destination: usize,
    ) {
        self.admit_plan("a-goal", subject, self.plan(step, source, destination)).await;
    }

    pub(super) fn plan(&self, step: Step, source: Option<usize>, destination: usize) -> Plan {
        Plan {
            step,
            repository_id: Some(self.repository.id),
            source_id: source.map(|source| self.ids[source - 1]),
            destination_id: Some(self.ids[destination - 1]),
            bytes: 100,
            deadline_ms: 60_000,
            bytes_per_second: 0,
            write_lock: false,
            path: None,
        }
    }

    pub(super) async fn admit_plan(&self, goal: &str, subject: Subject, plan: Plan) {
        let finding = self.open(goal, subject, plan.step.as_str()).await;
        assert_eq!(attempts::admit(self.db(), &[(finding, plan)]).await.unwrap().len(), 1);
    }

    /// Opens a finding about a key and admits an attempt for it whose program is this shell script.
    pub(super) async fn tell(&mut self, script: &str, deadline_ms: i64) {
        let mut repair = repair(Step::Exec);
        repair.exec = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        self.repairs.by_name.insert(repair.name.clone(), Arc::new(repair));
        let finding = self.open("a-key-goal", Subject::Key("backup".into()), "tell").await;
        let plan = Plan {
            step: Step::Exec,
            repository_id: None,
            source_id: None,
            destination_id: None,
            bytes: 0,
            deadline_ms,
            bytes_per_second: 0,
            write_lock: false,
            path: None,
        };
        assert_eq!(attempts::admit(self.db(), &[(finding, plan)]).await.unwrap().len(), 1);
    }

    async fn open(&self, goal: &str, subject: Subject, repair: &str) -> Finding {
        let into = MergeInto {
            goal: goal.into(),
            digest: "d".into(),
            subject: subject.kind(),
            repair: Some(repair.into()),
            last_copies: false,
            began_at: self.db().now().await.unwrap(),
            backoff_ms: vec![0],
            stuck_after: 9,
            in_a_row: 1,
            brake: None,
            removes: false,
            most: 500_000,
        };
        let evidence = serde_json::json!({ "size": 7 });
        let row = Exception {
            subject: subject.clone(),
            priority: 100,
            reason: Some("it is late".into()),
            hints: Hints::default(),
            evidence: evidence.as_object().unwrap().clone(),
        };
        let mut merge = Merge::begin(self.db(), into).await.unwrap();
        merge.add(&[row]).await.unwrap();
        merge.finish(1).await.unwrap();
        let lane = subject.fileserver().map_or(Lane::Common, Lane::Fileserver);
        let ready = findings::lane_head(self.db(), lane, 50, 0).await.unwrap();
        ready.into_iter().find(|finding| finding.goal == goal).unwrap()
    }

    pub(super) fn worker(&self, settings: Settings) -> Worker {
        Worker {
            name: "w".into(),
            settings,
            database: self.db().clone(),
            agents: Agents::new(&enrolment()).unwrap(),
            repairs: Arc::new(self.repairs.clone()),
            programs: Programs::new(true),
            recheck: Arc::new(Held(Arc::clone(&self.holds))),
            reminders: Reminders::in_process(),
            nudge: crate::queue::Nudge::new(),
            chance: Arc::new(Chance::new(1)),
        }
    }

    /// Runs a worker; it ends with the token.
    pub(super) fn work(&mut self, settings: Settings) -> CancellationToken {
        self.start(self.worker(settings))
    }

    pub(super) fn start(&mut self, worker: Worker) -> CancellationToken {
        let stop = CancellationToken::new();
        let token = stop.clone();
        self.running.spawn(async move { worker.run(token).await });
        stop
    }

    /// Works until nothing is left, and tells how the last attempt ended, and its words.
    pub(super) async fn end(&mut self) -> (String, String) {
        let stop = self.work(quick());
        self.until_none_lives().await;
        stop.cancel();
        self.history().await
    }

    pub(super) async fn until_none_lives(&self) {
        let none = async {
            while !attempts::live(self.db()).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(90), none).await.expect("every attempt ends");
    }

    pub(super) async fn replica(&self, number: usize) -> Option<Replica> {
        let all = repositories::replicas_of(self.db(), &[self.repository.id]).await.unwrap();
        all.into_iter().find(|replica| replica.fileserver_id == self.ids[number - 1])
    }

    /// The replica on a fileserver, as a subject.
    pub(super) fn of(&self, number: usize) -> Subject {
        Subject::Replica(self.repository.id, self.ids[number - 1])
    }

    pub(super) fn put(&self, number: usize, checksum: Option<Checksum>) {
        let key = (format!("fs-{number}"), self.repository.id);
        self.disks.lock().unwrap().copies.insert(key, checksum);
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.disks.lock().unwrap().calls.clone()
    }

    pub(super) async fn until_open(&self, long_calls: usize) {
        let open = async {
            while self.open.load(Ordering::SeqCst) != long_calls {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(90), open).await.expect("so many long calls");
    }
}

/// Settings under which nothing waits long.
pub(super) fn quick() -> Settings {
    Settings {
        concurrency: 2,
        sweep: Duration::from_millis(20),
        renew: Duration::from_millis(50),
        grace: Duration::from_millis(100),
        away: Duration::from_millis(10),
        ..Settings::default()
    }
}

/// The generation of each agent's inventory.
pub(super) const GENERATION: i64 = 5;

async fn epochs(State(agent): State<Agent>, Path(id): Path<i64>) -> axum::Json<EpochsAnswer> {
    let repair = agent.disks.lock().unwrap().epochs.get(&RepositoryId(id)).copied().unwrap_or_default();
    axum::Json(EpochsAnswer { repair, push: 0 })
}

/// Every call on a repository.
async fn act(
    State(agent): State<Agent>,
    Path((id, what)): Path<(i64, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = ed25519_dalek::SigningKey::from_bytes(&SECRET).verifying_key();
    let grant = Grant::open(headers[GRANT_HEADER].to_str().unwrap(), |_| Some(key)).unwrap();
    let (id, here) = (RepositoryId(id), grant.destination.name.clone());
    let mut disks = agent.disks.lock().unwrap();
    disks.calls.push(format!("{here} {what}"));
    if let Some(epoch) = grant.epoch {
        let highest = disks.epochs.entry(id).or_default();
        if epoch < *highest {
            return refuse(RefusalCode::OldEpoch);
        }
        *highest = epoch;
    }
    if disks.hanging.contains(&here) && what != "checksum" {
        return hang(&agent);
    }
    if let Some(code) = disks.refusing.get(&here).filter(|_| what != "checksum") {
        return refuse(*code);
    }
    let place = (here, id);
    match what.as_str() {
        "checksum" => match disks.copies.get(&place) {
            None => refuse(RefusalCode::NotFound),
            Some(None) => refuse(RefusalCode::Damaged),
            Some(Some(checksum)) => {
                axum::Json(ChecksumAnswer { checksum: *checksum, references: 1, journal_version: 1 })
                    .into_response()
            }
        },
        "verify" | "scrub" => {
            let checksum = disks.copies.get(&place).copied().flatten();
            let problem = checksum.is_none().then(|| "a pack is cut off".to_owned());
            let (bytes, packs, loose, deep) = (50, 1, 0, what == "scrub");
            line(&VerifyAnswer {
                checksum,
                problem,
                journal_version: 1,
                bytes,
                packs,
                loose,
                indexed: true,
                generation: GENERATION,
                deep,
            })
        }
        "repack" => {
            line(&RepackAnswer { bytes: 40, packs: 1, loose: 0, indexed: true, message: "packed".to_owned() })
        }
        "quarantine" => away::set_aside(&mut disks, &place),
        "purge" => away::purge(&mut disks, &place, &body),
        "replicate" if disks.copies.contains_key(&place) => refuse(RefusalCode::Exists),
        _ => {
            let source = grant.source.map(|source| (source.name, id));
            let Some(Some(checksum)) = source.and_then(|source| disks.copies.get(&source).copied()) else {
                return refuse(RefusalCode::SourceFailed);
            };
            let checksum = if disks.stale.contains(&place.0) { sum(9) } else { checksum };
            let rebuilt = disks.copies.insert(place, Some(checksum)).is_none();
            let (moved, bytes, generation, message) = (70, 80, GENERATION, what.clone());
            line(&CopyAnswer { checksum, moved, bytes, references_changed: 1, rebuilt, generation, message })
        }
    }
}

fn refuse(code: RefusalCode) -> Response {
    (StatusCode::CONFLICT, axum::Json(Refusal::new(code, format!("refused: {code}")))).into_response()
}

fn line<T: serde::Serialize + Clone>(done: &T) -> Response {
    format!("{}\n", serde_json::to_string(&Line::Done(done.clone())).unwrap()).into_response()
}

/// Counts the call as open until its caller hangs up.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn hang(agent: &Agent) -> Response {
    agent.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(Arc::clone(&agent.open));
    let progress = Line::<()>::Progress(Progress { phase: "copying packs".into(), bytes: 1, total: 2 });
    let text = format!("{}\n", serde_json::to_string(&progress).unwrap());
    let lines = futures::stream::unfold(open, move |open| {
        let text = text.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok::<_, std::convert::Infallible>(text), open))
        }
    });
    Body::from_stream(lines).into_response()
}
