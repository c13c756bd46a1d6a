//! How the database stands, as this process sees it: there, read-only, or away; how slow; and how safe.
//!
//! Pure values. Who looks is the keeper; whoever asks gets the last look, without waiting.

use crate::model::Millis;
use std::time::Duration;

/// The last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether it can be worked with.
    pub state: State,
    /// How long one question and its answer took; none: it was not measured.
    pub round_trip: Option<Duration>,
    /// How far the slowest of its standbys is behind.
    pub lag: Duration,
    /// What an acknowledged write is at risk of, in sentences.
    pub risks: Vec<String>,
}

/// Whether it can be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It answers, and takes writes.
    Here,
    /// It answers, and takes none.
    ReadOnly {
        /// Since when, by this machine's clock.
        since: Millis,
        /// Which server.
        server: String,
    },
    /// A file that is read, and takes no writes.
    Unwritable {
        /// Since when, by this machine's clock.
        since: Millis,
        /// The engine's words.
        why: String,
    },
    /// It does not answer.
    Away {
        /// Since when, by this machine's clock.
        since: Millis,
        /// Its words, or the network's.
        why: String,
    },
}

impl Default for Standing {
    fn default() -> Self {
        Self { state: State::Here, round_trip: None, lag: Duration::ZERO, risks: Vec::new() }
    }
}

impl Standing {
    /// One sentence, if something is wrong.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        match &self.state {
            State::Here => None,
            State::ReadOnly { server, .. } => Some(format!(
                "the database at {server} is read-only, and no other of its addresses takes writes"
            )),
            State::Unwritable { why, .. } => Some(format!("the database file takes no writes: {why}")),
            State::Away { why, .. } => Some(format!("the database does not answer: {why}")),
        }
    }

    /// Whether asking it is in vain.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        matches!(self.state, State::Away { .. })
    }
}

/// What a server says of how it keeps writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Safety {
    /// Whether it waits for its own disk at all.
    pub fsync: bool,
    /// Whether it can mend a torn page.
    pub full_page_writes: bool,
    /// What a commit waits for: `on`, `remote_apply`, `remote_write`, `local`, `off`.
    pub synchronous_commit: String,
    /// Who must have it, too.
    pub synchronous_standbys: String,
    /// Standbys that are connected now.
    pub standbys: i64,
}

/// What an acknowledged write is at risk of. `servers`: how many addresses its URL has, which is how many it may fail
/// over between.
#[must_use]
pub fn risks(safety: &Safety, servers: usize) -> Vec<String> {
    let mut risks = Vec::new();
    if !safety.fsync || !safety.full_page_writes {
        let name = if safety.fsync { "full_page_writes" } else { "fsync" };
        risks.push(format!(
            "AN ACKNOWLEDGED PUSH CAN BE LOST, and the database damaged, by a crash of PostgreSQL's machine: {name} is off"
        ));
    }
    let commit = safety.synchronous_commit.as_str();
    if commit == "off" {
        risks.push(
            "AN ACKNOWLEDGED PUSH CAN BE LOST by a crash of PostgreSQL: synchronous_commit is off".to_owned(),
        );
    }
    let fails_over = safety.standbys > 0 || servers > 1 || !safety.synchronous_standbys.trim().is_empty();
    let why = match commit {
        _ if safety.synchronous_standbys.trim().is_empty() => "synchronous_standby_names is empty".to_owned(),
        "local" | "off" => format!("synchronous_commit is {commit}, so no commit waits for a standby"),
        "remote_write" => {
            "synchronous_commit is remote_write: a standby has it in memory, not on disk".to_owned()
        }
        _ => return risks,
    };
    if fails_over {
        risks.push(format!("AN ACKNOWLEDGED PUSH CAN BE LOST by a failover of PostgreSQL: {why}"));
    }
    risks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe() -> Safety {
        Safety {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".into(),
            synchronous_standbys: "ANY 1 (a, b)".into(),
            standbys: 2,
        }
    }

    #[test]
    fn a_synchronous_standby_and_a_server_alone_are_no_risk() {
        assert!(risks(&safe(), 2).is_empty());
        assert!(risks(&Safety { synchronous_commit: "remote_apply".into(), ..safe() }, 2).is_empty());
        let alone = Safety { synchronous_standbys: String::new(), standbys: 0, ..safe() };
        assert!(risks(&alone, 1).is_empty(), "nothing fails over");
    }

    #[test]
    fn a_failover_that_could_lose_a_push_is_said_with_its_reason() {
        let asynchronous = Safety { synchronous_standbys: String::new(), ..safe() };
        for (safety, servers, word) in [
            (asynchronous.clone(), 1, "synchronous_standby_names is empty"),
            (Safety { standbys: 0, ..asynchronous }, 2, "synchronous_standby_names is empty"),
            (Safety { synchronous_commit: "local".into(), ..safe() }, 1, "no commit waits"),
            (Safety { synchronous_commit: "remote_write".into(), ..safe() }, 1, "in memory"),
        ] {
            let said = risks(&safety, servers).join("; ");
            assert!(said.contains("CAN BE LOST by a failover") && said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_crash_that_could_lose_a_push_is_said() {
        let said = risks(&Safety { fsync: false, ..safe() }, 1);
        assert!(said[0].contains("fsync is off"), "{said:?}");
        let said = risks(&Safety { synchronous_commit: "off".into(), ..safe() }, 1);
        assert_eq!(said.len(), 2, "a crash, and a failover: {said:?}");
    }
}
