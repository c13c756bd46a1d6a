//! What is in flight, as a planner weighs it.
//!
//! A plan is made from facts that were read once; what the same round has admitted
//! since is not among them. Whoever admits keeps that count and answers here, so
//! that a plan never names a fileserver that could not take part now while another
//! could.

use crate::model::finding::Deferral;
use crate::model::fleet::Fileserver;
use crate::model::id::FileserverId;

/// Answers for one repair, at one moment of a round.
pub trait Pressure {
    /// Bytes that this round has sent towards a fileserver, beyond what the view says.
    fn arriving(&self, id: FileserverId) -> i64;

    /// Attempts that a fileserver takes part in, of any repair.
    fn busy(&self, id: FileserverId) -> u32;

    /// Why a fileserver may not take part in one more attempt of this repair; `None`: it may.
    fn barred(&self, id: FileserverId) -> Option<Deferral>;

    /// Whether it may not. This is asked of every fileserver for every plan, and most answers are not told to anybody.
    fn is_barred(&self, one: &Fileserver) -> bool {
        self.barred(one.id).is_some()
    }
}

/// Nothing is in flight.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calm;

impl Pressure for Calm {
    fn arriving(&self, _: FileserverId) -> i64 {
        0
    }

    fn busy(&self, _: FileserverId) -> u32 {
        0
    }

    fn barred(&self, _: FileserverId) -> Option<Deferral> {
        None
    }
}
