//! Logs and metrics of one process: set up once at start, usable by every room.
//!
//! Logs go to stderr, as text or JSON lines, filtered by `RUST_LOG`. Events for people
//! (target [`EVENT`]) are also one plain line each on stdout where a command asks for that.
//! Metrics are a registry that is read at `/metrics`; nothing is sent anywhere.

pub mod events;
pub mod metrics;

pub use metrics::pushes::PushMetrics;

use events::People;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// Target of events that a person cares about: one a repair, a death, a return.
pub const EVENT: &str = "trued::event";

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// Sets up logging. Without `RUST_LOG`, `filter` holds. With `people`, events go to stdout too.
///
/// # Errors
/// When `RUST_LOG` cannot be read, or logging was set up before.
pub fn init(format: LogFormat, filter: &str, people: bool) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| anyhow::anyhow!("RUST_LOG={text:?}: {error}"))?
        }
        _ => EnvFilter::try_new(filter)?,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match format {
        LogFormat::Text => {
            let color = std::io::IsTerminal::is_terminal(&std::io::stderr())
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            lines.with_ansi(color).with_filter(filter).boxed()
        }
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(people.then_some(People)).with(lines).try_init()?;
    Ok(())
}
