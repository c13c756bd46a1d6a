//! Repairs: parse a repair file; placement, source, plan. Pure but for reading the files.

pub mod file;
pub mod library;
pub mod placement;
pub mod plan;
pub mod view;

pub use file::Repair;
pub use library::Repairs;
