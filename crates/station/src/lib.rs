//! One carnet station: protocols composed, desired forwarding state, slow-path forwarder. No I/O.
//!
//! A [`Station`] is driven from outside. [`Station::handle_input`] takes the platform's events,
//! [`Station::handle_packet`] takes a packet from the tunnel device. [`Station::poll_output`] returns
//! actions, and [`Station::poll_timeout`] the time of the next call. The same station runs on the road, in
//! the lab and in a simulator. [`io`] describes inputs, outputs and the drain rule; [`forwarding`] the data
//! path.
#![forbid(unsafe_code)]

pub mod forwarding;
pub mod geonet;
pub mod io;
mod station;
mod status;

pub use geonet::GeonetSettings;
pub use station::{MnppSettings, MobileRouterSettings, PersistentState, Station, StationConfig};
pub use status::{BindingStatus, RouteStatus, StationStatus, TunnelStatus, UplinkStatus};
