//! The layers of a C-ITS station without I/O: GeoNetworking, the facilities above it, and security beside it.
//!
//! The station calls only [`geonetworking::Geonet`], which contains the facilities and security, because
//! their messages pass its router. The protocols are in `carnet_geonet`, `carnet_its` and `carnet_security`.
#![forbid(unsafe_code)]

pub mod facilities;
pub mod geonetworking;
pub mod position;
pub mod security;
