//! A push from git to the disks: git itself as the client, the router's room, SQL, real agents with real copies.
//!
//! Everything runs in this process but git. Each test has directories, ports and databases of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may end so")]

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trued::agent::layout::Layout;
use trued::agent::{Listen, Options};
use trued::database::pushes::{self, Opened, Opening};
use trued::database::scratch::Scratch;
use trued::database::{Database, fileservers, repositories};
use trued::fleet::Agents;
use trued::model::chance::Chance;
use trued::model::checksum::{ChecksumKey, Target};
use trued::model::fleet::{Health, ObjectFormat, Repository};
use trued::model::grant::{End, Enrolment, Part, Role};
use trued::model::id::FileserverId;
use trued::model::push::{Listing, after};
use trued::model::wire::Identity;
use trued::model::wire::push::{Command, RefName};
use trued::queue::Nudge;
use trued::router::push::{Answer, Pushed, Pushing, Settings, advertise, receive_pack};
use trued::settle::{Bounds, Ended, Settler};
use trued::shutdown::Shutdown;
use trued::telemetry::PushMetrics;

const KEY: ChecksumKey = ChecksumKey { id: 1, secret: [7; 32] };

fn signing(part: &str) -> SigningKey {
    SigningKey::from_bytes(blake3::hash(part.as_bytes()).as_bytes())
}

fn part(id: &str, role: Role) -> Part {
    let public_key = STANDARD.encode(signing(id).verifying_key().as_bytes());
    Part { id: id.to_owned(), name: id.to_owned(), role, public_key }
}

fn enrolment(id: &str, role: Role) -> Enrolment {
    Enrolment {
        fleet: "fleet".to_owned(),
        part: part(id, role),
        secret_key: STANDARD.encode(signing(id).as_bytes()),
        parts: [Role::Router, Role::Worker, Role::Controller].map(|role| part(role.as_str(), role)).to_vec(),
        checksum_key: Some(KEY),
    }
}

struct One {
    id: FileserverId,
    name: String,
    root: PathBuf,
    end: End,
    stop: CancellationToken,
}

struct Fleet {
    directory: tempfile::TempDir,
    scratch: Scratch,
    agents: Vec<One>,
    repository: Repository,
    pushing: Arc<Pushing>,
    url: String,
    running: JoinSet<()>,
}

async fn run(at: &Path, arguments: &[&str]) -> Output {
    let git = tokio::process::Command::new("git")
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(Duration::from_mins(2), git).await.expect("git ends").unwrap()
}

