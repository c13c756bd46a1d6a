//! What is taken in, and what is refused with git's words.

use super::*;

#[tokio::test]
async fn a_push_creates_changes_forces_and_deletes_and_the_copy_knows_its_own_doing() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let pack = world.pack(&second, &first, &[]);
    world.push(1, &[change("refs/heads/main", Some(&first), Some(&second))], pack).await;
    assert_eq!(world.version().await, 2);

    // Objects that are here already need no pack; an empty one, as git sends it, is as good as none.
    let created = [change("refs/heads/a", None, Some(&first)), change("refs/tags/v1", None, Some(&second))];
    world.push(2, &created, Vec::new()).await;
    let empty = world.pack(&first, &first, &[]);
    let forced = [
        change("refs/heads/main", Some(&second), Some(&first)),
        change("refs/tags/v1", Some(&second), None),
        // A name takes the place of a directory, and the other way round.
        change("refs/heads/a/b", None, Some(&second)),
        change("refs/heads/a", Some(&first), None),
    ];
    world.push(3, &forced, empty).await;
    world
        .push(
            4,
            &[change("refs/heads/a/b", Some(&second), None), change("refs/heads/a", None, Some(&first))],
            Vec::new(),
        )
        .await;
    assert_eq!(world.version().await, 5);
    world.assert_tidy();
    world.assert_whole();
    let packs = std::fs::read_dir(world.place().join("objects/pack")).unwrap().flatten();
    let packs = packs.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "pack"));
    assert_eq!(packs.count(), 2, "empty packs are not kept");
    // Looked at again, it is as the agent left it.
    let swept = world.agent.inventory().await.generation;
    tokio::time::timeout(Duration::from_millis(400), std::future::pending::<()>()).await.unwrap_err();
    let entry = world.agent.inventory().await;
    assert!(!entry.entries[0].changed && entry.generation == swept, "{entry:?}");
    world.agent.stop().await;
}

