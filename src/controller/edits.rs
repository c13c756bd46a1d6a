//! Edits of goals that no evaluation has come to the end of yet: when they are looked at, and when one gives way to the
//! version before it.
//!
//! Whether a query ends is found out by running it alone, and one that is late may be good on a
//! database that is slow. So it is held against the version before it, on the same database and in the
//! same minutes, rows thrown away: where that one is late too, or much slower than it used to
//! be, nothing is known of the edit, which is tried again. Nothing here changes anything.

use super::Shared;
use super::goals::Version;
use crate::database::evaluations;
use crate::goal::Goal;
use crate::goal::session::Problem;
use crate::model::Millis;
use crate::model::goal::GoalStatus;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// An edit of which nothing is known yet is tried again after this, however rare its schedule.
const AGAIN: Millis = 300_000;
/// The version before it may take so many times as long as it used to …
const SLOWER: u32 = 2;
/// … and this: below it, how busy a machine is says nothing of a query.
const NOTHING: Duration = Duration::from_millis(200);
/// Evaluations that say how long the version before used to take.
const USUAL: i64 = 21;

/// What was found out about an edit that was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// How long evaluations of versions before it took that came to an end; none: there is none.
    pub(super) usual: Option<Duration>,
    /// How long the version before it takes now; none: it came to no end either.
    pub(super) before: Option<Duration>,
    /// Whether the edit, tried once more after that, was late again; none: it was not, or ended otherwise.
    pub(super) late_again: Option<bool>,
    /// Whether the brake `sql` holds: the database is slow for everybody.
    pub(super) pressed: bool,
}

/// What becomes of an edit that was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has no end: the version before it runs on.
    GivesWay,
    /// It has one, and was late by chance.
    Ends,
    /// The database is too slow to say.
    Unknown,
}

/// What these facts say.
pub(super) fn verdict(facts: &Facts) -> Verdict {
    match facts.late_again.filter(|_| is_quick(facts)) {
        Some(true) => Verdict::GivesWay,
        Some(false) => Verdict::Ends,
        None => Verdict::Unknown,
    }
}

/// Whether the database answers the version before as it used to.
fn is_quick(facts: &Facts) -> bool {
    let usual = |took: Duration| facts.usual.is_none_or(|usual| took <= usual * SLOWER + NOTHING);
    !facts.pressed && facts.before.is_some_and(usual)
}

/// Finds out about an edit that was late; takes two timeouts at most.
pub(super) async fn examine(shared: &Shared, edit: &Goal, before: &Goal) -> Verdict {
    let pressed = || shared.pace() < super::pressure::FULL;
    let Ok(usual) = usual(shared, &edit.name).await else { return Verdict::Unknown };
    let took = ask(shared, before).await.ok();
    let mut facts = Facts { usual, before: took, late_again: None, pressed: pressed() };
    if is_quick(&facts) {
        // After the other one, so that a database that stood still for a moment is not taken for the edit.
        facts.late_again = match ask(shared, edit).await {
            Ok(_) => Some(false),
            Err(problem) => problem.late.then_some(true),
        };
        facts.pressed |= pressed();
    }
    let verdict = verdict(&facts);
    tracing::info!(
        edit.name,
        ?facts,
        ?verdict,
        "an edit was late and was held against the version before it"
    );
    verdict
}

/// How long evaluations take that come to an end: the middle one of the last.
async fn usual(shared: &Shared, goal: &str) -> crate::database::Result<Option<Duration>> {
    let rows = evaluations::history(&shared.database, goal, USUAL).await?;
    let mut took: Vec<_> = rows.iter().filter(|row| row.error.is_none()).map(|row| row.took_ms).collect();
    took.sort_unstable();
    Ok(took.get(took.len() / 2).map(|ms| Duration::from_millis(u64::try_from(*ms).unwrap_or(0))))
}

/// How long a goal takes, its rows thrown away.
async fn ask(shared: &Shared, goal: &Goal) -> Result<Duration, Problem> {
    let (rows, mut batches) = mpsc::channel(1);
    let began = Instant::now();
    let (ended, ()) = tokio::join!(Box::pin(shared.source.evaluate_all(goal, rows)), async {
        while batches.recv().await.is_some() {}
    });
    ended.map(|_| began.elapsed())
}

