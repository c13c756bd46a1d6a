//! The operator's own judge of pushes: a program, or a URL. Asked once for all copies, when a push's commands are known
//! and before any object is taken; or, if it wishes to read them, when enough copies have the objects and nothing is
//! changed yet.
//!
//! It is told one JSON object. A program says yes by its exit status 0, a URL by 2xx; either may name references that
//! alone may not be changed: `{"refused": {"refs/heads/x": "why"}}`, a program in its last line. Any other exit, and
//! 4xx, refuses the whole push with the last line that was said. No answer is no: where the judge is away, nobody pushes.

use crate::config::PushConfig;
use crate::fleet::PushedObjects;
use crate::model::checksum::Target;
use crate::model::fleet::Repository;
use crate::model::wire::push::{Command, RefName};
use crate::program::{self, How};
use crate::router::push::commands::Asked;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Most bytes of a URL's answer.
const MOST: usize = 1 << 20;
/// Characters of a reason.
const LONGEST: usize = 1_000;

/// Who judges.
#[derive(Debug)]
pub struct Judge {
    kind: Kind,
    /// How long it may take.
    pub(in crate::router::push) within: Duration,
    /// Whether it reads what is pushed.
    pub(in crate::router::push) reads: bool,
}

#[derive(Debug)]
enum Kind {
    Program(String, TaskTracker),
    Url(reqwest::Client, reqwest::Url),
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::router::push) enum Said {
    /// These alone may not be changed, and why; none named: all may.
    But(BTreeMap<RefName, String>),
    /// Nothing may.
    No(String),
}

/// What it is told.
#[derive(Debug, serde::Serialize)]
struct Told<'a> {
    version: u8,
    repository: &'a str,
    repository_id: i64,
    pusher: &'a str,
    atomic: bool,
    options: &'a [String],
    commands: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<&'a PushedObjects>,
}

#[derive(Debug, serde::Serialize)]
struct Line<'a> {
    name: String,
    old: Option<&'a str>,
    new: Option<&'a str>,
}

/// What it may answer beside yes.
#[derive(Debug, Default, serde::Deserialize)]
struct Answer {
    #[serde(default)]
    refused: BTreeMap<String, String>,
}

impl Judge {
    /// As configured; none: nobody is asked.
    ///
    /// # Errors
    /// When `push.policy` is neither an absolute path of a program that may be run nor a URL of `http://`.
    pub fn of(config: &PushConfig) -> anyhow::Result<Option<Self>> {
        let text = config.policy.as_str();
        let kind = if text.is_empty() {
            return Ok(None);
        } else if text.starts_with('/') {
            program::checked(text).map_err(|why| anyhow::anyhow!("push.policy: {why}"))?;
            Kind::Program(text.to_owned(), TaskTracker::new())
        } else {
            let url: Option<reqwest::Url> = text.parse().ok();
            let url = url.filter(|url| url.scheme() == "http");
            let url = url.with_context(|| {
                format!("push.policy: {text:?} is neither an absolute path nor an http:// address")
            })?;
            let http = reqwest::Client::builder()
                .timeout(config.policy_timeout)
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .build()
                .context("cannot make an HTTP client")?;
            Kind::Url(http, url)
        };
        Ok(Some(Self { kind, within: config.policy_timeout, reads: config.policy_objects }))
    }

    /// Asks. `objects`: where it may read what is pushed.
    pub(in crate::router::push) async fn ask(
        &self,
        repository: &Repository,
        pusher: &str,
        asked: &Asked,
        objects: Option<&PushedObjects>,
    ) -> Said {
        let told = Told {
            version: 1,
            repository: &repository.name,
            repository_id: repository.id.0,
            pusher,
            atomic: asked.wishes.atomic,
            options: &asked.options,
            commands: asked.commands.iter().map(line).collect(),
            objects,
        };
        let text = match serde_json::to_vec(&told) {
            Ok(text) => [text, b"\n".to_vec()].concat(),
            Err(error) => return away(&error.to_string()),
        };
        match &self.kind {
            Kind::Program(path, reaper) => self.run(path, &text, reaper).await,
            Kind::Url(http, url) => post(http, url, text).await,
        }
    }

    async fn run(&self, path: &str, text: &[u8], reaper: &TaskTracker) -> Said {
        let path = match program::checked(path) {
            Ok(path) => path,
            Err(why) => return away(&why),
        };
        match program::run(&path, &[], text, self.within, reaper).await {
            Ok(ended) => match ended.how {
                How::Exit(0) => named(&ended.said),
                How::Exit(code) if ended.said.is_empty() => Said::No(format!("refused by policy ({code})")),
                How::Exit(_) => Said::No(ended.said),
                How::Signal => away("it was ended by a signal"),
                How::Deadline => away(&format!("it did not end within {} s", self.within.as_secs())),
                How::TooMuch => away("it wrote too much"),
            },
            Err(why) => away(&why),
        }
    }
}

async fn post(http: &reqwest::Client, url: &reqwest::Url, text: Vec<u8>) -> Said {
    let asked = http.post(url.clone()).header("content-type", "application/json").body(text).send().await;
    let mut answer = match asked {
        Ok(answer) => answer,
        Err(error) => return away(&error.without_url().to_string()),
    };
    let status = answer.status();
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MOST => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return away("it said too much"),
            Ok(None) => break,
            Err(error) => return away(&error.without_url().to_string()),
        }
    }
    let text = String::from_utf8_lossy(&body);
    if status.is_success() {
        named(&text)
    } else if status.is_client_error() {
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        Said::No(last.map_or_else(|| format!("refused by policy ({status})"), short))
    } else {
        away(&format!("it answered {status}"))
    }
}

