//! ICMPv6: error messages, echo, and the rules that forbid an answer (RFC 4443).
//!
//! A *message* begins with the ICMPv6 Type octet. Parsers here do not check the checksum: call
//! [`verify_checksum`] first, with the addresses that the upper layer sees. The caller limits the rate of
//! errors (RFC 4443 2.4 (f)), which needs a clock. The caller also recognizes link-layer multicast (e.4, e.5)
//! and anycast sources (e.6).
//!
//! Left out: multi-part messages (RFC 4884). Neighbor Discovery is in [`crate::nd`], home agent discovery in
//! [`crate::discovery`].

use crate::extension;
use crate::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use crate::octets::{array_at, octets_from, u16_at, u32_at};
use crate::{Error, checksum};
use std::net::Ipv6Addr;

/// Values of the ICMPv6 Type field; values under 128 are errors.
pub mod message_type {
    /// Destination Unreachable (RFC 4443 3.1).
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet Too Big (RFC 4443 3.2).
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time Exceeded (RFC 4443 3.3).
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter Problem (RFC 4443 3.4).
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo Request (RFC 4443 4.1).
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo Reply (RFC 4443 4.2).
    pub const ECHO_REPLY: u8 = 129;
    /// Router Solicitation (RFC 4861 4.1).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router Advertisement (RFC 4861 4.2).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbor Solicitation (RFC 4861 4.3).
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbor Advertisement (RFC 4861 4.4).
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861 4.5).
    pub const REDIRECT: u8 = 137;
    /// Home Agent Address Discovery Request (RFC 6275 6.5).
    pub const DHAAD_REQUEST: u8 = 144;
    /// Home Agent Address Discovery Reply (RFC 6275 6.6).
    pub const DHAAD_REPLY: u8 = 145;
    /// Mobile Prefix Solicitation (RFC 6275 6.7).
    pub const MOBILE_PREFIX_SOLICITATION: u8 = 146;
    /// Mobile Prefix Advertisement (RFC 6275 6.8).
    pub const MOBILE_PREFIX_ADVERTISEMENT: u8 = 147;
}

/// Codes of Destination Unreachable (RFC 4443 3.1).
pub mod unreachable_code {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication with the destination administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable.
    pub const ADDRESS_UNREACHABLE: u8 = 3;
    /// Port unreachable.
    pub const PORT_UNREACHABLE: u8 = 4;
    /// Source address failed the ingress or egress policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// The route to the destination is a reject route.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Hop limit of the error packets and Echo Replies of this module.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// An ICMPv6 error (RFC 4443 3), without the invoking packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv6ErrorMessage {
    /// Destination Unreachable; codes in [`mod@unreachable_code`].
    DestinationUnreachable {
        /// The Code field.
        code: u8,
    },
    /// Packet Too Big.
    PacketTooBig {
        /// The MTU of the next hop, octets.
        mtu: u32,
    },
    /// Time Exceeded: code 0 for the hop limit, code 1 for the time for reassembly.
    TimeExceeded {
        /// The Code field.
        code: u8,
    },
    /// Parameter Problem: code 0 for an erroneous field, 1 for an unknown Next Header, 2 for an unknown
    /// option.
    ParameterProblem {
        /// The Code field.
        code: u8,
        /// Offset of the fault, in octets from the start of the invoking packet.
        pointer: u32,
    },
}

impl Icmpv6ErrorMessage {
    /// Returns Type, Code and the 32-bit field after the checksum.
    fn header_fields(self) -> (u8, u8, u32) {
        match self {
            Icmpv6ErrorMessage::DestinationUnreachable { code } => {
                (message_type::DESTINATION_UNREACHABLE, code, 0)
            }
            Icmpv6ErrorMessage::PacketTooBig { mtu } => (message_type::PACKET_TOO_BIG, 0, mtu),
            Icmpv6ErrorMessage::TimeExceeded { code } => (message_type::TIME_EXCEEDED, code, 0),
            Icmpv6ErrorMessage::ParameterProblem { code, pointer } => {
                (message_type::PARAMETER_PROBLEM, code, pointer)
            }
        }
    }
}

