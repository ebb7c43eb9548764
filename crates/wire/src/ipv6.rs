//! The IPv6 header (RFC 8200 3).
//!
//! The header has forty octets. The parser makes two checks: the version is 6, and the packet has at least as
//! many octets as the Payload Length says. The parser cuts off octets beyond the Payload Length (Ethernet
//! padding). Left out: jumbograms (Payload Length 0 with a hop-by-hop option, RFC 2675), which this parser
//! reads as packets without payload.

use crate::Error;
use crate::octets::{address_at, array_at, slice_at, u16_at};
use std::net::Ipv6Addr;

/// Octets of the IPv6 header.
pub const HEADER_LEN: usize = 40;
/// The smallest MTU of a link that carries IPv6, octets (RFC 8200 5).
pub const MIN_MTU: usize = 1280;

/// Values of the Next Header field (IANA "Assigned Internet Protocol Numbers").
pub mod protocol {
    /// Hop-by-Hop Options header (RFC 8200 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// An encapsulated IPv4 packet (RFC 2473, RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// An encapsulated IPv6 packet (RFC 2473).
    pub const IPV6: u8 = 41;
    /// Routing header (RFC 8200 4.4).
    pub const ROUTING: u8 = 43;
    /// Fragment header (RFC 8200 4.5).
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating Security Payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication Header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// No next header (RFC 8200 4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// Destination Options header (RFC 8200 4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// Mobility Header (RFC 6275 6.1).
    pub const MOBILITY: u8 = 135;
}

/// The IPv6 header (RFC 8200 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The Traffic Class: DS field and ECN bits.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Length of the octets after this header.
    pub payload_length: u16,
    /// Next header: see [`protocol`].
    pub next_header: u8,
    /// Number of remaining hops.
    pub hop_limit: u8,
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Reads the header; the packet may lack its payload.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 40 octets, [`Error::Value`] if the version is not 6.
    // Inline the function. Otherwise the caller reads the fields from memory in other sizes than the function
    // wrote, which stalls the processor for each packet.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Header, Error> {
        const NAME_IN_ERRORS: &str = "IPv6 header";
        let [first, second, third, fourth, _, _, next_header, hop_limit] =
            array_at::<8>(packet, 0, NAME_IN_ERRORS)?;
        if first >> 4 != 6 {
            return Err(Error::Value { what: "IP version", expected: "6", found: u32::from(first >> 4) });
        }
        Ok(Header {
            traffic_class: (first << 4) | (second >> 4),
            flow_label: u32::from_be_bytes([0, second & 0x0f, third, fourth]),
            payload_length: u16_at(packet, 4, NAME_IN_ERRORS)?,
            next_header,
            hop_limit,
            source: address_at(packet, 8, NAME_IN_ERRORS)?,
            destination: address_at(packet, 24, NAME_IN_ERRORS)?,
        })
    }

    /// Reads the header of a whole packet; the second returned value is the payload, cut to the Payload
    /// Length.
    ///
    /// # Errors
    /// The errors of [`Header::parse`], and [`Error::Truncated`] if the packet lacks octets of the payload.
    #[inline]
    pub fn parse_packet(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let header = Header::parse(packet)?;
        let payload = slice_at(packet, HEADER_LEN, usize::from(header.payload_length), "IPv6 payload")?;
        Ok((header, payload))
    }

    /// Returns the octets of the header, with the low 20 bits of the flow label.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let word = 0x6000_0000 | (u32::from(self.traffic_class) << 20) | (self.flow_label & 0x000f_ffff);
        let mut octets = [0; HEADER_LEN];
        octets[0..4].copy_from_slice(&word.to_be_bytes());
        octets[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        octets[6] = self.next_header;
        octets[7] = self.hop_limit;
        octets[8..24].copy_from_slice(&self.source.octets());
        octets[24..40].copy_from_slice(&self.destination.octets());
        octets
    }
}

/// Returns the flow label for the outer header of a tunnelled packet. The label is a keyed hash of addresses
/// and flow label of the inner header. So routers distribute the inner flows over equal paths (RFC 6438 3),
/// and outsiders cannot predict the label. The label is never 0, because 0 means "not labelled".
pub fn tunnel_flow_label(key: u64, inner: &Header) -> u32 {
    let (source, destination) = (u128::from(inner.source), u128::from(inner.destination));
    let halves = [
        source as u64,
        (source >> 64) as u64,
        destination as u64,
        (destination >> 64) as u64,
        u64::from(inner.flow_label),
        0,
    ];
    let mut hash = key;
    for half in halves {
        hash = (hash ^ half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash = hash.wrapping_add(key.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((hash >> 44) as u32).max(1)
}

/// Returns whether an address lies in the reserved block `::/8` (RFC 4291 2.4, IANA's registry of the IPv6
/// address space). The block contains the unspecified, the loopback, the IPv4-compatible and the IPv4-mapped
/// addresses. No packet on a link has such a source. A host that receives an IPv4-mapped source may treat it
/// as IPv4 and bypass its rules for IPv6. The prefixes of NAT64 (RFC 6052 2.1, RFC 8215) lie in `::/8` and
/// are not reserved: their addresses are valid sources and destinations.
#[inline]
pub fn is_reserved(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => false,
        [first, ..] => first < 0x100,
    }
}

/// Returns whether an address is unicast and routable, as RFC 6275 requires of home and care-of addresses
/// (6.1.7, 6.3, 9.3.1). Multicast (`ff00::/8`), link-local (`fe80::/10`) and reserved addresses
/// ([`is_reserved`]) are not.
#[inline]
pub fn is_unicast_routable(address: Ipv6Addr) -> bool {
    // The first octet decides for nearly all addresses. The function must be fast, because the slow path
    // calls it twice for each packet.
    match address.octets() {
        [0xff, ..] => false,
        [0xfe, second, ..] => second & 0xc0 != 0x80,
        [0, ..] => !is_reserved(address),
        _ => true,
    }
}
