//! The carnet laboratory.
fn main() {}
