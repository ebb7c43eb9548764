//! What carnet shows to people and to other programs: the config file, and the HTTP/JSON API with its
//! event stream.
//!
//! * [`config`]: the TOML config file, read into a checked [`config::Config`], with errors that point at
//!   the line and column.
//! * [`address`]: GeoNetworking and link-layer addresses as text.
//! * [`model`]: the serde types of the JSON that a running station answers with.
//!
//! The crate knows nothing of the station itself: whatever runs one turns its state into these types.

#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod model;
