//! Configuration: one small struct a concern, every key documented in `config/trued.toml`.
