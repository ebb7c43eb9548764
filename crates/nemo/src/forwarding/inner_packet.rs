//! Inner packets of both families.
//!
//! The forwarder handles an IPv4 packet (RFC 5555 4.4.3, 4.5.1) like an IPv6 packet. Its header is read into
//! an IPv6 header with IPv4-mapped addresses ([`carnet_base::mapped`]). The tables have IPv4 prefixes in that
//! form. This module has the differences between the families. The version field of a packet decides its
//! family; the forwarder drops IPv6 packets with IPv4-mapped addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carnet_base::Endpoint;
use carnet_wire::icmpv6::Icmpv6ErrorMessage;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use carnet_wire::{Error, ipv4, ipv6};

/// Returns whether a packet is an IPv4 packet.
#[inline]
pub(crate) fn is_ipv4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 4)
}

/// Reads the header of a packet whose end may be cut off. Returns the header, and the length of the whole
/// packet.
#[inline(always)]
pub(crate) fn read_truncated_header(packet: &[u8]) -> Result<(Header, usize), Error> {
    if is_ipv4(packet) {
        let header = ipv4::Header::parse(packet)?;
        return Ok((header.as_ipv6(), header.total_length.into()));
    }
    let header = Header::parse(packet)?;
    Ok((header, HEADER_LEN + usize::from(header.payload_length)))
}

/// Reads the header of a whole packet. Returns the header, and the length of the packet; further octets may
/// follow in the slice.
#[inline(always)]
pub(crate) fn parse(packet: &[u8]) -> Result<(Header, usize), Error> {
    let (header, length) = read_truncated_header(packet)?;
    match packet.len() >= length {
        true => Ok((header, length)),
        false => Err(Error::Truncated { what: "inner packet", needed: length, found: packet.len() }),
    }
}

/// Returns the Next Header value by which an outer header announces this packet: that of IPv6 or of IPv4.
#[inline]
pub(crate) fn protocol_of(packet: &[u8]) -> u8 {
    if is_ipv4(packet) { protocol::IPV4 } else { protocol::IPV6 }
}

/// Returns the size in octets up to which a packet always passes the tunnel, in outer fragments if necessary.
#[inline]
pub(crate) fn min_mtu(packet: &[u8]) -> usize {
    if is_ipv4(packet) { ipv4::MIN_REASSEMBLY_SIZE } else { MIN_MTU }
}

/// Returns whether source and destination of a packet are routable unicast addresses.
#[inline]
pub(crate) fn is_routable(header: &Header, packet: &[u8]) -> bool {
    let Header { source, destination, .. } = *header;
    if is_ipv4(packet) {
        let is_routable = |it: Ipv6Addr| it.to_ipv4_mapped().is_some_and(ipv4::is_unicast_routable);
        return is_routable(source) && is_routable(destination);
    }
    ipv6::is_unicast_routable(source) && ipv6::is_unicast_routable(destination)
}

/// Returns an address of a header, in the family of the packet.
pub(crate) fn address_in_packet_family(address: Ipv6Addr, packet: &[u8]) -> IpAddr {
    match address.to_ipv4_mapped().filter(|_| is_ipv4(packet)) {
        Some(address) => address.into(),
        None => address.into(),
    }
}

/// Returns whether the addresses of a packet are the two ends of a tunnel.
#[inline]
pub(crate) fn is_between(ends: (Endpoint, Endpoint), header: &Header, packet: &[u8]) -> bool {
    ends.0.address() == address_in_packet_family(header.source, packet)
        && ends.1.address() == address_in_packet_family(header.destination, packet)
}

/// Sets DS field and ECN bits of a packet. `header` is the packet's header before this change.
pub(crate) fn set_traffic_class(packet: &mut [u8], header: &Header, traffic_class: u8) {
    if is_ipv4(packet) {
        ipv4::set_traffic_class(packet, traffic_class);
    } else if let Some(first) = packet.get_mut(..HEADER_LEN) {
        first.copy_from_slice(&Header { traffic_class, ..*header }.emit());
    }
}

/// Sets hop limit or TTL of a packet. `header` is the packet's header before this change.
pub(crate) fn set_hop_limit(packet: &mut [u8], header: &Header, hop_limit: u8) {
    if is_ipv4(packet) {
        ipv4::set_ttl(packet, hop_limit);
    } else if let Some(first) = packet.get_mut(..HEADER_LEN) {
        first.copy_from_slice(&Header { hop_limit, ..*header }.emit());
    }
}

/// Returns whether routers may fragment a packet: an IPv4 packet without DF.
pub(crate) fn may_fragment(packet: &[u8]) -> bool {
    ipv4::Header::parse(packet).is_ok_and(|header| !header.dont_fragment)
}

/// Returns the packet with the ICMP error about an IPv4 packet that corresponds to an ICMPv6 error; `None` if
/// RFC 1122 3.2.2 forbids it. `source` is in IPv4-mapped form; the source of an error of a node without an
/// IPv4 address is [`ipv4::DUMMY_ADDRESS`].
pub(crate) fn icmp_error(source: Ipv6Addr, error: Icmpv6ErrorMessage, invoking: &[u8]) -> Option<Vec<u8>> {
    let header = ipv4::Header::parse(invoking).ok()?;
    if !ipv4::may_send_error(invoking) {
        return None;
    }
    // RFC 792, RFC 1812 5.2.7.1: code 1 is "host unreachable", 3 "port unreachable".
    let error = match error {
        Icmpv6ErrorMessage::DestinationUnreachable { code: 4 } => {
            ipv4::IcmpErrorMessage::Unreachable { code: 3 }
        }
        Icmpv6ErrorMessage::DestinationUnreachable { .. } => ipv4::IcmpErrorMessage::Unreachable { code: 1 },
        Icmpv6ErrorMessage::PacketTooBig { .. } if !header.dont_fragment => return None,
        Icmpv6ErrorMessage::PacketTooBig { mtu } => {
            ipv4::IcmpErrorMessage::FragmentationNeeded { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) }
        }
        Icmpv6ErrorMessage::TimeExceeded { code } => ipv4::IcmpErrorMessage::TimeExceeded { code },
        Icmpv6ErrorMessage::ParameterProblem { .. } => return None,
    };
    let source: Ipv4Addr = source.to_ipv4_mapped().unwrap_or(ipv4::DUMMY_ADDRESS);
    Some(ipv4::error_packet(source, header.source, error, invoking))
}
