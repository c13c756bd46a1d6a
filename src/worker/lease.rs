//! Keeping a lease, and noticing that nothing moves.

use crate::database;
use crate::model::chance::Chance;
use crate::model::wire::Progress;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How a lease is kept.
pub(super) struct Lease<'a> {
    /// Its length.
    pub(super) length: Duration,
    /// How often it is renewed.
    pub(super) renew: Duration,
    /// Jitter.
    pub(super) chance: &'a Chance,
    /// Renews it, with a text for people; `false`: it is somebody else's.
    #[allow(clippy::type_complexity, reason = "one closure, named by its field")]
    pub(super) ask: Box<dyn Fn(Option<String>) -> BoxFuture<'a, database::Result<bool>> + Send + Sync + 'a>,
}

impl Lease<'_> {
    /// Renews until the lease is lost, and says why it is.
    ///
    /// A lease that could not be renewed in time is taken for lost by this machine's own
    /// steady clock, so a worker that is cut off from SQL stops before another begins.
    pub(super) async fn keep(&self, progress: watch::Receiver<Option<Progress>>) -> String {
        let mut ours_until = Instant::now() + self.length;
        let mut wait = self.chance.around(self.renew);
        loop {
            tokio::time::sleep_until((Instant::now() + wait).min(ours_until)).await;
            let asked = Instant::now();
            if asked >= ours_until {
                return "its lease could not be renewed in time".into();
            }
            let text = progress.borrow().as_ref().map(shown);
            match tokio::time::timeout_at(ours_until, (self.ask)(text)).await {
                Ok(Ok(true)) => {
                    ours_until = asked + self.length;
                    wait = self.chance.around(self.renew);
                }
                Ok(Ok(false)) => return "it is not this worker's any more".into(),
                Ok(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "renewing a lease failed");
                    wait = self.chance.around(self.renew / 10);
                }
                Err(_) => return "its lease could not be renewed in time".into(),
            }
        }
    }
}

/// Ends when no progress was told for `quiet`. A line that says the same as the one before
/// is none: an agent speaks every second, also when it hangs.
pub(super) async fn stalled(mut progress: watch::Receiver<Option<Progress>>, quiet: Duration) {
    let mut last = progress.borrow_and_update().clone();
    let mut deadline = Instant::now() + quiet;
    loop {
        match tokio::time::timeout_at(deadline, progress.changed()).await {
            Err(_) => return,
            Ok(Err(_)) => return tokio::time::sleep_until(deadline).await,
            Ok(Ok(())) => {
                let now = progress.borrow_and_update().clone();
                if now != last {
                    last = now;
                    deadline = Instant::now() + quiet;
                }
            }
        }
    }
}

/// `copying packs: 12.0 MiB of 200.0 MiB`.
fn shown(progress: &Progress) -> String {
    match (progress.bytes, progress.total) {
        (0, 0) => progress.phase.clone(),
        (bytes, 0) => format!("{}: {}", progress.phase, size(bytes)),
        (bytes, total) => format!("{}: {} of {}", progress.phase, size(bytes), size(total)),
    }
}

/// A size for people, in binary units.
#[allow(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
pub(super) fn size(bytes: i64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseError;
    use futures::FutureExt as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const RENEW: Duration = Duration::from_millis(10);
    const SOON: Duration = Duration::from_secs(20);

    fn lease<'a>(
        chance: &'a Chance,
        length: Duration,
        asked: &'a AtomicUsize,
        answer: impl Fn(usize) -> database::Result<bool> + Send + Sync + 'a,
    ) -> Lease<'a> {
        let ask = move |_| {
            let answer = answer(asked.fetch_add(1, Ordering::SeqCst));
            async move { answer }.boxed()
        };
        Lease { length, renew: RENEW, chance, ask: Box::new(ask) }
    }

    fn quiet() -> watch::Receiver<Option<Progress>> {
        watch::channel(None).1
    }

    #[tokio::test]
    async fn a_long_work_keeps_its_lease_as_long_as_it_renews() {
        let (chance, asked) = (Chance::new(1), AtomicUsize::new(0));
        let lease = lease(&chance, SOON, &asked, |n| Ok(n < 40));
        // It ends only because the fortieth renewal is refused.
        assert!(lease.keep(quiet()).await.contains("not this worker's"));
        assert_eq!(asked.load(Ordering::SeqCst), 41);
    }

    #[tokio::test]
    async fn a_worker_that_cannot_reach_sql_stops_within_its_lease() {
        let (chance, asked) = (Chance::new(1), AtomicUsize::new(0));
        let length = Duration::from_millis(300);
        let lease = lease(&chance, length, &asked, |_| Err(DatabaseError::Refused("away".into())));
        let begun = Instant::now();
        assert!(lease.keep(quiet()).await.contains("in time"));
        assert!(begun.elapsed() >= length && asked.load(Ordering::SeqCst) > 1, "it tried until the end");
    }

    #[tokio::test]
    async fn a_renewal_that_hangs_does_not_outlive_the_lease() {
        let chance = Chance::new(1);
        let ask = |_| std::future::pending().boxed();
        let length = Duration::from_millis(100);
        let lease = Lease { length, renew: RENEW, chance: &chance, ask: Box::new(ask) };
        let ended = tokio::time::timeout(SOON, lease.keep(quiet())).await.unwrap();
        assert!(ended.contains("in time"));
    }

    #[tokio::test]
    async fn repeated_lines_are_no_progress_and_moving_bytes_are() {
        let quiet = Duration::from_millis(400);
        let (told, seen) = watch::channel(None);
        let moving = async {
            for bytes in 0.. {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let bytes = i64::min(bytes, 10);
                told.send_replace(Some(Progress { phase: "copying packs".into(), bytes, total: 100 }));
            }
        };
        let begun = Instant::now();
        let ended = async {
            tokio::select! { () = stalled(seen, quiet) => {}, () = moving => {} }
        };
        tokio::time::timeout(SOON, ended).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(11 * 50) + quiet);
    }

    #[test]
    fn progress_reads_like_a_sentence() {
        let progress = |bytes, total| shown(&Progress { phase: "copying packs".into(), bytes, total });
        assert_eq!(progress(0, 0), "copying packs");
        assert_eq!(progress(512, 0), "copying packs: 512 B");
        assert_eq!(progress(12 << 20, 200 << 20), "copying packs: 12.0 MiB of 200.0 MiB");
    }
}
