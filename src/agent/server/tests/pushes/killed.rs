//! An agent that is killed between any two steps of a push leaves a repository that its next start puts right.
//!
//! The agent that dies is this test program again, started as a process of its own.

use super::*;
use std::process::Child;

const ROOT: &str = "TRUED_TEST_AGENT_ROOT";

/// Not a test by itself: the agent of the others.
#[tokio::test]
#[ignore = "the agent that the tests of this file start and kill"]
async fn agent_to_be_killed() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else { return };
    let never = CancellationToken::new();
    let told = root.join("address");
    run(options(&root), never, |address| std::fs::write(told, address.to_string()).unwrap()).await.unwrap();
}

/// A process that ends itself when it comes to a point.
struct Doomed {
    child: Child,
    url: String,
}

impl Doomed {
    async fn start(world: &World, point: &str) -> Self {
        let points = world.root.path().join("points");
        std::fs::write(&points, point).unwrap();
        let told = world.root.path().join("address");
        let _ = std::fs::remove_file(&told);
        Self::run(Command::new(std::env::current_exe().unwrap()), world, &points, &told).await
    }

    /// Starts the agent by this program, which may watch it.
    async fn run(mut program: Command, world: &World, points: &Path, told: &Path) -> Self {
        let child = program
            .args(["--ignored", "--exact", "agent::server::tests::pushes::killed::agent_to_be_killed"])
            .env(ROOT, world.root.path())
            .env("TRUED_TEST_POINTS", points)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let address =
            until(async || std::fs::read_to_string(told).ok().filter(|text| !text.is_empty())).await;
        Self { child, url: format!("http://{address}") }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pushes through an agent that dies at this point; the world with a new agent, and what was to be pushed.
async fn killed_at(point: &str) -> (World, Vec<Change>, Listing) {
    let mut world = World::new().await;
    let first = world.tip();
    world
        .push(
            1,
            &[change("refs/heads/a", None, Some(&first)), change("refs/heads/b", None, Some(&first))],
            Vec::new(),
        )
        .await;
    let before = world.listing().await;
    let second = world.commit("second");
    let commands = vec![
        change("refs/heads/main", Some(&first), Some(&second)),
        change("refs/heads/a", Some(&first), None),
        // In a transaction of its own, after the first.
        change("refs/heads/a/b", None, Some(&second)),
        change("refs/heads/b", Some(&first), Some(&second)),
    ];
    world.agent.stop.cancel();
    (&mut world.agent.ended).await.unwrap().unwrap();
    let mut doomed = Doomed::start(&world, point).await;
    world.agent.url.clone_from(&doomed.url);
    let (ingest, _) = world.ready(&commands, world.pack(&second, &first, &[])).await;
    let prepare = PrepareRequest { base_version: 2, commands: commands.clone() };
    let asks =
        [("prepare", serde_json::to_vec(&prepare).unwrap()), ("finish", br#"{"commit":true}"#.to_vec())];
    for (what, body) in asks {
        let grant = pusher(Some(2));
        let sent = reqwest::Client::new()
            .post(format!("{}/v1/repositories/{ID}/pushes/{ingest}/{what}", doomed.url))
            .header(GRANT_HEADER, grant.sign(&key(&grant.part)))
            .body(body);
        if sent.send().await.is_err() {
            break;
        }
    }
    let ended = until(|| {
        let ended = doomed.child.try_wait().unwrap();
        async move { ended }
    });
    let ended = ended.await;
    assert!(!ended.success(), "{point} was reached");
    world.agent = start(options(world.root.path())).await;
    (world, commands, before)
}

async fn is_put_right(point: &str, stands: bool) {
    let (world, commands, before) = killed_at(point).await;
    let mut then = before.clone();
    then.apply(&commands);
    let told = world.fence(3, 2).await.unwrap();
    let found = world.listing().await;
    assert_eq!(found, if stands { then.clone() } else { before }, "{point}");
    assert_eq!(
        (told.checksum, told.journal_version),
        (world.sum(&found), if stands { 3 } else { 2 }),
        "{point}"
    );
    world.assert_tidy();
    world.assert_whole();
    let again: Vec<Change> =
        if stands { vec![change("refs/heads/c", None, Some(&world.tip()))] } else { commands };
    let pack = world.pack(&world.tip(), "", &[]);
    world.push(4, &again, pack).await;
    world.agent.stop().await;
}

#[tokio::test]
async fn killed_before_the_commit_nothing_was_pushed() {
    for point in ["push.moved-in", "push.prepared", "push.committing"] {
        is_put_right(point, false).await;
    }
}

#[tokio::test]
async fn killed_amid_the_commit_or_after_it_the_push_stands() {
    for point in ["push.between", "push.committed", "push.synced", "push.journalled"] {
        is_put_right(point, true).await;
    }
}

/// Where a line of a trace stands that has all of these words, after another.
fn after(trace: &[&str], from: usize, words: &[&str]) -> usize {
    let found = trace[from..].iter().position(|line| words.iter().all(|word| line.contains(word)));
    from + found.unwrap_or_else(|| panic!("no {words:?} after line {from}:\n{}", trace[from..].join("\n")))
}

#[tokio::test]
#[ignore = "needs strace and the right to trace"]
async fn what_is_told_as_committed_was_synced_before_with_its_directories() {
    let mut world = World::new().await;
    let first = world.tip();
    let second = world.commit("second");
    world.agent.stop.cancel();
    (&mut world.agent.ended).await.unwrap().unwrap();
    let (trace, told) = (world.root.path().join("trace"), world.root.path().join("address"));
    let mut program = Command::new("strace");
    // Beside the agent, not above it: who is killed at the end is the agent.
    program.args(["-D", "-f", "-y", "-s", "400", "-o"]).arg(&trace);
    program.args(["-e", "trace=fsync,fdatasync,rename,renameat,renameat2,write,writev,sendto"]);
    program.arg(std::env::current_exe().unwrap());
    let watched = Doomed::run(program, &world, Path::new("/dev/null"), &told).await;
    world.agent.url.clone_from(&watched.url);
    let commands = [change("refs/heads/main", Some(&first), Some(&second))];
    world.push(1, &commands, world.pack(&second, &first, &[])).await;
    drop(watched);
    let told = "committed\\\":true";
    let text = until(async || std::fs::read_to_string(&trace).ok().filter(|text| text.contains(told))).await;
    // Of a call that another interrupted only the end is told; its beginning has the words.
    let trace: Vec<&str> = text.lines().filter(|line| !line.contains("resumed>")).collect();
    let pack = after(&trace, 0, &["fsync(", "-push/pack/", ".pack"]);
    let moved = after(&trace, pack, &["rename", "-push/pack/", "7.git/objects/pack/", ".idx"]);
    let named = after(&trace, moved, &["fsync(", "7.git/objects/pack>"]);
    let written = after(&trace, named, &["fsync(", "main.lock"]);
    let down = after(&trace, written, &["rename", "journal/pushes/7.json"]);
    let voted = after(&trace, down, &["fsync(", "journal/pushes>"]);
    let changed = after(&trace, voted, &["rename", "refs/heads/main.lock", "refs/heads/main"]);
    let directory = after(&trace, changed, &["fsync(", "7.git/refs/heads>"]);
    let version = after(&trace, directory, &["rename", "/7.json"]);
    let beside = after(&trace, version, &["fsync(", "repositories/00/07>"]);
    after(&trace, beside, &[told]);
    let early = trace[..beside].iter().any(|line| line.contains(told));
    assert!(!early, "nothing is told before it is on disk");
}
