//! What carnet shows to people and to other programs: the config file, and the HTTP/JSON API with its event
//! stream.
//!
//! * [`config`]: the TOML config file, read into a checked [`config::Config`], with errors that point at
//!   the line and column.
//! * [`address`]: GeoNetworking and link-layer addresses as text.
//! * [`model`]: the serde types of the JSON that a running station answers with.
//!
//! The crate does not depend on the station: the program converts the station's state to these types.

#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod model;
