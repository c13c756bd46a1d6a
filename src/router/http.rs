//! Git over HTTP: an address is understood, a name looked up, a right asked for, and then it is a read or a push.
//!
//! The order is the same for every name, so that an answer tells nothing of what one may not read. At most so many
//! requests run at a time; more are told at once when to come again.

pub mod answers;
pub mod body;
pub mod listen;
mod push;

use super::Settings;
use super::authorize::{Access, Authorizer, Credentials, Subject, Verdict};
use super::names::{Asked, Names, Service, SqlAway, What};
use super::push::{Pushed, Pushing};
use super::reads::{ReadError, Reads};
use super::replay::{KEPT, Replay, Room};
use crate::database::routing::Route;
use crate::fleet::GitRead;
use crate::telemetry::metrics::router::RouterMetrics;
use answers::Kind;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::response::Response;
use body::Counted;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What every request works with.
#[derive(Debug)]
pub struct Front {
    settings: Arc<Settings>,
    names: Arc<Names>,
    authorizer: Arc<Authorizer>,
    reads: Arc<Reads>,
    pushing: Arc<Pushing>,
    metrics: Arc<RouterMetrics>,
    running: Arc<Semaphore>,
    room: Room,
}

/// A request that was let in.
struct Admitted {
    asked: Asked,
    route: Arc<Route>,
    /// Whose credentials they were.
    who: String,
    permit: OwnedSemaphorePermit,
}

impl Front {
    /// A front that serves so many requests at a time as the settings say.
    #[must_use]
    pub fn new(
        settings: &Arc<Settings>,
        names: Arc<Names>,
        authorizer: Arc<Authorizer>,
        reads: Arc<Reads>,
        pushing: Arc<Pushing>,
        metrics: Arc<RouterMetrics>,
    ) -> Arc<Self> {
        let running = Arc::new(Semaphore::new(settings.requests));
        let settings = Arc::clone(settings);
        Arc::new(Self {
            settings,
            names,
            authorizer,
            reads,
            pushing,
            metrics,
            running,
            room: Room::default(),
        })
    }

    /// From an address to a repository and the right to it; else the answer.
    async fn admit(&self, asked: Asked, access: Access, headers: &HeaderMap) -> Result<Admitted, Response> {
        let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() else {
            self.metrics.read("overloaded");
            return Err(answers::unavailable("as many requests run here as may", 5));
        };
        let found = self.names.find(&asked).await;
        let route = found.as_ref().ok().and_then(Option::as_ref);
        let subject = Subject {
            name: route.map_or(asked.bare(), |route| route.name.as_str()),
            id: route.map(|route| route.id.0),
        };
        let shown = match credentials(headers) {
            Ok(shown) => shown,
            Err(Unclear::Unreadable) => return Err(self.refused(answers::who_are_you())),
            Err(Unclear::Twice) => {
                return Err(answers::bad_request("there are two authorizations in the request"));
            }
        };
        let who = match self.authorizer.may(access, subject, shown.as_ref()).await {
            Verdict::Allowed(who) => who,
            Verdict::Hidden => return Err(self.refused(answers::not_found())),
            Verdict::Unknown => return Err(self.refused(answers::who_are_you())),
            Verdict::ReadOnly => {
                return Err(answers::forbidden("you may read this repository, and not push to it"));
            }
            Verdict::Away => return Err(answers::unavailable("nobody can say now whether you may", 5)),
        };
        match found {
            Ok(Some(route)) => Ok(Admitted { asked, route, who, permit }),
            Ok(None) => Err(self.refused(answers::not_found())),
            Err(SqlAway) => {
                self.metrics.read("unavailable");
                Err(answers::unavailable("where this repository is cannot be looked up now", 5))
            }
        }
    }

    fn refused(&self, answer: Response) -> Response {
        self.metrics.read("refused");
        answer
    }

    async fn advertise(&self, admitted: Admitted, headers: &HeaderMap) -> Response {
        let ask =
            GitRead { protocol: protocol(headers), filters: self.settings.filters.clone(), gzip: false };
        self.serve(admitted, &ask, None, Kind::Advertisement).await
    }

