//! The GeoNetworking plane of a station: the router of `carnet_geonet`, with IPv6 above it and the congestion
//! gate below it.

pub mod acceleration;
pub mod command;
pub mod config;
pub mod input;
pub mod output;
mod plane;
pub mod status;

pub use config::GeonetSettings;
pub use plane::{Geonet, HeldPacket, StationMessage, echo, travelled_hops};
pub use status::GeoDestination;
