//! An agent as its callers see it: over a socket, with real grants, real git and real restarts.

mod pushes;
mod whole;

use super::super::testing::{enrolment, grant, key, make_repository, part};
use super::super::{AgentError, Listen, Options, SweepSettings, long, run};
use super::*;
use crate::agent::layout::Layout;
use crate::model::grant::{End, Grant, Role};
use crate::model::wire::read::DEADLINE_HEADER;
use crate::model::wire::{InventoryPage, PartsList, Progress, Status};
use reqwest::Method;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const ID: RepositoryId = RepositoryId(7);

/// An agent that runs, named alpha.
struct Running {
    url: String,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), AgentError>>,
}

fn options(root: &Path) -> Options {
    let any = Listen::At(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut options = Options::new(enrolment("fleet", "alpha"), root, any);
    options.sweep = SweepSettings { least: Duration::from_millis(50), ..SweepSettings::default() };
    options
}

#[allow(clippy::disallowed_methods, reason = "the test owns the task and waits for it")]
async fn start(options: Options) -> Running {
    let stop = CancellationToken::new();
    let (ready, address) = oneshot::channel();
    let stopped = stop.clone();
    let ended =
        tokio::spawn(async move { run(options, stopped, |address| ready.send(address).unwrap()).await });
    let url = format!("http://{}", address.await.expect("the agent starts"));
    Running { url, stop, ended }
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }

    async fn ask(&self, method: Method, path: &str, grant: &Grant, body: &str) -> reqwest::Response {
        reqwest::Client::new()
            .request(method, format!("{}{path}", self.url))
            .header(GRANT_HEADER, grant.sign(&key(&grant.part)))
            .body(body.to_owned())
            .send()
            .await
            .unwrap()
    }

    async fn status(&self) -> Status {
        let grant = grant(Role::Controller, Action::Observe, None, "alpha");
        self.ask(Method::GET, "/v1/status", &grant, "").await.json().await.unwrap()
    }

    async fn inventory(&self) -> InventoryPage {
        let grant = grant(Role::Controller, Action::Observe, None, "alpha");
        self.ask(Method::GET, "/v1/inventory", &grant, "").await.json().await.unwrap()
    }
}

/// Waits for a condition, with an end.
async fn until<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "it never came true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn status_tells_who_where_and_how_and_a_new_start_from_an_old_one() {
    let root = tempfile::tempdir().unwrap();
    let agent = start(Options { capacity: Some(1 << 30), ..options(root.path()) }).await;
    let first = until(async || {
        let status = agent.status().await;
        status.inventory_complete.then_some(status)
    })
    .await;
    assert_eq!((first.fileserver.as_str(), first.capacity, first.disk_used), ("alpha", 1 << 30, 0));
    assert!(first.disk_free > 0 && first.disk_free < 1 << 30);
    assert_eq!(first.trouble, None);
    let other = start_error(options(root.path())).await;
    assert!(matches!(other, AgentError::RootInUse { .. }), "{other}");
    agent.stop().await;
    let agent = start(options(root.path())).await;
    let second = agent.status().await;
    assert!(second.root_id == first.root_id && second.start_id != first.start_id);
    agent.stop().await;
}

async fn start_error(options: Options) -> AgentError {
    let never = CancellationToken::new();
    run(options, never, |_| panic!("it must not start")).await.unwrap_err()
}

#[tokio::test]
async fn what_keeps_an_agent_from_starting_is_told_by_kind() {
    let root = tempfile::tempdir().unwrap();
    start(options(root.path())).await.stop().await;
    let mut wrong = options(root.path());
    wrong.enrolment = enrolment("fleet", "beta");
    assert!(matches!(start_error(wrong).await, AgentError::WrongRoot { .. }));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut at_taken = options(&root.path().join("new"));
    at_taken.listen = Listen::At(taken.local_addr().unwrap());
    assert!(matches!(start_error(at_taken).await, AgentError::PortInUse { .. }));
    assert!(!root.path().join("new").exists(), "nothing half-done");
    let mut not_an_agent = options(root.path());
    not_an_agent.enrolment.part.role = Role::Worker;
    assert!(matches!(start_error(not_an_agent).await, AgentError::Enrolment(_)));
}