/// Verifies the checksum of an ICMPv6 message (RFC 4443 2.3).
///
/// # Errors
/// [`Error::Truncated`] if there are fewer than 4 octets, [`Error::Checksum`] if the checksum is wrong.
pub fn verify_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Result<(), Error> {
    let found = u16_at(message, 2, "ICMPv6 message")?;
    match checksum::upper_layer_checksum(source, destination, protocol::ICMPV6, message) {
        0 => Ok(()),
        _ => Err(Error::Checksum { what: "ICMPv6 message", found }),
    }
}

/// Writes the checksum of an ICMPv6 message. Leaves a message under 4 octets unchanged, because it has no
/// checksum field.
pub fn set_checksum(message: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr) {
    set_checksum_at(message, 2, source, destination, protocol::ICMPV6);
}

/// Writes the checksum field at `offset` of an upper-layer message.
pub(crate) fn set_checksum_at(
    message: &mut [u8],
    offset: usize,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
) {
    let Some(field) = message.get_mut(offset..offset + 2) else { return };
    field.fill(0);
    let sum = checksum::upper_layer_checksum(source, destination, protocol, message);
    if let Some(field) = message.get_mut(offset..offset + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Reads an ICMPv6 error message. The second value is the part of the invoking packet in the message.
///
/// # Errors
/// [`Error::Truncated`] if there are fewer than 8 octets; [`Error::Value`] for a type other than the four of
/// RFC 4443 3.
pub fn parse_error(message: &[u8]) -> Result<(Icmpv6ErrorMessage, &[u8]), Error> {
    const NAME_IN_ERRORS: &str = "ICMPv6 error message";
    let [message_type, code] = array_at::<2>(message, 0, NAME_IN_ERRORS)?;
    let field = u32_at(message, 4, NAME_IN_ERRORS)?;
    let error = match message_type {
        message_type::DESTINATION_UNREACHABLE => Icmpv6ErrorMessage::DestinationUnreachable { code },
        // RFC 4443 3.2: a receiver ignores the code.
        message_type::PACKET_TOO_BIG => Icmpv6ErrorMessage::PacketTooBig { mtu: field },
        message_type::TIME_EXCEEDED => Icmpv6ErrorMessage::TimeExceeded { code },
        message_type::PARAMETER_PROBLEM => Icmpv6ErrorMessage::ParameterProblem { code, pointer: field },
        _ => {
            return Err(Error::Value {
                what: "ICMPv6 type",
                expected: "1, 2, 3 or 4",
                found: u32::from(message_type),
            });
        }
    };
    Ok((error, octets_from(message, 8, NAME_IN_ERRORS)?))
}

/// Returns the whole IPv6 packet with an ICMPv6 error about `invoking`, which begins with the IPv6 header.
///
/// The packet has at most 1280 octets and contains as much of the invoking packet as fits (RFC 4443 2.4 (c)).
/// The function sets the checksum, and the hop limit to 64. It does not decide whether the node may send the
/// packet: see [`may_send_error`].
pub fn error_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    error: Icmpv6ErrorMessage,
    invoking: &[u8],
) -> Vec<u8> {
    let (message_type, code, field) = error.header_fields();
    let quoted = invoking.get(..MIN_MTU - HEADER_LEN - 8).unwrap_or(invoking);
    let mut message = Vec::with_capacity(8 + quoted.len());
    message.extend_from_slice(&[message_type, code, 0, 0]);
    message.extend_from_slice(&field.to_be_bytes());
    message.extend_from_slice(quoted);
    emit_packet(source, destination, DEFAULT_HOP_LIMIT, message)
}

/// Returns the whole IPv6 packet with an ICMPv6 message: header, message, checksum.
///
/// Neighbor Discovery requires hop limit 255 (RFC 4861 4). The function cuts a message over 65,535 octets,
/// which no IPv6 packet holds.
pub fn emit_packet(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, mut message: Vec<u8>) -> Vec<u8> {
    message.truncate(usize::from(u16::MAX));
    set_checksum(&mut message, source, destination);
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(message.len()).unwrap_or(u16::MAX),
        next_header: protocol::ICMPV6,
        hop_limit,
        source,
        destination,
    };
    let mut packet = Vec::with_capacity(HEADER_LEN + message.len());
    packet.extend_from_slice(&header.emit());
    packet.append(&mut message);
    packet
}

/// Returns whether a node may send any ICMPv6 error about a packet: [`may_send_error`] without the two
/// exceptions for multicast destinations.
pub fn may_send_any_error(invoking: &[u8]) -> bool {
    may_send_error(Icmpv6ErrorMessage::DestinationUnreachable { code: 0 }, invoking)
}

