//! The GeoNetworking router of ETSI EN 302 636-4-1 V1.4.1 as a state machine without I/O.
//!
//! Stations announce their positions to each other and forward packets by position. A packet goes to one
//! station (GeoUnicast), or to all stations or any station in an area (GeoBroadcast, GeoAnycast).
//! Topologically-scoped and single-hop broadcasts go to stations nearby. [`Router`] is one station's network
//! layer. [`io`] has its inputs and outputs, [`Mib`] the parameters with their standard names and values.
//! Clause numbers are those of V1.4.1.
//!
//! Decisions that the standard does not make or state:
//!
//! * *Key.* The MID identifies a station: the 48 bits that are also its link-layer address, see
//!   [`location_table`]. A request need not know the rest of the destination's GN address.
//! * *Distances* are local expansions of the ellipsoid and a per-packet metric, see [`geodesy`].
//! * *Events flush buffers.* A waiting packet leaves when a packet arrives from a station that brings it
//!   closer. That station has entered the location table by then. (10.3.5 has the other order; packets would
//!   then leave with the next beacon.)
//! * *Duplicates under contention-based forwarding*: the duplicate packet list drops those that arrive after
//!   the packet has left the contention buffer. The standard omits the list only while the packet is in
//!   contention.
//! * *Lifetimes are rounded down* after a packet has waited, also for the milliseconds of a contention,
//!   because the field cannot express 59.9 s. No packet outlives its lifetime, and each hop of a long path
//!   costs one unit of the field.
//! * *The packet data rate* (100 kB/s per source and per sender) holds for IPv6 as well;
//!   [`Mib::max_packet_data_rate`] changes it.
//! * *A received packet of this station itself* is dropped and is no address conflict.
//! * *Link-layer feedback* is used if the link has any ([`Router::handle_unacknowledged`]). The standard does
//!   not forbid it, and without feedback greedy forwarding keeps sending to neighbours that have left.
//! * *Old against new*: [`mib::UnknownSender`] is the one place where V1.2.1 and V1.4.1 are incompatible in
//!   behaviour.
//! * *A fast path* beside the router ([`acceleration`]) reports received packets ten times a second. Position
//!   vectors and packet data rates are that much later.
//! * *Extensions*, all off by default: perimeter recovery ([`forwarding::perimeter`]), motion prediction
//!   ([`forwarding::predictive`]), beacons over several hops and piggybacking. A shorter lifetime of
//!   neighbours and a hold time of next hops are extensions as well. Adaptive and load-aware beacons
//!   ([`mib::BeaconInterval`]) depend on the speed of neighbours, announce their validity, and leave early
//!   when the station turns.
//!
//! [`ipv6_adaptation`] is a layer above it with a state of its own: IPv6 over GeoNetworking (EN 302 636-6-1).
//! [`geo_destinations`] are areas that operators set while the station runs. [`multicast`] joins the mobile
//! network's multicast to it (MLDv2, RFC 3810, 4605). [`dcc`] is the layer below: the gate in front of a
//! radio that others use, too.
//!
//! Left out: security envelopes (recognised and dropped), media-dependent functions (EN 302 636-4-2) beyond
//! [`dcc`], and BTP (it is in `carnet_wire`).
#![forbid(unsafe_code)]

pub mod acceleration;
pub mod approach;
mod beacon;
mod buffers;
pub mod dcc;
mod drop_reason;
mod duplicates;
pub mod forwarding;
pub mod geo_destinations;
pub mod geodesy;
pub mod io;
pub mod ipv6_adaptation;
pub mod location_table;
pub mod mib;
pub mod multicast;
mod packet_rate;
pub mod router;
pub mod spatial_index;

pub use drop_reason::GeonetDrop;
pub use io::{Delivery, Event, Output, ReceivedFrame, Repetition, Request, Transmission, Transport};
pub use mib::Mib;
pub use router::{Counters, Router};

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// The link-layer broadcast address.
pub const BROADCAST: MacAddress = [0xff; 6];
