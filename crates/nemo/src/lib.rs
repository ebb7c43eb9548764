//! The NEMO wing of a station without I/O: the desired forwarding state and the slow path of a mobile router
//! and a home agent.
#![forbid(unsafe_code)]

pub mod forwarding;

pub use forwarding::LanSettings;
