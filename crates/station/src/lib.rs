//! One carnet station without I/O: its protocols, the desired forwarding state, and the slow path.
//!
//! The caller drives a [`Station`]. [`Station::handle_input`] handles an input of the platform, and
//! [`Station::handle_packet`] a packet from the tunnel device. [`Station::poll_output`] returns the next
//! action, and [`Station::poll_timeout`] the time of the next call. The same station runs on the road, in the
//! lab and in a simulator. [`io`] describes inputs, outputs and the drain rule; [`carnet_nemo::forwarding`] describes the
//! data path.
#![forbid(unsafe_code)]

pub mod acceleration;
mod bridge;
mod config;
pub mod geonet;
mod geonet_io;
mod inputs;
pub mod io;
mod station;
mod status;

pub use carnet_nemo::{LanSettings, MnppSettings, MobileRouterSettings, PersistentState};
pub use config::StationConfig;
pub use geonet::GeonetSettings;
pub use station::Station;
