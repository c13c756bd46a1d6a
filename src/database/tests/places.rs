//! Fileservers, parts, imports, the fleet's row, and the tables' versions.

use super::{evaluate, fileservers, make, number, on_each_engine, part, repository, repository_rows, sum};
use crate::database::fileservers as room;
use crate::database::fleet::{Fleet, ensure};
use crate::database::repositories::{
    abandon_import, by_ids, by_name, finish_import, import, page, plan_import, replan_import, set_wanted,
};
use crate::database::scratch::Scratch;
use crate::database::{Database, DatabaseError, SchemaState, audit, parts};
use crate::model::checksum::ChecksumKey;
use crate::model::fleet::{Health, Intent, ObjectFormat};
use crate::model::grant::Part;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::Status;
use tokio::task::JoinSet;

fn refused<T: std::fmt::Debug>(result: crate::database::Result<T>) -> String {
    let Err(DatabaseError::Refused(message)) = result else { panic!("not refused: {result:?}") };
    message
}

fn status(root: &str) -> Status {
    Status {
        fileserver: "fs1".to_owned(),
        start_id: "start-1".to_owned(),
        root_id: root.to_owned(),
        root: format!("/{root}"),
        capacity: 1_000,
        whole_disk: false,
        disk_used: 400,
        disk_free: 600,
        load: 250,
        processes: 3,
        long_reads: 1,
        agent_version: "0.1.0".to_owned(),
        git_version: "2.39.5".to_owned(),
        inventory_generation: 8,
        inventory_complete: true,
        parts_digest: "d".to_owned(),
        locks_removed: 0,
        highest_repair_epoch: 0,
        highest_push_epoch: 0,
        trouble: None,
    }
}

