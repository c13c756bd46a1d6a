//! `push.*`: how pushes are taken, and who judges them.

use super::Reader;
use crate::config::layers::ConfigError;
use crate::config::value;
use std::time::Duration;

/// `push.*`
#[derive(Debug, Clone)]
pub struct PushConfig {
    /// References that no client's push may change.
    pub protected: Vec<String>,
    /// A program or a URL that judges pushes; empty: none.
    pub policy: String,
    /// How long its answer is waited for.
    pub policy_timeout: Duration,
    /// Whether the policy reads what is pushed: it is asked when the objects are there.
    pub policy_objects: bool,
    /// Largest pack in bytes; 0: no bound.
    pub largest: i64,
    /// Most references that one push may change.
    pub references: usize,
    /// How long a push waits for those before it.
    pub line: Duration,
    /// How long an open push is its router's without a renewal.
    pub lease: Duration,
    /// How long a copy may take nothing.
    pub stall: Duration,
}

impl Reader<'_> {
    pub(super) fn push(&self) -> Result<PushConfig, ConfigError> {
        Ok(PushConfig {
            protected: self.layers.text("push.protected").split_whitespace().map(str::to_owned).collect(),
            policy: self.layers.text("push.policy"),
            policy_timeout: self.duration("push.policy_timeout")?,
            policy_objects: self.as_kind("push.policy_objects", value::switch)?,
            largest: self.as_kind("push.largest", value::size)?,
            references: self.count("push.references")? as usize,
            line: self.duration("push.line")?,
            lease: self.duration("push.lease")?,
            stall: self.duration("push.stall")?,
        })
    }
}
