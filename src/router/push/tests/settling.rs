//! Settling against real SQL and agents in memory.

use super::*;
use crate::database::pushes::Closing;
use crate::settle::{Adopted, Bounds, Ended, Settler, adopt};

async fn settle(fleet: &Fleet) -> Ended {
    let (database, agents) = (fleet.db(), &fleet.pushing.agents);
    let settler = Settler { database, agents, by: "s", bounds: Bounds::default() };
    settler.settle(fleet.repository.id, None).await.unwrap()
}

on_each_engine! {
    async fn what_one_voter_has_stands_and_what_none_has_does_not(scratch) {
        let fleet = fleet(scratch, 3).await;
        let open = fleet.left_open(&change('a', 'b'), true).await;
        assert_eq!(settle(&fleet).await, Ended::Aborted);
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('a'); 3]);
        assert_eq!((fleet.now().await.version, fleet.in_sync().await), (2, vec![true; 3]));
        assert_eq!(settle(&fleet).await, Ended::Nothing);
        let late = Closing { repository: fleet.repository.id, id: open.id, epoch: open.epoch, base_version: 1 };
        assert!(!pushes::commit(fleet.db(), late, &open.new, &fleet.ids, 0).await.unwrap());
        assert!(fleet.disks.lock().unwrap().copies.values().all(|copy| copy.fence >= open.epoch));
        fleet.left_open(&change('a', 'b'), true).await;
        fleet.done_on(2, &change('a', 'b'));
        assert_eq!(settle(&fleet).await, Ended::Committed);
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('b'); 3]);
        assert_eq!((fleet.now().await.version, fleet.in_sync().await), (3, vec![true; 3]));
    }

    async fn with_too_few_voters_nothing_is_decided_and_one_that_is_not_reached_is_out_of_sync(scratch) {
        let fleet = fleet(scratch, 3).await;
        fleet.left_open(&change('a', 'b'), true).await;
        fleet.done_on(3, &change('a', 'b'));
        fleet.trouble("fs-1 fence refused");
        fleet.trouble("fs-2 fence refused");
        assert!(matches!(settle(&fleet).await, Ended::Waits(why) if why.starts_with("1 of 3 voters")));
        assert_eq!(fleet.now().await.version, 1);
        fleet.disks.lock().unwrap().troubles = ["fs-1 fence refused".to_owned()].into();
        let expire = "UPDATE pushes SET lease_until = 1";
        crate::database::on_writer!(fleet.db(), p => sqlx::query(expire).execute(p).await.map(drop)).unwrap();
        assert_eq!(settle(&fleet).await, Ended::Committed);
        assert_eq!(fleet.in_sync().await, [false, true, true]);
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('a'), Some('b'), Some('b')]);
    }

    async fn what_no_rule_decides_waits_for_a_person_who_adopts_a_copy(scratch) {
        let fleet = fleet(scratch, 3).await;
        fleet.left_open(&change('a', 'b'), true).await;
        fleet.done_on(1, &change('a', 'c'));
        fleet.done_on(2, &change('a', 'd'));
        assert!(matches!(settle(&fleet).await, Ended::Person(_)));
        let ahead = pushes::standing(fleet.db(), fleet.repository.id).await.unwrap().ahead.unwrap();
        assert!(ahead.undecided.is_some());
        let (database, agents) = (fleet.db(), &fleet.pushing.agents);
        let settler = Settler { database, agents, by: "s", bounds: Bounds::default() };
        let adopted = adopt(&settler, fleet.repository.id, fleet.ids[1]).await.unwrap();
        assert!(matches!(adopted, Adopted::Done { version: 3, equal: 1, .. }), "{adopted:?}");
        assert_eq!((fleet.now().await.version, fleet.in_sync().await), (3, vec![false, true, false]));
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('c'), Some('d'), Some('a')], "nothing is overwritten");
    }

    async fn epochs_of_a_database_that_went_back_are_above_those_that_agents_have_seen(scratch) {
        let fleet = fleet(scratch, 3).await;
        let seen = |epoch| {
            fleet.disks.lock().unwrap().copies.values_mut().for_each(|copy| copy.fence = epoch);
        };
        seen(40);
        let said = push(&fleet, &[(oid('a'), oid('b'), "refs/heads/main")]).await;
        assert_eq!(said, ["unpack ok", "ok refs/heads/main"], "it is opened above them");
        assert_eq!(fleet.now().await.push_epoch, 41);
        fleet.left_open(&change('b', 'c'), true).await;
        seen(70);
        assert_eq!(settle(&fleet).await, Ended::Aborted, "its settler goes above them");
        assert_eq!(fleet.now().await.push_epoch, 71);
        seen(90);
        let (database, agents) = (fleet.db(), &fleet.pushing.agents);
        let settler = Settler { database, agents, by: "s", bounds: Bounds::default() };
        let adopted = adopt(&settler, fleet.repository.id, fleet.ids[0]).await.unwrap();
        assert!(matches!(adopted, Adopted::Done { equal: 3, .. }), "{adopted:?}");
        assert_eq!(fleet.now().await.push_epoch, 91);
    }

    async fn what_no_agent_can_have_seen_is_not_believed(scratch) {
        let fleet = fleet(scratch, 3).await;
        assert!(!pushes::catch_up(fleet.db(), fleet.repository.id, i64::MAX).await.unwrap());
        assert!(pushes::catch_up(fleet.db(), fleet.repository.id, 5).await.unwrap());
        assert!(!pushes::catch_up(fleet.db(), fleet.repository.id, 5).await.unwrap());
        assert_eq!(fleet.now().await.push_epoch, 5);
    }
}
