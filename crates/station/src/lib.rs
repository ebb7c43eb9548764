//! One carnet station without I/O. It connects the protocol families (planes) that the station runs.
//!
//! The caller drives a [`Station`]. [`Station::handle_input`] handles an input of the platform, and
//! [`Station::handle_packet`] a packet from the tunnel device. [`Station::poll_output`] returns the next
//! action, and [`Station::poll_timeout`] the time of the next call. The same station runs on the road, in the
//! lab and in a simulator. [`io`] describes inputs, outputs and the drain rule.
//!
//! The station passes each input to its plane: NEMO (`carnet_nemo`), or GeoNetworking with the facilities and
//! security (`carnet_cits`). `nemo_geonet_bridge` connects the two planes.
#![forbid(unsafe_code)]

mod config;
mod inputs;
pub mod io;
mod nemo_geonet_bridge;
mod station;
mod status;

pub use carnet_cits::geonetworking::GeonetSettings;
pub use carnet_nemo::forwarding::packet_rules::PortRange;
pub use carnet_nemo::forwarding::{AllowedPackets, InboundFilter, InboundPackets};
pub use carnet_nemo::{
    BreakoutPolicy, LanSettings, MnppSettings, MobileRouterSettings, OwnTraffic, PersistentState,
};
pub use config::StationConfig;
pub use station::Station;
