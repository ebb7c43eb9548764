//! GeoNetworking packets (ETSI EN 302 636-4-1 V1.4.1 clauses 6 to 9 and annex C.2).
//!
//! The way in: [`Packet::parse`] for what stands behind the EtherType [`ETHERTYPE`]. A packet is a Basic Header,
//! a Common Header, an extended header that depends on the packet's type, and a payload. A secured packet
//! shows its Basic Header only: [`Frame::parse`] hands out its envelope unread, and when somebody has verified
//! and opened it, [`Packet::parse_after_basic`] reads what was inside. The way out: [`Packet::new`], then one of
//! its emitters. A forwarder changes two or three fields of the octets that it got, and nothing else:
//! [`set_remaining_hop_limit`], [`set_lifetime`], [`set_destination`].
//!
//! What parsing refuses: another version than 1, a next header of the Basic Header or a header type or subtype that
//! nobody defined, and a payload length that does not fit the frame. What it leaves to the router, because the
//! standard drops it later and for its own reasons, if at all: RHL above MHL ([`Packet::exceeds_hop_limit`]), a
//! payload of an unknown kind ([`Packet::check_next_header`]), positions that are not on the globe, areas that are
//! too big, times that cannot be. Reserved bits are ignored, written as zero; those of
//! an address are kept, because up to V1.2.1 they were a country code and an address is what its owner says.
//!
//! Left out: the security envelope's inside (IEEE 1609.2, TS 103 097), the meaning of the media-dependent octets
//! of SHB (EN 302 636-4-2), geodesy, and every decision.
//!
//! All fields are big-endian; offsets are in octets from the Basic Header.

mod address;
mod area;
mod basic;
mod common;
mod edit;
mod error;
mod extended;
mod fields;
mod lifetime;
mod packet;
mod position;
mod time;

pub use address::{GnAddress, ParseAddressError, ParseStationTypeError, StationType};
pub use area::{GeoArea, Shape};
pub use basic::{BasicHeader, BasicNextHeader};
pub use common::{CommonHeader, CommonNextHeader, HeaderType, TrafficClass};
pub use edit::{set_destination, set_lifetime, set_remaining_hop_limit};
pub use error::Error;
pub use extended::ExtendedHeader;
pub use lifetime::Lifetime;
pub use packet::{Frame, Packet, SecuredPacket};
pub use position::{LongPositionVector, ShortPositionVector};
pub use time::Timestamp;

/// The EtherType of GeoNetworking (IEEE registration authority).
pub const ETHERTYPE: u16 = 0x8947;

/// The protocol version of EN 302 636-4-1 V1.2.1 to V1.4.1 (`itsGnProtocolVersion`).
pub const VERSION: u8 = 1;

/// Octets of payload that the shortest Ethernet frame carries: shorter packets arrive padded to this.
pub const ETHERNET_MINIMUM: usize = 46;
