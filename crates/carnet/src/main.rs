//! The carnet program.

#![forbid(unsafe_code)]

mod request;
mod run;

fn main() {}
