//! What a person does to many findings, to an attempt, to a limit; and the write lock of an attempt.

use super::{evaluate, fileservers, make, next_moment, number, on_each_engine, repository, repository_rows};
use crate::database::findings::By;
use crate::database::report::{self, BacklogFilter};
use crate::database::scratch::Crowd;
use crate::database::{Database, attempts, findings, limits, repositories};
use crate::model::attempt::{Attempt, AttemptEvent, Ending, Plan, Step};
use crate::model::finding::{Deferral, Finding, FindingState, Lane};
use crate::model::id::{FileserverId, FindingId, RepositoryId};

const MINUTE: i64 = 60_000;
const BY: By<'_> = By { who: "ann", reason: "the disks are back", filter: "goal=a" };

async fn chosen(db: &Database, state: Option<FindingState>) -> Vec<FindingId> {
    let filter = BacklogFilter { goal: Some("a".to_owned()), fileserver: None, state };
    let (mut ids, mut after) = (Vec::new(), 0);
    loop {
        let page = report::backlog::ids(db, &filter, after, 2_000).await.expect("a page");
        let Some(last) = page.last() else { return ids };
        after = *last;
        ids.extend(page.into_iter().map(FindingId));
    }
}

fn plan(repository: RepositoryId, destination: FileserverId, write_lock: bool) -> Plan {
    Plan {
        step: Step::Replicate,
        repository_id: Some(repository),
        source_id: None,
        destination_id: Some(destination),
        bytes: 10,
        deadline_ms: MINUTE,
        bytes_per_second: 0,
        write_lock,
        path: None,
    }
}

/// So many repositories with an attempt queued for each.
async fn queued(db: &Database, many: u8, write_lock: bool) -> Vec<Finding> {
    let fleet = fileservers(db, 3).await;
    let mut ids = Vec::new();
    for number in 0..many {
        ids.push(repository(db, &format!("r{number}"), 3, &fleet[..2]).await.id.0);
    }
    evaluate(db, "a", &repository_rows(ids)).await;
    let ready = findings::lane_head(db, Lane::Common, 1_000, 0).await.expect("a head");
    let plans: Vec<_> = ready
        .iter()
        .map(|one| (one.clone(), plan(one.subject.repository().expect("one"), fleet[2], write_lock)))
        .collect();
    assert_eq!(attempts::admit(db, &plans).await.expect("admitted").len(), usize::from(many));
    ready
}

async fn claim(db: &Database, lease: i64) -> Attempt {
    attempts::claim(db, "w", 1, lease, &["replicate"]).await.expect("a claim").remove(0)
}

/// Whether the attempt's repository is locked now, by the database's clock.
async fn locked(db: &Database, attempt: &Attempt) -> bool {
    let id = attempt.plan.repository_id.expect("a repository");
    let row = repositories::by_ids(db, &[id]).await.expect("a repository").remove(0);
    row.write_lock_until.is_some_and(|until| until > 0) && {
        let now = db.now().await.expect("the clock");
        row.write_lock_until > Some(now)
    }
}

