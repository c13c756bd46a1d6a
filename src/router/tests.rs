//! A router over HTTP, before agents that are made of scenarios: whatever one copy does, the next one serves.

use super::authorize::tokens::{TokenFile, digest};
use super::authorize::{Access, Authorizer};
use super::{Router, Settings, push};
use crate::database::scratch::Scratch;
use crate::database::{fileservers, repositories};
use crate::fleet::Agents;
use crate::model::chance::Chance;
use crate::model::checksum::{Checksum, ChecksumKey};
use crate::model::fleet::ObjectFormat;
use crate::model::grant::{Enrolment, GRANT_HEADER, Part, Role};
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::read::Filter;
use crate::queue::Nudge;
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::Metrics;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// What an agent does with a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Serve,
    Status(u16),
    Hang,
    LacksIt,
    BreakEarly,
    BreakLate,
    Endless,
}

/// One agent: what it does, and what it was asked.
#[derive(Debug, Clone)]
struct Agent {
    name: String,
    does: Arc<Mutex<Does>>,
    asked: Arc<Mutex<Vec<String>>>,
}

const LACKS: &str = "0056ERR upload-pack: not our ref 0123456789012345678901234567890123456789";

async fn answer(State(agent): State<Agent>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    assert_ne!(header(GRANT_HEADER), "-", "each request shows a grant");
    let said = format!("{} {} {}", parts.method, header("git-protocol"), header("trued-filters"));
    let left: u64 = header("trued-deadline-ms").parse().expect("a deadline");
    assert!(left <= 5_000);
    let does = *agent.does.lock().unwrap();
    let body = axum::body::to_bytes(body, 1 << 26).await.unwrap();
    agent.asked.lock().unwrap().push(format!("{said} {}", body.len()));
    let broken = || Err::<Bytes, _>(std::io::Error::other("broken"));
    match does {
        Does::Serve => format!("served by {}", agent.name).into_response(),
        Does::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Does::Hang => std::future::pending().await,
        Does::LacksIt => LACKS.into_response(),
        Does::BreakEarly => {
            let blocks = [Ok(Bytes::from_static(b"beginning")), broken()];
            Body::from_stream(futures::stream::iter(blocks)).into_response()
        }
        Does::Endless => {
            let block = || Ok::<_, std::io::Error>(Bytes::from(vec![7; 64 << 10]));
            Body::from_stream(futures::stream::repeat_with(block)).into_response()
        }
        Does::BreakLate => {
            let large = Bytes::from(vec![7; 300 << 10]);
            let later = futures::stream::once(async move {
                // What went before must be on its way: a connection that is reset takes it along.
                tokio::time::sleep(Duration::from_millis(200)).await;
                broken()
            });
            Body::from_stream(futures::stream::once(async { Ok(large) }).chain(later)).into_response()
        }
    }
}

struct Fixture {
    url: String,
    agents: Vec<Agent>,
    metrics: Metrics,
    shutdown: Shutdown,
    scratch: Scratch,
}

fn part(name: &str, number: u8, role: Role) -> (Part, String) {
    let key = SigningKey::from_bytes(&[number; 32]);
    let public_key = STANDARD.encode(key.verifying_key().as_bytes());
    (Part { id: name.into(), name: name.into(), role, public_key }, STANDARD.encode([number; 32]))
}