    async fn fetch(&self, admitted: Admitted, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let is = |name: HeaderName, known: &[&str]| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .is_some_and(|one| known.contains(&one))
        };
        if !is(header::CONTENT_TYPE, &["application/x-git-upload-pack-request"]) {
            return answers::bad_request("this is not a request of git's");
        }
        let gzip = is(header::CONTENT_ENCODING, &["gzip", "x-gzip"]);
        if !gzip && parts.headers.contains_key(header::CONTENT_ENCODING) {
            return answers::unsupported("bodies may be packed with gzip only");
        }
        let replay = match Replay::take(body, &self.room, KEPT).await {
            Ok(replay) => replay,
            Err(why) => {
                self.metrics.read("abandoned");
                return answers::bad_request(&why.to_string());
            }
        };
        let filters = self.settings.filters.clone();
        let ask = GitRead { protocol: protocol(&parts.headers), filters, gzip };
        self.serve(admitted, &ask, Some(replay), Kind::Result).await
    }

    async fn serve(&self, admitted: Admitted, ask: &GitRead, replay: Option<Replay>, kind: Kind) -> Response {
        let since = Instant::now();
        let Admitted { asked, route, permit, .. } = admitted;
        let counted = Counted::new(Arc::clone(&self.metrics), permit);
        match self.reads.begin(&asked, route, ask, replay).await {
            Ok(begun) => {
                self.metrics.first_byte(since.elapsed());
                if begun.tries > 1 {
                    self.metrics.saved();
                }
                answers::git(kind, body::of(begun, counted))
            }
            Err(ReadError::Wrong(why)) => {
                counted.end("refused");
                answers::bad_request(&why)
            }
            Err(error @ (ReadError::NoCopy | ReadError::Spent)) => {
                counted.end("unavailable");
                answers::unavailable(&error.to_string(), 5)
            }
        }
    }

    /// A push, or what is shown before one: authorised, and handed on.
    async fn push(&self, admitted: Admitted, request: Request) -> Response {
        if self.names.is_without_sql() {
            return answers::unavailable("the database is away: reads go on, pushes do not", 5);
        }
        let Admitted { asked, route, who, permit } = admitted;
        if matches!(asked.what, What::Advertisement(_)) {
            let version = u8::from(protocol(request.headers()) == Some("version=1"));
            return push::response(
                crate::router::push::advertise(&self.pushing, route.id, version).await,
                permit,
            );
        }
        let pushed = Pushed { repository: route.id, pusher: who };
        push::receive(&self.pushing, pushed, request, permit, self.settings.gone_after).await
    }
}

/// Answers one request.
pub async fn handle(State(front): State<Arc<Front>>, request: Request) -> Response {
    let uri = request.uri();
    let Some(asked) = Asked::read(uri.path(), uri.query()) else {
        return front.refused(answers::not_found());
    };
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH) {
        return answers::bad_request("the length of the request is ambiguous");
    }
    let (service, method) = match asked.what {
        What::Advertisement(service) => (service, Method::GET),
        What::Request(service) => (service, Method::POST),
        What::Dumb => {
            return answers::forbidden("only git's smart HTTP is spoken here: git 1.6.6 of 2010 or newer");
        }
    };
    if request.method() != method {
        return answers::method_not_allowed(&method);
    }
    let access = if service == Service::UploadPack { Access::Read } else { Access::Write };
    let what = asked.what;
    let admitted = match front.admit(asked, access, headers).await {
        Ok(admitted) => admitted,
        Err(answer) => return answer,
    };
    match what {
        _ if access == Access::Write => front.push(admitted, request).await,
        What::Request(_) => front.fetch(admitted, request).await,
        What::Advertisement(_) | What::Dumb => front.advertise(admitted, request.headers()).await,
    }
}

/// Why nobody can tell what a client shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unclear {
    Unreadable,
    Twice,
}

/// What the client shows.
fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, Unclear> {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    match (shown.next(), shown.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => {
            let read = one.to_str().ok().and_then(Credentials::read);
            read.map(Some).ok_or(Unclear::Unreadable)
        }
        (Some(_), Some(_)) => Err(Unclear::Twice),
    }
}

/// The version that a client's `Git-Protocol` asks for: nothing else of that header goes on.
fn protocol(headers: &HeaderMap) -> Option<&'static str> {
    let value = headers.get("git-protocol")?.to_str().ok()?;
    let known = ["version=2", "version=1", "version=0"];
    known.into_iter().find(|version| value.split(':').any(|word| word == *version))
}
