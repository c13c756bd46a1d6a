//! Epochs across restarts, higher ones over running ones, and gits that outlive their agent.

use super::super::root::open_lock;
use super::super::testing::eventually;
use super::*;
use rustix::fs::{FlockOperation, flock};

const ID: RepositoryId = RepositoryId(7);

fn epochs() -> (tempfile::TempDir, Arc<Epochs>) {
    let directory = tempfile::tempdir().unwrap();
    let epochs = Epochs::new(Layout::new(directory.path()));
    (directory, epochs)
}

async fn write(epochs: &Arc<Epochs>, epoch: Option<i64>) -> Result<Writer, RefusalCode> {
    epochs.write(ID, epoch, &CancellationToken::new()).await.map_err(|refusal| refusal.code)
}

#[tokio::test]
async fn a_lower_epoch_is_refused_also_after_a_restart() {
    let (directory, epochs) = epochs();
    drop(write(&epochs, Some(5)).await.unwrap());
    assert_eq!(write(&epochs, Some(4)).await.unwrap_err(), RefusalCode::OldEpoch);
    drop(write(&epochs, Some(5)).await.unwrap());
    let again = Epochs::new(Layout::new(directory.path()));
    assert_eq!(write(&again, Some(4)).await.unwrap_err(), RefusalCode::OldEpoch);
    assert_eq!(again.check(ID, 4).await.unwrap_err().code, RefusalCode::OldEpoch);
    again.check(ID, 5).await.unwrap();
    drop(write(&again, Some(6)).await.unwrap());
}

#[tokio::test]
async fn fences_only_rise_and_leave_repair_epochs_alone() {
    let (directory, epochs) = epochs();
    drop(write(&epochs, Some(5)).await.unwrap());
    epochs.fence(ID, 3).await.unwrap();
    epochs.fence(ID, 3).await.unwrap();
    let again = Epochs::new(Layout::new(directory.path()));
    assert_eq!(again.fence(ID, 2).await.unwrap_err().code, RefusalCode::OldEpoch);
    assert_eq!(again.read(ID).await.unwrap(), Seen { repair: 5, push: 3, pushed: 0 });
}

#[tokio::test]
async fn the_same_epoch_is_busy_while_its_work_runs() {
    let (_directory, epochs) = epochs();
    let first = write(&epochs, Some(5)).await.unwrap();
    assert_eq!(write(&epochs, Some(5)).await.unwrap_err(), RefusalCode::Busy);
    assert_eq!(write(&epochs, None).await.unwrap_err(), RefusalCode::Busy);
    assert!(!first.cancel.is_cancelled());
    drop(first);
    drop(write(&epochs, Some(5)).await.unwrap());
    assert!(lock(&epochs.slots).is_empty(), "nothing is kept of repositories at rest");
}

#[tokio::test]
async fn a_higher_epoch_ends_running_work_and_waits_for_its_end() {
    let (_directory, epochs) = epochs();
    let low = write(&epochs, Some(5)).await.unwrap();
    let cancelled = low.cancel.clone();
    let never = CancellationToken::new();
    let mut next = Box::pin(epochs.write(ID, Some(6), &never));
    tokio::select! {
        _ = &mut next => panic!("it did not wait"),
        () = cancelled.cancelled() => {}
    }
    // Whoever is next is known at once: the old epoch is over although its work still ends.
    assert_eq!(write(&epochs, Some(5)).await.unwrap_err(), RefusalCode::OldEpoch);
    assert_eq!(write(&epochs, Some(6)).await.unwrap_err(), RefusalCode::Busy);
    drop(low);
    let high = next.await.unwrap();
    assert!(!high.cancel.is_cancelled());
}

#[tokio::test]
async fn a_waiting_epoch_is_overtaken_by_a_higher_one() {
    let (_directory, epochs) = epochs();
    let low = write(&epochs, Some(5)).await.unwrap();
    let never = CancellationToken::new();
    let waiting = async {
        // Whether it began or still waited, it is told to end.
        if let Ok(writer) = epochs.write(ID, Some(6), &never).await {
            writer.cancel.cancelled().await;
        }
    };
    let highest = epochs.write(ID, Some(7), &never);
    let release = async {
        low.cancel.cancelled().await;
        while epochs.check(ID, 6).await.is_ok() {
            tokio::task::yield_now().await;
        }
        drop(low);
    };
    let ((), highest, ()) = tokio::join!(waiting, highest, release);
    assert!(!highest.unwrap().cancel.is_cancelled());
}

