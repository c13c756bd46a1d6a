//! The program on a fileserver: it owns a root directory of replicas, and answers signed requests about them.
//!
//! It knows nothing of SQL, goals or repairs: it does what a grant allows, one safe action at a time,
//! and says what it saw.

pub mod content;
pub mod git;
pub mod layout;
pub mod store;
