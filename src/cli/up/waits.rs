//! What a start waits for, said again and again while it takes long: a line every ten seconds on standard error.
//!
//! A person before a silent terminal cannot tell a slow start from one that will never end. Nothing is ended here.

use super::super::failure::sentence;
use super::fleet::Member;
use crate::database::{Database, parts};
use crate::model::fleet::{Fileserver, Health};
use std::time::Duration;
use tokio::time::Instant;

/// Between two lines, and before the first.
const EVERY: Duration = Duration::from_secs(10);

/// A part of the start that takes less is not told.
const LASTS: Duration = Duration::from_secs(1);

/// How long a database may take for the smallest write before it is said to take none.
const WRITES_WITHIN: Duration = Duration::from_secs(2);

/// The clock of one start.
#[derive(Debug)]
pub struct Waits {
    began: Instant,
    next: Instant,
}

impl Waits {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        let began = Instant::now();
        Self { began, next: began + EVERY }
    }

    /// Whether a line is due; the next is due a while after it.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + EVERY;
        }
        due
    }

    /// The line, with what is waited for.
    #[must_use]
    pub fn line(&self, what: &str) -> String {
        format!("not ready after {} s: waits for {what}", self.began.elapsed().as_secs())
    }

    /// Does a part of the start, and says what it is while it takes long.
    pub async fn during<T>(&mut self, what: &str, part: impl Future<Output = T>) -> T {
        let mut part = std::pin::pin!(part);
        // What only just began is not what was waited for.
        let earliest = Instant::now() + LASTS;
        loop {
            tokio::select! {
                biased;
                done = &mut part => return done,
                () = tokio::time::sleep_until(self.next.max(earliest)) => {
                    if self.is_due() {
                        eprintln!("{}", self.line(what));
                    }
                }
            }
        }
    }
}

/// The fileservers that are not online yet.
#[must_use]
pub fn absent<'a>(all: &[Fileserver], members: &'a [Member]) -> Vec<&'a str> {
    let online = |member: &&Member| {
        all.iter().any(|one| one.name == member.name && one.health == Health::Online && one.counts)
    };
    members.iter().filter(|member| !online(member)).map(|member| member.name.as_str()).collect()
}

/// Why the database takes no writes, by the smallest that there is: that a part is there. None: it takes them.
pub async fn writes(db: &Database, part: &str) -> Option<String> {
    match tokio::time::timeout(WRITES_WITHIN, parts::seen(db, part, false)).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(sentence(&error.into())),
        Err(_) => Some(format!("no answer within {} s", WRITES_WITHIN.as_secs())),
    }
}

/// What a start waits for whose parts all run.
#[must_use]
pub fn missing(absent: &[&str], refused: Option<&str>) -> String {
    let away = match absent {
        [] => None,
        [one] => Some(format!("fileserver {one} to be online")),
        many => Some(format!("fileservers {} to be online", many.join(", "))),
    };
    let refused = refused.map(|why| format!("the database to take writes ({why})"));
    let all: Vec<_> = away.into_iter().chain(refused).collect();
    all.join(", and for ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_said_in_words() {
        assert_eq!(missing(&["fs-2"], None), "fileserver fs-2 to be online");
        assert_eq!(
            missing(&["fs-1", "fs-2"], Some("database or disk is full")),
            "fileservers fs-1, fs-2 to be online, and for the database to take writes (database or disk is full)"
        );
    }

    #[tokio::test]
    async fn a_line_is_due_after_ten_seconds_and_then_every_ten() {
        let mut waits = Waits::begin();
        assert!(!waits.is_due());
        let ten = Duration::from_secs(10);
        waits.began -= ten;
        waits.next -= ten;
        assert!(waits.is_due());
        assert_eq!(waits.line("the database"), "not ready after 10 s: waits for the database");
        assert!(!waits.is_due());
        assert_eq!(waits.during("nothing", std::future::ready(7)).await, 7);
    }
}
