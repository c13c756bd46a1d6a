//! Damage on disk, writes of the agent's own, and a start in between, against real repositories.

use super::look::look;
use super::sweep::{SweepSettings, Sweeper};
use super::*;
use crate::agent::epochs::Epochs;
use crate::agent::root;
use crate::agent::testing::{enrolment, eventually, make_repository};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const ID: RepositoryId = RepositoryId(7);

/// A root with one repository that the agent wrote itself, and a sweep that never pauses.
struct World {
    directory: tempfile::TempDir,
    layout: Layout,
    sweeper: Arc<Sweeper>,
    root: root::Root,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        make_repository(&layout.repository(ID));
        fs::rename(layout.repositories(), directory.path().join("aside")).unwrap();
        let root = root::take(&layout, &enrolment("fleet", "alpha")).unwrap();
        fs::remove_dir(layout.repositories()).unwrap();
        fs::rename(directory.path().join("aside"), layout.repositories()).unwrap();
        let sweeper = sweeper(&layout, &root);
        sweeper.inventory.touched(ID).unwrap();
        Self { directory, layout, sweeper, root }
    }

    /// The same disk, a new start.
    fn restart(&mut self) {
        self.sweeper = sweeper(&self.layout, &self.root);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.layout.repository(ID).join(name)
    }

    fn inventory(&self) -> &Arc<Inventory> {
        &self.sweeper.inventory
    }

    async fn sweep(&self) {
        self.sweeper.once().await.unwrap();
    }

    /// The entry after a sweep.
    async fn swept(&self) -> InventoryEntry {
        self.sweep().await;
        self.entry()
    }

    fn entry(&self) -> InventoryEntry {
        self.inventory().page("start", 0, RepositoryId(0), 10).entries.remove(0)
    }
}

fn sweeper(layout: &Layout, root: &root::Root) -> Arc<Sweeper> {
    Arc::new(Sweeper {
        inventory: Inventory::new(layout.clone()),
        epochs: Epochs::new(layout.clone()),
        owner: root.owner.clone(),
        settings: SweepSettings { least: Duration::from_millis(1), ..SweepSettings::default() },
    })
}

#[tokio::test]
async fn every_damage_is_noticed_once_and_stays_flagged() {
    type Damage = (&'static str, fn(&World));
    let damages: [Damage; 8] = [
        ("a stray reference", |world| {
            fs::copy(world.path("refs/heads/loose"), world.path("refs/heads/stray")).unwrap();
        }),
        ("a reference deleted", |world| fs::remove_file(world.path("refs/heads/loose")).unwrap()),
        ("a reference overwritten in place", |world| {
            fs::write(world.path("refs/heads/loose"), "0123456789012345678901234567890123456789\n").unwrap();
        }),
        ("HEAD elsewhere", |world| fs::write(world.path("HEAD"), "ref: refs/heads/stray\n").unwrap()),
        ("packed-refs truncated", |world| {
            fs::File::options().write(true).open(world.path("packed-refs")).unwrap().set_len(10).unwrap();
        }),
        ("packed-refs gone", |world| fs::remove_file(world.path("packed-refs")).unwrap()),
        ("a pack truncated", |world| {
            let pack = world.pack();
            fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            fs::File::options().write(true).open(pack).unwrap().set_len(20).unwrap();
        }),
        ("a pack gone", |world| fs::remove_file(world.pack()).unwrap()),
    ];
    for (name, damage) in damages {
        let world = World::new();
        let before = world.swept().await;
        assert!(before.present && !before.changed, "{name}: {before:?}");
        damage(&world);
        let after = world.swept().await;
        assert!(after.present && after.changed && after.generation > before.generation, "{name}: {after:?}");
        assert_eq!(world.swept().await, after, "{name}: noticed once");
    }
}

impl World {
    fn pack(&self) -> PathBuf {
        let packs = fs::read_dir(self.path("objects/pack")).unwrap();
        packs.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "pack").unwrap()
    }
}

