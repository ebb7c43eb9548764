//! The interfaces of carnet to people and to other programs: the config file, and the HTTP/JSON API with its
//! event stream.
//!
//! * [`config`]: the TOML config file, read into a checked [`config::Config`], with errors that point at
//!   the line and column.
//! * [`model`]: the serde types of the JSON that a running station answers with. The protocol crates
//!   declare and fill their own types; this crate adds those of the whole station.

#![forbid(unsafe_code)]

pub mod config;
pub mod model;
