//! Tests of the program `carnet-lab`: scenarios, benchmarks, evaluations, and the command line.
//!
//! The tests take minutes and measure time. Most of them mostly wait, and a few run at the same time. The
//! tests of [`alone`] use the whole machine. They are first in the order of names, so that they wait for
//! other tests only once.

mod alone;
mod beside;
mod common;
mod play;