#[tokio::test]
async fn every_route_asks_for_its_own_action() {
    let root = tempfile::tempdir().unwrap();
    let agent = start(options(root.path())).await;
    let routes: [(Method, &str, Action); 23] = [
        (Method::GET, "/v1/status", Action::Observe),
        (Method::PUT, "/v1/parts", Action::Configure),
        (Method::GET, "/v1/inventory", Action::Observe),
        (Method::POST, "/v1/repositories/7/checksum", Action::Verify),
        (Method::POST, "/v1/repositories/7/verify", Action::Verify),
        (Method::POST, "/v1/repositories/7/resync", Action::Repair),
        (Method::POST, "/v1/repositories/7/replicate", Action::Repair),
        (Method::POST, "/v1/repositories/7/quarantine", Action::Repair),
        (Method::PUT, "/v1/repositories/7/import/pack?object_format=sha1", Action::Import),
        (Method::POST, "/v1/repositories/7/import", Action::Import),
        (Method::POST, "/v1/repositories/7/pushes", Action::Push),
        (Method::PUT, "/v1/repositories/7/pushes/x/pack", Action::Push),
        (Method::POST, "/v1/repositories/7/pushes/x/prepare", Action::Push),
        (Method::POST, "/v1/repositories/7/pushes/x/finish", Action::Push),
        (Method::DELETE, "/v1/repositories/7/pushes/x", Action::Push),
        (Method::POST, "/v1/repositories/7/fence", Action::Settle),
        (Method::POST, "/v1/repositories/7/bring", Action::Settle),
        (Method::GET, "/v1/repositories/7/references", Action::Read),
        (Method::POST, "/v1/repositories/7/hold", Action::Read),
        (Method::GET, "/v1/repositories/7/files/objects/pack/x.pack", Action::Read),
        (Method::DELETE, "/v1/repositories/7/hold/h", Action::Read),
        (Method::GET, "/v1/repositories/7/git/info/refs?service=git-upload-pack", Action::Read),
        (Method::POST, "/v1/repositories/7/git/git-upload-pack", Action::Read),
    ];
    for (method, path, asked) in routes {
        for role in Role::ALL {
            for granted in Action::ALL {
                if role.may(*granted) && *granted == asked {
                    continue;
                }
                let repository = path.contains("repositories").then_some(ID);
                let grant = grant(*role, *granted, repository, "alpha");
                let response = agent.ask(method.clone(), path, &grant, "{}").await;
                assert_eq!(response.status(), 403, "{method} {path}: {role} with {granted}");
                let refusal: Refusal = response.json().await.unwrap();
                assert_eq!(refusal.code, RefusalCode::Forbidden);
            }
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn parts_that_a_controller_sends_are_believed_at_once() {
    let root = tempfile::tempdir().unwrap();
    let agent = start(options(root.path())).await;
    let list = PartsList { parts: vec![part("controller", Role::Controller), part("new", Role::Router)] };
    let configure = grant(Role::Controller, Action::Configure, None, "alpha");
    let body = serde_json::to_string(&list).unwrap();
    assert_eq!(agent.ask(Method::PUT, "/v1/parts", &configure, &body).await.status(), 204);
    assert_eq!(agent.status().await.parts_digest, list.digest());
    let worker = grant(Role::Worker, Action::Observe, None, "alpha");
    assert_eq!(agent.ask(Method::GET, "/v1/status", &worker, "").await.status(), 403);
    let new = Grant { part: "new".into(), ..grant(Role::Router, Action::Observe, None, "alpha") };
    assert_eq!(agent.ask(Method::GET, "/v1/status", &new, "").await.status(), 200);
    agent.stop().await;
}

#[tokio::test]
async fn names_that_are_not_numbers_never_reach_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let agent = start(options(root.path())).await;
    let grant = grant(Role::Worker, Action::Read, Some(ID), "alpha");
    for name in
        ["..", "%2e%2e", "07", "+7", "7.git", "0", "-1", "7%00", "99999999999999999999", "7%2f..", "x"]
    {
        let path = format!("/v1/repositories/{name}/references");
        let status = agent.ask(Method::GET, &path, &grant, "").await.status();
        assert_eq!(status, 404, "{name}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn the_inventory_notices_damage_while_the_agent_serves() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    start(options(root.path())).await.stop().await;
    make_repository(&layout.repository(ID));
    let agent = start(options(root.path())).await;
    let found = until(async || agent.inventory().await.entries.pop()).await;
    assert!(found.present && found.changed, "nobody's doing: {found:?}");
    std::fs::remove_dir_all(layout.repository(ID)).unwrap();
    until(async || agent.inventory().await.entries.pop().filter(|entry| !entry.present)).await;
    agent.stop().await;
}

/// Runs the machine's git as a reader of the agent.
async fn git(agent: &Running, grant: &Grant, arguments: &[&str], settings: &[&str]) -> std::process::Output {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let header = format!("http.extraHeader={GRANT_HEADER}: {}", grant.sign(&key(&grant.part)));
    command.args(["-c", &header]);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let url = format!("{}/v1/repositories/{ID}/git", agent.url);
    command.args(arguments.iter().map(|argument| argument.replace("URL", &url)));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn git_clones_under_every_protocol_and_fetches_with_a_packed_request() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    start(options(root.path())).await.stop().await;
    make_repository(&layout.repository(ID));
    for number in 0..200 {
        let name = format!("refs/heads/many-{number}");
        let here = format!("--git-dir={}", layout.repository(ID).display());
        // Each a commit of its own, so that the request names each.
        let tree = Command::new("git").args([&here, "rev-parse", "main^{tree}"]).output().unwrap().stdout;
        let tree = String::from_utf8(tree).unwrap();
        let commit = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e@localhost", &here, "commit-tree", tree.trim()])
            .args(["-m", &name])
            .output()
            .unwrap();
        let commit = String::from_utf8(commit.stdout).unwrap();
        assert!(
            Command::new("git").args([&here, "update-ref", &name, commit.trim()]).status().unwrap().success()
        );
    }
    let agent = start(options(root.path())).await;
    let read = grant(Role::Router, Action::Read, Some(ID), "alpha");
    for version in ["protocol.version=0", "protocol.version=1", "protocol.version=2"] {
        let to = root.path().join(version);
        let cloned =
            git(&agent, &read, &["clone", "--mirror", "URL", to.to_str().unwrap()], &[version]).await;
        assert!(cloned.status.success(), "{version}: {}", String::from_utf8_lossy(&cloned.stderr));
        let heads = std::fs::read_to_string(to.join("packed-refs")).unwrap();
        assert_eq!(heads.matches("refs/heads/").count(), 202, "{version}");
    }
    assert_eq!(until(async || (agent.status().await.processes == 0).then_some(0)).await, 0);
    let other = Grant { repository: Some(RepositoryId(8)), ..read };
    assert!(!git(&agent, &other, &["ls-remote", "URL"], &[]).await.status.success());
    agent.stop().await;
}

#[tokio::test]
async fn a_destination_reads_from_its_source_under_the_worker_s_repair_grant() {
    let root = tempfile::tempdir().unwrap();
    start(options(root.path())).await.stop().await;
    make_repository(&Layout::new(root.path()).repository(ID));
    let agent = start(options(root.path())).await;
    let source = Some(End { name: "alpha".into(), url: agent.url.clone() });
    let shown = Grant { source, epoch: Some(3), ..grant(Role::Worker, Action::Repair, Some(ID), "beta") };
    assert!(git(&agent, &shown, &["ls-remote", "URL"], &[]).await.status.success());
    let elsewhere = Grant { source: None, ..shown };
    assert!(!git(&agent, &elsewhere, &["ls-remote", "URL"], &[]).await.status.success());
    agent.stop().await;
}

#[tokio::test]
async fn a_git_that_fails_is_an_error_and_has_the_copy_flagged() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    start(options(root.path())).await.stop().await;
    make_repository(&layout.repository(ID));
    let agent = start(options(root.path())).await;
    until(async || agent.status().await.inventory_complete.then_some(())).await;
    std::fs::write(layout.repository(ID).join("packed-refs"), "neither name nor object\n").unwrap();
    let read = grant(Role::Router, Action::Read, Some(ID), "alpha");
    let path = "/v1/repositories/7/git/info/refs?service=git-upload-pack";
    let response = agent.ask(Method::GET, path, &read, "").await;
    assert_eq!(response.status(), 500);
    let refusal: Refusal = response.json().await.unwrap();
    assert!(refusal.code == RefusalCode::Damaged && refusal.message.contains("packed-refs"), "{refusal}");
    assert!(agent.inventory().await.entries[0].changed);
    let pushed = agent.ask(Method::GET, &path.replace("upload", "receive"), &read, "").await;
    assert_eq!(pushed.status(), 400);
    agent.stop().await;
}

#[tokio::test]
async fn an_old_epoch_is_refused_before_anything_is_done_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    start(options(root.path())).await.stop().await;
    let epochs = Epochs::new(Layout::new(root.path()));
    drop(epochs.write(ID, Some(9), &CancellationToken::new()).await.unwrap());
    let agent = start(options(root.path())).await;
    let old = Grant { epoch: Some(8), ..grant(Role::Worker, Action::Repair, Some(ID), "alpha") };
    let path = "/v1/repositories/7/quarantine";
    let response = agent.ask(Method::POST, path, &old, r#"{"reason":"test"}"#).await;
    assert_eq!(response.status(), 409);
    assert_eq!(response.json::<Refusal>().await.unwrap().code, RefusalCode::OldEpoch);
    let none = Grant { epoch: None, ..old };
    assert_eq!(agent.ask(Method::POST, path, &none, r#"{"reason":"test"}"#).await.status(), 403);
    agent.stop().await;
}

#[tokio::test]
async fn a_request_that_comes_too_late_is_refused_before_any_work() {
    let root = tempfile::tempdir().unwrap();
    let agent = start(options(root.path())).await;
    let read = grant(Role::Router, Action::Read, Some(ID), "alpha");
    let refs = format!("{}/v1/repositories/{ID}/git/info/refs?service=git-upload-pack", agent.url);
    for (left, status, code) in [
        ("0", 503, RefusalCode::Expired),
        ("soon", 400, RefusalCode::BadRequest),
        ("900", 404, RefusalCode::NotFound),
    ] {
        let request = reqwest::Client::new().get(&refs).header(DEADLINE_HEADER, left);
        let response = request.header(GRANT_HEADER, read.sign(&key(&read.part))).send().await.unwrap();
        assert_eq!(response.status(), status, "{left}");
        assert_eq!(response.json::<Refusal>().await.unwrap().code, code, "{left}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_its_work_over_http_1() {
    let tasks = Shutdown::new();
    let (told, mut events) = mpsc::channel(2);
    let owner = tasks.clone();
    let routes = Router::new().route(
        "/work",
        post(async move || {
            long::lines::<u8, _, _>(&owner, CancellationToken::new(), move |work| async move {
                told.send("began").await.unwrap();
                (work.progress)(Progress { phase: "working".into(), bytes: 1, total: 2 });
                work.cancel.cancelled().await;
                told.send("ended").await.unwrap();
                Err(Refusal::new(RefusalCode::Cancelled, "the caller hung up"))
            })
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    let accept = tasks.clone();
    tasks.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        connection(stream, routes, permit, accept.token()).await;
    });
    let client = reqwest::Client::new();
    let mut response = client.post(url).send().await.unwrap();
    assert_eq!(events.recv().await, Some("began"));
    assert!(response.chunk().await.unwrap().is_some());
    drop((response, client));
    let ended = tokio::time::timeout(Duration::from_secs(5), events.recv()).await;
    assert_eq!(ended.unwrap(), Some("ended"));
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_leaves_no_git_behind_after_ten_seconds() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    start(options(root.path())).await.stop().await;
    let repository = layout.repository(ID);
    make_repository(&repository);
    // More than all buffers on the way take, and nothing that can be packed.
    let mut chance = blake3::Hasher::new().finalize_xof();
    let mut bytes = vec![0; 40 << 20];
    chance.fill(&mut bytes);
    let file = root.path().join("large");
    std::fs::write(&file, bytes).unwrap();
    let here = format!("--git-dir={}", repository.display());
    let blob = Command::new("git").args([&here, "hash-object", "-w"]).arg(file).output().unwrap().stdout;
    let blob = String::from_utf8(blob).unwrap();
    let blob = blob.trim();
    let tagged = Command::new("git").args([&here, "update-ref", "refs/tags/large", blob]).status().unwrap();
    assert!(tagged.success());
    // Packed as it is, so that serving it is copying.
    let packed = Command::new("git")
        .args([&here, "-c", "pack.compression=0", "repack", "-q", "-a", "-d", "-F", "--window=0"])
        .status();
    assert!(packed.unwrap().success());
    let agent = start(options(root.path())).await;
    let read = grant(Role::Router, Action::Read, Some(ID), "alpha");
    let asked = reqwest::Client::new()
        .post(format!("{}/v1/repositories/{ID}/git/git-upload-pack", agent.url))
        .header(GRANT_HEADER, read.sign(&key(&read.part)))
        .header("content-type", "application/x-git-upload-pack-request")
        .body(format!("0032want {blob}\n00000009done\n"));
    let response = asked.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let began = std::time::Instant::now();
    assert!(agent.status().await.processes > 0, "git waits for its reader");
    until(async || (agent.status().await.processes == 0).then_some(())).await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(response);
    agent.stop().await;
}