async fn agent(shutdown: &Shutdown, name: &str, does: Does) -> (Agent, String) {
    let agent = Agent { name: name.into(), does: Arc::new(Mutex::new(does)), asked: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let routes = axum::Router::new().fallback(answer).with_state(agent.clone());
    let stop = shutdown.token();
    shutdown.spawn(async move {
        tokio::select! {
            _ = std::future::IntoFuture::into_future(axum::serve(listener, routes)) => {}
            () = stop.cancelled() => {}
        }
    });
    (agent, url)
}

fn settings() -> Settings {
    Settings {
        name: "rt-1".into(),
        rack: "rack-0".into(),
        requests: 4,
        deadline: Duration::from_secs(4),
        patience: Duration::from_millis(300),
        overload: 32_000,
        gone_after: Duration::from_secs(1),
        sql_away: Duration::from_mins(1),
        remembered: 100,
        filters: vec![Filter::BlobNone],
    }
}

impl Fixture {
    /// Agents in racks 0, 1, …; the router stands in rack 0, so the first one is tried first.
    async fn start(does: &[Does], authorizer: Authorizer, settings: Settings) -> Self {
        let (shutdown, scratch) = (Shutdown::new(), Scratch::sqlite().await.unwrap());
        let db = scratch.database().clone();
        let (mut agents, mut ids): (Vec<_>, Vec<(FileserverId, i64)>) = (Vec::new(), Vec::new());
        for (does, n) in does.iter().zip(0_u8..) {
            let name = format!("fs-{n}");
            let (agent, url) = agent(&shutdown, &name, *does).await;
            let (part, _) = part(&name, n + 1, Role::Agent);
            let id = fileservers::add(&db, &name, &format!("rack-{n}"), &url, &part).await.unwrap();
            fileservers::count(&db, id).await.unwrap();
            agents.push(agent);
            ids.push((id, 1));
        }
        let chosen: Vec<_> = ids.iter().map(|(id, _)| *id).collect();
        let wanted = u32::try_from(ids.len()).unwrap();
        let import =
            repositories::plan_import(&db, "team/it", ObjectFormat::Sha1, wanted, 1, &chosen).await.unwrap();
        let checksum = Checksum { key: 1, sum: [7; 32] };
        repositories::finish_import(&db, import.id, &checksum, &ids).await.unwrap();
        let (part, secret_key) = part("rt-1", 99, Role::Router);
        let enrolment =
            Enrolment { fleet: "f".into(), part, secret_key, parts: Vec::new(), checksum_key: None };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (metrics, counted) = Metrics::with_router();
        let (agents_of, chance) = (Agents::new(&enrolment).unwrap(), Arc::new(Chance::new(1)));
        let pushing = push::Pushing {
            database: db.clone(),
            agents: agents_of.clone(),
            checksum_key: ChecksumKey { id: 1, secret: [7; 32] },
            router: "rt-1".into(),
            settings: push::Settings::default(),
            judge: None,
            nudge: Nudge::new(),
            metrics: counted.pushes(),
            chance: Arc::clone(&chance),
            tasks: shutdown.clone(),
        };
        let router = Router {
            settings,
            database: db,
            agents: agents_of,
            authorizer,
            pushing: Arc::new(pushing),
            metrics: Arc::new(counted),
            chance,
        };
        router.start(&shutdown, listener);
        Self { url, agents, metrics, shutdown, scratch }
    }

    async fn open(does: &[Does]) -> Self {
        Self::start(does, Authorizer::new(Some(Access::Read), None, None), settings()).await
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        told(reqwest::get(format!("{}{path}", self.url)).await.unwrap()).await
    }

    async fn fetch(&self, body: Vec<u8>) -> reqwest::Response {
        let request = reqwest::Client::new().post(format!("{}/team/it.git/git-upload-pack", self.url));
        let request = request.header("content-type", "application/x-git-upload-pack-request");
        request.header("git-protocol", "version=2:other").body(body).send().await.unwrap()
    }

    fn asked(&self, n: usize) -> Vec<String> {
        self.agents[n].asked.lock().unwrap().clone()
    }

    async fn end(self) {
        self.shutdown.finish(Duration::from_secs(5)).await;
        self.scratch.close().await;
    }
}

async fn told(answer: reqwest::Response) -> (StatusCode, String) {
    (answer.status(), answer.text().await.unwrap())
}

const REFS: &str = "/team/it.git/info/refs?service=git-upload-pack";

#[tokio::test]
async fn whatever_one_copy_does_before_the_first_byte_the_next_one_serves() {
    for does in [
        Does::Status(404),
        Does::Status(409),
        Does::Status(403),
        Does::Status(500),
        Does::Status(503),
        Does::Hang,
        Does::LacksIt,
        Does::BreakEarly,
    ] {
        let all = Fixture::open(&[does, Does::Serve]).await;
        assert_eq!(all.get(REFS).await, (StatusCode::OK, "served by fs-1".into()), "{does:?}");
        let (status, text) = told(all.fetch(vec![1; 3_000]).await).await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, "served by fs-1"), "{does:?}");
        assert_eq!(all.asked(1), ["GET - blob:none 0", "POST version=2 blob:none 3000"], "{does:?}");
        assert!(all.metrics.text().unwrap().contains("trued_router_reads_saved_total 2"), "{does:?}");
        all.end().await;
    }
}

#[tokio::test]
async fn a_fileserver_that_refuses_connections_is_passed_over_and_then_not_asked() {
    let all = Fixture::open(&[Does::Serve, Does::Serve]).await;
    let db = all.scratch.database();
    // A port that nobody listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fileservers::set_url(db, FileserverId(1), &format!("http://{free}")).await.unwrap();
    for _ in 0..6 {
        assert_eq!(all.get(REFS).await.1, "served by fs-1");
    }
    let text = all.metrics.text().unwrap();
    assert!(text.contains("trued_router_read_tries_total{outcome=\"unreachable\"} 3"), "{text}");
    assert!(text.contains("trued_router_fileservers_offline 1"), "{text}");
    all.end().await;
}

// Its place among the requests that run would be held for ever.
#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_gone_after_a_while() {
    let all = Fixture::open(&[Does::Endless]).await;
    let mut stuck = all.fetch(vec![1]).await;
    assert!(stuck.chunk().await.unwrap().is_some());
    let runs =
        |count: u32| all.metrics.text().unwrap().contains(&format!("trued_router_reads_running {count}\n"));
    assert!(runs(1));
    let ends = async {
        while !runs(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), ends).await.expect("it is given up");
    drop(stuck);
    all.end().await;
}