#[tokio::test]
async fn a_git_that_outlived_its_agent_is_waited_for() {
    let (directory, epochs) = epochs();
    let layout = Layout::new(directory.path());
    let orphan = open_lock(&layout.lock(ID)).unwrap();
    flock(&orphan, FlockOperation::NonBlockingLockShared).unwrap();
    assert!(epochs.try_write(ID).is_none());
    let never = CancellationToken::new();
    let mut waiting = Box::pin(epochs.write(ID, Some(1), &never));
    tokio::select! {
        _ = &mut waiting => panic!("it did not wait"),
        () = tokio::time::sleep(Duration::from_millis(200)) => {}
    }
    drop(orphan);
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_git_of_the_writer_can_share_its_lock_and_nobody_else_can_write() {
    let (directory, epochs) = epochs();
    let writer = write(&epochs, Some(1)).await.unwrap();
    let path = Layout::new(directory.path()).lock(ID);
    let child = open_lock(&path).unwrap();
    flock(&child, FlockOperation::NonBlockingLockShared).unwrap();
    drop(writer);
    assert!(epochs.try_write(ID).is_none(), "the child lives");
    drop(child);
    assert!(eventually(async || epochs.try_write(ID).is_some()).await);
}

#[tokio::test]
async fn a_request_that_went_away_while_it_waited_leaves_nothing() {
    let (_directory, epochs) = epochs();
    let low = write(&epochs, Some(5)).await.unwrap();
    let cancelled = low.cancel.clone();
    {
        let never = CancellationToken::new();
        let mut next = Box::pin(epochs.write(ID, Some(6), &never));
        tokio::select! {
            _ = &mut next => panic!("it did not wait"),
            () = cancelled.cancelled() => {}
        }
    }
    drop(low);
    drop(write(&epochs, Some(6)).await.unwrap());
    assert!(lock(&epochs.slots).is_empty());
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_lets_nothing_through() {
    let (directory, epochs) = epochs();
    drop(write(&epochs, Some(5)).await.unwrap());
    std::fs::write(Layout::new(directory.path()).journal_of(ID), "{").unwrap();
    assert_eq!(write(&epochs, Some(9)).await.unwrap_err(), RefusalCode::Failed);
}

async fn push(epochs: &Arc<Epochs>, epoch: i64, purpose: Purpose) -> Result<Writer, RefusalCode> {
    epochs.push(ID, epoch, purpose, &CancellationToken::new()).await.map_err(|refusal| refusal.code)
}

#[tokio::test]
async fn a_push_goes_on_beside_checks_and_waits_for_what_changes_references() {
    let (_directory, epochs) = epochs();
    let never = CancellationToken::new();
    let check = epochs.beside(ID, Some(5), &never).await.unwrap();
    let first = push(&epochs, 1, Purpose::Prepare).await.unwrap();
    assert!(epochs.try_write(ID).is_none());
    drop(check);
    assert!(epochs.try_write(ID).is_none());
    let mut repair = Box::pin(epochs.write(ID, Some(6), &never));
    tokio::select! {
        _ = &mut repair => panic!("it did not wait"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    assert!(!first.cancel.is_cancelled(), "a repair ends no push");
    drop(first);
    let repair = repair.await.unwrap();
    let mut next = Box::pin(push(&epochs, 2, Purpose::Prepare));
    tokio::select! {
        _ = &mut next => panic!("it did not wait"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    assert!(!repair.cancel.is_cancelled(), "nor a push a repair");
    drop(repair);
    drop(next.await.unwrap());
    assert!(lock(&epochs.slots).is_empty());
}

#[tokio::test]
async fn a_fence_ends_the_pushes_that_are_over_and_waits_for_them() {
    let (_directory, epochs) = epochs();
    let running = push(&epochs, 5, Purpose::Prepare).await.unwrap();
    epochs.fence(ID, 4).await.unwrap();
    assert!(!running.cancel.is_cancelled());
    assert_eq!(push(&epochs, 5, Purpose::Prepare).await.unwrap_err(), RefusalCode::Busy);
    let cancelled = running.cancel.clone();
    let ends = async {
        cancelled.cancelled().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(running);
    };
    let (fenced, ()) = tokio::join!(epochs.settle(ID, 6, 5), ends);
    fenced.unwrap();
    assert_eq!(push(&epochs, 5, Purpose::Prepare).await.unwrap_err(), RefusalCode::OldEpoch);
    drop(push(&epochs, 6, Purpose::Settle).await.unwrap());
    assert_eq!(epochs.settle(ID, 5, 5).await.unwrap_err().code, RefusalCode::OldEpoch);
    epochs.settle(ID, 8, 7).await.unwrap();
    assert_eq!(push(&epochs, 7, Purpose::Settle).await.unwrap_err(), RefusalCode::OldEpoch);
    assert_eq!(epochs.seen(ID).await.unwrap(), Seen { repair: 0, push: 7, pushed: 8 });
    assert_eq!(epochs.highest().push, 8);
}
