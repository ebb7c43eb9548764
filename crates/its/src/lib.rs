//! The facilities of an ITS station (ETSI EN 302 665) as state machines without I/O.
//!
//! Facilities above the network layer: messages about a vehicle's position (CAM) and events on the road
//! (DENM), their services, and the Local Dynamic Map (LDM). A service takes the time and an input. It returns
//! events and [`MessageTransmission`]s, which become requests to the GeoNetworking router.
//!
//! * [`uper`], [`cdd`], [`cam`], [`denm`], [`sam`]: the messages as types, and their encoding.
//! * [`ca`]: generation times and content of CAMs (EN 302 637-2).
//! * [`den`]: triggering, update, end, repetition, reception and keep-alive forwarding of events (EN 302
//!   637-3).
//! * [`sa`]: announcements of own services, and services of other stations (EN 302 890-1).
//! * [`ldm`]: the Local Dynamic Map (EN 302 895), which takes from a CAM only the few fields that it needs.
//! * [`facilities`]: all services together, by BTP ports.
//!
//! Areas, distances and requests use the types of `carnet_geonet`, because the facilities layer is above
//! GeoNetworking.
//!
//! Left out: security, messages of collective perception and of vulnerable road users, and DCC beyond the
//! interval that it permits. Without signatures any station can send false data, so the bounds in this crate
//! only stop floods and absurd values.
#![forbid(unsafe_code)]

pub mod asn1;
pub mod ca;
pub mod cam;
pub mod cdd;
pub mod den;
pub mod denm;
mod drop_reason;
pub mod facilities;
mod io;
pub mod ldm;
pub mod release2;
pub mod sa;
pub mod sam;
pub mod uper;
pub mod version1;

pub use drop_reason::ItsDrop;
pub use facilities::Facilities;
pub use io::{ItsTime, MessageTransmission};
