//! Addresses from text, and IPv6 packets.

use std::net::Ipv6Addr;

use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use ipnet::Ipv6Net;

/// Value of each octet in a payload whose content does not matter.
const FILLER_OCTET: u8 = 0x55;

/// Parses an address.
///
/// # Panics
///
/// The text is no IPv6 address.
#[track_caller]
pub fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// Parses a prefix.
///
/// # Panics
///
/// The text is no IPv6 prefix.
#[track_caller]
pub fn prefix(text: &str) -> Ipv6Net {
    text.parse().expect("an IPv6 prefix")
}

/// Returns an IPv6 packet with a hop limit of 64.
///
/// # Panics
///
/// The payload is longer than 65,535 octets.
pub fn packet(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(payload.len()).expect("at most 65,535 octets"),
        next_header,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], payload].concat()
}

/// Returns a packet of `length` octets. The content of its payload does not matter.
///
/// # Panics
///
/// The length is below that of an IPv6 header.
pub fn filled_packet(source: Ipv6Addr, destination: Ipv6Addr, length: usize) -> Vec<u8> {
    let payload = vec![
        FILLER_OCTET;
        length.checked_sub(HEADER_LEN).expect("a packet is at least as long as its header")
    ];
    packet(source, destination, protocol::NO_NEXT_HEADER, &payload)
}

/// Returns a packet with these octets as its payload.
pub fn data_packet(source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    packet(source, destination, protocol::NO_NEXT_HEADER, payload)
}
