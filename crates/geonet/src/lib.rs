//! The GeoNetworking router of EN 302 636-4-1 V1.4.1, without I/O.
#![forbid(unsafe_code)]

mod drop_reason;
mod duplicates;
pub mod geodesy;
pub mod location_table;
pub mod mib;
mod packet_rate;
pub mod spatial_index;

pub use drop_reason::GeonetDrop;
pub use mib::Mib;

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// The link-layer broadcast address.
pub const BROADCAST: MacAddress = [0xff; 6];
