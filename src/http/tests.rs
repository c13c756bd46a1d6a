//! The API against a scratch database, as the commands ask it.

use super::shapes::{FinishImport, ImportPlan};
use super::{Api, Hooks, Limited, router};
use crate::database::goals::Declared;
use crate::database::scratch::Scratch;
use crate::database::{fileservers, goals, parts};
use crate::goal::session::Source;
use crate::model::checksum::{Checksum, ChecksumKey};
use crate::model::fleet::Health;
use crate::model::grant::{Part, Receipt, Role};
use crate::model::wire::Status;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

mod work;

const FLEET: &str = "fleet";

struct Fixture {
    scratch: Scratch,
    api: Api,
    nudged: Arc<Mutex<Vec<String>>>,
}

mod trials;

async fn fixture() -> Fixture {
    fixture_on(Scratch::sqlite().await.unwrap())
}

fn fixture_on(scratch: Scratch) -> Fixture {
    let nudged: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&nudged);
    let api = Api {
        db: scratch.database().clone(),
        source: Source::new(scratch.url()).unwrap(),
        repairs: Arc::default(),
        limited: Limited { repairs: Arc::new(crate::repair::library::shipped().unwrap()), in_flight: 2_000 },
        remedies: Arc::new(crate::repair::library::shipped().unwrap()),
        configured: Arc::default(),
        hooks: Hooks {
            change_references: Arc::new(|_, commands, _| {
                Box::pin(async move { Ok(commands.into_iter().map(|one| (one.name, None)).collect()) })
            }),
            set_head: Arc::new(|_, _| Box::pin(async { Ok(()) })),
            is_vacant: Arc::new(|_| Box::pin(async { Ok(false) })),
            populate: Arc::new(|_, _, _| Box::pin(async { Ok(()) })),
            sign_import: Arc::new(|id, to, _| format!("grant of {id} for {}", to.name)),
            evaluate: Arc::new(move |names: &[String]| heard.lock().unwrap().extend_from_slice(names)),
            path_of: Arc::new(|server, id| {
                format!("{}/{id}.git", server.root.as_deref().unwrap_or_default())
            }),
            goals: Arc::new(Vec::new),
        },
        fleet: FLEET.into(),
        checksum_key: ChecksumKey { id: 1, secret: [1; 32] },
        clone_base: "http://git.example".into(),
        fill_limit: 90,
        post: None,
        pace: Arc::new(std::sync::atomic::AtomicU32::new(100)),
        leaving: tokio_util::sync::CancellationToken::new(),
        sampler: Arc::default(),
        stopping: tokio_util::sync::CancellationToken::new(),
    };
    Fixture { scratch, api, nudged }
}

// An answer that does not wait for the body ends its connection, on which the client's next call goes out.
#[tokio::test]
async fn a_list_that_comes_late_is_waited_for_and_the_connection_stays() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let fixture = fixture().await;
    let listener = super::bind("127.0.0.1:0".parse().unwrap(), "--listen").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = fixture.api.stopping.clone();
    let list = b"HEAD ref:refs/heads/main\n";
    let talk = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /api/v1/repositories/nothing/compare?object_format=sha1 HTTP/1.1\r\nhost: x\r\n\
             content-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
            list.len()
        );
        for _ in 0..2 {
            stream.write_all(head.as_bytes()).await.unwrap();
            let early = tokio::time::timeout(std::time::Duration::from_millis(300), stream.read_u8()).await;
            assert!(early.is_err(), "nothing is said before the list is here");
            stream.write_all(list).await.unwrap();
            let mut answer = vec![0; 4_096];
            let length = stream.read(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"exists\":false"), "{answer}");
        }
    };
    tokio::select! {
        ended = super::serve(listener, fixture.api.clone()) => panic!("{ended:?}"),
        () = talk => stop.cancel(),
    }
    fixture.scratch.close().await;
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

