//! The API, health pages and metrics.
