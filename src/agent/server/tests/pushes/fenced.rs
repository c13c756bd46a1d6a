//! Fences: what they end, what they refuse, also after a restart; and settling by bringing.

use super::*;
use crate::model::wire::{CopyAnswer, ReplicateRequest, ResyncRequest};

fn one(world: &World) -> Vec<Change> {
    vec![change("refs/heads/new", None, Some(&world.tip()))]
}

#[tokio::test]
async fn a_fence_before_the_preparation_refuses_it_also_after_a_restart() {
    let world = World::new().await;
    let commands = one(&world);
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    let told = world.fence(6, 5).await.unwrap();
    assert_eq!((told.checksum, told.journal_version), (world.checksum().await.checksum, 1));
    for epoch in [4, 5] {
        let refusal = world.prepare(&ingest, epoch, &commands).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::OldEpoch, "{epoch}");
    }
    let world = world.restart().await;
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    assert_eq!(world.prepare(&ingest, 5, &commands).await.unwrap_err().code, RefusalCode::OldEpoch);
    assert_eq!(world.fence(5, 5).await.unwrap_err().code, RefusalCode::OldEpoch, "nor may an old settler");
    world.push(7, &commands, Vec::new()).await;
    assert_eq!(world.fence(7, 4).await.unwrap_err().code, RefusalCode::OldEpoch, "fences only rise");
    world.agent.stop().await;
}

#[tokio::test]
async fn a_fence_ends_what_is_prepared_and_tells_what_is_behind_it() {
    let world = World::new().await;
    let commands = one(&world);
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    let vote = world.prepare(&ingest, 5, &commands).await.unwrap();
    // One of lower epochs does not concern it.
    world.fence(5, 4).await.unwrap();
    assert!(!locks(&world.place()).is_empty());
    let told = world.fence(6, 5).await.unwrap();
    assert_eq!((told.checksum, told.journal_version), (vote.before, 1));
    assert!(locks(&world.place()).is_empty(), "its git is gone when the fence is told");
    let refusal = world.finish(&ingest, 5, true).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Cancelled);
    assert_eq!(world.checksum().await.checksum, vote.before);
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_fence_after_the_commit_tells_what_was_committed() {
    let world = World::new().await;
    let done = world.push(5, &one(&world), Vec::new()).await;
    let told = world.fence(6, 5).await.unwrap();
    assert_eq!((told.checksum, told.journal_version), (done.checksum, 6));
    world.agent.stop().await;
}

#[tokio::test]
async fn a_push_of_a_lower_epoch_than_one_that_was_here_is_refused_also_after_a_restart() {
    let world = World::new().await;
    world.push(5, &one(&world), Vec::new()).await;
    let world = world.restart().await;
    let commands = [change("refs/heads/late", None, Some(&world.tip()))];
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    assert_eq!(world.prepare(&ingest, 4, &commands).await.unwrap_err().code, RefusalCode::OldEpoch);
    assert_eq!(world.agent.status().await.highest_push_epoch, 5);
    world.push(6, &commands, Vec::new()).await;
    world.agent.stop().await;
}

#[tokio::test]
async fn a_newer_push_ends_a_prepared_one_and_a_verification_waits_for_neither() {
    let world = World::new().await;
    let commands = one(&world);
    let (old, _) = world.ready(&commands, Vec::new()).await;
    world.prepare(&old, 5, &commands).await.unwrap();
    let verify = Grant { epoch: Some(9), ..grant(Role::Worker, Action::Verify, Some(ID), "alpha") };
    let ask = serde_json::to_string(&ChecksumRequest { fence: Some(4) }).unwrap();
    let verified = world.agent.ask(Method::POST, "/v1/repositories/7/verify", &verify, &ask).await;
    assert!(verified.text().await.unwrap().contains("done"));
    assert!(!locks(&world.place()).is_empty(), "and it ended nothing");
    world.push(6, &commands, Vec::new()).await;
    assert_eq!(world.finish(&old, 5, true).await.unwrap_err().code, RefusalCode::Cancelled);
    world.agent.stop().await;
}