impl Fixture {
    /// Fileservers `fs-1` … that are online and have room.
    async fn fleet(&self, count: u8) {
        for number in 1..=count {
            let name = format!("fs-{number}");
            let part = Part {
                id: name.clone(),
                name: name.clone(),
                role: Role::Agent,
                public_key: STANDARD.encode(key(number).verifying_key().as_bytes()),
            };
            let rack = format!("rack-{number}");
            let id = fileservers::add(&self.api.db, &name, &rack, "http://127.0.0.1:1", &part).await.unwrap();
            fileservers::record_status(&self.api.db, id, &status(&name), 1).await.unwrap();
            let verdict = fileservers::Verdict {
                id,
                health: Health::Online,
                health_since: 1,
                offline_ms: 0,
                counts: true,
                empty_since: None,
            };
            fileservers::record_verdicts(&self.api.db, &[verdict]).await.unwrap();
        }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = match body {
            Some(body) => {
                request.header("content-type", "application/json").body(Body::from(body.to_string()))
            }
            None => request.body(Body::empty()),
        };
        let answer = router(self.api.clone()).oneshot(request.unwrap()).await.unwrap();
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn plan(&self, name: &str) -> ImportPlan {
        let ask = json!({ "name": name, "object_format": "sha1", "wanted": 3, "bytes": 10 });
        let (status, plan) = self.ask("POST", "/api/v1/imports", Some(ask)).await;
        assert_eq!(status, StatusCode::OK, "{plan}");
        serde_json::from_value(plan).unwrap()
    }

    fn receipts(plan: &ImportPlan, sums: &[u8]) -> Value {
        let words = plan.copies.iter().zip(sums).map(|(copy, sum)| {
            let number: u8 = copy.to.name.trim_start_matches("fs-").parse().unwrap();
            let receipt = Receipt {
                fleet: FLEET.into(),
                fileserver: copy.to.name.clone(),
                repository: plan.id,
                checksum: Checksum { key: 1, sum: [*sum; 32] },
                bytes: 10,
                at: 1,
            };
            receipt.sign(&key(number))
        });
        serde_json::to_value(FinishImport { receipts: words.collect() }).unwrap()
    }
}

fn status(name: &str) -> Status {
    Status {
        fileserver: name.into(),
        start_id: "s".into(),
        root_id: name.into(),
        root: format!("/{name}"),
        capacity: 1 << 40,
        disk_used: 0,
        disk_free: 1 << 40,
        load: 0,
        processes: 0,
        long_reads: 0,
        whole_disk: false,
        agent_version: "1".into(),
        git_version: "2".into(),
        inventory_generation: 1,
        inventory_complete: true,
        parts_digest: String::new(),
        locks_removed: 0,
        highest_repair_epoch: 0,
        highest_push_epoch: 0,
        trouble: None,
    }
}

#[tokio::test]
async fn an_import_is_planned_in_distinct_racks_and_exists_once_a_quorum_gave_its_word() {
    let fixture = fixture().await;
    fixture.fleet(4).await;
    let plan = fixture.plan("group/repo").await;
    let mut racks: Vec<_> = plan.copies.iter().map(|copy| copy.rack.clone()).collect();
    racks.sort();
    racks.dedup();
    assert_eq!((racks.len(), plan.quorum), (3, 2));
    assert_eq!(fixture.plan("group/repo").await, plan, "asked again it is the same plan");
    let finish = format!("/api/v1/imports/{}/finish", plan.id);
    let (status, answer) = fixture.ask("POST", &finish, Some(Fixture::receipts(&plan, &[7, 8, 9]))).await;
    assert_eq!((status, answer["code"].as_str()), (StatusCode::CONFLICT, Some("refused")));
    let (status, shown) = fixture.ask("POST", &finish, Some(Fixture::receipts(&plan, &[7, 7]))).await;
    assert_eq!(status, StatusCode::OK, "{shown}");
    let (_, again) = fixture.ask("GET", "/api/v1/repositories/group%2Frepo", None).await;
    assert_eq!((&again["seats"], again["replicas"].as_array().unwrap().len()), (&json!(3), 2));
    assert_eq!(again, shown);
    let (_, list) = fixture.ask("GET", "/api/v1/repositories", None).await;
    let row = &list["repositories"][0];
    assert_eq!((&row["good"], &row["behind"]), (&json!(2), &json!(true)));
    fixture.scratch.close().await;
}

#[tokio::test]
async fn a_word_that_an_agent_did_not_sign_is_refused() {
    let fixture = fixture().await;
    fixture.fleet(3).await;
    let plan = fixture.plan("repo").await;
    let forged = Receipt {
        fleet: FLEET.into(),
        fileserver: plan.copies[0].to.name.clone(),
        repository: plan.id,
        checksum: Checksum { key: 1, sum: [7; 32] },
        bytes: 10,
        at: 1,
    };
    let body = json!({ "receipts": [forged.sign(&key(99))] });
    let (status, answer) =
        fixture.ask("POST", &format!("/api/v1/imports/{}/finish", plan.id), Some(body)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["message"].as_str().unwrap().contains("not signed by the part"), "{answer}");
    fixture.scratch.close().await;
}

#[tokio::test]
async fn a_repository_has_just_the_promised_fields() {
    let fixture = fixture().await;
    fixture.fleet(3).await;
    let plan = fixture.plan("repo").await;
    let finish = format!("/api/v1/imports/{}/finish", plan.id);
    let (_, shown) = fixture.ask("POST", &finish, Some(Fixture::receipts(&plan, &[7, 7, 7]))).await;
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&shown), "checksum clone_url id name replicas seats version wanted");
    assert_eq!(keys(&shown["replicas"][0]), "checksum fileserver in_sync path rack state verified_at");
    let (_, list) = fixture.ask("GET", "/api/v1/fileservers", None).await;
    assert_eq!(keys(&list), "fileservers");
    assert_eq!(keys(&list["fileservers"][0]), "counts disk_free disk_used health intent name rack replicas");
    let (_, status) = fixture.ask("GET", "/api/v1/status", None).await;
    assert_eq!(keys(&status), "backlog brakes drains fileservers goals health notes pressure");
    assert_eq!(keys(&status["backlog"]), "held oldest_seconds ready running stuck total waiting");
    fixture.scratch.close().await;
}

