//! Asking a forge whether somebody may: one GET with the client's own credentials, as web servers' `auth_request` does.
//!
//! 2xx is yes, 403 and 404 are no, 401 is "who are you?", all else is no answer. Answers are believed for a few seconds
//! by who asked, what for, and the repository's number and name: a renamed one is asked about anew.

use super::{Access, Credentials, Subject, Verdict};
use anyhow::Context as _;
use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for an answer.
const WITHIN: Duration = Duration::from_secs(5);
/// Answers that are kept; past it, those that are over go, and then all.
const MOST: usize = 20_000;
/// The header in which it may say whom it let in.
const WHO: &str = "trued-user";

/// Who is asked.
#[derive(Debug)]
pub struct Forge {
    http: reqwest::Client,
    url: reqwest::Url,
    believed_for: Duration,
    /// A digest of all that was asked; no secret is kept.
    answers: Mutex<HashMap<[u8; 32], (Instant, Verdict)>>,
}

impl Forge {
    /// A forge at this address.
    ///
    /// # Errors
    /// When the address is none, or not of http://.
    pub fn new(url: &str, believed_for: Duration) -> anyhow::Result<Self> {
        let url: reqwest::Url = url.parse().with_context(|| format!("{url:?} is not an address"))?;
        anyhow::ensure!(
            url.scheme() == "http",
            "router.authorizer is asked over http:// only: on loopback, or a network that you trust"
        );
        let http = reqwest::Client::builder()
            .timeout(WITHIN)
            .connect_timeout(Duration::from_secs(2))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { http, url, believed_for, answers: Mutex::default() })
    }

    /// Asks, unless the answer is known.
    pub async fn ask(&self, access: Access, subject: Subject<'_>, shown: Option<&Credentials>) -> Verdict {
        let key = key(access, subject, shown);
        if let Some(known) = self.known(&key, Instant::now()) {
            return known;
        }
        let verdict = self.question(access, subject, shown).await;
        if verdict != Verdict::Away {
            self.believe(key, &verdict, Instant::now());
        }
        verdict
    }

    async fn question(&self, access: Access, subject: Subject<'_>, shown: Option<&Credentials>) -> Verdict {
        let query = [("repository", subject.name), ("access", access.as_str())];
        let mut request = self.http.get(self.url.clone()).query(&query);
        if let Some(shown) = shown {
            request = request.header(AUTHORIZATION, &shown.header);
        }
        match request.send().await {
            Ok(answer) => verdict(answer.status(), answer.headers().get(WHO)),
            Err(error) => {
                let error = error.without_url();
                tracing::warn!(error = &error as &dyn std::error::Error, "the authorizer does not answer");
                Verdict::Away
            }
        }
    }

    fn known(&self, key: &[u8; 32], now: Instant) -> Option<Verdict> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|(until, _)| *until > now).map(|(_, verdict)| verdict.clone())
    }

    fn believe(&self, key: [u8; 32], verdict: &Verdict, now: Instant) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.retain(|_, (until, _)| *until > now);
            if answers.len() >= MOST {
                answers.clear();
            }
        }
        answers.insert(key, (now + self.believed_for, verdict.clone()));
    }
}

fn verdict(status: StatusCode, who: Option<&reqwest::header::HeaderValue>) -> Verdict {
    match status {
        StatusCode::UNAUTHORIZED => Verdict::Unknown,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Verdict::Hidden,
        status if status.is_success() => {
            let who = who.and_then(|value| value.to_str().ok()).unwrap_or("the forge's");
            Verdict::Allowed(who.chars().take(128).collect())
        }
        status => {
            tracing::warn!(%status, "the authorizer gave no answer");
            Verdict::Away
        }
    }
}

fn key(access: Access, subject: Subject<'_>, shown: Option<&Credentials>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let id = subject.id.map_or(String::new(), |id| id.to_string());
    let header = shown.map_or("", |shown| shown.header.as_str());
    for word in [access.as_str(), id.as_str(), subject.name, header] {
        hasher.update(&word.len().to_le_bytes());
        hasher.update(word.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::Shutdown;
    use axum::Router;
    use axum::extract::{Query, State};
    use axum::http::HeaderMap;
    use axum::routing::get;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    async fn answer(
        State(asked): State<Arc<AtomicU32>>,
        Query(query): Query<HashMap<String, String>>,
        headers: HeaderMap,
    ) -> (StatusCode, [(&'static str, &'static str); 1]) {
        asked.fetch_add(1, Ordering::Relaxed);
        let shown = headers.get("authorization").and_then(|value| value.to_str().ok());
        let status = match (shown, query["repository"].as_str(), query["access"].as_str()) {
            (None, ..) => StatusCode::UNAUTHORIZED,
            (_, "a b/ü", "read") => StatusCode::NO_CONTENT,
            (_, "broken", _) => StatusCode::BAD_GATEWAY,
            _ => StatusCode::FORBIDDEN,
        };
        (status, [(WHO, "alice")])
    }

    async fn forge(shutdown: &Shutdown, believed_for: Duration) -> (Arc<AtomicU32>, Forge) {
        let asked = Arc::new(AtomicU32::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/may", listener.local_addr().unwrap());
        let routes = Router::new().route("/may", get(answer)).with_state(Arc::clone(&asked));
        shutdown.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (asked, Forge::new(&url, believed_for).unwrap())
    }

    fn subject(name: &str) -> Subject<'_> {
        Subject { name, id: Some(1) }
    }

    #[tokio::test]
    async fn its_answers_are_believed_for_a_while_for_the_same_question_only() {
        let shutdown = Shutdown::new();
        let (asked, forge) = forge(&shutdown, Duration::from_mins(1)).await;
        let shown = Credentials::read("Bearer x").unwrap();
        for _ in 0..3 {
            let verdict = forge.ask(Access::Read, subject("a b/ü"), Some(&shown)).await;
            assert_eq!(verdict, Verdict::Allowed("alice".into()));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(forge.ask(Access::Write, subject("a b/ü"), Some(&shown)).await, Verdict::Hidden);
        assert_eq!(forge.ask(Access::Read, subject("a b/ü"), None).await, Verdict::Unknown);
        let renamed = Subject { name: "a b/ü", id: Some(2) };
        forge.ask(Access::Read, renamed, Some(&shown)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn an_authorizer_that_fails_is_no_yes_and_not_remembered() {
        let shutdown = Shutdown::new();
        let (asked, forge) = forge(&shutdown, Duration::from_mins(1)).await;
        let shown = Credentials::read("Bearer x").unwrap();
        for _ in 0..2 {
            assert_eq!(forge.ask(Access::Read, subject("broken"), Some(&shown)).await, Verdict::Away);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(Forge::new("https://forge.example/may", Duration::ZERO).is_err());
    }
}
