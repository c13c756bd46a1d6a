//! Commands: the one place where all parts are joined.
