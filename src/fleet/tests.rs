//! Calls against a small server that answers as an agent would, or as a broken one would.

mod push;

use super::*;
use crate::model::checksum::{Checksum, Target};
use crate::model::fleet::ObjectFormat;
use crate::model::grant::{GRANT_HEADER, Part, Role};
use crate::model::wire::{Identity, ImportRequest, Line, PackAnswer, QuarantineRequest, RefusalCode};
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::{get, post, put};
use base64::Engine as _;
use futures::StreamExt as _;
use std::sync::Mutex;
use tokio::sync::watch;

const ID: RepositoryId = RepositoryId(7);

fn enrolment() -> Enrolment {
    let key = ed25519_dalek::SigningKey::from_bytes(&[3; 32]);
    let text = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    Enrolment {
        fleet: "fleet".to_owned(),
        part: Part {
            id: "worker-1".to_owned(),
            name: "worker".to_owned(),
            role: Role::Worker,
            public_key: text(key.verifying_key().as_bytes()),
        },
        secret_key: text(&key.to_bytes()),
        parts: Vec::new(),
        checksum_key: None,
    }
}

fn agents() -> Agents {
    Agents::new(&enrolment()).unwrap()
}

/// What the server saw, and a server that ends with this.
#[derive(Clone, Default)]
struct Seen {
    grants: Arc<Mutex<Vec<Grant>>>,
    taken: Arc<Mutex<usize>>,
    gone: CancellationToken,
}

struct Agent {
    end: End,
    seen: Seen,
    _server: tokio::task::JoinSet<()>,
}

async fn agent() -> Agent {
    let seen = Seen::default();
    let routes = axum::Router::new()
        .route("/v1/status", get(|| async { (StatusCode::OK, "{\"not\": \"a status\"}") }))
        .route("/v1/parts", put(refuse))
        .route("/v1/inventory", get(inventory))
        .route("/v1/repositories/{id}/checksum", post(checksum))
        .route("/v1/repositories/{id}/quarantine", post(|| async { (StatusCode::BAD_GATEWAY, "proxy") }))
        .route("/v1/repositories/{id}/{work}", post(work))
        .route("/v1/repositories/{id}/import/pack", put(pack))
        .with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    Agent { end: End { name: "fs1".to_owned(), url }, seen, _server: server }
}

impl Seen {
    fn note(&self, headers: &HeaderMap) {
        let key = enrolment().part.key().unwrap();
        let grant =
            Grant::open(headers[GRANT_HEADER].to_str().unwrap(), |part| (part == "worker-1").then_some(key));
        self.grants.lock().unwrap().push(grant.unwrap());
    }
}

async fn refuse() -> (StatusCode, axum::Json<Refusal>) {
    (StatusCode::CONFLICT, axum::Json(Refusal::new(RefusalCode::OldEpoch, "epoch 3 was seen")))
}

async fn inventory(RawQuery(query): RawQuery) -> axum::Json<InventoryPage> {
    assert_eq!(query.as_deref(), Some("since=5&after=7&limit=100"));
    axum::Json(InventoryPage { start_id: "s".to_owned(), generation: 6, entries: Vec::new(), more: false })
}

fn sum() -> Checksum {
    Checksum { key: 1, sum: [1; 32] }
}

async fn checksum(
    State(seen): State<Seen>,
    headers: HeaderMap,
    axum::Json(ask): axum::Json<ChecksumRequest>,
) -> axum::Json<ChecksumAnswer> {
    seen.note(&headers);
    assert_eq!(ask.fence, Some(4));
    axum::Json(ChecksumAnswer { checksum: sum(), references: 1, journal_version: 0 })
}

fn line<T: serde::Serialize>(line: &Line<T>) -> Bytes {
    let mut text = serde_json::to_vec(line).unwrap();
    text.push(b'\n');
    text.into()
}

fn progress(bytes: i64) -> Bytes {
    line::<()>(&Line::Progress(Progress { phase: "copying packs".to_owned(), bytes, total: 10 }))
}

fn answer() -> CopyAnswer {
    let message = "done".to_owned();
    CopyAnswer {
        checksum: sum(),
        moved: 10,
        bytes: 10,
        references_changed: 1,
        rebuilt: false,
        generation: 1,
        message,
    }
}

