//! Answers to what cannot be done: a code to branch on, a sentence, a hint.

use crate::database::DatabaseError;
use crate::database::words::sentence;
use crate::goal::text::nearest;
use axum::Json;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `bad-request`, `not-found`, `refused`, `unsafe`, `unavailable`, `failed`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: None }
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new("bad-request", message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new("not-found", message)
    }

    /// It cannot be, as things stand.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new("refused", message)
    }

    /// It would put data at risk.
    pub fn unsafe_now(message: impl Into<String>) -> Self {
        Self::new("unsafe", message)
    }

    /// It went wrong.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", message)
    }

    /// It cannot be answered now, and may be later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new("unavailable", message)
    }

    /// With something to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn status(&self) -> StatusCode {
        match self.code.as_str() {
            "bad-request" => StatusCode::BAD_REQUEST,
            "not-found" => StatusCode::NOT_FOUND,
            "refused" | "unsafe" => StatusCode::CONFLICT,
            "unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status(), Json(self)).into_response()
    }
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        match &error {
            DatabaseError::Refused(message) => Self::refused(message.clone()),
            DatabaseError::Sql { .. } if error.is_full() => Self::failed(sentence(&error))
                .hint("nothing was done: make room on the disk of the database, then try again"),
            DatabaseError::Sql { .. } => {
                let said = sentence(&error);
                tracing::warn!("{said}");
                Self::new("unavailable", said)
                    .hint("is the database there? `trued migrate --check` says how its tables stand")
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

/// The answer of every handler.
pub type Answer<T> = Result<Json<T>, Problem>;

/// A path that the API does not know.
pub async fn no_such_path(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no {}", uri.path())).hint("the API is below /api/v1")
}

/// Refuses changes that do not come as JSON (or as plain bytes, where a list is streamed): no page of
/// another site can send either unasked.
pub async fn only_json_changes(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|kind| matches!(kind.trim(), "application/json" | "application/octet-stream"));
    if reads || json {
        return next.run(request).await;
    }
    Problem::bad_request("a request that changes something needs content-type application/json")
        .into_response()
}

/// The reason of a change, which it must have.
pub(super) fn reason(reason: &str) -> Result<&str, Problem> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Problem::bad_request("it needs a reason: it is kept with who and when".to_owned()));
    }
    Ok(reason)
}

/// `did you mean x?`, of a name that is near; else whoever asks lists those there are.
#[must_use]
pub fn did_you_mean<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(unknown, known).map(|name| format!("did you mean {name}?"))
}
