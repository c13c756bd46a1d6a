//! Telling the service manager how the process stands: ready, stopping, alive.
//!
//! Where there is none, nothing is told. The watchdog is fed by a task among all others, so
//! a process whose tasks no longer run is one that the manager starts anew.

use crate::shutdown::Shutdown;
use sd_notify::NotifyState;
use std::time::Duration;

/// Work can be given to it. Begins to feed the watchdog, if the manager has one.
pub fn ready(shutdown: &Shutdown) {
    tell(&[NotifyState::Ready]);
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let (stop, period) = (shutdown.token(), (period / 3).max(Duration::from_millis(100)));
    shutdown.spawn(async move {
        loop {
            tell(&[NotifyState::Watchdog]);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    });
}

/// It was asked to stop, and has so long for it.
pub fn stopping(within: Duration) {
    let micros = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
