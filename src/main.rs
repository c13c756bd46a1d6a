//! trued.
fn main() {}
