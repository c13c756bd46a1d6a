//! Configuration: file, environment, flags, in that order, each over the one before.
//!
//! Every key stands once in [`keys::KEYS`] with its kind, default and reason; `config/trued.toml`
//! is the same list for people, and a test holds the two together. An unknown key is an error
//! that names the file, the line and the nearest key. Reading opens nothing but the files.

pub mod keys;
pub mod layers;
pub mod sections;
pub mod value;
pub mod variables;

pub use layers::{ConfigError, GoalSetting, Layers, Origin};
pub use sections::{
    AgentConfig, Config, DispatchConfig, FleetConfig, GoalsConfig, HttpConfig, ObserveConfig, PushConfig,
    QueueConfig, RouterConfig, WorkerConfig,
};
