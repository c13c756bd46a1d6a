//! How a prepared push ends: by a verdict, by its age, with its caller, or not at all.

use super::*;

async fn prepared(world: &World, epoch: i64) -> (String, Vec<Change>, Vote) {
    let first = world.tip();
    let commands = vec![change("refs/heads/new", None, Some(&first))];
    let (ingest, _) = world.ready(&commands, Vec::new()).await;
    let vote = world.prepare(&ingest, epoch, &commands).await.unwrap();
    (ingest, commands, vote)
}

#[tokio::test]
async fn an_aborted_push_changed_nothing_and_the_next_one_goes() {
    let world = World::new().await;
    let before = world.listing().await;
    let (ingest, commands, vote) = prepared(&world, 1).await;
    assert!(!locks(&world.place()).is_empty(), "git holds the reference");
    assert_eq!(world.listing().await, before, "nobody sees it yet");
    let done = world.finish(&ingest, 1, false).await.unwrap();
    assert!(!done.committed && done.checksum == vote.before);
    assert_eq!(world.finish(&ingest, 1, true).await.unwrap(), done, "what was said is said again");
    assert_eq!((world.listing().await, world.version().await), (before, 1));
    world.assert_tidy();
    world.push(2, &commands, Vec::new()).await;
    world.agent.stop().await;
}

#[tokio::test]
async fn a_prepared_push_ends_by_the_agent_s_own_clock() {
    let settings =
        PushSettings { prepared: (Duration::from_millis(300), Duration::ZERO), ..PushSettings::default() };
    let world = World::with(ObjectFormat::Sha1, settings).await;
    let (ingest, ..) = prepared(&world, 1).await;
    until(async || locks(&world.place()).is_empty().then_some(())).await;
    let late = until(async || world.finish(&ingest, 1, true).await.err()).await;
    assert_eq!(late.code, RefusalCode::Cancelled);
    assert_eq!(world.listing().await.references.len(), 1);
    world.assert_tidy();
    let unknown = world.finish("none", 1, true).await.unwrap_err();
    assert_eq!(unknown.code, RefusalCode::NotFound);
    world.agent.stop().await;
}

#[tokio::test]
async fn a_reference_with_another_value_is_no_vote_and_the_objects_may_be_prepared_again() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let stale = [change("refs/heads/main", Some(&second), Some(&first))];
    let right = [change("refs/heads/main", Some(&first), Some(&second))];
    let (ingest, _) = world.ready(&right, world.pack(&second, &first, &[])).await;
    let refusal = world.prepare(&ingest, 1, &stale).await.unwrap_err();
    assert!(
        refusal.code == RefusalCode::Rejected && refusal.message.contains("refs/heads/main"),
        "{refusal}"
    );
    assert!(locks(&world.place()).is_empty());
    for (commands, why) in [(&right[..0], "nothing"), (&[right[0].clone(), right[0].clone()][..], "twice")] {
        let refusal = world.prepare(&ingest, 1, commands).await.unwrap_err();
        assert!(refusal.code == RefusalCode::BadRequest && refusal.message.contains(why), "{refusal}");
    }
    world.prepare(&ingest, 1, &right).await.unwrap();
    world.finish(&ingest, 1, true).await.unwrap();
    world.assert_tidy();
    world.assert_whole();
    world.agent.stop().await;
}