#[tokio::test]
async fn a_thin_pack_is_completed_from_what_is_here() {
    let world = World::new().await;
    let first = world.tip();
    std::fs::write(world.work.path().join("first"), "first\n".repeat(201)).unwrap();
    let second = world.commit("other");
    let thin = world.pack(&second, &first, &["--thin", "--delta-base-offset"]);
    // It is not complete by itself.
    let elsewhere = tempfile::tempdir().unwrap();
    git_in(elsewhere.path(), &["init", "--quiet"], b"");
    let alone = Command::new("git")
        .current_dir(elsewhere.path())
        .args(["index-pack", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut alone = alone.unwrap();
    alone.stdin.take().unwrap().write_all(&thin).unwrap();
    assert!(!alone.wait().unwrap().success());
    world.push(1, &[change("refs/heads/main", Some(&first), Some(&second))], thin).await;
    world.assert_whole();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_pack_that_is_broken_cut_off_or_too_large_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let good = world.pack(&second, &first, &[]);
    let commands = [change("refs/heads/main", Some(&first), Some(&second))];
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x20;
    let cut = good[..good.len() - 30].to_vec();
    let bad: [(Vec<u8>, &str); 4] = [
        (flipped, ""),
        (cut, "early EOF"),
        (b"PACKxyz".to_vec(), "eof before pack header"),
        (b"not a pack at all".to_vec(), "pack signature"),
    ];
    for (pack, words) in bad {
        let ingest = world.begin(&commands).await;
        let refusal = world.stream(&ingest, pack).await.unwrap_err();
        assert!(refusal.code == RefusalCode::Rejected && refusal.message.contains(words), "{refusal}");
        let again = world.prepare(&ingest, 1, &commands).await.unwrap_err();
        assert_eq!(again.code, RefusalCode::NotFound, "it is forgotten");
    }
    let ask = IngestRequest { commands: commands.to_vec(), most_bytes: 100 };
    let ingest = world.begin_as(&ask).await;
    let refusal = world.stream(&ingest, good.clone()).await.unwrap_err();
    assert!(refusal.message.contains("exceeds maximum allowed size"), "{refusal}");
    world.assert_tidy();
    assert!(world.agent.status().await.processes == 0);
    world.push(1, &commands, good).await;
    world.agent.stop().await;
}

#[tokio::test]
async fn one_command_whose_objects_are_missing_takes_no_other_with_it() {
    let world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    let tree = world.git(&["rev-parse", "HEAD^{tree}"], b"");
    let good = world.pack(&second, &first, &[]);
    let never = "1".repeat(40);
    // A commit whose tree was not sent.
    let hollow =
        format!("tree {never}\nauthor n <e@localhost> 0 +0000\ncommitter n <e@localhost> 0 +0000\n\nx\n");
    let hollow =
        world.git(&["hash-object", "-t", "commit", "-w", "--literally", "--stdin"], hollow.as_bytes());
    let commands = [
        change("refs/heads/main", Some(&first), Some(&second)),
        change("refs/heads/none", None, Some(&never)),
        change("refs/heads/tree", None, Some(&tree)),
        change("refs/tags/tree", None, Some(&tree)),
    ];
    let (ingest, ready) = world.ready(&commands, good).await;
    let unfit: Vec<_> = ready.unfit.iter().map(|one| (one.name.to_string(), one.why.as_str())).collect();
    assert_eq!(unfit[0], ("refs/heads/none".to_owned(), "missing necessary objects"));
    assert!(unfit[1].0 == "refs/heads/tree" && unfit[1].1.contains("non-commit object"), "{unfit:?}");
    assert_eq!(unfit.len(), 2);
    let stand = [commands[0].clone(), commands[3].clone()];
    world.prepare(&ingest, 1, &stand).await.unwrap();
    assert!(world.finish(&ingest, 1, true).await.unwrap().committed);
    // With it in a pack git refuses the whole: a pack must be connected.
    let pack = world.git(&["pack-objects", "-q", "p"], format!("{hollow}\n").as_bytes());
    let pack = std::fs::read(world.work.path().join(format!("p-{pack}.pack"))).unwrap();
    let ingest = world.begin(&[change("refs/heads/hollow", None, Some(&hollow))]).await;
    let refusal = world.stream(&ingest, pack).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Rejected);
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn objects_that_lie_here_cut_off_are_found_when_a_reference_is_to_lead_to_them() {
    let world = World::new().await;
    let never = "1".repeat(40);
    let hollow =
        format!("tree {never}\nauthor n <e@localhost> 0 +0000\ncommitter n <e@localhost> 0 +0000\n\nx\n");
    let here = format!("--git-dir={}", world.place().display());
    let hollow =
        world.git(&[&here, "hash-object", "-t", "commit", "-w", "--literally", "--stdin"], hollow.as_bytes());
    let first = world.tip();
    let commands: Vec<Change> = (0..9)
        .map(|number| {
            change(&format!("refs/heads/{number}"), None, Some(if number == 4 { &hollow } else { &first }))
        })
        .collect();
    let (_, ready) = world.ready(&commands, Vec::new()).await;
    assert_eq!(ready.unfit.len(), 1);
    assert_eq!(
        (ready.unfit[0].name.to_string().as_str(), ready.unfit[0].why.as_str()),
        ("refs/heads/4", "missing necessary objects")
    );
    world.agent.stop().await;
}

#[tokio::test]
async fn ten_thousand_references_are_created_within_the_limits_of_a_vote() {
    let world = World::new().await;
    let first = world.tip();
    let commands: Vec<Change> =
        (0..10_000).map(|number| change(&format!("refs/heads/many/{number}"), None, Some(&first))).collect();
    let (ingest, ready) = world.ready(&commands, Vec::new()).await;
    assert_eq!(ready.unfit, []);
    let began = std::time::Instant::now();
    world.prepare(&ingest, 1, &commands).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3 + 10), "{:?}", began.elapsed());
    assert!(world.finish(&ingest, 1, true).await.unwrap().committed);
    assert_eq!(world.listing().await.references.len(), 10_001);
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn a_repository_of_long_hashes_takes_pushes_too() {
    let world = World::with(ObjectFormat::Sha256, PushSettings::default()).await;
    let first = world.tip();
    let second = world.commit("second");
    let pack = world.pack(&second, &first, &["--thin"]);
    world.push(1, &[change("refs/heads/main", Some(&first), Some(&second))], pack).await;
    world.assert_whole();
    world.agent.stop().await;
}

#[tokio::test]
async fn the_server_s_own_commands_change_head_and_symbolic_references() {
    let world = World::new().await;
    let first = world.tip();
    let to = |name: &str| Some(Target::Symbolic(format!("refs/heads/{name}")));
    world.push(1, &[change("refs/heads/next", None, Some(&first))], Vec::new()).await;
    let commands = [
        Change { name: name("HEAD"), old: to("main"), new: to("next") },
        Change { name: name("refs/heads/same"), old: None, new: to("next") },
    ];
    world.push(2, &commands, Vec::new()).await;
    let gone = [Change { name: name("refs/heads/same"), old: to("next"), new: None }];
    let wrong = [Change { name: name("refs/heads/same"), old: to("main"), new: None }];
    let (ingest, _) = world.ready(&wrong, Vec::new()).await;
    assert_eq!(world.prepare(&ingest, 3, &wrong).await.unwrap_err().code, RefusalCode::Rejected);
    world.push(4, &gone, Vec::new()).await;
    assert_eq!(world.listing().await.head, to("next").unwrap());
    world.assert_tidy();
    world.agent.stop().await;
}

#[tokio::test]
async fn faults_that_the_operator_lets_pass_are_taken_and_others_are_refused() {
    let world = World::new().await;
    let (first, tree) = (world.tip(), world.git(&["rev-parse", "HEAD^{tree}"], b""));
    let odd =
        format!("tree {tree}\nparent {first}\nauthor n 0 +0000\ncommitter n <e@localhost> 0 +0000\n\nx\n");
    let odd = world.git(&["hash-object", "-t", "commit", "-w", "--literally", "--stdin"], odd.as_bytes());
    let (pack, commands) = (world.pack(&odd, &first, &[]), [change("refs/heads/odd", None, Some(&odd))]);
    let ingest = world.begin(&commands).await;
    let refusal = world.stream(&ingest, pack.clone()).await.unwrap_err();
    assert!(refusal.code == RefusalCode::Rejected && refusal.message.contains("missingEmail"), "{refusal}");
    let World { agent, root, work, format } = world;
    agent.stop().await;
    for (fsck, words) in [
        ("nosuch=warn", "nosuch"),
        ("missingEmail=perhaps", "perhaps"),
        ("missingEmail", "fault=ignore"),
        ("missingEmail=ignore --nonsense=", "fault=ignore"),
    ] {
        let options = Options { fsck: fsck.to_owned(), ..options(root.path()) };
        let error =
            crate::agent::run(options, CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
        assert!(error.starts_with("agent.fsck") && error.contains(words), "{error}");
    }
    let lenient =
        Options { fsck: "missingEmail=ignore, badTimezone=warn".to_owned(), ..options(root.path()) };
    let world = World { agent: start(lenient).await, root, work, format };
    world.push(1, &commands, pack).await;
    world.agent.stop().await;
}
