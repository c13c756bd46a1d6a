//! A moment of a small fleet: SQL, copies, routers with a push each, settlers.

use super::copies::Content;

/// Most copies.
pub const MOST: usize = 4;

/// Bounds of a search, and which rules hold.
#[derive(Clone, Debug)]
pub struct Rules {
    pub copies: usize,
    pub initial_seats: u32,
    /// How often an open push may be taken over.
    pub takeovers: u8,
    /// How often a copy may be resynced.
    pub resyncs: u8,
    /// Settling and resync fence copies before they ask them.
    pub fence: bool,
    /// A quorum is one of seats, and not of the voters that are present.
    pub seats: bool,
    /// Pushes are opened, and votes counted, only where the base is what is definitive.
    pub base: bool,
}

impl Rules {
    pub fn of(copies: usize, initial_seats: u32) -> Self {
        Self { copies, initial_seats, takeovers: 1, resyncs: 1, fence: true, seats: true, base: true }
    }
}

/// What a router knows of one voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Slot {
    /// It does not take part, or nothing is expected of it any more.
    #[default]
    Out,
    /// It was told to prepare.
    Asked,
    /// Its vote came: what it had.
    Voted(Content),
    /// It was told to commit.
    Told,
    /// It said that it did.
    Done,
    /// It follows, and is told after the verdict.
    Follows,
}

/// One copy, with what others hold about it, so that copies can be put in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Copy {
    pub content: Content,
    /// Of SQL.
    pub in_sync: bool,
    /// Of the open row.
    pub votes: bool,
    pub fence: u8,
    pub journal: u8,
    /// The push and epoch that it holds prepared.
    pub prepared: Option<(u8, u8)>,
    pub slots: [Slot; 2],
    /// What each settler heard of it: content and journal.
    pub heard: [Option<(Content, u8)>; 2],
    /// What each settler still brings, and what it takes for equal.
    pub bring: [bool; 2],
    pub equal: [bool; 2],
    pub resync: Resync,
}

/// A resync of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Resync {
    #[default]
    None,
    /// Version, fence and source were read.
    Read { version: u8, fence: u8, source: Content },
    /// It was done, and the checksum taken.
    Taken { version: u8, content: Content },
}

/// One router with its push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Push {
    #[default]
    Idle,
    /// Its commands were decided at this version of these references.
    Decided { version: u8, base: Content },
    /// It is open, and voters are asked.
    Voting { version: u8, base: Content, epoch: u8 },
    /// A quorum voted: commits were sent.
    Committing { version: u8, base: Content, epoch: u8 },
    /// Its client read `ok`.
    Acknowledged,
    /// Nothing more is done about it.
    Ended,
}

/// The open push in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    pub push: u8,
    pub epoch: u8,
    pub version: u8,
    pub new: Content,
}

/// Who settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Settler {
    #[default]
    None,
    /// Took the row over, and fences.
    Fencing { epoch: u8, new: Content },
    /// It stands: others are brought there.
    Bringing { epoch: u8, new: Content },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    pub version: u8,
    pub definitive: Content,
    pub epoch: u8,
    pub row: Option<Row>,
    pub copies: [Copy; MOST],
    pub count: u8,
    pub pushes: [Push; 2],
    pub settlers: [Settler; 2],
    pub takeovers: u8,
    pub resyncs: u8,
    /// How rows were settled: standing, not standing.
    pub settled: [bool; 2],
}

impl State {
    pub fn first(rules: &Rules) -> Self {
        let mut copies = [Copy::default(); MOST];
        for copy in &mut copies[..rules.copies] {
            *copy = Copy { in_sync: true, journal: 1, ..Copy::default() };
        }
        Self {
            version: 1,
            definitive: Content(0),
            epoch: 0,
            row: None,
            copies,
            count: u8::try_from(rules.copies).unwrap(),
            pushes: [Push::Idle; 2],
            settlers: [Settler::None; 2],
            takeovers: 0,
            resyncs: 0,
            settled: [false; 2],
        }
    }

    /// Copies are alike: any order of them is the same state.
    pub fn canonical(mut self) -> Self {
        self.copies[..usize::from(self.count)].sort_unstable();
        self
    }

    pub fn all(&self) -> std::ops::Range<usize> {
        0..usize::from(self.count)
    }

    /// What was seen on the way.
    pub fn note(&self, seen: &mut [bool; 3]) {
        seen[0] |= self.pushes.contains(&Push::Acknowledged);
        seen[1] |= self.settled[0];
        seen[2] |= self.settled[1];
    }
}

/// The state after a change.
pub fn with(state: &State, change: impl FnOnce(&mut State)) -> State {
    let mut next = *state;
    change(&mut next);
    next
}

/// The number of seats by which is counted.
pub fn seats(state: &State, rules: &Rules) -> u32 {
    let present = state.all().filter(|at| state.copies[*at].votes).count();
    if rules.seats { rules.initial_seats } else { u32::try_from(present).unwrap() }
}
