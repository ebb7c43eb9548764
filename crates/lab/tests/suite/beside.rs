//! Tests that share the machine with each other.

mod command_line;
mod scenarios;
mod takeover;
