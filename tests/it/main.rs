//! The whole program, as processes, on real repositories.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::missing_docs_in_private_items,
    missing_docs,
    reason = "tests"
)]

mod balance;
mod conformance;
mod death;
mod disks;
mod drain;
mod dulwich;
mod edits;
mod files;
mod gits;
mod heal;
mod many;
mod policy;
mod postgres;
mod push;
mod redis;
mod references;
mod refusals;
mod removal;
mod restore;
mod resume;
mod router;
mod seats;
mod split;
mod support;
mod tls;
mod trials;
