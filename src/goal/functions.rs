//! Functions that a goal may not call, each with its reason.
//!
//! This list is for people: it says early and in words what would go wrong. The wall
//! is elsewhere: a role that may only read, a read-only session, a deadline.

/// Why a function may not be called (its name in lower case, without schema), or `None` where it may.
#[must_use]
pub fn refusal(name: &str) -> Option<&'static str> {
    const CLOCK: &str = "an evaluation must be repeatable: use :now, read once from the database's clock";
    const CHANCE: &str = "an evaluation must be repeatable, and this gives another answer each time";
    const SLEEP: &str = "a goal must not wait";
    const STATE: &str = "it changes something, and a goal only reads";
    const OUTSIDE: &str = "it reaches files, programs or other servers, and a goal reads tables only";
    const TEXT: &str = "it runs text as SQL, which nobody could check";
    const SERVER: &str = "it acts on the server or on other sessions, and a goal reads tables only";
    Some(match name {
        "now"
        | "clock_timestamp"
        | "statement_timestamp"
        | "transaction_timestamp"
        | "timeofday"
        | "current_timestamp"
        | "current_date"
        | "current_time"
        | "localtime"
        | "localtimestamp" => CLOCK,
        "random" | "random_normal" | "randomblob" | "gen_random_uuid" | "gen_random_bytes" | "uuid"
        | "currval" | "lastval" | "changes" | "total_changes" => CHANCE,
        "setseed" | "nextval" | "setval" | "set_config" | "txid_current" | "notify" | "last_insert_rowid" => {
            STATE
        }
        "pg_sleep" | "pg_sleep_for" | "pg_sleep_until" => SLEEP,
        "readfile" | "writefile" | "edit" | "load_extension" | "fts3_tokenizer" | "fsdir" | "lsmode" => {
            OUTSIDE
        }
        "pg_typeof" | "pg_column_size" | "pg_size_pretty" | "pg_size_bytes" => return None,
        "query_to_xml"
        | "query_to_xmlschema"
        | "query_to_xml_and_xmlschema"
        | "cursor_to_xml"
        | "cursor_to_xmlschema"
        | "table_to_xml"
        | "table_to_xml_and_xmlschema"
        | "schema_to_xml"
        | "schema_to_xml_and_xmlschema"
        | "database_to_xml"
        | "database_to_xml_and_xmlschema"
        | "ts_stat"
        | "ts_rewrite" => TEXT,
        "brin_summarize_new_values" | "gin_clean_pending_list" => STATE,
        _ if name.starts_with("uuid_generate") => CHANCE,
        _ if name.starts_with("pg_notify") || name.contains("advisory") => STATE,
        _ if name.starts_with("lo_") || matches!(name, "lowrite" | "loread") => STATE,
        _ if name.starts_with("dblink") || name.starts_with("pg_read") || name.starts_with("pg_ls") => {
            OUTSIDE
        }
        _ if name.starts_with("pg_") => SERVER,
        _ => return None,
    })
}

/// Words that read the clock without parentheses.
pub const CLOCK_WORDS: [&str; 5] =
    ["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"];

/// SQLite's functions that read the clock when they are given no moment.
pub const CLOCK_DEFAULTS: [&str; 6] = ["date", "time", "datetime", "julianday", "unixepoch", "strftime"];
