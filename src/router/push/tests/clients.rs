//! The same with git itself as the client: what it says and how it ends.

use super::*;
use crate::body::ByteStream;
use crate::router::push::Pushing;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use std::path::Path;
use std::process::Output;
use tokio::task::JoinSet;

fn response(answer: Answer) -> Response {
    Response::builder()
        .status(answer.status)
        .header("content-type", answer.content_type)
        .body(Body::from_stream(answer.body))
        .unwrap()
}

async fn info(State(pushing): State<Arc<Pushing>>) -> Response {
    response(advertise(&pushing, super::super::testing::ID, 0).await)
}

async fn receive(State(pushing): State<Arc<Pushing>>, request: Request) -> Response {
    let stream = request.into_body().into_data_stream().map(|chunk| chunk.map_err(std::io::Error::other));
    let stream: ByteStream = stream.boxed();
    let pushed = Pushed { repository: super::super::testing::ID, pusher: "p".to_owned() };
    response(receive_pack(&pushing, &pushed, stream).await)
}

async fn serve(fleet: &Fleet) -> (String, JoinSet<()>) {
    let routes = Router::new()
        .route("/a/b.git/info/refs", get(info))
        .route("/a/b.git/git-receive-pack", post(receive))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(Arc::clone(&fleet.pushing));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a/b.git", listener.local_addr().unwrap());
    let mut running = JoinSet::new();
    running.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (url, running)
}

async fn git(work: &Path, arguments: &[&str]) -> Output {
    let run = tokio::process::Command::new("git")
        .current_dir(work)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(std::time::Duration::from_mins(1), run).await.expect("git ends").unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

on_each_engine! {
    async fn git_pushes_creates_deletes_and_reads_each_verdict(scratch) {
        let fleet = fleet(scratch, 3).await;
        let (url, _running) = serve(&fleet).await;
        let work = tempfile::tempdir().unwrap();
        let at = work.path();
        for arguments in [&["init", "-q", "."][..], &["commit", "-q", "--allow-empty", "-m", "first"], &["tag", "v1"]] {
            assert!(git(at, arguments).await.status.success());
        }
        let pushed = git(at, &["push", &url, "HEAD:refs/heads/x", "v1"]).await;
        assert!(pushed.status.success(), "{}", told(&pushed));
        assert!(fleet.on_disks("refs/heads/x").iter().all(Option::is_some));
        assert!(fleet.disks.lock().unwrap().bytes.values().all(|bytes| *bytes > 100), "a pack came everywhere");
        assert!(git(at, &["commit", "-q", "--allow-empty", "-m", "second"]).await.status.success());
        let stale = git(at, &["push", "--force-with-lease=refs/heads/x:0000000000000000000000000000000000000000", &url, "HEAD:refs/heads/x"]).await;
        assert!(!stale.status.success(), "{}", told(&stale));
        let atomic = git(at, &["push", "--atomic", &url, "HEAD:refs/heads/y", ":refs/heads/main"]).await;
        assert!(!atomic.status.success() && told(&atomic).contains("deletion of the current branch prohibited"), "{}", told(&atomic));
        let gone = git(at, &["push", "-o", "ci.skip", &url, ":refs/heads/x"]).await;
        assert!(gone.status.success(), "{}", told(&gone));
        assert_eq!((fleet.on_disks("refs/heads/x"), fleet.on_disks("refs/heads/y")), (vec![None; 3], vec![None; 3]));
        assert_eq!(fleet.now().await.version, 3);
    }

    async fn git_says_why_a_push_is_refused_and_never_hangs(scratch) {
        let fleet = fleet(scratch, 3).await;
        let (url, _running) = serve(&fleet).await;
        let work = tempfile::tempdir().unwrap();
        let at = work.path();
        for arguments in [&["init", "-q", "."][..], &["commit", "-q", "--allow-empty", "-m", "first"]] {
            assert!(git(at, arguments).await.status.success());
        }
        for (troubles, sentence) in [
            (["fs-1 prepare refused", "fs-2 prepare refused"], "of 3 copies agreed, 2 must: try again"),
            (["fs-1 ingest refused", "fs-2 ingest refused"], "too few to agree"),
            (["fs-1 pack refused", "fs-2 pack refused"], "unpacker error"),
        ] {
            fleet.disks.lock().unwrap().troubles = troubles.map(str::to_owned).into();
            let refused = git(at, &["push", &url, "HEAD:refs/heads/x"]).await;
            assert!(!refused.status.success() && told(&refused).contains(sentence), "{}", told(&refused));
        }
        assert_eq!(fleet.now().await.version, 1);
    }
}
