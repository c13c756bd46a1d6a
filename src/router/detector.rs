//! What one router thinks of one fileserver, from its own traffic: pure.
//!
//! Three failures in a row make it offline for this router, one success brings it back. An offline one gets no
//! requests but heartbeats; one that answers its heartbeat is on probation: it gets one request at a time, and that
//! one's end decides. So a fileserver that answers status and fails git stays out of the way.

/// As many failures in a row make a fileserver offline.
pub const FAILURES: u32 = 3;

/// What is thought of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It gets requests.
    Online,
    /// It gets one request at a time, to see.
    Probation,
    /// It gets heartbeats alone.
    Offline,
}

/// One fileserver as one router sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detector {
    sight: Sight,
    failures: u32,
    /// Whether the one request that probation allows is on its way.
    trial: bool,
}

impl Default for Detector {
    fn default() -> Self {
        Self { sight: Sight::Online, failures: 0, trial: false }
    }
}

/// What the end of a try says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It served.
    Well,
    /// It failed, and that speaks against it.
    Badly,
    /// It says nothing: the client went away, or it refused what no other would refuse.
    Silent,
}

impl Detector {
    /// What is thought of it.
    #[must_use]
    pub const fn sight(self) -> Sight {
        self.sight
    }

    /// Whether it may get a request now.
    #[must_use]
    pub const fn may_try(self) -> bool {
        match self.sight {
            Sight::Online => true,
            Sight::Probation => !self.trial,
            Sight::Offline => false,
        }
    }

    /// A request is on its way to it; whether that is the one trial of its probation.
    pub const fn begin(&mut self) -> bool {
        let trial = matches!(self.sight, Sight::Probation) && !self.trial;
        self.trial = self.trial || trial;
        trial
    }

    /// A request to it ended; whether what is thought of it changed.
    pub fn end(&mut self, ended: Ended, trial: bool) -> bool {
        let was = self.sight;
        self.trial = self.trial && !trial;
        match ended {
            Ended::Well => *self = Self::default(),
            Ended::Badly => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES || self.sight != Sight::Online {
                    self.sight = Sight::Offline;
                    self.trial = false;
                }
            }
            Ended::Silent => {}
        }
        was != self.sight
    }

    /// A heartbeat came back, or did not; whether what is thought of it changed.
    pub const fn beat(&mut self, answered: bool) -> bool {
        match (self.sight, answered) {
            (Sight::Offline, true) => {
                self.sight = Sight::Probation;
                self.trial = false;
                true
            }
            (Sight::Probation, false) => {
                self.sight = Sight::Offline;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offline() -> Detector {
        let mut one = Detector::default();
        for _ in 0..FAILURES {
            one.end(Ended::Badly, false);
        }
        one
    }

    #[test]
    fn three_failures_in_a_row_make_offline_and_a_success_between_forgives() {
        let mut one = Detector::default();
        assert!(!one.end(Ended::Badly, false) && !one.end(Ended::Badly, false));
        one.end(Ended::Well, false);
        assert!(!one.end(Ended::Badly, false) && !one.end(Ended::Badly, false));
        one.end(Ended::Silent, false);
        assert!(one.end(Ended::Badly, false));
        assert_eq!((one.sight(), one.may_try()), (Sight::Offline, false));
    }

    #[test]
    fn a_heartbeat_gives_one_trial_at_a_time_and_its_end_decides() {
        let mut one = offline();
        assert!(one.beat(true) && one.may_try());
        assert!(one.begin());
        assert!(!one.may_try() && !one.begin(), "one at a time");
        assert!(one.end(Ended::Badly, true));
        assert_eq!(one.sight(), Sight::Offline);
        one.beat(true);
        let trial = one.begin();
        assert!(one.end(Ended::Well, trial));
        assert_eq!(one, Detector::default());
    }

    #[test]
    fn a_trial_that_says_nothing_makes_room_for_the_next() {
        let mut one = offline();
        one.beat(true);
        let trial = one.begin();
        assert!(!one.end(Ended::Silent, trial));
        assert!(one.may_try());
        assert!(one.beat(false), "and silence takes it back");
    }

    #[test]
    fn one_success_brings_it_back_whoever_had_it() {
        let mut one = offline();
        assert!(one.end(Ended::Well, false), "a long clone that began before");
        assert_eq!(one.sight(), Sight::Online);
    }

    proptest! {
        #[test]
        fn probation_never_has_two_trials_and_offline_never_any(
            acts in prop::collection::vec((0..4_u8, any::<bool>()), 0..200)
        ) {
            let (mut one, mut running) = (Detector::default(), Vec::new());
            for (act, flag) in acts {
                match act {
                    0 if one.may_try() => {
                        let trial = one.begin();
                        prop_assert_eq!(trial, one.sight() == Sight::Probation);
                        running.push(trial);
                    }
                    1 => if let Some(trial) = running.pop() {
                        one.end(if flag { Ended::Well } else { Ended::Badly }, trial);
                    },
                    2 => if let Some(trial) = running.pop() { one.end(Ended::Silent, trial); },
                    _ => { one.beat(flag); }
                }
                prop_assert!(one.sight() != Sight::Offline || !one.may_try());
            }
        }
    }
}
