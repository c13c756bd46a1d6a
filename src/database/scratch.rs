//! Private, migrated databases for tests, on either engine.
