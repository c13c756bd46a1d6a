//! What has ended, pruned by age: oldest first, by index, a bounded number of rows in a transaction.
use super::{Database, Doing, Result, on_writer};
use crate::model::Millis;

/// The tables that grow with time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Closed findings.
    Findings,
    /// Ended attempts.
    Attempts,
    /// Evaluations.
    Evaluations,
    /// Closed pushes.
    Pushes,
    /// Who changed what.
    Audit,
    /// What observers saw that look no more.
    Observations,
}

impl History {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Findings, Self::Attempts, Self::Evaluations, Self::Pushes, Self::Audit, Self::Observations];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Findings => "closed findings",
            Self::Attempts => "ended attempts",
            Self::Evaluations => "evaluations",
            Self::Pushes => "closed pushes",
            Self::Audit => "entries of the audit",
            Self::Observations => "observations",
        }
    }
}

/// Removes the oldest rows that ended (evaluations: began; others: were written) before a moment; at most `limit`. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn prune(db: &Database, history: History, before: Millis, limit: i64) -> Result<u64> {
    let text = match history {
        History::Findings => {
            "/* history::findings */ DELETE FROM finding_history WHERE id IN \
             (SELECT id FROM finding_history WHERE closed_at < $1 ORDER BY closed_at LIMIT $2)"
        }
        // A finding that waits for a person keeps what was tried, however long the person takes.
        History::Attempts => {
            "/* history::attempts */ DELETE FROM attempt_history WHERE id IN \
             (SELECT h.id FROM attempt_history h WHERE h.finished_at < $1 \
                 AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.id = h.finding_id AND f.state = 'stuck') \
               ORDER BY h.finished_at LIMIT $2)"
        }
        History::Evaluations => {
            "/* history::evaluations */ DELETE FROM evaluations WHERE id IN \
             (SELECT id FROM evaluations WHERE began_at < $1 ORDER BY began_at LIMIT $2)"
        }
        History::Pushes => {
            "/* history::pushes */ DELETE FROM pushes WHERE id IN \
             (SELECT id FROM pushes WHERE closed_at < $1 ORDER BY closed_at LIMIT $2)"
        }
        // Entries are in the order of their numbers: the first ones are the oldest, and no more are looked at.
        History::Audit => {
            "/* history::audit */ DELETE FROM audit WHERE at < $1 AND id IN \
             (SELECT id FROM audit ORDER BY id LIMIT $2)"
        }
        // A row for each observer and fileserver: few.
        History::Observations => {
            "/* history::observations */ DELETE FROM observations WHERE (observer, fileserver_id) IN \
             (SELECT observer, fileserver_id FROM observations WHERE at < $1 LIMIT $2)"
        }
    };
    on_writer!(db, p => sqlx::query(text).bind(before).bind(limit)
        .execute(p).await.map(|done| done.rows_affected()))
    .doing("pruning history")
}
