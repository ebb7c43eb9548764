//! The carnet program.
fn main() {}
