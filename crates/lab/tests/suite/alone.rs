//! Tests that have the machine alone.

mod bench;
mod bench_geonet;
mod evaluation;
mod scenarios;
