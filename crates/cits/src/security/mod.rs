//! The security layer of a station: the entity of `carnet_security`, with its clock, its warnings and its
//! pseudonyms. `carnet_security` also has the configuration.

pub mod command;
pub mod plane;
pub mod status;

pub use plane::{SecurityEntity, SecurityPlane};
