//! Copies that are set aside serve nothing and are whole; what is unlinked is what was meant.

use super::support::*;
use crate::agent::content;
use crate::model::fleet::ObjectFormat::Sha1;
use crate::model::wire::{PurgeRequest, Purged, QuarantineRequest, RefusalCode};

fn aside(reason: &str) -> QuarantineRequest {
    QuarantineRequest { reason: reason.to_owned(), version: None }
}

fn of_path(path: &str) -> PurgeRequest {
    PurgeRequest { what: Purged::Quarantined { path: path.to_owned() }, version: None }
}

#[tokio::test]
async fn a_copy_that_is_set_aside_is_whole_and_serves_nothing() {
    let (_, two) = pair(&Origin::new(Sha1)).await;
    let answer = content::quarantine(&two.store, ID, &aside("because")).await.unwrap();
    let path = answer.path.clone().unwrap();
    assert_sound(&two.root.path().join(&path));
    assert!(answer.bytes > 0 && !two.path().exists());
    assert!(!two.store.layout.identity(ID).exists(), "what it was stands in the note");
    let refused = [
        content::checksum(&two.store, ID).await.unwrap_err().code,
        content::references(&two.store, ID).await.unwrap_err().code,
        content::directory(&two.store, ID).await.unwrap_err().code,
        content::hold(&two.store, ID).await.unwrap_err().code,
    ];
    assert_eq!(refused, [RefusalCode::NotFound; 4]);
    let seen = content::verify(&two.store, ID, &work()).await.unwrap();
    assert_eq!((seen.checksum, seen.problem.as_deref()), (None, Some("not there")));
    // Asked again, as after a crash, it says where the copy went.
    let again = content::quarantine(&two.store, ID, &aside("again")).await.unwrap();
    assert_eq!((again.path, again.bytes), (answer.path, answer.bytes));
}

#[tokio::test]
async fn what_is_in_quarantine_is_listed_page_by_page_with_why() {
    let (one, two) = pair(&Origin::new(Sha1)).await;
    let mut paths = Vec::new();
    for reason in ["first", "second", "third"] {
        paths.extend(content::quarantine(&two.store, ID, &aside(reason)).await.unwrap().path);
        two.replicate_from(&one).await.unwrap();
    }
    let page = content::quarantined(&two.store, String::new(), 2).await.unwrap();
    assert!(page.more && page.entries.len() == 2);
    assert_eq!((page.entries[0].reason.as_str(), page.entries[0].repository), ("first", ID));
    assert!(page.entries[0].bytes > 0 && page.entries[0].path == paths[0]);
    let rest = content::quarantined(&two.store, page.entries[1].path.clone(), 2).await.unwrap();
    assert_eq!((rest.entries.len(), rest.entries[0].path.as_str(), rest.more), (1, paths[2].as_str(), false));
}

#[tokio::test]
async fn only_the_copy_that_is_named_is_unlinked_and_again_is_no_error() {
    let (one, two) = pair(&Origin::new(Sha1)).await;
    let path = content::quarantine(&two.store, ID, &aside("because")).await.unwrap().path.unwrap();
    two.replicate_from(&one).await.unwrap();
    let answer = content::purge(&two.store, ID, &of_path(&path)).await.unwrap();
    assert!(answer.existed && answer.bytes > 0);
    assert_eq!(std::fs::read_dir(two.store.layout.quarantine()).unwrap().count(), 0, "and no note is left");
    assert!(!content::purge(&two.store, ID, &of_path(&path)).await.unwrap().existed);
    assert_sound(two.path().as_ref());
    assert!(two.store.layout.identity(ID).exists(), "what stands at the place is left alone");
    for foreign in ["quarantine/../repositories/00/07/7.git", "quarantine/99-1.git", "staging/7-1.git"] {
        let refusal = content::purge(&two.store, ID, &of_path(foreign)).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{foreign}");
    }
}

#[tokio::test]
async fn a_copy_at_its_place_is_unlinked_with_what_lies_beside_it() {
    let (_, two) = pair(&Origin::new(Sha1)).await;
    let ask = PurgeRequest { what: Purged::Place { reason: "removed".to_owned() }, version: Some(5) };
    assert!(content::purge(&two.store, ID, &ask).await.unwrap().existed);
    assert!(!two.path().exists() && !two.store.layout.identity(ID).exists());
    assert_eq!(std::fs::read_dir(two.store.layout.quarantine()).unwrap().count(), 0);
    assert!(!content::purge(&two.store, ID, &ask).await.unwrap().existed);
}

#[tokio::test]
async fn a_copy_that_knows_more_than_the_caller_is_neither_set_aside_nor_unlinked() {
    let (_, two) = pair(&Origin::new(Sha1)).await;
    content::identity::write(&two.store.layout.identity(ID), &identity(Sha1, 7)).unwrap();
    let ask = QuarantineRequest { version: Some(6), ..aside("spare") };
    let refusal = content::quarantine(&two.store, ID, &ask).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::HistoryLost);
    let ask = PurgeRequest { what: Purged::Place { reason: "untracked".to_owned() }, version: Some(6) };
    assert_eq!(content::purge(&two.store, ID, &ask).await.unwrap_err().code, RefusalCode::HistoryLost);
    assert_sound(two.path().as_ref());
}
