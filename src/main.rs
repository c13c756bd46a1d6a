//! Parse arguments, run, print the error chain, exit with its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    trued::cli::main()
}