async fn git(at: &Path, arguments: &[&str]) -> String {
    let output = run(at, arguments).await;
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts an agent in a root; where it listens.
async fn agent(running: &mut JoinSet<()>, name: &str, root: &Path) -> (String, CancellationToken) {
    let listen = Listen::At("127.0.0.1:0".parse().unwrap());
    let options = Options::new(enrolment(name, Role::Agent), root, listen);
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = CancellationToken::new();
    let token = stop.clone();
    running.spawn(async move {
        trued::agent::run(options, token, move |address| tell.send(address).unwrap()).await.unwrap();
    });
    (format!("http://{}", told.await.expect("the agent serves")), stop)
}

async fn fleet(scratch: Scratch, many: usize) -> Fleet {
    // What went wrong is said where a test fails.
    let _ = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::INFO).try_init();
    let directory = tempfile::tempdir().unwrap();
    let (mut running, mut agents) = (JoinSet::new(), Vec::new());
    let db = scratch.database().clone();
    let work = directory.path().join("work");
    std::fs::create_dir(&work).unwrap();
    git(&work, &["init", "-q", "."]).await;
    git(&work, &["commit", "-q", "--allow-empty", "-m", "first"]).await;
    for number in 1..=many {
        let (name, rack) = (format!("fs-{number}"), format!("rack-{number}"));
        let root = directory.path().join(&name);
        let (url, stop) = agent(&mut running, &name, &root).await;
        let id = fileservers::add(&db, &name, &rack, &url, &part(&name, Role::Agent)).await.unwrap();
        let health = Health::Online;
        let verdict = fileservers::Verdict {
            id,
            health,
            health_since: 1,
            offline_ms: 0,
            counts: true,
            empty_since: None,
        };
        fileservers::record_verdicts(&db, &[verdict]).await.unwrap();
        agents.push(One { id, end: End { name: name.clone(), url }, name, root, stop });
    }
    let ids: Vec<_> = agents.iter().map(|one| one.id).collect();
    let wanted = u32::try_from(many).unwrap();
    let import = repositories::plan_import(&db, "a/b", ObjectFormat::Sha1, wanted, 10, &ids).await.unwrap();
    for one in &agents {
        let place = Layout::new(&one.root).repository(import.id);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        git(&work, &["clone", "-q", "--bare", ".", place.to_str().unwrap()]).await;
        let identity = Identity {
            repository: import.id,
            name: "a/b".to_owned(),
            object_format: ObjectFormat::Sha1,
            wanted,
            version: 1,
        };
        let beside = Layout::new(&one.root).identity(import.id);
        std::fs::write(beside, serde_json::to_vec(&identity).unwrap()).unwrap();
    }
    let caller = Agents::new(&enrolment("router", Role::Router)).unwrap();
    let listed =
        caller.references(&agents[0].end, import.id, ObjectFormat::Sha1, Duration::from_secs(20)).await;
    let sum = listed.unwrap().checksum(&KEY, ObjectFormat::Sha1);
    let holders: Vec<_> = ids.iter().map(|id| (*id, 100)).collect();
    let repository = repositories::finish_import(&db, import.id, &sum, &holders).await.unwrap();
    let pushing = Arc::new(Pushing {
        database: db,
        agents: caller,
        checksum_key: KEY,
        router: "router".to_owned(),
        settings: Settings { patience: Duration::from_secs(5), ..Settings::default() },
        judge: None,
        nudge: Nudge::new(),
        metrics: PushMetrics::default(),
        chance: Arc::new(Chance::new(1)),
        tasks: Shutdown::new(),
    });
    let url = serve(&mut running, &pushing, &repository).await;
    Fleet { directory, scratch, agents, repository, pushing, url, running }
}

type Served = (Arc<Pushing>, Pushed);

fn response(answer: Answer) -> Response {
    let response = Response::builder().status(answer.status).header("content-type", answer.content_type);
    response.body(Body::from_stream(answer.body)).unwrap()
}

async fn info(State((pushing, pushed)): State<Served>) -> Response {
    response(advertise(&pushing, pushed.repository, 0).await)
}

async fn receive(State((pushing, pushed)): State<Served>, request: Request) -> Response {
    let body = request.into_body().into_data_stream().map(|chunk| chunk.map_err(std::io::Error::other));
    response(receive_pack(&pushing, &pushed, body.boxed()).await)
}

async fn serve(running: &mut JoinSet<()>, pushing: &Arc<Pushing>, repository: &Repository) -> String {
    let pushed = Pushed { repository: repository.id, pusher: "p".to_owned() };
    let routes = Router::new()
        .route("/a/b.git/info/refs", get(info))
        .route("/a/b.git/git-receive-pack", post(receive))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state((Arc::clone(pushing), pushed));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a/b.git", listener.local_addr().unwrap());
    running.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    url
}

