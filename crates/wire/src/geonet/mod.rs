//! GeoNetworking packets (ETSI EN 302 636-4-1 V1.4.1 clauses 6 to 9 and annex C.2).
//!
//! To read a packet: [`Packet::parse`] takes the octets behind the EtherType [`ETHERTYPE`]. A packet is a
//! Basic Header, a Common Header, an extended header that depends on the packet's type, and a payload. In a
//! secured packet only the Basic Header is plain: [`Frame::parse`] returns the envelope without reading it.
//! After the security layer has verified the envelope, [`Packet::parse_after_basic`] reads its content.
//!
//! To write a packet, call [`Packet::new`], then one of its emitters. A forwarder changes only two or three
//! fields of the received octets: [`set_remaining_hop_limit`], [`set_lifetime`], [`set_destination`].
//!
//! The parser rejects a version other than 1 and an undefined next header of the Basic Header. It rejects an
//! undefined header type or subtype, and a payload length that does not fit the frame. It leaves other faults
//! to the router, because the standard drops such packets later or not at all:
//!
//! * an RHL above the MHL ([`Packet::exceeds_maximum_hop_limit`]),
//!
//! * a payload of an undefined kind ([`Packet::check_next_header`]),
//!
//! * impossible positions and times, and areas that are too large.
//!
//! The parser ignores reserved bits, and emitters write them as zero. The parser keeps the reserved bits of
//! an address, because an address must stay as its owner writes it. Up to V1.2.1 these bits were a country
//! code.
//!
//! Left out: the content of the secured envelope (IEEE 1609.2, TS 103 097), geodesy, and protocol decisions.
//! Also left out is the meaning of the media-dependent octets of SHB (EN 302 636-4-2).
//!
//! All fields are big-endian; offsets are in octets from the Basic Header.

mod address;
mod basic_header;
mod common_header;
mod error;
mod extended_header;
mod fields;
mod geographical_area;
mod header_edit;
mod lifetime;
mod packet;
mod position;
mod time;

pub use address::{GnAddress, ParseStationTypeError, StationType};
pub use basic_header::{BasicHeader, BasicNextHeader};
pub use common_header::{CommonHeader, CommonNextHeader, HeaderType, TrafficClass};
pub use error::Error;
pub use extended_header::ExtendedHeader;
pub use geographical_area::{GeoArea, GeoAreaShape};
pub use header_edit::{set_destination, set_lifetime, set_remaining_hop_limit};
pub use lifetime::Lifetime;
pub use packet::{Frame, Packet, SecuredPacket};
pub use position::{LongPositionVector, ShortPositionVector};
pub use time::Timestamp;

/// The EtherType of GeoNetworking (IEEE registration authority).
pub const ETHERTYPE: u16 = 0x8947;

/// The protocol version of EN 302 636-4-1 V1.2.1 to V1.4.1 (`itsGnProtocolVersion`).
pub const VERSION: u8 = 1;

/// Shortest payload of an Ethernet frame, octets. The link pads a shorter packet to this length.
pub const ETHERNET_MIN_PAYLOAD: usize = 46;
