//! A push's calls: what is asked of the agent, under which grant, and that a pack streams while lines come back.

use super::*;
use crate::model::wire::push::{
    FenceAnswer, FenceRequest, FinishAnswer, FinishRequest, IngestAnswer, IngestRequest, PrepareRequest,
    Ready, Vote,
};
use axum::extract::Request;
use axum::response::IntoResponse as _;
use tokio::sync::mpsc;

/// An agent that says yes to everything, and which paths it was asked for.
async fn willing() -> (Agent, Arc<Mutex<Vec<String>>>) {
    let (seen, paths) = (Seen::default(), Arc::new(Mutex::new(Vec::new())));
    let (noted, asked) = (seen.clone(), Arc::clone(&paths));
    let routes = axum::Router::new().fallback(async move |request: Request| {
        noted.note(request.headers());
        let path = request.uri().path().to_owned();
        asked.lock().unwrap().push(format!("{} {path}", request.method()));
        answered(&path, request)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (Agent { end: End { name: "fs1".to_owned(), url }, seen, _server: server }, paths)
}

fn answered(path: &str, request: Request) -> Response<Body> {
    match path.rsplit('/').next().unwrap() {
        "pushes" => axum::Json(IngestAnswer { ingest: "5-1".to_owned(), pushed: 0 }).into_response(),
        "prepare" => axum::Json(Vote { before: sum(), after: sum(), journal_version: 3 }).into_response(),
        "finish" => axum::Json(FinishAnswer { committed: true, checksum: sum(), bytes: 9 }).into_response(),
        "fence" => axum::Json(FenceAnswer { checksum: sum(), journal_version: 3 }).into_response(),
        "bring" => Body::from(line(&Line::Done(answer()))).into_response(),
        "pack" => Body::from_stream(counted(request.into_body())).into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// A line for each piece of a pack as it comes, and one for its end.
fn counted(pack: Body) -> impl futures::Stream<Item = std::io::Result<Bytes>> {
    futures::stream::unfold(Some((pack.into_data_stream(), 0)), |state| async move {
        let (mut pack, bytes) = state?;
        match pack.next().await {
            Some(Ok(piece)) => {
                let bytes = bytes + i64::try_from(piece.len()).unwrap();
                Some((Ok(progress(bytes)), Some((pack, bytes))))
            }
            Some(Err(_)) => None,
            None => Some((Ok(line(&Line::Done(Ready { bytes, objects: 1, unfit: Vec::new() }))), None)),
        }
    })
}

fn watched() -> (Watch, watch::Receiver<Option<Progress>>) {
    let (progress, told) = watch::channel(None);
    (Watch { cancel: CancellationToken::new(), quiet: Duration::from_secs(20), progress }, told)
}

#[tokio::test]
async fn a_pack_streams_while_the_agent_tells_how_far_it_is() {
    let (agent, _) = willing().await;
    let (pieces, blocks) = mpsc::channel::<std::io::Result<Bytes>>(1);
    let pack = futures::stream::unfold(blocks, async |mut blocks: mpsc::Receiver<_>| {
        let block = blocks.recv().await?;
        Some((block, blocks))
    });
    let (watch, mut told) = watched();
    let agents = agents();
    let sent = agents.send_pack(&agent.end, ID, "5-1", pack, &watch);
    let gives = async move {
        pieces.send(Ok(Bytes::from_static(b"PACK"))).await.unwrap();
        // The second piece is not there before the first one was taken.
        told.wait_for(|told| told.as_ref().is_some_and(|told| told.bytes == 4)).await.unwrap();
        pieces.send(Ok(Bytes::from_static(b"more"))).await.unwrap();
    };
    let (ready, ()) = tokio::join!(sent, gives);
    assert_eq!(ready.unwrap().bytes, 8);
    let (watch, _told) = watched();
    let broken = futures::stream::iter([Ok(Bytes::from_static(b"PACK")), Err(std::io::Error::other("gone"))]);
    agents.send_pack(&agent.end, ID, "5-1", broken, &watch).await.unwrap_err();
}

#[tokio::test]
async fn each_call_of_a_push_shows_a_grant_for_just_that() {
    let (agent, paths) = willing().await;
    let (agents, to, within) = (agents(), &agent.end, Duration::from_secs(20));
    let other = End { name: "fs2".to_owned(), url: "http://fs2".to_owned() };
    let ask = IngestRequest { commands: Vec::new(), most_bytes: 0 };
    assert_eq!(agents.ingest(to, ID, &ask, within).await.unwrap().ingest, "5-1");
    let ask = PrepareRequest { base_version: 3, commands: Vec::new() };
    assert_eq!(agents.prepare(to, ID, "5-1", 8, &ask, within).await.unwrap().journal_version, 3);
    let ask = FinishRequest { commit: true };
    assert!(agents.finish(to, ID, "5-1", 8, &ask, within).await.unwrap().committed);
    agents.drop_ingest(to, ID, "5-1", within).await.unwrap();
    agents.fence(to, ID, 9, &FenceRequest { epoch: 8 }, within).await.unwrap();
    let identity = Identity {
        repository: ID,
        name: "a/b".to_owned(),
        object_format: ObjectFormat::Sha1,
        wanted: 3,
        version: 4,
    };
    let ask = ResyncRequest { identity, fence: Some(8), bytes_per_second: 0, rebuild: false };
    let (watch, _told) = watched();
    agents.bring(to, &other, ID, 9, &ask, &watch).await.unwrap();
    let below = "/v1/repositories/7";
    let expected = [
        format!("POST {below}/pushes"),
        format!("POST {below}/pushes/5-1/prepare"),
        format!("POST {below}/pushes/5-1/finish"),
        format!("DELETE {below}/pushes/5-1"),
        format!("POST {below}/fence"),
        format!("POST {below}/bring"),
    ];
    assert_eq!(*paths.lock().unwrap(), expected);
    let grants = agent.seen.grants.lock().unwrap().clone();
    let said: Vec<_> = grants.iter().map(|grant| (grant.action, grant.epoch, grant.source.clone())).collect();
    let expected = [
        (Action::Push, None, None),
        (Action::Push, Some(8), None),
        (Action::Push, Some(8), None),
        (Action::Push, None, None),
        (Action::Settle, Some(9), None),
        (Action::Settle, Some(9), Some(other)),
    ];
    assert_eq!(said, expected);
    assert!(grants.iter().all(|grant| grant.repository == Some(ID) && grant.destination == agent.end));
}