/// Long work, which ends as the repository's number says.
async fn work(
    State(seen): State<Seen>,
    Path((id, _)): Path<(i64, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    seen.note(&headers);
    let (first, second) = (progress(1), progress(5));
    let split = [first.slice(..9), first.slice(9..), second];
    let begun = futures::stream::iter(split.map(Ok::<_, std::io::Error>));
    let last = match id {
        1 => line(&Line::Done(answer())),
        2 => line::<()>(&Line::Error(Refusal::new(RefusalCode::SourceFailed, "it went away"))),
        3 => Bytes::from_static(b"nonsense\n"),
        _ => Bytes::new(),
    };
    if id == 5 {
        let guard = seen.gone.clone().drop_guard();
        let silent = futures::stream::once(async move {
            let _guard = guard;
            futures::future::pending().await
        });
        return Response::new(Body::from_stream(begun.chain(silent)));
    }
    Response::new(Body::from_stream(begun.chain(futures::stream::iter([Ok(last)]))))
}

/// Takes a pack; of repository 9 it takes one chunk and stops.
async fn pack(
    State(seen): State<Seen>,
    Path(id): Path<i64>,
    RawQuery(query): RawQuery,
    body: Body,
) -> axum::Json<PackAnswer> {
    assert_eq!(query.as_deref(), Some("object_format=sha256"));
    let mut stream = body.into_data_stream();
    let mut bytes = 0;
    while let Some(chunk) = stream.next().await {
        bytes += i64::try_from(chunk.unwrap().len()).unwrap();
        *seen.taken.lock().unwrap() += 1;
        if id == 9 {
            futures::future::pending::<()>().await;
        }
    }
    axum::Json(PackAnswer { bytes, objects: 3 })
}

fn watching(quiet: Duration) -> (Watch, watch::Receiver<Option<Progress>>) {
    let (progress, seen) = watch::channel(None);
    (Watch { cancel: CancellationToken::new(), quiet, progress }, seen)
}

async fn copy(agent: &Agent, id: i64, watch: &Watch) -> Result<CopyAnswer, CallError> {
    let object_format = ObjectFormat::Sha1;
    let identity =
        Identity { repository: RepositoryId(id), name: "a".to_owned(), object_format, wanted: 3, version: 1 };
    let source = End { name: "fs2".to_owned(), url: "http://two".to_owned() };
    let ask = ReplicateRequest { identity, bytes_per_second: 0 };
    agents().replicate(&agent.end, &source, RepositoryId(id), 8, &ask, watch).await
}

#[tokio::test]
async fn a_call_carries_a_grant_for_just_this() {
    let agent = agent().await;
    let before = clock::now();
    let found = agents().checksum(&agent.end, ID, &ChecksumRequest { fence: Some(4) }).await.unwrap();
    assert_eq!(found.checksum, sum());
    let (watch, _) = watching(Duration::from_secs(5));
    copy(&agent, 1, &watch).await.unwrap();
    let grants = agent.seen.grants.lock().unwrap();
    let [short, long] = grants.as_slice() else { panic!("{grants:?}") };
    assert_eq!(
        (short.action, short.repository, short.epoch, &short.source),
        (Action::Verify, Some(ID), None, &None)
    );
    assert_eq!((short.fleet.as_str(), &short.destination), ("fleet", &agent.end));
    assert!((before + SHORT_GRANT..before + SHORT_GRANT + 30_000).contains(&short.expires_at));
    assert_eq!((long.action, long.epoch), (Action::Repair, Some(8)));
    assert_eq!(long.source.as_ref().unwrap().name, "fs2");
    assert!(long.expires_at >= before + LONG_GRANT);
}

#[tokio::test]
async fn answers_and_refusals_are_told_apart_by_kind() {
    let agent = agent().await;
    let page = agents().inventory(&agent.end, 5, ID, 100).await.unwrap();
    assert_eq!(page.generation, 6);
    let status = agents().status(&agent.end, Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(status, CallError::Unreadable { .. }), "{status}");
    let parts = agents().put_parts(&agent.end, &PartsList { parts: Vec::new() }).await.unwrap_err();
    assert!(
        matches!(&parts, CallError::Refused(refusal) if refusal.code == RefusalCode::OldEpoch),
        "{parts}"
    );
    let ask = QuarantineRequest { reason: "x".to_owned(), version: None };
    let proxy = agents().quarantine(&agent.end, ID, 1, &ask).await.unwrap_err();
    assert!(matches!(&proxy, CallError::Refused(refusal) if refusal.code == RefusalCode::Failed), "{proxy}");
}

#[tokio::test]
async fn an_agent_that_is_not_there_or_says_nothing_is_told_within_the_time() {
    let gone = End { name: "fs9".to_owned(), url: "http://127.0.0.1:1".to_owned() };
    let error = agents().status(&gone, Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable { why, .. } if why.contains("refused")), "{error}");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = End { name: "fs9".to_owned(), url: format!("http://{}", listener.local_addr().unwrap()) };
    let error = agents().status(&mute, Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn long_work_ends_as_its_last_line_says() {
    let agent = agent().await;
    let (watch, seen) = watching(Duration::from_secs(5));
    assert_eq!(copy(&agent, 1, &watch).await.unwrap(), answer());
    assert_eq!(seen.borrow().as_ref().map(|progress| progress.bytes), Some(5));
    let error = copy(&agent, 2, &watch).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Refused(refusal) if refusal.code == RefusalCode::SourceFailed),
        "{error}"
    );
    let error = copy(&agent, 3, &watch).await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error}");
    let error = copy(&agent, 4, &watch).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable { why, .. } if why.contains("broken off")), "{error}");
}

