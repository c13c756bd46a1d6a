//! The press: sets the pace of dispatch and evaluation from how slow the database is, each second.

use super::Shared;
use super::pressure::{FULL, Look, Pressure};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The keeper looks as often.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks until stopped. What was not measured changes nothing.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut pressure = Pressure::default();
    shared.pace.store(pressure.pace, Ordering::Relaxed);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let standing = shared.database.standing();
        let Some(round_trip) = standing.round_trip else { continue };
        let look = Look { round_trip, lag: standing.lag };
        let next = pressure.after(&look, &shared.settings.pressure);
        if next.pace != pressure.pace {
            tell(pressure.pace, next.pace, &look);
        }
        shared.pace.store(next.pace, Ordering::Relaxed);
        pressure = next;
    }
}

fn tell(before: u32, pace: u32, look: &Look) {
    let (round_trip, lag) = (look.round_trip.as_millis(), look.lag.as_millis());
    if before == FULL || pace == FULL {
        tracing::warn!(
            target: "trued::event",
            kind = "pressure", pace, round_trip_ms = round_trip, lag_ms = lag,
            "brake sql: dispatch and evaluation go at {pace} % of their pace, an answer of the database takes {round_trip} ms",
        );
    } else {
        tracing::info!(pace, round_trip_ms = round_trip, lag_ms = lag, "brake sql");
    }
}
