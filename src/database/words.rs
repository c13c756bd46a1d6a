//! An error in one line, for people: its causes after one another, the engine's own words last.

use std::error::Error;

/// The line. What a cause repeats of the one above is left out.
#[must_use]
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        // What an engine says stands alone: before it sqlx says that an engine said it, and behind it there is a line of
        // PostgreSQL's own source code.
        let engines = match cause.downcast_ref() {
            Some(sqlx::Error::Database(error)) => Some(error.message().to_owned()),
            _ => None,
        };
        next = cause.source().filter(|_| engines.is_none());
        let text = engines.unwrap_or_else(|| cause.to_string()).replace('\n', " ");
        if line.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseError;

    #[test]
    fn what_an_engine_says_is_said_once() {
        let source = sqlx::Error::Io(std::io::Error::other("the line is cut"));
        let error = DatabaseError::Sql { doing: "asking", source };
        let said = sentence(&error);
        assert_eq!(said.matches("the line is cut").count(), 1, "{said}");
        assert!(said.starts_with("asking: "), "{said}");
    }

    #[tokio::test]
    async fn an_engines_own_words_stand_without_who_said_that_they_were_said() {
        let pool = sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap();
        let source = sqlx::query("SELECT no_such").execute(&pool).await.unwrap_err();
        let said = sentence(&DatabaseError::Sql { doing: "asking", source });
        assert_eq!(said, "asking: no such column: no_such");
    }
}