on_each_engine! {
    // "Retry all", then "clear", once deleted failures that had just arrived.
    async fn retrying_five_thousand_touches_none_of_the_fifty_that_fail_meanwhile(db) {
        evaluate(db, "a", &repository_rows(1..=5_000)).await;
        make(db, "UPDATE findings SET state = 'stuck', ineffective = 12, tries = 3").await;
        let snapshot = chosen(db, Some(FindingState::Stuck)).await;
        assert_eq!(snapshot.len(), 5_000);
        evaluate(db, "a", &repository_rows(1..=5_050)).await;
        make(db, "UPDATE findings SET state = 'stuck', ineffective = 12, tries = 3 WHERE repository_id > 5000").await;
        let mut moved = 0;
        for some in snapshot.chunks(2_000) {
            moved += findings::retry(db, some, BY).await.expect("retried");
        }
        assert_eq!(moved, 5_000);
        let left = chosen(db, Some(FindingState::Stuck)).await;
        assert_eq!(left.len(), 50, "those that failed meanwhile are still listed");
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 5_050, "none was deleted");
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE tries = 0 AND ineffective = 0").await, 5_000);
        assert_eq!(number(db, "SELECT count(*) FROM audit WHERE what = 'backlog.retry' AND who = 'ann'").await, 3);
        assert_eq!(findings::retry(db, &[], BY).await.expect("nothing"), 0);
    }

    async fn a_finding_that_backs_off_begins_anew_and_one_that_runs_does_not(db) {
        let running = queued(db, 2, false).await;
        make(db, "UPDATE findings SET state = 'waiting', tries = 9, next_at = next_at + 3600000 WHERE id = \
                  (SELECT min(id) FROM findings)").await;
        let ids: Vec<FindingId> = running.iter().map(|one| one.id).collect();
        assert_eq!(findings::retry(db, &ids, BY).await.expect("retried"), 1);
        next_moment(db).await;
        findings::promote_due(db, 10).await.expect("promoted");
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 1);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'running'").await, 1);
    }

    async fn a_priority_that_a_person_gave_outlives_the_evaluations(db) {
        let rows = repository_rows(1..=3);
        evaluate(db, "a", &rows).await;
        let first = chosen(db, None).await[0];
        assert_eq!(findings::bump(db, &[first], 999, BY).await.expect("bumped"), 1);
        next_moment(db).await;
        let again = evaluate(db, "a", &rows).await;
        assert_eq!(again.changed, 0, "nothing is written");
        let head = findings::lane_head(db, Lane::Common, 1, 0).await.expect("a head").remove(0);
        assert_eq!((head.id, head.priority), (first, 999));
        assert_eq!(number(db, "SELECT count(*) FROM audit WHERE what = 'backlog.bump'").await, 1);
    }

    async fn cancelling_ends_attempts_and_puts_their_findings_off_with_the_reason(db) {
        let running = queued(db, 2, false).await;
        let claimed = claim(db, MINUTE).await;
        let ids: Vec<FindingId> = running.iter().map(|one| one.id).collect();
        evaluate(db, "b", &repository_rows(7..=7)).await;
        assert_eq!(attempts::cancel_for(db, &ids, 10 * MINUTE, BY).await.expect("cancelled"), 2);
        assert!(attempts::live(db).await.expect("live").is_empty());
        let done = Ending { event: AttemptEvent::Succeed, message: String::new(), bytes: 0, blame: None };
        assert!(!attempts::finish(db, claimed.id, claimed.epoch, &done, 0).await.expect("too late"));
        findings::promote_due(db, 10).await.expect("promoted");
        let one = findings::one(db, running[0].id).await.expect("read").expect("open");
        let Some(Deferral::Paused { by, reason, until: Some(_) }) = one.deferral else { panic!("{one:?}") };
        assert_eq!((one.state, by.as_str(), reason.as_str()), (FindingState::Waiting, "ann", "the disks are back"));
        assert_eq!((one.tries, one.ineffective), (0, 0), "it uses up no try");
        assert_eq!(number(db, "SELECT count(*) FROM attempt_history WHERE outcome = 'cancelled'").await, 2);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 1, "the other goal's");
    }

    async fn one_attempt_is_cancelled_once(db) {
        queued(db, 1, false).await;
        let claimed = claim(db, MINUTE).await;
        assert!(attempts::cancel_one(db, claimed.id, MINUTE, BY).await.expect("cancelled"));
        assert!(!attempts::cancel_one(db, claimed.id, MINUTE, BY).await.expect("gone"));
        assert!(!attempts::renew(db, claimed.id, claimed.epoch, MINUTE, None).await.expect("refused"));
        assert_eq!(number(db, "SELECT count(*) FROM audit WHERE what = 'attempt.cancel'").await, 1);
    }

    async fn a_limit_is_set_told_and_given_back_each_with_its_reason(db) {
        let set = |value| limits::set(db, "resync.per_rack", value, "ann", "night shift");
        assert!(set(Some(7)).await.expect("set"));
        assert!(!set(Some(7)).await.expect("set"), "it was so already");
        assert!(set(Some(8)).await.expect("set"));
        let rows = limits::all(db).await.expect("limits");
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.value, row.who.as_str(), row.reason.as_deref()), (8, "ann", Some("night shift")));
        assert!(set(None).await.expect("unset"));
        assert!(!set(None).await.expect("unset"));
        assert!(limits::all(db).await.expect("limits").is_empty());
        assert_eq!(number(db, "SELECT count(*) FROM audit WHERE what = 'limit.set'").await, 3);
    }

    async fn a_write_lock_is_taken_with_the_claim_and_given_back_with_the_end(db) {
        queued(db, 3, true).await;
        for event in [AttemptEvent::Succeed, AttemptEvent::Fail] {
            let attempt = claim(db, MINUTE).await;
            assert!(locked(db, &attempt).await);
            assert!(attempts::renew_write_lock(db, attempt.id, attempt.epoch, MINUTE).await.expect("renewed"));
            let ending = Ending { event, message: String::new(), bytes: 0, blame: None };
            assert!(attempts::finish(db, attempt.id, attempt.epoch, &ending, 0).await.expect("ended"));
            assert!(!locked(db, &attempt).await);
            assert!(!attempts::renew_write_lock(db, attempt.id, attempt.epoch, MINUTE).await.expect("refused"));
        }
        let attempt = claim(db, MINUTE).await;
        assert!(attempts::hand_back(db, attempt.id, attempt.epoch).await.expect("handed back"));
        assert!(!locked(db, &attempt).await, "whoever takes it up takes the lock anew");
        let again = claim(db, 1).await;
        next_moment(db).await;
        next_moment(db).await;
        assert!(!locked(db, &again).await, "it ends by itself");
        assert!(!attempts::renew_write_lock(db, again.id, again.epoch, MINUTE).await.expect("it has ended"));
        assert_eq!(attempts::take_lost(db, 10).await.expect("lost").len(), 1);
        let held = "SELECT count(*) FROM repositories WHERE write_lock_attempt IS NOT NULL";
        assert_eq!(number(db, held).await, 0);
    }

    async fn the_heads_of_all_lanes_are_the_head_of_each(db) {
        Crowd { fileservers: 9, open: 300, due: 200 }.fill(db).await.expect("a crowd");
        findings::promote_due(db, 1_000).await.expect("promoted");
        let lanes = findings::ready_lanes(db).await.expect("lanes");
        assert_eq!(lanes.len(), 9);
        let (mut each, mut all) = (Vec::new(), findings::heads(db, &lanes, 5, 2).await.expect("heads"));
        for lane in &lanes {
            each.extend(findings::lane_head(db, *lane, 5, 2).await.expect("a head"));
        }
        each.sort_by_key(|one| one.id);
        all.sort_by_key(|one| one.id);
        assert!(all == each && each.len() > 45, "{} of {}", all.len(), each.len());
        assert!(findings::heads(db, &[], 5, 2).await.expect("none").is_empty());
    }

    async fn an_attempt_that_asks_for_no_write_lock_takes_none(db) {
        queued(db, 1, false).await;
        let attempt = claim(db, MINUTE).await;
        assert!(!locked(db, &attempt).await);
    }
}
