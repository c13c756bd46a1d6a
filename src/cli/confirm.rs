//! Asking before something dangerous: the name is typed back, or `--yes` says so.

use super::failure::Failure;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Goes on only if a person types the name, or said `--yes`.
///
/// # Errors
/// When neither happened.
pub fn confirmed(name: &str, what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{name}: {what}; confirm with --yes")));
    }
    eprint!("{name}: {what}\ntype its name to go on: ");
    let _ = std::io::stderr().flush();
    let mut typed = String::new();
    let read = std::io::stdin().lock().read_line(&mut typed);
    if read.is_ok() && typed.trim() == name {
        return Ok(());
    }
    Err(Failure::usage(format!("{:?} is not {name}: nothing was changed", typed.trim())))
}
