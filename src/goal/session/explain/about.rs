//! What an engine's message is about, told from its words.

/// What is wrong with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// There is no such column; `of` is what stands before its point.
    Column { name: String, of: Option<String> },
    /// There is no such table; `of` is the schema that stands before its point.
    Table { name: String, of: Option<String> },
    /// There is such a table, and goals may not read it.
    Private(String),
    /// The query calls no table so.
    Alias(String),
    /// More than one table has this column.
    Ambiguous(String),
    /// There is no such function.
    Function(String),
    /// A function is called as it cannot be.
    Call(String),
    /// It belongs to no language.
    Token(String),
    /// It cannot stand where it stands.
    Misplaced(String),
    /// A clause, by its first word.
    Clause(String),
}

impl About {
    /// Of a message of either engine; none: it is about something else.
    pub fn of(message: &str) -> Option<Self> {
        column(message)
            .or_else(|| table(message))
            .or_else(|| function(message))
            .or_else(|| {
                between(message, "unrecognized token: \"", "\"").map(|token| Self::Token(token.to_owned()))
            })
            .or_else(|| {
                let word = between(message, "near \"", "\": syntax error")
                    .or_else(|| between(message, "syntax error at or near \"", "\""));
                word.map(|word| Self::Misplaced(word.to_owned()))
            })
            .or_else(|| clause(message))
            .or_else(|| {
                let operator = message.strip_prefix("operator does not exist: ")?;
                operator.contains(" && ").then(|| Self::Misplaced("&&".to_owned()))
            })
    }

    /// Whether names that there are would help.
    pub const fn is_a_name(&self) -> bool {
        matches!(
            self,
            Self::Column { .. }
                | Self::Table { .. }
                | Self::Private(_)
                | Self::Alias(_)
                | Self::Ambiguous(_)
                | Self::Function(_)
        )
    }
}

fn column(message: &str) -> Option<About> {
    let ambiguous = message
        .strip_prefix("ambiguous column name: ")
        .or_else(|| between(message, "column reference \"", "\" is ambiguous"));
    if let Some(name) = ambiguous {
        return Some(About::Ambiguous(last(name).to_owned()));
    }
    let name =
        message.strip_prefix("no such column: ").or_else(|| between(message, "column ", " does not exist"));
    // What SQLite says further is about a string in double quotes, which has a hint of its own here.
    let name = name?.split(" - should this be").next()?;
    let (of, name) = parts(name);
    Some(About::Column { name, of })
}

fn table(message: &str) -> Option<About> {
    if let Some(name) = message.strip_prefix("missing FROM-clause entry for table ") {
        return Some(About::Alias(last(name).to_lowercase()));
    }
    let refused = message.strip_prefix("permission denied for ");
    if let Some(name) = refused
        .and_then(|rest| ["table ", "view ", "relation "].iter().find_map(|kind| rest.strip_prefix(kind)))
    {
        return Some(About::Private(last(name).to_owned()));
    }
    let name = message
        .strip_prefix("no such table: ")
        .or_else(|| between(message, "relation ", " does not exist"))?;
    let (of, name) = parts(name);
    Some(About::Table { name, of })
}

fn function(message: &str) -> Option<About> {
    let missing = message
        .strip_prefix("no such function: ")
        .or_else(|| between(message, "function ", " does not exist").and_then(|call| call.split('(').next()));
    let call = || {
        message
            .strip_prefix("wrong number of arguments to function ")
            .or_else(|| message.strip_prefix("misuse of aggregate function "))
            .or_else(|| message.strip_prefix("misuse of aggregate: "))
            .or_else(|| message.strip_prefix("misuse of window function "))
            .and_then(|call| call.split('(').next())
    };
    let missing = missing.map(|name| About::Function(last(name).to_owned()));
    missing.or_else(|| call().map(|name| About::Call(name.to_owned())))
}

/// SQLite names the clause; PostgreSQL gives the place.
fn clause(message: &str) -> Option<About> {
    let word = match message {
        "HAVING clause on a non-aggregate query" | "a GROUP BY clause is required before HAVING" => "having",
        _ if message.ends_with("do not have the same number of result columns") => {
            message.strip_prefix("SELECTs to the left and right of ")?.split(' ').next()?
        }
        _ if message.contains(" ORDER BY term ") => "order",
        _ if message.contains(" GROUP BY term ") => "group",
        _ => return None,
    };
    Some(About::Clause(word.to_lowercase()))
}

fn between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_suffix(after)
}

/// What stands before the last point of a name, and the name.
fn parts(name: &str) -> (Option<String>, String) {
    let name = name.trim_matches('"');
    let of = name.rsplit_once('.').map(|(before, _)| last(before).to_lowercase());
    (of, last(name).to_owned())
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name).trim_matches('"')
}
