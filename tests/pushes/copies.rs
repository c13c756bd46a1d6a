//! What copies have: which pushes were done to them, in which order; and its checksum.

use trued::model::checksum::Checksum;

/// The pushes of a copy, in order: none, the first, the second, the first and then the second, the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Content(pub u8);

impl Content {
    /// After one more push. One that is there changes nothing.
    pub fn with(self, push: usize) -> Self {
        if self.has(push) {
            return self;
        }
        match (self.0, push) {
            (0, 0) => Self(1),
            (0, _) => Self(2),
            (1, _) => Self(3),
            _ => Self(4),
        }
    }

    pub fn has(self, push: usize) -> bool {
        match push {
            0 => matches!(self.0, 1 | 3 | 4),
            _ => matches!(self.0, 2..=4),
        }
    }

    pub fn checksum(self) -> Checksum {
        Checksum { key: 1, sum: [self.0; 32] }
    }
}
