//! Differences between disks and SQL, and the suspects that follow from them.

use super::{fileservers, make, number, on_each_engine, online, repository};
use crate::database::fileservers::{inventory_compared, record_verdicts};
use crate::database::inventory::{Differences, ahead, doubt, expected, known, record};
use crate::database::pushes::{history_lost, is_history_lost};
use crate::database::suspects::{self, Refreshed};
use crate::database::{fileservers as room, replicas, repositories};
use crate::model::fleet::{Health, Intent, ObjectFormat};
use crate::model::id::RepositoryId;

on_each_engine! {
    async fn a_missing_copy_loses_its_checksum_and_is_flagged_once(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let missing = Differences { missing: vec![(id, 4), (RepositoryId(77), 4)], ..Differences::default() };
        assert_eq!(record(db, on[0], &missing).await.expect("recorded"), 2, "a replica and its flag");
        assert_eq!(record(db, on[0], &missing).await.expect("recorded"), 0);
        let copies = repositories::replicas_of(db, &[id]).await.expect("replicas");
        assert_eq!((copies[0].in_sync, copies[0].checksum), (false, None));
        assert!(copies[0].out_of_sync_since.is_some() && copies[1].in_sync);
        assert_eq!(number(db, "SELECT count(*) FROM inventory WHERE found = 'missing'").await, 1);
        let agree = Differences { agree: vec![id], ..Differences::default() };
        assert_eq!(record(db, on[0], &agree).await.expect("recorded"), 1);
        assert_eq!(record(db, on[0], &agree).await.expect("recorded"), 0);
    }

    async fn a_version_that_the_database_does_not_know_is_a_history_that_it_lost(db) {
        let on = fileservers(db, 3).await;
        let (idle, busy) = (repository(db, "idle", 3, &on).await, repository(db, "busy", 3, &on).await);
        let told = [(idle.id, idle.version + 2), (busy.id, busy.version), (RepositoryId(999), 9)];
        assert_eq!(ahead(db, &told).await.expect("asked"), [(idle.id, idle.version + 2)]);
        let differences =
            |ahead: &[_]| Differences { ahead: ahead.to_vec(), agree: vec![idle.id, busy.id], ..Differences::default() };
        let lost = differences(&told[..1]);
        assert_eq!(record(db, on[1], &lost).await.expect("recorded"), 1);
        assert_eq!(record(db, on[1], &lost).await.expect("recorded"), 0, "it is not written twice");
        assert_eq!(history_lost(db).await.expect("asked"), ["idle"]);
        assert!(is_history_lost(db, idle.id).await.expect("asked"));
        assert!(!is_history_lost(db, busy.id).await.expect("asked"));
        let flags = crate::database::report::story::flags(db, idle.id).await.expect("asked");
        assert!(flags.len() == 1 && flags[0].found.contains(&format!("version {}", idle.version + 2)), "{flags:?}");
        // A newer state of the database is there again.
        make(db, "UPDATE repositories SET version = version + 2 WHERE name = 'idle'").await;
        assert_eq!(record(db, on[0], &differences(&[])).await.expect("recorded"), 0, "another fileserver's word");
        assert_eq!(record(db, on[1], &differences(&[])).await.expect("recorded"), 1);
        assert!(history_lost(db).await.expect("asked").is_empty());
        // A fileserver that was lost, and is waited for no more.
        let again = [(idle.id, idle.version + 9)];
        assert_eq!(record(db, on[2], &differences(&again)).await.expect("recorded"), 1);
        assert!(is_history_lost(db, idle.id).await.expect("asked"));
        make(db, "DELETE FROM replicas WHERE fileserver_id = (SELECT max(id) FROM fileservers)").await;
        assert!(history_lost(db).await.expect("asked").is_empty() && !is_history_lost(db, idle.id).await.expect("asked"));
    }

    async fn while_a_push_is_open_a_version_above_the_databases_is_no_loss(db) {
        let on = fileservers(db, 3).await;
        let made = repository(db, "r", 3, &on).await;
        let told = [(made.id, made.version + 1)];
        assert_eq!(ahead(db, &told).await.expect("asked").len(), 1);
        make(
            db,
            "INSERT INTO pushes (repository_id, state, base_version, epoch, router, commands, voters, opened_at, lease_until) \
             SELECT p.id, 'open', 1, 1, 'r', '[]', '[]', now, now FROM clock, repositories p",
        )
        .await;
        assert!(ahead(db, &told).await.expect("asked").is_empty());
    }

    async fn a_change_after_the_one_that_is_flagged_raises_its_generation(db) {
        let on = fileservers(db, 2).await;
        let id = repository(db, "r", 2, &on).await.id;
        let changed = |generation| Differences { changed: vec![(id, generation)], ..Differences::default() };
        assert_eq!(record(db, on[0], &changed(4)).await.expect("recorded"), 1);
        assert_eq!(record(db, on[0], &changed(4)).await.expect("recorded"), 0);
        assert_eq!(record(db, on[0], &changed(9)).await.expect("recorded"), 1);
        assert_eq!(number(db, "SELECT generation FROM inventory").await, 9);
        let agree = Differences { agree: vec![id], ..Differences::default() };
        assert_eq!(record(db, on[0], &agree).await.expect("recorded"), 0, "only a verification answers a change");
        // The agent starts anew and counts from the beginning.
        inventory_compared(db, on[0], "start-2", 3).await.expect("compared");
        assert_eq!(number(db, "SELECT generation FROM inventory").await, 3);
    }

    async fn only_what_nobody_knows_is_untracked(db) {
        let on = fileservers(db, 3).await;
        let whole = repository(db, "r", 2, &on[..2]).await.id;
        let import = repositories::plan_import(db, "new", ObjectFormat::Sha256, 3, 1, &on).await.expect("a plan");
        replicas::begin_copy(db, whole, on[2], 0).await.expect("begun");
        let stray = RepositoryId(999);
        let seen = |id| (id, 2);
        let untracked =
            Differences { untracked: vec![seen(whole), seen(import.id), seen(stray)], ..Differences::default() };
        for (fileserver, rows) in [(on[0], 1), (on[0], 0), (on[2], 1)] {
            assert_eq!(record(db, fileserver, &untracked).await.expect("recorded"), rows);
        }
        assert_eq!(number(db, "SELECT count(*) FROM inventory WHERE repository_id = 999").await, 2);
        let mut ids = known(db, on[2], &[whole, import.id, stray]).await.expect("known");
        ids.sort();
        assert_eq!(ids, [whole, import.id]);
        assert_eq!(expected(db, on[2], RepositoryId(0), 10).await.expect("expected"), [], "a copy in the making");
        assert_eq!(expected(db, on[0], RepositoryId(0), 10).await.expect("expected"), [whole]);
        assert_eq!(expected(db, on[0], whole, 10).await.expect("expected"), []);
    }

    async fn a_doubtful_copy_is_flagged_so_that_the_next_verification_answers_it(db) {
        let on = fileservers(db, 2).await;
        let id = repository(db, "r", 2, &on).await.id;
        inventory_compared(db, on[0], "start", 12).await.expect("compared");
        doubt(db, id, on[0]).await.expect("doubted");
        doubt(db, id, on[0]).await.expect("doubted");
        doubt(db, RepositoryId(55), on[0]).await.expect("asked");
        assert_eq!(number(db, "SELECT CAST(sum(generation) AS BIGINT) FROM inventory WHERE found = 'changed'").await, 12);
    }

    async fn suspects_follow_damage_by_differences(db) {
        let on = fileservers(db, 4).await;
        let (a, b) = (repository(db, "a", 3, &on[..3]).await, repository(db, "b", 3, &on[1..]).await);
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed::default(), "all is well");
        let missing = Differences { missing: vec![(a.id, 1)], ..Differences::default() };
        record(db, on[0], &missing).await.expect("recorded");
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed { added: 1, removed: 0 });
        repositories::set_wanted(db, b.id, 4).await.expect("set");
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed { added: 1, removed: 0 });
        make(db, "UPDATE replicas SET in_sync = TRUE").await;
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed { added: 0, removed: 1 });
        let away = room::Verdict { health: Health::Suspect, ..online(on[1]) };
        record_verdicts(db, &[away]).await.expect("recorded");
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed { added: 1, removed: 0 });
        record_verdicts(db, &[online(on[1])]).await.expect("recorded");
        repositories::set_wanted(db, b.id, 3).await.expect("set");
        assert_eq!(suspects::refresh(db).await.expect("refreshed"), Refreshed { added: 0, removed: 2 });
    }

    async fn verdicts_are_written_where_they_differ_and_never_undo_an_evacuation(db) {
        let on = fileservers(db, 3).await;
        let verdicts: Vec<_> = on.iter().map(|&id| online(id)).collect();
        assert_eq!(record_verdicts(db, &verdicts).await.expect("recorded"), 0);
        let changed = room::Verdict { empty_since: Some(5), counts: false, ..online(on[1]) };
        assert_eq!(record_verdicts(db, &[online(on[0]), changed.clone()]).await.expect("recorded"), 1);
        assert_eq!(record_verdicts(db, &[changed]).await.expect("recorded"), 0);
        room::set_intent(db, on[0], Intent::Evacuate).await.expect("set");
        assert_eq!(record_verdicts(db, &[online(on[0])]).await.expect("recorded"), 0, "it does not count");
        let all = room::all(db).await.expect("fileservers");
        assert_eq!(all.iter().map(|one| one.counts).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!((all[1].empty_since, all[0].intent), (Some(5), Intent::Evacuate));
    }
}
