//! The one place where the machine's clocks are read. Decisions get moments as arguments.

use crate::model::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since 1970 UTC, by this machine's clock. Leases do not use it:
/// they go by the database's clock.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the room that this call belongs to")]
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}
