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
//! * *Key of the location table.* The MID identifies a station: the 48 bits that are also its link-layer
//!   address, see [`location_table`]. A request need not know the rest of the destination's GN address.
//! * *Distances* are local expansions of the ellipsoid and a per-packet metric, see [`geodesy`].
//! * *Events flush buffers.* A waiting packet leaves when the router receives a packet from a station that is
//!   nearer to its destination. The router enters this station in the location table before it sends the
//!   waiting packet. (10.3.5 has the other order, in which waiting packets would leave with the next beacon.)
//! * *Duplicates under contention-based forwarding*: the duplicate packet list drops copies that arrive after
//!   the packet has left the contention buffer. The standard uses the list except while the packet is in
//!   contention.
//! * *The router rounds lifetimes down* after a packet has waited, even for the milliseconds of a contention,
//!   because the field cannot express 59.9 s. No packet outlives its lifetime, and each hop of a long path
//!   costs one unit of the field.
//! * *The packet data rate* (100 kB/s per source and per sender) holds for IPv6 as well;
//!   [`Mib::max_packet_data_rate`] changes this limit.
//! * *An echo of an own packet*: the router drops it and does not treat it as an address conflict.
//! * *Link-layer feedback*: the router uses it if the link supports it ([`Router::handle_unacknowledged`]).
//!   The standard does not forbid feedback. Without it greedy forwarding keeps sending to neighbours that
//!   have left.
//! * *V1.2.1 and V1.4.1*: [`mib::UnknownSender`] is the one place where the behaviour of the two versions is
//!   incompatible.
//! * *A fast path* beside the router ([`acceleration`]) reports received packets ten times a second. The
//!   router learns their position vectors and packet data rates with this delay.
//! * *Extensions*, all off by default: perimeter recovery ([`forwarding::perimeter`]), motion prediction
//!   ([`forwarding::predictive`]), beacons over several hops and piggybacking. Further extensions are a
//!   shorter lifetime of neighbours and a hold time of next hops. Adaptive and load-aware beacons
//!   ([`mib::BeaconInterval`]) depend on the speed of neighbours and announce their validity; the router
//!   sends them early when the station turns.
//!
//! [`ipv6_adaptation`] is the layer above the router: IPv6 over GeoNetworking (EN 302 636-6-1).
//! [`geo_destinations`] holds the areas that operators set while the station runs. [`multicast`] connects the
//! mobile network's multicast (MLDv2, RFC 3810, 4605) with the router. [`dcc`] is the layer below: the gate
//! of a radio that other protocols use, too.
//!
//! Left out: security envelopes (the router recognises and drops them), media-dependent functions (EN 302
//! 636-4-2) beyond [`dcc`], and BTP, which is in `carnet_wire`.
#![forbid(unsafe_code)]

pub mod acceleration;
pub mod approach;
mod beacon;
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
mod packet;
mod packet_buffer;
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
