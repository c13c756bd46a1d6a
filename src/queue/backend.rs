//! The apalis backend: hands over what the feeder claimed.
//!
//! It never yields an error, since one would end the worker and cancel what it runs. On
//! closing it lets go of what nobody started, and the guards put that back.

use super::feeder::Claimed;
use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::context::WorkerContext;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tower::layer::util::Identity;

/// Attempts that were claimed for one worker.
pub(super) struct Attempts {
    claims: mpsc::Receiver<Claimed>,
}

impl Attempts {
    pub(super) fn new(claims: mpsc::Receiver<Claimed>) -> Self {
        Self { claims }
    }
}

impl Backend for Attempts {
    type Task = Task<Claimed>;
    type Error = Infallible;

    fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.claims.poll_recv(cx).map(|claim| {
            let claim = claim?;
            let id = TaskId::from_string(claim.name());
            Some(Ok(TaskBuilder::new(claim).task_id(id).build()))
        })
    }

    fn poll_close(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        self.claims.close();
        while self.claims.try_recv().is_ok() {}
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for Attempts {
    type Args = Claimed;
    type Id = RandomId;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> Identity {
        Identity::new()
    }
}