/// Returns whether a node may send this ICMPv6 error about a packet (RFC 4443 2.4 (e)).
///
/// A node must not send an error about an ICMPv6 error or a redirect (e.1, e.2), or to an unspecified or
/// multicast source (e.6). About a packet to a multicast address (e.3), it may send only two errors. They are
/// Packet Too Big, and Parameter Problem code 2 about an option whose type begins with the bits 10. The
/// function returns `false` if it cannot see the ICMPv6 type: a later fragment or a truncated chain.
pub fn may_send_error(error: Icmpv6ErrorMessage, invoking: &[u8]) -> bool {
    let Ok(header) = Header::parse(invoking) else { return false };
    if header.source.is_unspecified() || header.source.is_multicast() {
        return false;
    }
    if header.destination.is_multicast() && !may_answer_multicast(error, invoking) {
        return false;
    }
    match extension::find_upper_layer(invoking) {
        Some((protocol::ICMPV6, offset, true)) => match invoking.get(offset) {
            Some(&message_type) => message_type >= 128 && message_type != message_type::REDIRECT,
            None => false,
        },
        Some((protocol::ICMPV6, _, false)) | None => false,
        Some(_) => true,
    }
}

/// Returns whether the error is one of the two exceptions of RFC 4443 2.4 (e.3).
fn may_answer_multicast(error: Icmpv6ErrorMessage, invoking: &[u8]) -> bool {
    match error {
        Icmpv6ErrorMessage::PacketTooBig { .. } => true,
        Icmpv6ErrorMessage::ParameterProblem { code: 2, pointer } => usize::try_from(pointer)
            .ok()
            .and_then(|at| invoking.get(at))
            .is_some_and(|option_type| option_type & 0xc0 == 0x80),
        _ => false,
    }
}

/// Returns the Echo Reply to a packet with a Home Address option (RFC 6275 9.3.1, 9.3.2). `header` is the
/// packet's IPv6 header, `message` the ICMPv6 message behind its extension headers. The reply goes to the
/// source of the packet, with a type 2 routing header that names `home_address`.
///
/// Returns `None` if [`answer_echo_request`] would return `None` for the message.
pub fn emit_echo_reply_to_home_address(
    header: &Header,
    message: &[u8],
    home_address: Ipv6Addr,
) -> Option<Vec<u8>> {
    // The upper layer sees the address in the Home Address option as the source.
    let payload_length = u16::try_from(message.len()).ok()?;
    let seen = Header { source: home_address, next_header: protocol::ICMPV6, payload_length, ..*header };
    let reply = answer_echo_request(&[&seen.emit(), message].concat())?;
    let (back, message) = Header::parse_packet(&reply).ok()?;
    let routing = extension::emit_home_address_routing_header(protocol::ICMPV6, home_address);
    let payload_length = u16::try_from(routing.len() + message.len()).ok()?;
    let outside =
        Header { destination: header.source, next_header: protocol::ROUTING, payload_length, ..back };
    Some([&outside.emit(), &routing[..], message].concat())
}

/// Returns the Echo Reply to a whole IPv6 packet that is a valid Echo Request without extension headers.
///
/// Returns `None` for another message, a wrong checksum, a multicast destination, or a source to which a node
/// must not send an answer. Copies identifier, sequence number and data (RFC 4443 4.2). Also copies the
/// traffic class, so that a ping measures the path of its own class.
pub fn answer_echo_request(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, message) = Header::parse_packet(packet).ok()?;
    let answerable = header.next_header == protocol::ICMPV6
        && !header.source.is_unspecified()
        && !header.source.is_multicast()
        && !header.destination.is_multicast();
    if !answerable || message.len() < 8 || message.first() != Some(&message_type::ECHO_REQUEST) {
        return None;
    }
    verify_checksum(header.source, header.destination, message).ok()?;
    let mut reply = Vec::with_capacity(HEADER_LEN + message.len());
    let back = Header {
        flow_label: 0,
        hop_limit: DEFAULT_HOP_LIMIT,
        source: header.destination,
        destination: header.source,
        ..header
    };
    reply.extend_from_slice(&back.emit());
    reply.extend_from_slice(&[message_type::ECHO_REPLY, 0, 0, 0]);
    reply.extend_from_slice(message.get(4..)?);
    set_checksum(reply.get_mut(HEADER_LEN..)?, back.source, back.destination);
    Some(reply)
}