#[tokio::test]
async fn a_repair_that_takes_the_copy_away_waits_for_a_prepared_push() {
    let settings =
        PushSettings { prepared: (Duration::from_millis(500), Duration::ZERO), ..PushSettings::default() };
    let world = World::with(ObjectFormat::Sha1, settings).await;
    let commands = one(&world);
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    world.prepare(&ingest, 5, &commands).await.unwrap();
    let began = std::time::Instant::now();
    let repair = Grant { epoch: Some(1), ..grant(Role::Worker, Action::Repair, Some(ID), "alpha") };
    let gone =
        world.agent.ask(Method::POST, "/v1/repositories/7/quarantine", &repair, r#"{"reason":"test"}"#).await;
    assert_eq!(gone.status(), 200);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(world.finish(&ingest, 5, true).await.unwrap_err().code, RefusalCode::Cancelled);
    world.agent.stop().await;
}

/// A second agent, beta, with a copy of what alpha has.
async fn second(world: &World) -> (tempfile::TempDir, Running) {
    let root = tempfile::tempdir().unwrap();
    let mut options = options(root.path());
    options.enrolment = enrolment("fleet", "beta");
    let beta = start(options).await;
    let ask = ReplicateRequest { identity: identity(1), bytes_per_second: 0 };
    let grant = to_beta(world, Role::Worker, Action::Repair, 1);
    let _: CopyAnswer = last(&beta, "replicate", &grant, &ask).await.unwrap();
    (root, beta)
}

fn identity(version: i64) -> Identity {
    Identity { repository: ID, name: "a/b".into(), object_format: ObjectFormat::Sha1, wanted: 1, version }
}

fn to_beta(world: &World, role: Role, action: Action, epoch: i64) -> Grant {
    let source = Some(End { name: "alpha".into(), url: world.agent.url.clone() });
    Grant { source, epoch: Some(epoch), ..grant(role, action, Some(ID), "beta") }
}

async fn last<T: DeserializeOwned>(
    agent: &Running,
    work: &str,
    grant: &Grant,
    ask: &impl Serialize,
) -> Result<T, Refusal> {
    let body = serde_json::to_string(ask).unwrap();
    let answer = agent.ask(Method::POST, &format!("/v1/repositories/7/{work}"), grant, &body).await;
    if !answer.status().is_success() {
        return Err(answer.json().await.unwrap());
    }
    let text = answer.text().await.unwrap();
    match serde_json::from_str(text.lines().last().unwrap()).unwrap() {
        Line::Done(answer) => Ok(answer),
        Line::Error(refusal) => Err(refusal),
        Line::Progress(_) => panic!("{work} was broken off: {text}"),
    }
}

#[tokio::test]
async fn a_copy_is_brought_to_where_another_is_by_the_settler_and_by_no_older_one() {
    let world = World::new().await;
    let (_root, beta) = second(&world).await;
    let first = world.tip();
    let second = world.commit("second");
    let commands = [change("refs/heads/main", Some(&first), Some(&second))];
    let done = world.push(1, &commands, world.pack(&second, &first, &[])).await;
    let ask = ResyncRequest { identity: identity(2), fence: Some(2), bytes_per_second: 0, rebuild: false };
    let settle = |epoch| to_beta(&world, Role::Router, Action::Settle, epoch);
    let brought: CopyAnswer = last(&beta, "bring", &settle(3), &ask).await.unwrap();
    assert_eq!(brought.checksum, done.checksum);
    let grant = Grant { epoch: Some(4), ..grant(Role::Router, Action::Settle, Some(ID), "beta") };
    let body = serde_json::to_string(&FenceRequest { epoch: 3 }).unwrap();
    let told = beta.ask(Method::POST, "/v1/repositories/7/fence", &grant, &body).await;
    let told: FenceAnswer = told.json().await.unwrap();
    assert_eq!((told.checksum, told.journal_version), (done.checksum, 2));
    // Somebody settles under a higher epoch: the first one is late.
    let refusal = last::<CopyAnswer>(&beta, "bring", &settle(3), &ask).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::OldEpoch);
    let without = Grant { epoch: None, ..settle(5) };
    assert_eq!(
        last::<CopyAnswer>(&beta, "bring", &without, &ask).await.unwrap_err().code,
        RefusalCode::Forbidden
    );
    beta.stop().await;
    world.agent.stop().await;
}
