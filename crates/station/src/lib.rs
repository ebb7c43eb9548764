//! One carnet station: protocols composed, desired forwarding state, slow-path forwarder.
#![forbid(unsafe_code)]

pub mod forwarding;
pub mod io;
