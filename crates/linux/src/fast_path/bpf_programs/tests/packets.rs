//! Builds the packets of the tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::Endpoint;
use carnet_wire::ipv6::{Header, protocol};

/// Sources and destinations of the tests' packets.
pub(super) const HOST_ADDRESS: &str = "2001:db8:a::10";
pub(super) const CORRESPONDENT_ADDRESS: &str = "2001:db8:c::1";

pub(super) fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Returns a packet with this next header, hop limit 64, a flow label and a DSCP.
pub(super) fn ipv6_packet(next_header: u8, source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0xb8,
        flow_label: 0x12345,
        payload_length: u16::try_from(payload.len()).unwrap(),
        next_header,
        hop_limit: 64,
        source: parse_address(source),
        destination: parse_address(destination),
    };
    [&header.emit()[..], payload].concat()
}

/// Returns a UDP header and data, `length` octets in total.
pub(super) fn udp_payload(length: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    octets[..4].copy_from_slice(&[0x30, 0x39, 0x10, 0x92]);
    octets[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    octets
}

pub(super) fn udp_packet(source: &str, destination: &str, length: usize) -> Vec<u8> {
    ipv6_packet(protocol::UDP, source, destination, &udp_payload(length))
}

/// Returns a TCP segment with these flags.
pub(super) fn tcp_segment(source: &str, destination: &str, flags: u8) -> Vec<u8> {
    let mut octets = vec![0x30, 0x39, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    octets.extend(b"some data");
    ipv6_packet(protocol::TCP, source, destination, &octets)
}

/// Returns the packet with another hop limit.
pub(super) fn with_hop_limit(mut packet: Vec<u8>, hop_limit: u8) -> Vec<u8> {
    packet[7] = hop_limit;
    packet
}

/// Returns the packet with its ECN field set to `ecn`.
pub(super) fn with_ecn(mut packet: Vec<u8>, ecn: u8) -> Vec<u8> {
    packet[1] = packet[1] & !0x30 | ecn << 4;
    packet
}

/// Returns the packet inside another IPv6 header.
pub(super) fn encapsulated_in_ipv6(source: &str, destination: &str, inner: &[u8]) -> Vec<u8> {
    ipv6_packet(protocol::IPV6, source, destination, inner)
}

/// Returns the packet in an Ethernet frame.
pub(super) fn ethernet_frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8][..], &ethertype.to_be_bytes(), packet].concat()
}

/// Returns the packet with the right checksum in its IPv4 header.
pub(super) fn fill_in_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[10..12].fill(0);
    let words = packet[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns an IPv6 packet inside IPv4 as a socket sends it, except for the UDP checksum: RFC 4213 3.5, RFC
/// 5555 4.
pub(super) fn encapsulated_in_ipv4(from: Endpoint, to: Endpoint, class: u8, inner: &[u8]) -> Vec<u8> {
    let octets = |end: Endpoint| end.ipv4().unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    let length = |octets: usize| u16::try_from(octets).unwrap().to_be_bytes();
    let udp = match (from.port(), to.port()) {
        (Some(from), Some(to)) => {
            [from.to_be_bytes(), to.to_be_bytes(), length(8 + inner.len()), [0, 0]].concat()
        }
        _ => Vec::new(),
    };
    let protocol = if udp.is_empty() { 41 } else { 17 };
    let [a, b] = length(20 + udp.len() + inner.len());
    let head = [0x45, class, a, b, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    fill_in_checksum([&head[..], &octets(from), &octets(to), &udp, inner].concat())
}
