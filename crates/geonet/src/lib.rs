//! The GeoNetworking router of ETSI EN 302 636-4-1 V1.4.1 as a state machine without I/O.
//!
//! Stations know where they are, tell each other, and forward packets towards places: to a station
//! (GeoUnicast), to everybody or anybody in an area (GeoBroadcast, GeoAnycast), or just around
//! (topologically-scoped and single-hop broadcast). [`Router`] is one station's network layer; [`io`] has
//! what goes in and comes out, [`Mib`] the parameters with their standard names and values. Clauses are cited
//! as V1.4.1 numbers them.
//!
//! What is not obvious from the standard:
//!
//! * *Keyed by MID.* Stations are known by the 48 bits that are also their link-layer address, see
//!   [`location_table`]; a destination need not know the rest of a GN address.
//! * *Distances* are local expansions of the ellipsoid and a per-packet metric, see [`geodesy`].
//! * *Forwarding does not search.* Neighbours are in a quadtree, next hops are cached, see [`spatial_index`]
//!   and [`forwarding::greedy`].
//! * *Buffers are flushed by events*: a packet that waits goes on when a station is heard that brings it
//!   closer, not at every packet, and after that station has entered the location table, not before (10.3.5
//!   reads the other way round; there the packets would leave on the next beacon).
//! * *Duplicates under contention-based forwarding* that come after the packet has left the contention buffer
//!   are dropped by the duplicate packet list; the standard only omits the list while the packet is in
//!   contention.
//! * *Lifetimes are rounded down* where a packet has waited, also for the milliseconds of a contention: the
//!   field knows no 59.9 s. No packet outlives its wish, and a long way costs one unit of the field per hop.
//! * *The packet data rate* (100 kB/s per source and per sender) holds for IPv6 as well; who wants more over
//!   one hop than that sets [`Mib::max_packet_data_rate`].
//! * *An own packet that comes back* is dropped and is no address conflict.
//! * *Link-layer feedback* is taken where the link has any ([`Router::handle_unacknowledged`]): the standard
//!   forbids no link to say more than it asks for, and without feedback greedy forwarding keeps sending to
//!   neighbours that are gone.
//! * *Old against new*: [`mib::UnknownSender`] is the one place where V1.2.1 and V1.4.1 are incompatible in
//!   behaviour.
//! * *A fast path* beside the router ([`acceleration`]) tells ten times a second what it has received, so that
//!   position vectors and packet data rates are learnt that much later.
//! * *Extensions*, all off by default: perimeter recovery ([`forwarding::perimeter`]), motion prediction
//!   ([`forwarding::predictive`]), adaptive and load-aware beacons ([`mib::BeaconInterval`]) that heed the speed of
//!   the neighbours, say how long they count and come early when the station turns, beacons over several hops,
//!   piggybacking, a shorter life for neighbours, next hops that are held.
//!
//! [`ipv6_adaptation`] is a layer above it with a state of its own: IPv6 over GeoNetworking (EN 302 636-6-1).
//! [`geo_destinations`] are areas that operators set while the station runs. [`multicast`] joins the mobile network's
//! multicast to it (MLDv2, RFC 3810, 4605). [`dcc`] is the layer below: the gate in front of a radio that others use, too.
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