#[tokio::test]
async fn a_removed_repository_stays_listed_as_absent() {
    let mut world = World::new();
    world.sweep().await;
    fs::remove_dir_all(world.layout.repository(ID)).unwrap();
    let entry = world.swept().await;
    assert!(!entry.present && entry.changed && entry.bytes == 0, "{entry:?}");
    assert_eq!(world.inventory().used(), 0);
    world.restart();
    let entry = world.swept().await;
    assert!(!entry.present, "also by the next start: {entry:?}");
}

#[tokio::test]
async fn what_happened_while_the_agent_was_down_is_noticed_and_nothing_else() {
    let mut world = World::new();
    world.restart();
    let entry = world.swept().await;
    assert!(entry.present && !entry.changed && entry.bytes > 0, "{entry:?}");
    fs::write(world.path("HEAD"), "ref: refs/heads/stray\n").unwrap();
    world.restart();
    assert!(world.swept().await.changed);
    fs::remove_file(world.layout.seen(ID)).unwrap();
    world.restart();
    assert!(world.swept().await.changed, "what was never seen is verified first");
}

#[tokio::test]
async fn the_version_beside_a_copy_is_told_also_by_the_next_start() {
    let mut world = World::new();
    assert_eq!(world.swept().await.version, 0, "nothing says it");
    let beside = r#"{"repository":7,"name":"r","object_format":"sha1","wanted":3,"version":41}"#;
    fs::write(world.layout.identity(ID), beside).unwrap();
    world.inventory().touched(ID).unwrap();
    assert_eq!(world.entry().version, 41);
    fs::write(world.layout.identity(ID), beside.replace("41", "42")).unwrap();
    let expected = world.inventory().is_as_expected(ID).unwrap();
    world.inventory().pushed(ID, expected).unwrap();
    assert_eq!(world.entry().version, 42);
    world.restart();
    assert_eq!(world.swept().await.version, 42);
}

#[tokio::test]
async fn writes_of_the_agent_s_own_are_not_flagged() {
    let world = World::new();
    world.sweep().await;
    let writing = world.inventory().mark_writing(ID);
    fs::copy(world.path("refs/heads/loose"), world.path("refs/heads/own")).unwrap();
    assert!(!world.swept().await.changed, "amid the write");
    let generation = world.inventory().touched(ID).unwrap();
    drop(writing);
    let entry = world.swept().await;
    assert!(!entry.changed && entry.generation == generation, "{entry:?}");
}

#[tokio::test]
async fn a_write_that_was_broken_off_is_flagged() {
    let world = World::new();
    world.sweep().await;
    drop(world.inventory().mark_writing(ID));
    fs::copy(world.path("refs/heads/loose"), world.path("refs/heads/half")).unwrap();
    assert!(world.swept().await.changed);
}

#[tokio::test]
async fn a_verification_answers_for_what_was_there_before_it_looked() {
    let world = World::new();
    fs::copy(world.path("refs/heads/loose"), world.path("refs/heads/stray")).unwrap();
    assert!(world.swept().await.changed);

    let (marked, broken_off) = world.inventory().mark_looking(ID).unwrap();
    world.inventory().touched(ID).unwrap();
    drop(marked);
    assert!(world.swept().await.changed, "one that came to no answer clears nothing");
    let _ = broken_off;

    let flagged = world.entry().generation;
    let (marked, fingerprint) = world.inventory().mark_looking(ID).unwrap();
    fs::remove_file(world.path("refs/heads/loose")).unwrap();
    let answered = world.inventory().accept(ID, fingerprint).unwrap();
    drop(marked);
    let entry = world.swept().await;
    assert!(entry.changed && flagged <= answered && answered < entry.generation, "{answered} {entry:?}");

    let (marked, fingerprint) = world.inventory().mark_looking(ID).unwrap();
    let answered = world.inventory().accept(ID, fingerprint).unwrap();
    drop(marked);
    let entry = world.swept().await;
    assert!(!entry.changed && entry.generation == answered, "{answered} {entry:?}");
}

