//! Answers other than git's own: short plain text, which git shows after `remote:`.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// What of git's an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// References, or the capabilities of protocol 2.
    Advertisement,
    /// The answer to a request.
    Result,
}

/// Git's own words to a reader; never to be kept by anybody between.
#[must_use]
pub fn git(kind: Kind, body: Body) -> Response {
    let kind = match kind {
        Kind::Advertisement => "application/x-git-upload-pack-advertisement",
        Kind::Result => "application/x-git-upload-pack-result",
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"),
        (header::PRAGMA, "no-cache"),
        (header::EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT"),
    ];
    (headers, body).into_response()
}

fn text(status: StatusCode, words: &str) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (status, headers, format!("{words}\n")).into_response()
}

/// There is no such repository, or the client may not know.
#[must_use]
pub fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "there is no such repository here")
}

/// Credentials are needed, or these are nobody's.
#[must_use]
pub fn who_are_you() -> Response {
    let mut answer = text(StatusCode::UNAUTHORIZED, "credentials are needed");
    let realm = HeaderValue::from_static("Basic realm=\"git\", charset=\"UTF-8\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
    answer
}

/// No, and why.
#[must_use]
pub fn forbidden(why: &str) -> Response {
    text(StatusCode::FORBIDDEN, why)
}

/// It cannot be understood.
#[must_use]
pub fn bad_request(why: &str) -> Response {
    text(StatusCode::BAD_REQUEST, why)
}

/// It is packed in a way that is not known.
#[must_use]
pub fn unsupported(why: &str) -> Response {
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)
}

/// Not now: again in so many seconds.
#[must_use]
pub fn unavailable(why: &str, seconds: u16) -> Response {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, why);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// Another method is for this address.
#[must_use]
pub fn method_not_allowed(allowed: &Method) -> Response {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "no such method for this address");
    if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}
