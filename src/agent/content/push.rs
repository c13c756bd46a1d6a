//! A push's work on one copy: objects taken in out of sight, a change of references prepared, committed or undone.
//!
//! The caller holds the right to push from before `prepare` until the prepared change has ended. What is answered as
//! committed is on disk: objects, references, their directories, the version. A copy that an agent's death left amid
//! a commit is brought to one of both ends by `mend`; which of them stands is decided elsewhere.

mod commit;
mod connected;
mod faults;
mod ingest;
mod prepare;
mod record;
mod transaction;

pub use commit::mend;
pub use faults::{Unread, severities};
pub use ingest::{Ingested, ingest};
pub use prepare::{Prepared, prepare};
pub use record::pushes_that_broke_off;

use crate::model::wire::{Refusal, RefusalCode};

fn rejected(why: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Rejected, why)
}
