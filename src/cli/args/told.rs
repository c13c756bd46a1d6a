//! What to say of a flag that a verb does not have, where the nearest flag is not what was meant.

use crate::goal::header::{KEYS, MORE_KEYS};
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The same error with a better tip, where there is one.
#[must_use]
pub fn told(mut error: clap::Error, line: &[String]) -> clap::Error {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => flag.clone(),
        _ => return error,
    };
    if let Some(tip) = tip(line, flag.trim_start_matches('-')) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn tip(line: &[String], flag: &str) -> Option<String> {
    let verb = line.iter().skip_while(|word| *word != "goal").nth(1)?;
    let is_key = KEYS.iter().chain(&MORE_KEYS).any(|key| *key == flag);
    let is_set = matches!(flag, "mode" | "schedule" | "brake" | "param");
    match verb.as_str() {
        "set" if is_key => Some(format!(
            "`{flag}` is said in the goal's file alone; what is set over it are --mode, --schedule, --brake and --param"
        )),
        "check" | "diff" | "evaluate" | "explain" | "run" | "show" | "test" if is_set => {
            Some(format!("--{flag} is set by `trued goal set NAME`, over the goal's file; or edit the file"))
        }
        "check" | "diff" | "evaluate" | "explain" | "run" | "show" | "test" if is_key => {
            Some(format!("`{flag}` is said in the goal's file"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_key_of_the_file_that_is_no_flag_is_told_with_where_it_is_set() {
        for (line, tip) in [
            ("trued goal set x --severity high", "`severity` is said in the goal's file alone; what is set"),
            (
                "trued goal run x --param age=3d",
                "--param is set by `trued goal set NAME`, over the goal's file",
            ),
            ("trued goal run x --timeout 3s", "`timeout` is said in the goal's file"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let error = Arguments::try_parse_from(&words).unwrap_err();
            let said = told(error, &words).to_string();
            assert!(said.contains(tip) && !said.contains("similar argument"), "{said}");
        }
        let words = ["trued", "goal", "run", "x", "--limt", "3"].map(str::to_owned);
        let said = told(Arguments::try_parse_from(&words).unwrap_err(), &words).to_string();
        assert!(said.contains("--limit"), "{said}");
    }

    #[test]
    fn all_that_a_pause_lacks_is_told_at_once() {
        let words = ["trued", "goal", "pause", "x"];
        let said = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(said.contains("--reason") && said.contains("--for") && said.contains("--until"), "{said}");
    }
}