#[tokio::test]
async fn what_nobody_has_is_said_in_gits_own_words() {
    let all = Fixture::open(&[Does::LacksIt, Does::LacksIt]).await;
    let (status, text) = told(all.fetch(vec![1]).await).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, LACKS));
    assert_eq!((all.asked(0).len(), all.asked(1).len()), (1, 1));
    all.end().await;
}

#[tokio::test]
async fn after_the_first_byte_a_broken_stream_breaks_the_answer() {
    let all = Fixture::open(&[Does::BreakLate, Does::Serve]).await;
    let answer = all.fetch(vec![1]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let mut blocks = answer.bytes_stream();
    let (mut size, mut broke) = (0, false);
    while let Some(block) = blocks.next().await {
        match block {
            Ok(block) => size += block.len(),
            Err(_) => broke = true,
        }
    }
    assert!(broke && size > 128 << 10, "{size}");
    assert!(all.asked(1).is_empty(), "never a second time");
    all.end().await;
}

#[tokio::test]
async fn when_no_copy_can_be_read_it_says_when_to_come_again() {
    let all = Fixture::open(&[Does::Status(404), Does::Status(404)]).await;
    let answer = reqwest::get(format!("{}{REFS}", all.url)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "5");
    all.end().await;
}

#[tokio::test]
async fn more_requests_than_may_run_are_told_to_come_again_at_once() {
    let few = Settings { requests: 2, ..settings() };
    let all = Fixture::start(&[Does::Hang], Authorizer::new(Some(Access::Read), None, None), few).await;
    let hanging: Vec<_> = (0..2)
        .map(|_| {
            let address = format!("{}{REFS}", all.url);
            Box::pin(reqwest::get(address))
        })
        .collect();
    let mut hanging = futures::future::join_all(hanging);
    let third = async {
        while all.asked(0).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        reqwest::get(format!("{}{REFS}", all.url)).await.unwrap()
    };
    let answer = tokio::select! {
        _ = &mut hanging => panic!("they hang"),
        answer = third => answer,
    };
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    all.end().await;
}

#[tokio::test]
async fn a_large_request_goes_to_one_copy_and_is_not_kept() {
    let all = Fixture::open(&[Does::Serve, Does::Serve]).await;
    let (status, _) = told(all.fetch(vec![1; 9 << 20]).await).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(all.asked(0), [format!("POST version=2 blob:none {}", 9 << 20)]);
    *all.agents[0].does.lock().unwrap() = Does::Status(500);
    let (status, _) = told(all.fetch(vec![1; 9 << 20]).await).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "the next copy cannot be asked the same");
    assert!(all.asked(1).is_empty());
    all.end().await;
}

#[tokio::test]
async fn what_one_may_not_read_is_answered_like_what_is_not_there() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("ci sha256:{} read other/*\n", digest("secret"))).unwrap();
    let tokens = TokenFile::open(file.path()).unwrap();
    let all = Fixture::start(&[Does::Serve], Authorizer::new(None, Some(tokens), None), settings()).await;
    let client = reqwest::Client::new();
    let ask = async |name: &str, service: &str, secret: Option<&str>| {
        let request = client.get(format!("{}/{name}/info/refs?service={service}", all.url));
        let request = match secret {
            Some(secret) => request.basic_auth("anyone", Some(secret)),
            None => request,
        };
        let answer = request.send().await.unwrap();
        let mut headers: Vec<_> =
            answer.headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        headers.retain(|one| !one.starts_with("date"));
        (answer.status(), headers, answer.text().await.unwrap())
    };
    for service in ["git-upload-pack", "git-receive-pack"] {
        for secret in [None, Some("secret"), Some("nonsense")] {
            let there = ask("team/it.git", service, secret).await;
            assert_eq!(there, ask("team/not.git", service, secret).await, "{service} {secret:?}");
            let expected =
                if secret == Some("secret") { StatusCode::NOT_FOUND } else { StatusCode::UNAUTHORIZED };
            assert_eq!(there.0, expected);
            let challenged = there.1.iter().any(|one| one.starts_with("www-authenticate"));
            assert_eq!(challenged, expected == StatusCode::UNAUTHORIZED);
        }
    }
    assert!(all.asked(0).is_empty(), "no agent hears of it");
    all.end().await;
}

#[tokio::test]
async fn a_removed_or_renamed_repository_is_seen_at_once() {
    let all = Fixture::open(&[Does::Serve]).await;
    let db = all.scratch.database();
    assert_eq!(all.get(REFS).await.0, StatusCode::OK);
    repositories::rename(db, RepositoryId(1), "team/other").await.unwrap();
    assert_eq!(all.get(REFS).await.0, StatusCode::NOT_FOUND);
    assert_eq!(all.get(&REFS.replace("it.git", "other")).await.0, StatusCode::OK);
    for path in ["/", "/x", "/team/IT.git/info/refs?service=git-upload-pack"] {
        assert_eq!(all.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(all.get("/team/other/info/refs").await.0, StatusCode::FORBIDDEN, "dumb HTTP");
    all.end().await;
}