#[tokio::test]
async fn intents_and_wanted_copies_change_once_and_not_in_a_dry_run() {
    let fixture = fixture().await;
    fixture.fleet(3).await;
    let path = "/api/v1/fileservers/fs-1/intent";
    let ask = |dry_run| Some(json!({ "intent": "quiesce", "reason": "disk", "dry_run": dry_run }));
    let (_, dry) = fixture.ask("PUT", path, ask(true)).await;
    let (_, first) = fixture.ask("PUT", path, ask(false)).await;
    let (_, second) = fixture.ask("PUT", path, ask(false)).await;
    assert_eq!([&dry["changed"], &first["changed"], &second["changed"]], [false, true, false]);
    let (status, answer) = fixture.ask("GET", "/api/v1/fileservers/fs1", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(answer["hint"], "did you mean fs-1?");
    fixture.scratch.close().await;
}

// Case 7: a drain with nowhere to go says so at once, with the sums.
#[tokio::test]
async fn an_evacuation_is_proven_first_and_refused_with_the_sums() {
    let fixture = fixture().await;
    fixture.fleet(3).await;
    let plan = fixture.plan("a/b").await;
    let path = format!("/api/v1/imports/{}/finish", plan.id);
    fixture.ask("POST", &path, Some(Fixture::receipts(&plan, &[1, 1, 1]))).await;
    let evacuate = |dry_run| Some(json!({ "fileservers": ["fs-1"], "reason": "old", "dry_run": dry_run }));
    let (status, no) = fixture.ask("POST", "/api/v1/drains", evacuate(false)).await;
    assert_eq!((status, &no["code"]), (StatusCode::CONFLICT, &json!("unsafe")));
    assert_eq!(no["message"], "fs-1 cannot be emptied: needs 3 others, has 2");
    let retire = Some(json!({ "intent": "retire" }));
    let (_, no) = fixture.ask("PUT", "/api/v1/fileservers/fs-1/intent", retire).await;
    assert_eq!(
        (&no["code"], &no["message"]),
        (&json!("unsafe"), &json!("fileserver fs-1 still holds 1 replicas"))
    );
    fixture.fleet(4).await;
    let (_, dry) = fixture.ask("POST", "/api/v1/drains", evacuate(true)).await;
    assert_eq!(
        (&dry["changed"], &dry["message"]),
        (&json!(false), &json!("fs-1 would be emptied: 10 B to be placed, 30 B can be"))
    );
    let (_, none) = fixture.ask("GET", "/api/v1/drains", None).await;
    assert_eq!(none, json!({ "drains": [] }));
    let (_, yes) = fixture.ask("POST", "/api/v1/drains", evacuate(false)).await;
    assert_eq!(yes["changed"], true);
    let (_, list) = fixture.ask("GET", "/api/v1/drains?fileservers=fs-1", None).await;
    let drain = &list["drains"][0];
    assert_eq!((&drain["name"], &drain["left"], &drain["done"]), (&json!("fs-1"), &json!(1), &json!(false)));
    let (_, shown) = fixture.ask("GET", "/api/v1/status", None).await;
    assert_eq!((&shown["drains"][0]["name"], &shown["drains"][0]["percent"]), (&json!("fs-1"), &json!(0)));
    let (_, second) = fixture.ask("POST", "/api/v1/drains", Some(json!({ "fileservers": ["fs-2"] }))).await;
    assert_eq!(
        second["message"], "fs-2 cannot be emptied: needs 3 others, has 2",
        "what leaves already is counted"
    );
    fixture.ask("PUT", "/api/v1/fileservers/fs-1/intent", Some(json!({ "intent": "serve" }))).await;
    let (_, none) = fixture.ask("GET", "/api/v1/drains", None).await;
    assert_eq!(none, json!({ "drains": [] }), "cancelled at any moment");
    fixture.scratch.close().await;
}

#[tokio::test]
async fn stopping_is_answered_with_counts_and_kept_and_what_answers_is_not_lost() {
    let fixture = fixture().await;
    fixture.fleet(3).await;
    let plan = fixture.plan("a/b").await;
    let path = format!("/api/v1/imports/{}/finish", plan.id);
    fixture.ask("POST", &path, Some(Fixture::receipts(&plan, &[1, 1, 1]))).await;
    let ask = |name| Some(json!({ "fileservers": [name], "keep_ms": 60_000 }));
    let (_, yes) = fixture.ask("POST", "/api/v1/stops", ask("fs-1")).await;
    assert_eq!((&yes["ok"], &yes["below"], &yes["one_more"]), (&json!(true), &json!(0), &json!(1)));
    let (_, no) = fixture.ask("POST", "/api/v1/stops", ask("fs-2")).await;
    assert_eq!(
        (&no["ok"], &no["below"], &no["stopped_by_others"]),
        (&json!(false), &json!(1), &json!(["fs-1"]))
    );
    let (status, _) =
        fixture.ask("POST", "/api/v1/stops", Some(json!({ "fileservers": ["fs-2"], "keep_ms": 1 }))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, no) = fixture.ask("POST", "/api/v1/fileservers/fs-1/lost", Some(json!({}))).await;
    assert_eq!(
        (&no["code"], &no["message"]),
        (&json!("unsafe"), &json!("fileserver fs-1 answers: it is not lost"))
    );
    let (_, no) = fixture.ask("POST", "/api/v1/fileservers/fs-1/accept-empty", Some(json!({}))).await;
    assert_eq!(no["code"], "refused");
    fixture.scratch.close().await;
}

#[tokio::test]
async fn a_change_that_is_not_json_is_refused() {
    let fixture = fixture().await;
    let request = Request::post("/api/v1/goals/evaluate")
        .header("content-type", "text/plain")
        .body(Body::from("{\"goals\":[]}"))
        .unwrap();
    let answer = router(fixture.api.clone()).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert!(fixture.nudged.lock().unwrap().is_empty());
    let (status, answer) = fixture.ask("GET", "/api/v1/nonsense", None).await;
    assert_eq!((status, answer["code"].as_str()), (StatusCode::NOT_FOUND, Some("not-found")));
    fixture.scratch.close().await;
}

#[tokio::test]
async fn health_metrics_and_why_answer_on_an_empty_fleet() {
    let fixture = fixture().await;
    fixture.fleet(1).await;
    for path in ["/livez", "/readyz", "/healthz?verbose", "/api/v1/why?subject=fs-1", "/api/v1/backlog"] {
        let (status, answer) = fixture.ask("GET", path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    }
    let (_, text) = fixture.ask("GET", "/metrics", None).await;
    assert!(text.as_str().unwrap().contains("trued_fileservers{health=\"online\"} 1"), "{text}");
    let (status, _) = fixture.ask("GET", "/api/v1/why?subject=nobody", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    fixture.scratch.close().await;
}

#[tokio::test]
async fn a_part_is_added_once_and_its_secret_is_not_asked_for() {
    let fixture = fixture().await;
    let ask = json!({
        "name": "w-1", "role": "worker",
        "public_key": STANDARD.encode(key(5).verifying_key().as_bytes()),
    });
    let (status, enrolled) = fixture.ask("POST", "/api/v1/parts", Some(ask)).await;
    assert_eq!((status, &enrolled["fleet"]), (StatusCode::OK, &json!(FLEET)));
    assert_eq!(parts::list(&fixture.api.db).await.unwrap().len(), 1);
    let other = json!({
        "name": "w-1", "role": "worker",
        "public_key": STANDARD.encode(key(6).verifying_key().as_bytes()),
    });
    let (status, _) = fixture.ask("POST", "/api/v1/parts", Some(other)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _) = fixture.ask("POST", "/api/v1/parts", Some(json!({ "name": "A b" }))).await;
    assert!(status.is_client_error());
    fixture.scratch.close().await;
}

#[tokio::test]
async fn a_pause_needs_a_known_goal_an_end_and_a_reason_and_is_audited() {
    let fixture = fixture().await;
    let declared =
        Declared { goal: "all-well".into(), digest: None, file_error: Some("bad".into()), gave_way: None };
    goals::declare(&fixture.api.db, &[declared]).await.unwrap();
    let path = "/api/v1/goals/all-well/pause";
    let good = json!({ "for_ms": 3_600_000, "reason": "a rack moves" });
    for (path, ask, expected) in [
        ("/api/v1/goals/all-wel/pause", good.clone(), StatusCode::NOT_FOUND),
        (path, json!({ "reason": "no end" }), StatusCode::BAD_REQUEST),
        (path, json!({ "for_ms": 1, "until": 5, "reason": " " }), StatusCode::BAD_REQUEST),
        (path, json!({ "until": 5, "reason": "in the past" }), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(fixture.ask("POST", path, Some(ask)).await.0, expected);
    }
    let (_, changed) = fixture.ask("POST", path, Some(good)).await;
    assert_eq!(changed["changed"], true, "{changed}");
    let (_, status) = fixture.ask("GET", "/api/v1/status", None).await;
    let goal = &status["goals"][0];
    assert_eq!((&goal["paused"]["reason"], &goal["file_error"]), (&json!("a rack moves"), &json!("bad")));
    assert_eq!(goal["no_version"], true);
    let (_, text) = fixture.ask("GET", "/metrics", None).await;
    for line in ["trued_goals_paused 1", "trued_goal_file_errors 1"] {
        assert!(text.as_str().unwrap().contains(line), "{text}");
    }
    let (_, history) = fixture.ask("GET", "/api/v1/goals/all-well/history", None).await;
    assert_eq!(history["evaluations"], json!([]));
    let note =
        "goal all-well was never evaluated, because its file is not valid: bad (trued goal show all-well)";
    assert_eq!(history["note"], note);
    let (_, changed) = fixture.ask("POST", "/api/v1/goals/all-well/resume", Some(json!({}))).await;
    assert_eq!(changed["changed"], true);
    let (_, again) = fixture.ask("POST", "/api/v1/goals/all-well/resume", Some(json!({}))).await;
    assert_eq!(again["changed"], false);
    fixture.scratch.close().await;
}
