//! Variables of the environment that begin with `TRUED_` and name no key: what was probably meant.
//!
//! They are told and not refused: others set such names too, a cluster's scheduler for a service that is called trued.

use super::keys::KEYS;

/// Variables that are no keys of the configuration, and have a meaning: the address of the API.
const OTHERS: &[&str] = &["TRUED_URL"];

/// What begins so is the suite's own.
const OF_TESTS: &str = "TRUED_TEST_";

/// Flags that a variable may be thought to stand for, as `TRUED_URL` does for `--url`.
const FLAGS: &[&str] = &["data", "config", "output", "log_format"];

/// How alike two names are when one is taken for the other.
const LIKE: f64 = 0.85;

/// Why a variable without a section does nothing; none: it has a meaning, or is somebody else's.
#[must_use]
pub fn stray(name: &str, value: &str) -> Option<String> {
    let rest = name.strip_prefix("TRUED_")?;
    if OTHERS.contains(&name) || name.starts_with(OF_TESTS) || is_schedulers(rest, value) {
        return None;
    }
    let word = rest.to_lowercase();
    let meant = if FLAGS.contains(&word.as_str()) {
        format!("did you mean the flag --{}?", word.replace('_', "-"))
    } else {
        match likely(&word).as_slice() {
            [] => {
                let others = OTHERS.join(", ");
                format!(
                    "keys of the configuration are TRUED_SECTION__KEY, such as TRUED_FLEET__GRACE; beside them there is {others}"
                )
            }
            names => format!("did you mean {}?", names.join(" or ")),
        }
    };
    Some(format!("environment {name}: there is no such variable, and it does nothing; {meant}"))
}

/// Kubernetes gives each container the addresses of all services, under their names.
fn is_schedulers(rest: &str, value: &str) -> bool {
    rest.starts_with("SERVICE_") || rest.starts_with("PORT_") || (rest == "PORT" && value.contains("://"))
}

/// The variables that were meant: of the keys that are called so in any section, else of the nearest one.
fn likely(word: &str) -> Vec<String> {
    let variable = |key: &str| format!("TRUED_{}", key.to_uppercase().replace('.', "__"));
    let called = KEYS.iter().map(|key| key.name);
    let same: Vec<_> =
        called.clone().filter(|key| key.split_once('.').is_some_and(|(_, own)| own == word)).collect();
    if !same.is_empty() {
        return same.into_iter().map(variable).collect();
    }
    let likeness = |key: &str| {
        let own = key.split_once('.').map_or(key, |(_, own)| own);
        strsim::jaro_winkler(word, &key.replace('.', "_")).max(strsim::jaro_winkler(word, own))
    };
    let others = OTHERS.iter().map(|name| {
        (strsim::jaro_winkler(word, &name.trim_start_matches("TRUED_").to_lowercase()), (*name).to_owned())
    });
    let near = called.map(|key| (likeness(key), variable(key))).chain(others);
    let near = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > LIKE);
    near.map(|(_, name)| name).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_names_no_key_is_told_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("TRUED_GRACE", "did you mean TRUED_FLEET__GRACE?"),
            ("TRUED_FLEET_GRACE", "did you mean TRUED_FLEET__GRACE?"),
            ("TRUED_GRAZE", "did you mean TRUED_FLEET__GRACE?"),
            (
                "TRUED_LISTEN",
                "did you mean TRUED_HTTP__LISTEN or TRUED_WORKER__LISTEN or TRUED_ROUTER__LISTEN?",
            ),
            ("TRUED_DATABASE_URL", "did you mean TRUED_DATABASE__URL?"),
            ("TRUED_DATA", "did you mean the flag --data?"),
            ("TRUED_LOG_FORMAT", "did you mean the flag --log-format?"),
            ("TRUED_XYZZY", "such as TRUED_FLEET__GRACE; beside them there is TRUED_URL"),
        ] {
            let said = stray(name, "x").unwrap();
            assert!(said.starts_with(&format!("environment {name}: ")) && said.ends_with(meant), "{said}");
        }
    }

    #[test]
    fn what_has_a_meaning_or_is_anothers_is_not_told() {
        for (name, value) in [
            ("TRUED_URL", "http://127.0.0.1:7080"),
            ("TRUED_TEST_SEED", "7"),
            ("TRUED_SERVICE_HOST", "10.0.0.7"),
            ("TRUED_PORT", "tcp://10.0.0.7:7080"),
            ("TRUED_PORT_7080_TCP_ADDR", "10.0.0.7"),
            ("HOME", "/root"),
        ] {
            assert_eq!(stray(name, value), None, "{name}");
        }
        assert!(stray("TRUED_PORT", "7080").is_some());
    }
}