/// References that the answer names; one that is no JSON object names none.
fn named(text: &str) -> Said {
    let answer: Answer = serde_json::from_str(text.trim()).unwrap_or_default();
    let refused = answer.refused.into_iter();
    Said::But(refused.map(|(name, why)| (RefName(name.into_bytes()), short(&why))).collect())
}

/// One line of bounded length, without control signs.
fn short(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(LONGEST).collect()
}

fn away(why: &str) -> Said {
    tracing::warn!(why, "the judge of pushes gave no answer");
    Said::No("the policy could not be asked: try again".to_owned())
}

fn line(command: &Command) -> Line<'_> {
    fn shown(target: Option<&Target>) -> Option<&str> {
        target.map(|target| match target {
            Target::Object(text) | Target::Symbolic(text) => text.as_str(),
        })
    }
    Line {
        name: command.name.to_string(),
        old: shown(command.old.as_ref()),
        new: shown(command.new.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fleet::ObjectFormat;
    use crate::model::id::RepositoryId;
    use crate::router::push::commands::Wishes;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use std::os::unix::fs::PermissionsExt as _;

    fn asked() -> Asked {
        let new = Some(Target::Object("ab".repeat(20)));
        let commands = ["refs/heads/a", "refs/heads/b"].map(|name| Command {
            name: RefName(name.as_bytes().to_vec()),
            old: None,
            new: new.clone(),
        });
        let options = vec!["reason=x".to_owned()];
        Asked { commands: commands.to_vec(), wishes: Wishes::default(), options, by_server: false }
    }

    fn repository() -> Repository {
        Repository {
            id: RepositoryId(7),
            name: "team/thing".to_owned(),
            object_format: ObjectFormat::Sha1,
            bytes: 0,
            wanted: 3,
            seats: 3,
            version: 1,
            checksum: None,
            push_epoch: 0,
            repair_epoch: 0,
            write_lock_until: None,
            removed_at: None,
        }
    }

    fn config(policy: &str) -> PushConfig {
        PushConfig {
            protected: Vec::new(),
            policy: policy.to_owned(),
            policy_timeout: Duration::from_secs(5),
            policy_objects: false,
            largest: 0,
            references: 10,
            line: Duration::ZERO,
            lease: Duration::ZERO,
            stall: Duration::ZERO,
        }
    }

    async fn said(policy: &str) -> Said {
        Judge::of(&config(policy)).unwrap().unwrap().ask(&repository(), "alice", &asked(), None).await
    }

    fn but(names: &[(&str, &str)]) -> Said {
        let refused = names.iter().map(|(name, why)| (RefName(name.as_bytes().to_vec()), (*why).to_owned()));
        Said::But(refused.collect())
    }

    /// A program below a directory that nobody else can write to.
    fn script(place: &tempfile::TempDir, text: &str) -> String {
        let path = place.path().join("judge");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_program_says_yes_no_or_no_to_some() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(said(&script(&place, "exit 0")).await, but(&[]));
        let told = r#"grep -q '"pusher":"alice"' && echo fine || { echo no such pusher; exit 1; }"#;
        assert_eq!(said(&script(&place, told)).await, but(&[]), "it is told who pushes");
        assert_eq!(
            said(&script(&place, "echo not on a Friday; exit 1")).await,
            Said::No("not on a Friday".into())
        );
        assert_eq!(said(&script(&place, "exit 3")).await, Said::No("refused by policy (3)".into()));
        let some = r#"echo '{"refused": {"refs/heads/a": "frozen"}}'"#;
        assert_eq!(said(&script(&place, some)).await, but(&[("refs/heads/a", "frozen")]));
        let killed = said(&script(&place, "kill -9 $$")).await;
        assert_eq!(killed, Said::No("the policy could not be asked: try again".into()));
    }

    #[tokio::test]
    async fn a_url_says_so_too_and_one_that_is_away_lets_nothing_through() {
        let routes = Router::new()
            .route("/yes", post(|| async { "" }))
            .route("/no", post(|| async { (StatusCode::FORBIDDEN, "frozen\u{1b} until Monday\n") }))
            .route("/broken", post(|| async { StatusCode::BAD_GATEWAY }))
            .route(
                "/some",
                post(|body: String| async move {
                    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
                    let name = told["commands"][1]["name"].as_str().unwrap().to_owned();
                    assert_eq!(told["options"][0], "reason=x");
                    serde_json::json!({ "refused": { name: told["repository"] } }).to_string()
                }),
            );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = crate::shutdown::Shutdown::new();
        tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let at = |path: &str| format!("http://{address}/{path}");
        assert_eq!(said(&at("yes")).await, but(&[]));
        assert_eq!(said(&at("no")).await, Said::No("frozen  until Monday".into()));
        assert_eq!(said(&at("some")).await, but(&[("refs/heads/b", "team/thing")]));
        let away = Said::No("the policy could not be asked: try again".into());
        assert_eq!(said(&at("broken")).await, away);
        assert_eq!(said("http://127.0.0.1:1/").await, away);
    }

    #[test]
    fn what_is_neither_is_refused_at_the_start() {
        for wrong in ["judge", "https://example.org/", "/nonexistent/judge", "file:///etc/passwd"] {
            assert!(Judge::of(&config(wrong)).is_err(), "{wrong}");
        }
        assert!(Judge::of(&config("")).unwrap().is_none());
    }
}