impl Fleet {
    fn db(&self) -> &Database {
        self.scratch.database()
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn place(&self, number: usize) -> PathBuf {
        Layout::new(&self.agents[number].root).repository(self.repository.id)
    }

    /// What every copy on disk has, as git itself sees it.
    async fn on_disks(&self) -> Vec<String> {
        let mut all = Vec::new();
        for number in 0..self.agents.len() {
            all.push(git(&self.place(number), &["for-each-ref", "--format=%(objectname) %(refname)"]).await);
        }
        all
    }

    async fn now(&self) -> Repository {
        repositories::by_ids(self.db(), &[self.repository.id]).await.unwrap().pop().unwrap()
    }

    async fn in_sync(&self) -> Vec<bool> {
        let all = repositories::replicas_of(self.db(), &[self.repository.id]).await.unwrap();
        all.into_iter().map(|replica| replica.in_sync).collect()
    }

    async fn listing(&self, number: usize) -> Listing {
        let (to, within) = (&self.agents[number].end, Duration::from_secs(20));
        let format = ObjectFormat::Sha1;
        self.pushing.agents.references(to, self.repository.id, format, within).await.unwrap()
    }

    /// Every copy is sound, has the same, and that is what SQL holds definitive.
    async fn is_whole(&self) {
        let now = self.now().await;
        let disks = self.on_disks().await;
        for (number, disk) in disks.iter().enumerate() {
            assert_eq!(disk, &disks[0], "{}", self.agents[number].name);
            let listing = self.listing(number).await;
            assert_eq!(Some(listing.checksum(&KEY, ObjectFormat::Sha1)), now.checksum);
            git(&self.place(number), &["fsck", "--full", "--strict", "--connectivity-only"]).await;
        }
        assert!(self.in_sync().await.iter().all(|in_sync| *in_sync));
    }

    async fn push(&self, arguments: &[&str]) -> (bool, String) {
        let all: Vec<&str> = ["push"].into_iter().chain(arguments.iter().copied()).collect();
        let output = run(&self.work(), &all).await;
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    async fn commit(&self, text: &str) -> String {
        let work = self.work();
        std::fs::write(work.join("file"), text.repeat(1_000)).unwrap();
        git(&work, &["add", "file"]).await;
        git(&work, &["commit", "-q", "-m", text]).await;
        git(&work, &["rev-parse", "HEAD"]).await
    }

    async fn end(mut self) {
        self.agents.iter().for_each(|one| one.stop.cancel());
        self.pushing.tasks.finish(Duration::from_secs(20)).await;
        while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), self.running.join_next()).await {
        }
        self.running.shutdown().await;
        self.scratch.close().await;
    }
}

