//! Events for people, as plain lines on stdout: the time and one sentence.

use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Prints events of the target [`EVENT`](super::EVENT).
#[derive(Debug, Clone, Copy)]
pub struct People;

impl<S: Subscriber> Layer<S> for People {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != super::EVENT {
            return;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        let line = line(crate::clock::now(), &message.0);
        // A reader that went away ends nothing: the lines are for people only.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

fn line(now: crate::model::Millis, message: &str) -> String {
    let time = chrono::DateTime::from_timestamp_millis(now).unwrap_or_default();
    format!("{}  {}\n", time.format("%H:%M:%SZ"), message.replace('\n', " "))
}

struct Message(String);

impl Visit for Message {
    // The sentence of an event comes as formatted arguments; a field of the same name is a text, and not it.
    fn record_str(&mut self, _: &Field, _: &str) {}

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_time() {
        assert_eq!(line(3_723_000, "fs-2 is\noffline"), "01:02:03Z  fs-2 is offline\n");
    }
}
