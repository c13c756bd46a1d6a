//! trued: self-healing storage for Git.
//!
//! The modules stand in the order in which data flows, so this list explains the program.

pub mod body;
pub mod clock;
pub mod config;
pub mod shutdown;
pub mod telemetry;

pub mod model;

pub mod goal;

pub mod repair;

pub mod finding;

pub mod database;

pub mod queue;

pub mod fleet;

pub mod agent;

pub mod settle;

pub mod program;

pub mod controller;

pub mod worker;

pub mod router;

pub mod http;

pub mod cli;
