//! Criterion bench of picks.
fn main() {}