on_each_engine! {
    async fn a_fileserver_is_added_once_and_its_address_may_change(db) {
        let id = room::add(db, "fs1", "rack1", "http://a", &part("fs1", 1)).await.expect("added");
        assert_eq!(room::add(db, "fs1", "rack1", "http://b", &part("fs1", 1)).await.expect("added"), id);
        let all = room::all(db).await.expect("fileservers");
        assert_eq!((all.len(), all[0].url.as_str(), all[0].rack.as_str()), (1, "http://b", "rack1"));
        assert_eq!((all[0].counts, all[0].health), (false, Health::Offline), "nobody has seen it");
        refused(room::add(db, "fs1", "rack2", "http://b", &part("fs1", 1)).await);
        refused(room::add(db, "fs1", "rack1", "http://b", &part("fs1", 2)).await);
        assert_eq!(number(db, "SELECT count(*) FROM racks").await, 1, "what is refused leaves nothing");
        assert_eq!(number(db, "SELECT value FROM counters WHERE name = 'fileservers'").await, 1);
        room::set_url(db, id, "http://c").await.expect("set");
        refused(room::set_url(db, FileserverId(99), "http://c").await);
        refused(room::set_intent(db, FileserverId(99), Intent::Quiesce).await);
    }

    async fn a_fileserver_that_holds_replicas_does_not_retire(db) {
        let on = fileservers(db, 2).await;
        repository(db, "r", 1, &on[..1]).await;
        refused(room::set_intent(db, on[0], Intent::Retire).await);
        room::set_intent(db, on[1], Intent::Retire).await.expect("set");
        let all = room::all(db).await.expect("fileservers");
        assert_eq!((all[0].intent, all[1].intent, all[1].counts), (Intent::Serve, Intent::Retire, false));
        assert_eq!(room::replica_counts(db).await.expect("counts"), [(on[0], 1)]);
    }

    async fn another_root_is_adopted_only_when_its_inventory_was_compared(db) {
        let id = fileservers(db, 1).await[0];
        room::record_status(db, id, &status("root-1"), 55).await.expect("recorded");
        room::inventory_compared(db, id, "start-1", 8).await.expect("compared");
        room::record_status(db, id, &status("root-2"), 66).await.expect("recorded");
        let now = room::all(db).await.expect("fileservers").remove(0);
        assert_eq!((now.root_id.as_deref(), now.seen_at), (Some("root-1"), Some(66)));
        assert_eq!((now.compared_start_id.as_deref(), now.inventory_generation), (Some("start-1"), 8));
        assert_eq!((now.disk_free, now.load, now.git_version.as_deref()), (600, 250, Some("2.39.5")));
        room::inventory_compared(db, id, "start-1", 9).await.expect("compared");
        assert_eq!(room::all(db).await.expect("fileservers")[0].root_id.as_deref(), Some("root-2"));
    }

    async fn a_parts_id_is_given_once(db) {
        parts::add(db, &part("b", 1)).await.expect("added");
        parts::add(db, &part("B", 2)).await.expect("added");
        parts::add(db, &part("b", 1)).await.expect("there already");
        refused(parts::add(db, &part("b", 2)).await);
        refused(parts::add(db, &Part { public_key: "AAAA".to_owned(), ..part("c", 1) }).await);
        parts::seen(db, "b", true).await.expect("seen");
        assert_eq!(number(db, "SELECT count(*) FROM parts WHERE started_at IS NOT NULL").await, 1);
        let ids: Vec<_> = parts::list(db).await.expect("parts").into_iter().map(|part| part.id).collect();
        assert_eq!(ids, ["B", "b"], "in the order of bytes");
        make(db, "UPDATE parts SET withdrawn_at = 1 WHERE id = 'b'").await;
        assert_eq!(parts::list(db).await.expect("parts"), [part("B", 2)]);
        refused(parts::add(db, &part("b", 1)).await);
    }

    async fn an_import_makes_its_repository_in_one_step_when_a_quorum_is_whole(db) {
        let on = fileservers(db, 4).await;
        let plan = plan_import(db, "r", ObjectFormat::Sha256, 3, 50, &on[..3]).await.expect("a plan");
        let again = plan_import(db, "r", ObjectFormat::Sha1, 1, 7, &on[..1]).await.expect("a plan");
        assert_eq!(again, plan, "the one under way");
        replan_import(db, plan.id, &on[1..]).await.expect("planned anew");
        assert_eq!(import(db, plan.id).await.expect("a look").expect("an import").fileservers, on[1..]);
        assert!(by_name(db, "r").await.expect("a look").is_none());
        refused(finish_import(db, plan.id, &sum(1), &[(on[1], 10)]).await);
        refused(finish_import(db, plan.id, &sum(1), &[(on[1], 10), (on[1], 10)]).await);
        assert!(import(db, plan.id).await.expect("a look").is_some(), "what is refused leaves the import");
        let made = finish_import(db, plan.id, &sum(1), &[(on[1], 10), (on[2], 30)]).await.expect("made");
        assert_eq!((made.id, made.version, made.seats, made.wanted, made.bytes), (plan.id, 1, 3, 3, 30));
        assert_eq!((made.object_format, made.checksum), (ObjectFormat::Sha256, Some(sum(1))));
        assert_eq!(by_name(db, "r").await.expect("a look").expect("a repository"), made);
        assert_eq!(number(db, "SELECT count(*) FROM replicas WHERE in_sync AND verified_at > 1 AND bytes > 9").await, 2);
        assert_eq!(number(db, "SELECT count(*) FROM repositories WHERE miscounted").await, 1, "one copy is missing");
        assert_eq!(number(db, "SELECT value FROM counters WHERE name = 'replicas'").await, 2);
        refused(finish_import(db, plan.id, &sum(1), &[(on[1], 10), (on[2], 30)]).await);
        refused(plan_import(db, "r", ObjectFormat::Sha1, 3, 50, &on).await);
        let next = plan_import(db, "s", ObjectFormat::Sha1, 3, 50, &on).await.expect("a plan");
        abandon_import(db, next.id).await.expect("abandoned");
        let later = plan_import(db, "s", ObjectFormat::Sha1, 3, 50, &on).await.expect("a plan");
        assert!(later.id > next.id, "an id is never given again");
        refused(replan_import(db, next.id, &on).await);
    }

    async fn imports_at_once_get_ids_of_their_own(db) {
        let on = fileservers(db, 1).await;
        let mut tasks = JoinSet::new();
        for number in 0..12 {
            let (db, on) = (db.clone(), on.clone());
            tasks.spawn(async move {
                let name = format!("r{}", number % 6);
                plan_import(&db, &name, ObjectFormat::Sha1, 1, 1, &on).await.expect("a plan").id
            });
        }
        let mut ids = tasks.join_all().await;
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 6, "one for each name");
    }

    async fn repositories_are_paged_by_name(db) {
        let on = fileservers(db, 2).await;
        for name in ["c", "a", "b", "d"] {
            repository(db, name, 2, &on).await;
        }
        let names = |page: Vec<crate::model::fleet::Repository>| {
            page.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(names(page(db, "", 3, false).await.expect("a page")), ["a", "b", "c"]);
        assert_eq!(names(page(db, "c", 3, false).await.expect("a page")), ["d"]);
        assert!(page(db, "", 9, true).await.expect("a page").is_empty());
        let b = by_name(db, "b").await.expect("a look").expect("a repository");
        evaluate(db, "g", &repository_rows([b.id.0])).await;
        assert_eq!(names(page(db, "", 9, true).await.expect("a page")), ["b"]);
        assert_eq!(by_ids(db, &[b.id, RepositoryId(99)]).await.expect("a look"), [b]);
        refused(by_ids(db, &vec![RepositoryId(1); 10_001]).await);
    }

    async fn wanted_copies_have_bounds(db) {
        let on = fileservers(db, 2).await;
        let id = repository(db, "r", 2, &on).await.id;
        for wanted in [0, 65] {
            refused(set_wanted(db, id, wanted).await);
        }
        refused(set_wanted(db, RepositoryId(99), 2).await);
        let row = set_wanted(db, id, 5).await.expect("set");
        assert_eq!((row.wanted, row.seats), (5, 2));
        assert_eq!(by_name(db, "r").await.expect("a look"), Some(row));
    }

    async fn a_fleet_is_made_once(db) {
        let mut tasks = JoinSet::new();
        for number in 0..6_u8 {
            let db = db.clone();
            tasks.spawn(async move {
                let key = ChecksumKey { id: 1, secret: [number; 32] };
                let fleet = Fleet { fleet_id: format!("fleet{number}"), checksum_key: key };
                let made = ensure(&db, &fleet).await.expect("a fleet");
                (made.fleet_id, made.checksum_key.secret)
            });
        }
        let mut made = tasks.join_all().await;
        made.dedup();
        assert_eq!(made.len(), 1, "everybody has the same");
    }

    async fn changes_by_people_are_kept(db) {
        let detail = serde_json::json!({ "old": 3, "new": 4 });
        let change = audit::Change { who: "me", what: "repo.set-replicas", subject: "r", reason: None, detail };
        audit::append(db, &change).await.expect("kept");
        assert_eq!(number(db, "SELECT count(*) FROM audit WHERE at > 1 AND who = 'me'").await, 1);
    }

    async fn migrating_again_does_nothing_and_newer_tables_are_refused(db) {
        assert_eq!(db.schema().await.expect("a schema"), SchemaState::Current);
        assert_eq!(db.migrate().await.expect("migrated"), 0);
        let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                     SELECT 9000, 'newer', success, checksum, 1 FROM _sqlx_migrations WHERE version = 1";
        make(db, newer).await;
        assert!(matches!(db.schema().await.expect("a schema"), SchemaState::Ahead { found: 9000, .. }));
        let Err(DatabaseError::Version(message)) = db.migrate().await else { panic!("not refused") };
        assert!(message.contains("newer trued"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_open_and_migrate_one_new_file_at_once_all_succeed() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite://{}", directory.path().join("new.db").display());
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let url = url.clone();
        tasks.spawn(async move {
            let db = Database::open(&url).await.expect("opened");
            db.migrate().await.expect("migrated");
            let schema = db.schema().await.expect("a schema");
            db.close().await;
            schema
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|schema| schema == SchemaState::Current));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_migrate_one_new_server_at_once_all_succeed() {
    let Some(scratch) = super::postgres().await else { return };
    make(scratch.database(), "DROP SCHEMA public CASCADE").await;
    make(scratch.database(), "CREATE SCHEMA public").await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let url = scratch.url().to_owned();
        tasks.spawn(async move {
            let db = Database::open(&url).await.expect("opened");
            assert!(matches!(
                db.schema().await.expect("a schema"),
                SchemaState::Behind(_) | SchemaState::Current
            ));
            db.migrate().await.expect("migrated");
            let schema = db.schema().await.expect("a schema");
            db.close().await;
            schema
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|schema| schema == SchemaState::Current));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_one_file_wait_for_each_other() {
    let scratch = Scratch::sqlite().await.expect("a scratch database");
    let other = Database::open(scratch.url()).await.expect("opened once more");
    let mut tasks = JoinSet::new();
    for (writer, db) in [scratch.database().clone(), other.clone()].into_iter().enumerate() {
        tasks.spawn(async move {
            for number in 0..60 {
                let name = format!("r{writer}-{number}");
                plan_import(&db, &name, ObjectFormat::Sha1, 1, 1, &[]).await.expect("planned");
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(number(&other, "SELECT count(*) FROM imports").await, 120);
    assert_eq!(number(&other, "SELECT value FROM counters WHERE name = 'repository_id'").await, 120);
    other.close().await;
}

#[tokio::test]
async fn urls_of_other_kinds_and_memory_are_refused() {
    for url in ["mysql://x", "trued.db", "sqlite::memory:", "sqlite:"] {
        refused(Database::open(url).await);
    }
}

#[tokio::test]
async fn readers_of_a_file_cannot_write() {
    let scratch = Scratch::sqlite().await.expect("a scratch database");
    let written = crate::database::on!(scratch.database(), p => sqlx::query("DELETE FROM racks").execute(p).await.map(drop));
    assert!(written.is_err());
}

/// Which of the two a new table is wants a decision: a key in a published one would be every goal's to read.
#[tokio::test]
async fn every_table_is_published_to_goals_or_private() {
    use crate::model::published::{PRIVATE, PUBLISHED};
    let scratch = Scratch::sqlite().await.expect("a scratch database");
    let pool = sqlx::SqlitePool::connect(scratch.url()).await.expect("a pool");
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'",
    )
    .fetch_all(&pool)
    .await
    .expect("names");
    for name in &names {
        let (published, private) = (PUBLISHED.contains(&name.as_str()), PRIVATE.contains(&name.as_str()));
        assert!(
            published != private,
            "{name} is neither published nor private: src/model/published.rs says which"
        );
    }
    for name in PUBLISHED.iter().chain(&PRIVATE) {
        assert!(names.iter().any(|one| one == name), "there is no {name}");
    }
    pool.close().await;
}