async fn scratches() -> Vec<Scratch> {
    let mut all = vec![Scratch::sqlite().await.unwrap()];
    if let Some(url) = std::env::var("TRUED_TEST_POSTGRES_URL").ok().filter(|url| !url.is_empty()) {
        all.push(Scratch::postgres(&url).await.unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_git_pushes_is_on_every_disk_with_its_objects() {
    for scratch in scratches().await {
        let fleet = fleet(scratch, 3).await;
        let url = fleet.url.clone();
        let first = fleet.commit("one").await;
        let (ok, said) = fleet.push(&[&url, "main", "HEAD:refs/heads/x", "HEAD:refs/tags/v1"]).await;
        assert!(ok, "{said}");
        assert!(fleet.on_disks().await.iter().all(|disk| disk.contains(&format!("{first} refs/heads/x"))));
        fleet.is_whole().await;
        fleet.commit("two").await;
        let (ok, said) = fleet.push(&["--atomic", &url, "main", ":refs/heads/x"]).await;
        assert!(ok, "{said}");
        let (ok, said) = fleet.push(&[&url, ":refs/tags/v1"]).await;
        assert!(ok, "{said}");
        fleet.is_whole().await;
        assert_eq!(fleet.now().await.version, 4);
        // Somebody else's history: not a descendant, and not forced.
        git(&fleet.work(), &["checkout", "-q", "--orphan", "other"]).await;
        let other = fleet.commit("other").await;
        let (ok, _) = fleet.push(&[&url, "+other:refs/heads/main"]).await;
        assert!(ok, "forced");
        assert!(fleet.on_disks().await.iter().all(|disk| disk.contains(&format!("{other} refs/heads/main"))));
        fleet.is_whole().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_references_at_once_come_out_the_same_everywhere() {
    for scratch in scratches().await {
        let fleet = fleet(scratch, 3).await;
        let work = fleet.work();
        let oid = fleet.commit("one").await;
        let lines = (0..500).map(|number| format!("create refs/heads/many/{number} {oid}\n"));
        let lines = lines.collect::<Vec<_>>().concat();
        std::fs::write(work.join("lines"), lines).unwrap();
        let shell = tokio::process::Command::new("sh")
            .current_dir(&work)
            .args(["-c", "git update-ref --stdin < lines"])
            .output();
        assert!(shell.await.unwrap().status.success());
        let (ok, said) = fleet.push(&[&fleet.url, "refs/heads/many/*"]).await;
        assert!(ok, "{said}");
        fleet.is_whole().await;
        assert_eq!(fleet.on_disks().await[0].lines().count(), 501);
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_agent_gone_pushes_go_on_and_with_two_they_are_refused() {
    for scratch in scratches().await {
        let fleet = fleet(scratch, 3).await;
        fleet.agents[2].stop.cancel();
        let reachable =
            || std::net::TcpStream::connect(fleet.agents[2].end.url.trim_start_matches("http://"));
        for _ in 0..200 {
            if reachable().is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(reachable().is_err(), "the agent has stopped");
        let oid = fleet.commit("one").await;
        let (ok, said) = fleet.push(&[&fleet.url, "main"]).await;
        assert!(ok, "{said}");
        assert_eq!(fleet.in_sync().await, [true, true, false]);
        let has: Vec<bool> = fleet.on_disks().await.iter().map(|disk| disk.contains(&oid)).collect();
        assert_eq!(has, [true, true, false]);
        fleet.agents[1].stop.cancel();
        fleet.commit("two").await;
        let (ok, said) = fleet.push(&[&fleet.url, "main"]).await;
        assert!(!ok && said.contains("try again"), "{said}");
        assert_eq!(fleet.now().await.version, 2);
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_whose_router_died_before_its_commits_is_settled_by_its_voters() {
    for scratch in scratches().await {
        let fleet = fleet(scratch, 3).await;
        let before = fleet.now().await;
        let main = RefName(b"refs/heads/main".to_vec());
        let old = fleet.listing(0).await.get(&main).cloned();
        let command = Command { name: RefName(b"refs/heads/y".to_vec()), old: None, new: old };
        let commands = [command];
        let ready: Vec<_> = fleet.agents.iter().map(|one| one.id).collect();
        let ask = Opening {
            repository: before.id,
            router: "gone",
            base_version: before.version,
            commands: &commands,
            new: after(&KEY, &before.checksum.unwrap(), &commands).unwrap(),
            ready: &ready,
            lease_ms: -1,
            above: 0,
        };
        assert!(matches!(pushes::open(fleet.db(), &ask).await.unwrap(), Opened::Open(_)));
        let (database, agents) = (fleet.db(), &fleet.pushing.agents);
        let settler = Settler { database, agents, by: "s", bounds: Bounds::default() };
        assert_eq!(settler.settle(before.id, None).await.unwrap(), Ended::Aborted);
        fleet.is_whole().await;
        // Now one voter has it: git itself did it there, as the agent would have.
        let Some(Target::Object(oid)) = &commands[0].new else { panic!() };
        let ask = Opening { base_version: before.version + 1, ..ask };
        assert!(matches!(pushes::open(fleet.db(), &ask).await.unwrap(), Opened::Open(_)));
        git(&fleet.place(1), &["update-ref", "refs/heads/y", oid]).await;
        assert_eq!(settler.settle(before.id, None).await.unwrap(), Ended::Committed);
        fleet.is_whole().await;
        assert!(fleet.on_disks().await.iter().all(|disk| disk.contains("refs/heads/y")));
        let (ok, said) = fleet.push(&[&fleet.url, ":refs/heads/y"]).await;
        assert!(ok, "{said}");
        fleet.is_whole().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_that_is_broken_is_refused_in_gits_words_and_leaves_nothing() {
    for scratch in scratches().await {
        let fleet = fleet(scratch, 3).await;
        let oid = "b".repeat(40);
        let mut text = format!("{} {oid} refs/heads/x\0report-status", "0".repeat(40));
        text = format!("{:04x}{text}0000PACKnonsense", text.len() + 4);
        let body = futures::stream::iter([Ok(bytes::Bytes::from(text))]).boxed();
        let pushed = Pushed { repository: fleet.repository.id, pusher: "p".to_owned() };
        let answer = receive_pack(&fleet.pushing, &pushed, body).await;
        let said: Vec<_> = answer.body.map(Result::unwrap).collect().await;
        let said = String::from_utf8(said.concat()).unwrap();
        assert!(said.contains("ng refs/heads/x unpacker error") && !said.contains("unpack ok"), "{said}");
        fleet.is_whole().await;
        assert_eq!(fleet.now().await.version, 1);
        fleet.commit("one").await;
        let (ok, said) = fleet.push(&[&fleet.url, "main"]).await;
        assert!(ok, "{said}");
        fleet.is_whole().await;
        fleet.end().await;
    }
}
