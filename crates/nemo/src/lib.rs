//! The NEMO plane of a station without I/O: a mobile router, a home agent, and the data path of both.
//!
//! [`Nemo`] is the plane. The caller passes inputs to its `handle_*` methods, then calls
//! [`Nemo::collect_outputs`], and takes the outputs with [`Nemo::poll_output`]. [`Nemo::handle_packet`] is
//! the slow path. The protocols are in `carnet_mobility`; [`forwarding`] describes the data path.
//!
//! The plane knows nothing of GeoNetworking. The station passes it the stations in radio range
//! ([`input::Stations`]), and carries out its orders to them ([`GeonetCommand`]).
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
mod drop_reason;
pub mod forwarding;
pub mod input;
pub mod output;
pub mod persistent_state;
mod plane;
pub mod status;

pub use config::{BreakoutPolicy, LanSettings, MnppSettings, MobileRouterSettings, NemoConfig, OwnTraffic};
pub use drop_reason::TunnelDropReason;
pub use output::Output;
pub use persistent_state::{PersistentState, StoredStatePart};
pub use plane::{GeonetCommand, Nemo};