/// The text of a goal that had its turn last, and when that was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) digest: String,
    pub(super) at: Millis,
}

/// When a goal has a turn out of its schedule because its text is another one than before: at once, and again and again
/// as long as there is another version to fall back on and nothing is known of this one.
pub(super) fn soon(
    version: &Version,
    known: Option<&GoalStatus>,
    tried: Option<&Tried>,
    now: Millis,
) -> Option<Millis> {
    let ended = known.and_then(|known| known.ended.as_ref());
    if ended == Some(&version.goal.digest) {
        return None;
    }
    match tried {
        None => ended.is_some().then_some(now),
        Some(tried) if tried.digest != version.goal.digest => Some(now),
        Some(tried) => version.before.is_some().then_some(tried.at + AGAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Engine;
    use std::path::Path;
    use std::sync::Arc;

    const FACTS: Facts = Facts {
        usual: Some(Duration::from_secs(3)),
        before: Some(Duration::from_secs(4)),
        late_again: Some(true),
        pressed: false,
    };

    #[test]
    fn an_edit_gives_way_only_where_the_version_before_it_is_as_quick_as_ever() {
        assert_eq!(verdict(&FACTS), Verdict::GivesWay);
        assert_eq!(verdict(&Facts { usual: None, ..FACTS }), Verdict::GivesWay);
        assert_eq!(verdict(&Facts { late_again: Some(false), ..FACTS }), Verdict::Ends);
        let slow = [
            Facts { before: None, ..FACTS },
            Facts { before: Some(Duration::from_secs(9)), ..FACTS },
            Facts { pressed: true, ..FACTS },
            Facts { usual: None, before: None, ..FACTS },
            Facts { late_again: None, ..FACTS },
        ];
        for facts in slow {
            assert_eq!(verdict(&facts), Verdict::Unknown, "{facts:?}");
        }
        let tiny = Facts { usual: Some(Duration::ZERO), before: Some(Duration::from_millis(90)), ..FACTS };
        assert_eq!(verdict(&tiny), Verdict::GivesWay, "a busy moment");
    }

    fn version(text: &str, before: bool) -> Version {
        let text = format!("-- goal: x\n-- summary: {text}.\n-- subject: key\n--\nSELECT 'a' AS key\n");
        let goal = Arc::new(Goal::parse(Path::new("x.sql"), &text, Engine::Sqlite).unwrap());
        Version { before: before.then(|| Arc::clone(&goal)), goal }
    }

    #[test]
    fn a_text_that_came_to_no_end_yet_is_tried_at_once_and_again_while_there_is_another() {
        let (old, edit) = (version("Old", false), version("Edit", true));
        let known = |ended: &Version| GoalStatus {
            ended: Some(ended.goal.digest.clone()),
            ..super::super::testing::goal_status("x")
        };
        let tried = |version: &Version| Tried { digest: version.goal.digest.clone(), at: 1_000 };
        assert_eq!(soon(&old, Some(&known(&old)), Some(&tried(&old)), 5_000), None, "its schedule says");
        assert_eq!(soon(&edit, Some(&known(&old)), Some(&tried(&old)), 5_000), Some(5_000));
        assert_eq!(soon(&edit, Some(&known(&old)), None, 5_000), Some(5_000), "edited while nothing ran");
        assert_eq!(soon(&edit, Some(&known(&old)), Some(&tried(&edit)), 5_000), Some(1_000 + AGAIN));
        assert_eq!(soon(&old, None, Some(&tried(&old)), 5_000), None, "a new one that errs");
        assert_eq!(soon(&version("Mended", false), None, Some(&tried(&old)), 5_000), Some(5_000));
        assert_eq!(soon(&old, None, None, 5_000), None, "what was never evaluated is due already");
        assert_eq!(soon(&old, Some(&known(&old)), Some(&tried(&edit)), 5_000), None, "it runs on");
    }
}
