//! Deadlines that travel with requests: what comes too late is refused before any work is done for it.

use super::{Answer, TURN_WITHIN};
use crate::model::wire::read::DEADLINE_HEADER;
use crate::model::wire::{Refusal, RefusalCode};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::time::Duration;

/// Refuses a request whose caller does not wait any more.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match left(request.headers()) {
        Err(refusal) => Answer(refusal).into_response(),
        Ok(Some(Duration::ZERO)) => {
            Answer(Refusal::new(RefusalCode::Expired, "the request came too late")).into_response()
        }
        Ok(_) => next.run(request).await,
    }
}

/// How long such a caller waits for its turn.
pub(super) fn patience(headers: &HeaderMap) -> Duration {
    left(headers).ok().flatten().map_or(TURN_WITHIN, |left| left.min(TURN_WITHIN))
}

fn left(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(DEADLINE_HEADER) else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.parse::<i64>().ok());
    let millis = millis.ok_or_else(|| {
        Refusal::new(RefusalCode::BadRequest, format!("{DEADLINE_HEADER} is a number of milliseconds"))
    })?;
    Ok(Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(axum::http::HeaderName::from_static(DEADLINE_HEADER), value.parse().unwrap())])
    }

    #[test]
    fn a_deadline_shortens_the_wait_for_a_turn_and_never_lengthens_it() {
        assert_eq!(patience(&HeaderMap::new()), TURN_WITHIN);
        assert_eq!(patience(&of("700")), Duration::from_millis(700));
        assert_eq!(patience(&of("99999999")), TURN_WITHIN);
        assert_eq!(left(&of("-5")).unwrap(), Some(Duration::ZERO));
        assert_eq!(left(&of("soon")).unwrap_err().code, RefusalCode::BadRequest);
    }
}