// Its objects were held for ten minutes, and packing waited for that.
#[tokio::test]
async fn an_abort_ends_a_push_that_did_not_come_to_its_vote() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let stale = [change("refs/heads/main", Some(&second), Some(&first))];
    let (ingest, _) = world.ready(&stale, world.pack(&second, &first, &[])).await;
    world.prepare(&ingest, 1, &stale).await.unwrap_err();
    let ended = world.finish(&ingest, 1, false).await.unwrap_err();
    assert_eq!(ended.code, RefusalCode::Cancelled);
    let gone = world.prepare(&ingest, 1, &stale).await.unwrap_err();
    assert_eq!(gone.code, RefusalCode::NotFound);
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_lock_that_a_dead_git_left_does_not_keep_a_push_away() {
    let world = World::new().await;
    std::fs::create_dir_all(world.place().join("refs/heads")).unwrap();
    for lock in ["refs/heads/main.lock", "packed-refs.lock"] {
        std::fs::write(world.place().join(lock), "").unwrap();
    }
    let first = world.tip();
    let second = world.commit("second");
    let commands =
        [change("refs/heads/main", Some(&first), Some(&second)), change("refs/heads/x", None, Some(&first))];
    world.push(1, &commands, world.pack(&second, &first, &[])).await;
    let gone = [change("refs/heads/x", Some(&first), None)];
    world.push(2, &gone, Vec::new()).await;
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_copy_that_knows_a_later_version_than_the_caller_votes_on_nothing() {
    let world = World::new().await;
    let (ingest, ..) = prepared(&world, 4).await;
    world.finish(&ingest, 4, true).await.unwrap();
    assert_eq!(world.version().await, 5);
    let second = world.commit("second");
    let commands = [change("refs/heads/second", None, Some(&second))];
    let (ingest, _) =
        world.ready(&commands, world.pack(&second, &world.git(&["rev-parse", "HEAD~"], b""), &[])).await;
    let ask = PrepareRequest { base_version: 3, commands: commands.to_vec() };
    let path = format!("/v1/repositories/{ID}/pushes/{ingest}/prepare");
    let refusal = world.post::<Vote>(&path, &pusher(Some(6)), &ask).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::HistoryLost);
    world.agent.stop().await;
}

#[tokio::test]
async fn an_ingest_is_dropped_when_it_is_asked_for_and_when_the_agent_starts() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let commands = [change("refs/heads/main", Some(&first), Some(&second))];
    let (ingest, _) = world.ready(&commands, world.pack(&second, &first, &[])).await;
    assert_eq!(std::fs::read_dir(world.layout().staging()).unwrap().count(), 1);
    let path = format!("/v1/repositories/{ID}/pushes/{ingest}");
    for _ in 0..2 {
        assert_eq!(world.send(Method::DELETE, &path, &pusher(None), Vec::new()).await.status(), 204);
    }
    world.assert_tidy();
    let left = world.layout().ingest(ID, "0-0");
    std::fs::create_dir_all(left.join("pack")).unwrap();
    let world = world.restart().await;
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_amid_its_pack_leaves_no_git_and_no_objects() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let pack = world.pack(&second, &first, &[]);
    let ingest = world.begin(&[change("refs/heads/main", Some(&first), Some(&second))]).await;
    let (more, blocks) = mpsc::channel::<std::io::Result<Vec<u8>>>(1);
    more.send(Ok(pack[..40].to_vec())).await.unwrap();
    let body = futures::stream::unfold(blocks, async |mut blocks: mpsc::Receiver<_>| {
        let block = blocks.recv().await?;
        Some((block, blocks))
    });
    let grant = pusher(None);
    let client = reqwest::Client::new();
    let sent = client
        .put(format!("{}/v1/repositories/{ID}/pushes/{ingest}/pack", world.agent.url))
        .header(GRANT_HEADER, grant.sign(&key(&grant.part)))
        .body(reqwest::Body::wrap_stream(body))
        .send();
    let answer = tokio::time::timeout(Duration::from_secs(10), sent).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200, "it answers while the pack still comes");
    until(async || (world.agent.status().await.processes > 0).then_some(())).await;
    drop((answer, client, more));
    until(async || (world.agent.status().await.processes == 0).then_some(())).await;
    until(async || (std::fs::read_dir(world.layout().staging()).unwrap().count() == 0).then_some(())).await;
    world.agent.stop().await;
}

#[tokio::test]
async fn a_push_goes_on_beside_repacking_and_nothing_of_it_is_lost() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let commands = [change("refs/heads/main", Some(&first), Some(&second))];
    let (ingest, _) = world.ready(&commands, world.pack(&second, &first, &[])).await;
    world.prepare(&ingest, 1, &commands).await.unwrap();
    let repair = Grant { epoch: Some(1), ..grant(Role::Worker, Action::Repair, Some(ID), "alpha") };
    let repacked = world.send(Method::POST, "/v1/repositories/7/repack", &repair, Vec::new()).await;
    let text = repacked.text().await.unwrap();
    assert!(text.lines().last().unwrap().contains("done"), "{text}");
    assert!(world.finish(&ingest, 1, true).await.unwrap().committed);
    world.assert_tidy();
    world.assert_whole();
    assert!(!world.agent.inventory().await.entries[0].changed);
    world.agent.stop().await;
}