#[tokio::test]
async fn a_git_that_fails_while_a_verification_looks_keeps_the_flag() {
    let world = World::new();
    let (_marked, fingerprint) = world.inventory().mark_looking(ID).unwrap();
    world.inventory().flag(ID);
    let answered = world.inventory().accept(ID, fingerprint).unwrap();
    let entry = world.entry();
    assert!(entry.changed && answered < entry.generation, "{answered} {entry:?}");
}

#[tokio::test]
async fn an_unmounted_root_is_not_an_empty_one() {
    let world = World::new();
    world.sweep().await;
    let before = world.entry();
    fs::rename(world.layout.repositories(), world.directory.path().join("aside")).unwrap();
    fs::rename(world.layout.fleet_file(), world.directory.path().join("fleet.aside")).unwrap();
    world.sweeper.once().await.unwrap_err();
    assert_eq!(world.entry(), before);
}

#[tokio::test]
async fn locks_of_dead_gits_are_removed_at_start_unless_the_repository_is_held() {
    let world = World::new();
    let locks = [
        "HEAD.lock",
        "packed-refs.lock",
        "config.lock",
        "refs/heads/loose.lock",
        "reftable/tables.list.lock",
        "objects/info/commit-graph.lock",
        "objects/info/commit-graphs/commit-graph-chain.lock",
        "objects/pack/multi-pack-index.lock",
    ]
    .map(|name| world.path(name));
    for path in &locks {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let writer = world.sweeper.epochs.write(ID, Some(1), &CancellationToken::new()).await.unwrap();
    world.sweep().await;
    assert!(locks.iter().all(|path| path.exists()));
    drop(writer);
    let removed = async || {
        world.sweep().await;
        locks.iter().all(|path| !path.exists())
    };
    assert!(eventually(removed).await);
    assert_eq!(world.inventory().lock().locks_removed, 8);
}

#[tokio::test]
async fn young_locks_are_left_to_their_git_in_later_sweeps() {
    let world = World::new();
    fs::write(world.path("HEAD.lock"), "").unwrap();
    assert_eq!(look(&world.layout.repository(ID)).unwrap().unwrap().locks.len(), 1);
    let sweeper = Arc::clone(&world.sweeper);
    tokio::task::spawn_blocking(move || sweeper.look_at(ID, 2)).await.unwrap().unwrap();
    assert!(world.path("HEAD.lock").exists());
}

#[tokio::test]
async fn old_locks_are_removed_in_later_sweeps_when_no_git_is_left() {
    let world = World::new();
    let lock = world.path("refs/heads/x.lock");
    let file = fs::File::create(&lock).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    file.set_modified(long_ago).unwrap();
    let writer = world.sweeper.epochs.write(ID, Some(1), &CancellationToken::new()).await.unwrap();
    let sweeper = Arc::clone(&world.sweeper);
    tokio::task::spawn_blocking(move || sweeper.look_at(ID, 2)).await.unwrap().unwrap();
    assert!(lock.exists(), "somebody works there");
    drop(writer);
    let removed = async || {
        let sweeper = Arc::clone(&world.sweeper);
        tokio::task::spawn_blocking(move || sweeper.look_at(ID, 3)).await.unwrap().unwrap();
        !lock.exists()
    };
    assert!(eventually(removed).await);
}

#[test]
fn pages_follow_each_other_in_the_order_of_repositories() {
    let inventory = Inventory::new(Layout::new("/nowhere"));
    for number in [5, 3, 9, 1] {
        inventory.lock().entry(RepositoryId(number), |entry| entry.seen = Some([1; 16]));
    }
    let page = |since, after, limit| inventory.page("start", since, RepositoryId(after), limit);
    let ids = |page: &InventoryPage| page.entries.iter().map(|entry| entry.repository.0).collect::<Vec<_>>();
    let first = page(0, 0, 3);
    assert_eq!((ids(&first), first.more, first.generation), (vec![1, 3, 5], true, 4));
    let second = page(0, 5, 3);
    assert_eq!((ids(&second), second.more), (vec![9], false));
    assert_eq!(ids(&page(2, 0, 10)), vec![1, 9], "only what came after the generation");
    assert_eq!(ids(&page(4, 0, 10)), Vec::<i64>::new());
}
