//! The wing of security: the entity of `carnet_security`, with its clock, its warnings and its pseudonyms.
//! The config is that of `carnet_security`.

pub mod command;
pub mod plane;
pub mod status;

pub use plane::{SecurityEntity, SecurityPlane};