#[tokio::test]
async fn long_work_that_goes_silent_or_is_cancelled_is_hung_up_on() {
    let agent = agent().await;
    let (watch, _) = watching(Duration::from_millis(100));
    let error = copy(&agent, 5, &watch).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
    agent.seen.gone.cancelled().await;

    let (watch, mut seen) = watching(Duration::from_mins(1));
    let cancel = watch.cancel.clone();
    let (ended, ()) = tokio::join!(copy(&agent, 5, &watch), async move {
        seen.wait_for(Option::is_some).await.unwrap();
        cancel.cancel();
    });
    assert!(matches!(ended, Err(CallError::Cancelled)));
}

async fn send(agent: &Agent, id: i64, body: reqwest::Body, quiet: Duration) -> Result<PackAnswer, CallError> {
    let importer = Importer::new().unwrap();
    importer.pack(&agent.end, "grant", RepositoryId(id), ObjectFormat::Sha256, body, quiet).await
}

fn chunks(count: usize, pause: Duration) -> reqwest::Body {
    let chunks = futures::stream::iter(0..count).then(move |_| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, std::io::Error>(Bytes::from(vec![0; 64 * 1024]))
    });
    reqwest::Body::wrap_stream(chunks)
}

#[tokio::test]
async fn a_pack_is_streamed_and_a_slow_origin_is_not_the_agents_fault() {
    let agent = agent().await;
    let answer =
        send(&agent, 8, chunks(3, Duration::from_millis(120)), Duration::from_millis(100)).await.unwrap();
    assert_eq!(answer, PackAnswer { bytes: 3 * 64 * 1024, objects: 3 });
}

#[tokio::test]
async fn an_agent_that_takes_no_more_of_a_pack_is_given_up() {
    let agent = agent().await;
    let error = send(&agent, 9, chunks(1000, Duration::ZERO), Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
    assert_eq!(*agent.seen.taken.lock().unwrap(), 1);
}

#[tokio::test]
async fn finishing_an_import_tells_the_refusal() {
    let agent = agent().await;
    let object_format = ObjectFormat::Sha1;
    let identity = Identity { repository: ID, name: "a".to_owned(), object_format, wanted: 3, version: 1 };
    let ask = ImportRequest { identity, head: Target::Object("1".repeat(40)), references: String::new() };
    let importer = Importer::new().unwrap();
    let mut wrong = agent.end.clone();
    wrong.url.push_str("nowhere");
    let error = importer.finish(&wrong, "grant", ID, &ask).await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error}");
}
