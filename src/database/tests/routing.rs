//! From a name to copies that may be read, and what observers saw.

use super::{fileservers, make, number, on_each_engine, repository};
use crate::database::repositories;
use crate::database::routing::{Observed, by_name, observe, voices};
use crate::model::fleet::{Health, Intent, ReplicaState};
use crate::model::id::FileserverId;

on_each_engine! {
    async fn a_name_leads_to_the_copies_that_are_in_sync_now_and_to_no_others(db) {
        let on = fileservers(db, 4).await;
        repository(db, "team/it", 4, &on).await;
        make(db, "UPDATE replicas SET in_sync = FALSE, out_of_sync_since = 1 WHERE fileserver_id = 2").await;
        make(db, "UPDATE replicas SET state = 'removing' WHERE fileserver_id = 3").await;
        make(db, "UPDATE replicas SET state = 'leaving' WHERE fileserver_id = 4").await;
        make(db, "UPDATE fileservers SET intent = 'evacuate', load = 1500, empty_since = 1 WHERE id = 4").await;
        let route = by_name(db, "team/it", "team/it").await.expect("read").expect("found");
        assert_eq!((route.id.0, route.name.as_str(), route.copies.len()), (1, "team/it", 2));
        let (first, last) = (&route.copies[0], &route.copies[1]);
        assert_eq!((first.fileserver, first.rack.as_str(), first.empty), (FileserverId(1), "rack1", false));
        assert_eq!((first.end.name.as_str(), first.end.url.as_str()), ("fs1", "http://127.0.0.1:1"));
        assert_eq!((last.state, last.intent), (ReplicaState::Leaving, Intent::Evacuate));
        assert_eq!((last.load, last.health, last.empty), (1_500, Health::Online, true));
    }

    async fn a_name_with_git_is_itself_first_and_else_the_one_without(db) {
        let on = fileservers(db, 1).await;
        let bare = repository(db, "it", 1, &on).await;
        let found = async |name: &str, or: &str| {
            by_name(db, name, or).await.expect("read").map(|route| (route.id, route.copies.len()))
        };
        assert_eq!(found("it.git", "it").await, Some((bare.id, 1)));
        let dotted = repository(db, "it.git", 1, &on).await;
        assert_eq!(found("it.git", "it").await, Some((dotted.id, 1)));
        assert_eq!(found("it", "it").await, Some((bare.id, 1)));
        assert_eq!(found("IT", "IT").await, None, "letters count as they are");
        make(db, "UPDATE replicas SET in_sync = FALSE, out_of_sync_since = 1").await;
        assert_eq!(found("it", "it").await, Some((bare.id, 0)), "it is there, and cannot be read");
        repositories::remove(db, bare.id).await.expect("removed");
        assert_eq!(found("it", "it").await, None);
    }

    async fn observations_are_one_row_for_each_pair_and_old_ones_are_not_heard(db) {
        let on = fileservers(db, 2).await;
        let seen = |first, second| [
            Observed { fileserver: on[0], online: first },
            Observed { fileserver: on[1], online: second },
            Observed { fileserver: FileserverId(99), online: false },
        ];
        assert_eq!(observe(db, "rt-1", "rack2", &seen(true, false)).await.expect("written"), 2);
        assert_eq!(observe(db, "rt-1", "rack2", &seen(false, false)).await.expect("written"), 2);
        observe(db, "rt-2", "nowhere", &seen(true, true)[..1]).await.expect("written");
        let heard = voices(db, 30_000).await.expect("read");
        let shown: Vec<_> =
            heard.iter().map(|one| (one.observer.as_str(), one.rack, one.fileserver.0, one.online)).collect();
        assert_eq!(shown, [("rt-1", 2, 1, false), ("rt-1", 2, 2, false), ("rt-2", 0, 1, true)]);
        make(db, "UPDATE observations SET at = at - 31000 WHERE observer = 'rt-1'").await;
        assert_eq!(voices(db, 30_000).await.expect("read").len(), 1);
        assert_eq!(number(db, "SELECT count(*) FROM observations").await, 3);
    }
}
