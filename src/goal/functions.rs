//! Functions that a goal may not call, each with its reason.
//!
//! This list is for people: it says early and in words what would go wrong. The wall
//! is elsewhere: a role that may only read, a read-only session, a deadline.

const CLOCK: &str = "an evaluation must be repeatable: use :now, read once from the database's clock";
const CHANCE: &str = "an evaluation must be repeatable, and this gives another answer each time";
const SLEEP: &str = "a goal must not wait";
const STATE: &str = "it changes something, and a goal only reads";
const OUTSIDE: &str = "it reaches files, programs or other servers, and a goal reads tables only";
const TEXT: &str = "it runs text as SQL, which nobody could check";
const SERVER: &str = "it acts on the server or on other sessions, and a goal reads tables only";

/// Words that read the clock without parentheses.
pub const CLOCK_WORDS: [&str; 5] =
    ["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"];

/// SQLite's functions that read the clock when they are given no moment.
pub const CLOCK_DEFAULTS: [&str; 6] = ["date", "time", "datetime", "julianday", "unixepoch", "strftime"];

/// Names, and why they are refused.
const NAMES: [(&str, &[&str]); 6] = [
    (CLOCK, &["now", "age", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday"]),
    (CHANCE, &["random", "random_normal", "randomblob", "gen_random_uuid", "gen_random_bytes", "uuid"]),
    (CHANCE, &["currval", "lastval", "changes", "total_changes", "last_insert_rowid"]),
    (STATE, &["setseed", "nextval", "setval", "set_config", "txid_current", "lowrite", "loread"]),
    (OUTSIDE, &["readfile", "writefile", "edit", "load_extension", "fts3_tokenizer", "fsdir", "lsmode"]),
    (TEXT, &["ts_stat", "ts_rewrite"]),
];

/// Beginnings of names, in the order in which they are tried, and why they are refused.
const BEGINNINGS: [(&str, &str); 12] = [
    ("pg_sleep", SLEEP),
    ("pg_advisory", STATE),
    ("pg_try_advisory", STATE),
    ("pg_notify", STATE),
    ("pg_read", OUTSIDE),
    ("pg_ls", OUTSIDE),
    ("pg_stat_file", OUTSIDE),
    ("pg_", SERVER),
    ("lo_", STATE),
    ("dblink", OUTSIDE),
    ("uuid_generate", CHANCE),
    ("brin_", STATE),
];

/// Harmless ones among those that begin so.
const ADMITTED: [&str; 4] = ["pg_typeof", "pg_column_size", "pg_size_pretty", "pg_size_bytes"];

/// Whether a name is one of the engine's own: what tells of its files and settings, not of the fleet.
#[must_use]
pub fn is_inner(name: &str) -> bool {
    ["pragma_", "sqlite_"].iter().any(|start| name.starts_with(start)) || name == "dbstat"
}

/// Why a function may not be called (its name in lower case, without schema), or `None` where it may.
#[must_use]
pub fn refusal(name: &str) -> Option<&'static str> {
    if ADMITTED.contains(&name) {
        return None;
    }
    if CLOCK_WORDS.contains(&name) {
        return Some(CLOCK);
    }
    if name.contains("_to_xml") {
        return Some(TEXT);
    }
    let named = NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why);
    named.or_else(|| BEGINNINGS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, why)| *why))
}
