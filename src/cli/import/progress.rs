//! How far an import is: a bar on a terminal, plain lines elsewhere; on stderr in both.

use super::super::output::size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// Progress of one repository.
#[derive(Debug)]
pub struct Progress {
    name: String,
    bar: ProgressBar,
    plain: bool,
}

impl Progress {
    /// Begins; `total` is an estimate.
    #[must_use]
    pub fn new(name: &str, total: i64) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let target = if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(u64::try_from(total).unwrap_or_default()), target);
        let style = ProgressStyle::with_template(
            "{prefix} {bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        if plain {
            eprintln!("{name}: about {} to be copied", size(total));
        }
        Self { name: name.to_owned(), bar, plain }
    }

    /// So many bytes went out so far.
    pub fn sent(&self, bytes: u64) {
        if self.bar.length().is_some_and(|length| length < bytes) {
            self.bar.set_length(bytes);
        }
        self.bar.set_position(bytes);
    }

    /// What is being done.
    pub fn phase(&self, phase: &str) {
        self.bar.set_message(phase.to_owned());
        if self.plain {
            eprintln!("{}: {phase}", self.name);
        }
    }

    /// Something that people should see.
    pub fn warn(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{}: {text}", self.name));
    }

    /// Ends.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
