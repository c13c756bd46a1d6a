//! The HTTP API: what the commands need, health, metrics.
//!
//! It answers from SQL and writes wishes to SQL; it never calls an agent. What it cannot do itself
//! (sign a grant, wake a controller, know where an agent's root is) is handed to it as [`Hooks`].
//! It listens on loopback only, because this version knows no tokens; requests that change
//! something must come as `application/json`, which no page of another site can send unasked.

pub mod adoptions;
mod backlog;
pub mod brakes;
pub mod codes;
pub mod compare;
pub mod drains;
pub mod fileservers;
pub mod goals;
pub mod health;
pub mod imports;
pub mod limits;
pub mod listen;
mod names;
pub mod part;
pub mod parts;
pub mod populating;
pub mod problem;
pub mod references;
pub mod removals;
pub mod repositories;
pub mod sampler;
pub mod shapes;
pub mod state;
pub mod status;
pub mod steering;
pub mod stops;
pub mod trial;
pub mod why;
pub mod work;

pub use listen::{ListenError, bind, bind_anywhere, serve};
pub use state::{Api, Hooks, Limited};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};

/// Largest body that is read: receipts of a few hundred agents, a goal file.
const LARGEST_BODY: usize = 1 << 20;

/// All routes.
pub fn router(api: Api) -> Router {
    let v1 = Router::new()
        .route("/status", get(status::show))
        .route("/backlog", get(backlog::list))
        .route("/backlog/ids", get(work::ids))
        .route("/backlog/retry", post(work::retry))
        .route("/backlog/cancel", post(work::cancel))
        .route("/backlog/bump", post(work::bump))
        .route("/backlog/{id}", get(work::show))
        .route("/attempts", get(work::attempts))
        .route("/attempts/{id}/cancel", post(work::cancel_attempt))
        .route("/repairs", get(work::repairs))
        .route("/repairs/{name}", get(work::repair))
        .route("/limits", get(limits::list))
        .route("/limits/{name}", put(limits::set))
        .route("/brakes/approve", post(brakes::approve))
        .route("/why", get(why::show))
        .route("/goals", get(goals::list))
        .route("/goals/check", post(goals::check))
        .route("/goals/evaluate", post(goals::evaluate))
        .route("/goals/diff", post(trial::diff))
        .route("/goals/{name}", get(goals::show))
        .route("/goals/{name}/explain", get(trial::explain))
        .route("/goals/{name}/history", get(trial::history))
        .route("/goals/{name}/pause", post(steering::pause))
        .route("/goals/{name}/resume", post(steering::resume))
        .route("/goals/{name}/settings", put(steering::set))
        .route("/goals/{name}/run", get(goals::run))
        .route("/fileservers", get(fileservers::list).post(fileservers::add))
        .route("/fileservers/{name}", get(fileservers::show))
        .route("/fileservers/{name}/intent", put(fileservers::set_intent))
        .route("/fileservers/{name}/lost", post(drains::lost))
        .route("/fileservers/{name}/accept-empty", post(drains::accept_empty))
        .route("/drains", get(drains::list).post(drains::begin))
        .route("/stops", post(stops::ask))
        .route("/stops/release", post(stops::release))
        .route("/parts", get(parts::list).post(parts::add))
        .route("/repositories", get(repositories::list))
        .route("/repositories/{name}", get(repositories::show))
        .route("/repositories/{name}/wanted", put(repositories::set_wanted))
        .route("/repositories/{name}/name", put(removals::rename))
        .route("/repositories/{name}/head", put(references::set_head))
        .route("/repositories/{name}/references", post(references::change))
        .route("/repositories/{name}/populate", post(populating::populate).layer(DefaultBodyLimit::disable()))
        .route("/repositories/{name}/remove", post(removals::remove))
        .route("/repositories/{name}/adopt", post(adoptions::adopt))
        .route("/repositories/{name}/undelete", post(removals::undelete))
        .route("/repositories/{name}/compare", post(compare::compare).layer(DefaultBodyLimit::disable()))
        .route("/imports", post(imports::plan))
        .route("/imports/{id}/finish", post(imports::finish))
        .route("/imports/{id}/abandon", post(imports::abandon))
        .fallback(problem::no_such_path);
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/healthz", get(health::healthz))
        .route("/metrics", get(health::metrics))
        .nest("/api/v1", v1)
        .fallback(problem::no_such_path)
        .layer(axum::middleware::from_fn(problem::only_json_changes))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(api)
}

#[cfg(test)]
mod tests;
