//! The chain of extension headers (RFC 8200 4), parsed in one pass.
//!
//! [`ExtensionHeaders::parse`] reads the headers in the order of the packet. It returns the Home Address
//! option (RFC 6275 6.3) and the type 2 routing header (RFC 6275 6.4). It also returns the Tunnel
//! Encapsulation Limit (RFC 2473 4.1.1) and the Fragment header. It processes options by RFC 8200 4.2 as the
//! node to which the packet is addressed. A router that only forwards a packet does not process its chain and
//! needs at most [`find_upper_layer`].
//!
//! RFC 8200 4.1 requires a node to accept headers in any order and number. This module sets two limits: at
//! most [`MAX_HEADERS`] headers, and one Fragment header. The Home Address option and the type 2 routing
//! header may occur once (RFC 6275 6.3, 6.4).
//!
//! Left out: AH and ESP, which the parser treats as an upper layer, and jumbo payloads, whose option the
//! parser treats as unrecognized. The emitter places the Home Address option after the routing header and
//! before the Fragment header; the parser accepts it at any place.

use crate::Error;
use crate::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use crate::ipv6::{HEADER_LEN, Header, protocol};
use crate::octets::{address_at, array_at, octets_from, slice_at, u8_at};
use std::net::Ipv6Addr;

/// The most extension headers that the parser reads.
pub const MAX_HEADERS: usize = 8;
/// The Home Address option of the Destination Options header (RFC 6275 6.3).
pub const HOME_ADDRESS_OPTION: u8 = 0xc9;
/// The Tunnel Encapsulation Limit option of the Destination Options header (RFC 2473 4.1.1).
pub const TUNNEL_ENCAPSULATION_LIMIT_OPTION: u8 = 0x04;
/// Type of the option that contains the number of a packet in a duplicated flow: an experimental type of RFC
/// 4727. Every node may skip the option, and no node changes it in transit (RFC 8200 4.2). Its data are the
/// number, four octets.
pub const SEQUENCE_OPTION: u8 = 0x1e;
/// Octets of a Destination Options header that holds [`SEQUENCE_OPTION`] and no other option.
pub const SEQUENCE_OPTIONS_HEADER_LEN: usize = 8;
/// The Routing Type of the routing header that carries a home address (RFC 6275 6.4).
pub const ROUTING_TYPE_HOME_ADDRESS: u8 = 2;
/// Octets of the type 2 routing header.
pub const HOME_ADDRESS_ROUTING_HEADER_LEN: usize = 24;
/// Octets of a Destination Options header that holds a Home Address option and no other option but padding.
pub const HOME_ADDRESS_OPTIONS_HEADER_LEN: usize = 24;

const PAD1: u8 = 0;
const PAD_N: u8 = 1;

/// The parsed extension headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtensionHeaders {
    /// Address in the Home Address option; `None` without the option. The parser accepts any address. RFC
    /// 6275 9.3.1 drops a packet whose home address is not a routable unicast address
    /// ([`crate::ipv6::is_unicast_routable`]).
    pub home_address: Option<Ipv6Addr>,
    /// Offset of the Option Type octet of the Home Address option, in octets from the start of the packet;
    /// `None` without the option.
    pub home_address_offset: Option<usize>,
    /// Address in the type 2 routing header, whose Segments Left is 1: the final destination of the packet.
    /// `None` without the header.
    pub routing_home_address: Option<Ipv6Addr>,
    /// Number of further encapsulations that the Tunnel Encapsulation Limit option allows; `None` without the
    /// option.
    pub tunnel_encapsulation_limit: Option<u8>,
    /// Offset of the limit octet of the Tunnel Encapsulation Limit option, in octets from the start of the
    /// packet; `None` without the option. A Parameter Problem about a limit of 0 points at it (RFC 2473 4.1.1
    /// (b)).
    pub tunnel_encapsulation_limit_offset: Option<usize>,
    /// Number in [`SEQUENCE_OPTION`]; `None` without the option. Also `None` if its length is not 4: then
    /// another protocol uses this experimental option type.
    pub sequence: Option<u32>,
    /// The Fragment header; `None` if the packet is no fragment.
    pub fragment: Option<FragmentHeader>,
    /// Protocol of the upper layer. In a fragment other than the first: the Next Header of the Fragment
    /// header.
    pub protocol: u8,
    /// Offset of the upper layer, in octets from the start of the packet. In a fragment other than the first:
    /// offset of the fragment's data.
    pub upper_layer_offset: usize,
}

impl ExtensionHeaders {
    /// Parses the chain of a whole packet up to the upper layer. In a fragment other than the first, parsing
    /// ends with the Fragment header. Octets beyond the Payload Length are ignored.
    ///
    /// # Errors
    /// The errors of [`Header::parse_packet`]; [`Error::Truncated`] if a header or option exceeds the packet.
    /// With the offset for a Parameter Problem: [`Error::UnrecognizedOption`], [`Error::MisplacedHopByHop`],
    /// [`Error::UnrecognizedRouting`] and [`Error::HomeAddressRouting`]. [`Error::Length`] for a known option
    /// of a wrong length; [`Error::Repeated`] and [`Error::TooManyHeaders`].
    pub fn parse(packet: &[u8]) -> Result<ExtensionHeaders, Error> {
        let (header, payload) = Header::parse_packet(packet)?;
        let packet = slice_at(packet, 0, HEADER_LEN + payload.len(), "IPv6 packet")?;
        let mut walk = ExtensionHeaders {
            home_address: None,
            home_address_offset: None,
            routing_home_address: None,
            tunnel_encapsulation_limit: None,
            tunnel_encapsulation_limit_offset: None,
            sequence: None,
            fragment: None,
            protocol: header.next_header,
            upper_layer_offset: HEADER_LEN,
        };
        // Offset of the Next Header octet that has the type of the header at `walk.offset`.
        let mut announced_at = 6;
        for count in 0..=MAX_HEADERS {
            let next = match walk.protocol {
                protocol::HOP_BY_HOP if count > 0 => {
                    return Err(Error::MisplacedHopByHop { offset: announced_at });
                }
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                    let destination = walk.protocol == protocol::DESTINATION_OPTIONS;
                    let (next, end) = next_header_and_end(packet, walk.upper_layer_offset, "options header")?;
                    walk.parse_options(slice_at(packet, 0, end, "options header")?, destination)?;
                    (next, end)
                }
                protocol::ROUTING => walk.parse_routing_header(packet)?,
                protocol::FRAGMENT => {
                    if walk.fragment.is_some() {
                        return Err(Error::Repeated { what: "fragment header" });
                    }
                    let fragment = FragmentHeader::parse(octets_from(
                        packet,
                        walk.upper_layer_offset,
                        "fragment header",
                    )?)?;
                    walk.fragment = Some(fragment);
                    (fragment.next_header, walk.upper_layer_offset + FRAGMENT_HEADER_LEN)
                }
                _ => return Ok(walk),
            };
            announced_at = walk.upper_layer_offset;
            (walk.protocol, walk.upper_layer_offset) = next;
            if walk.fragment.is_some_and(|fragment| fragment.is_later_fragment()) {
                return Ok(walk);
            }
        }
        Err(Error::TooManyHeaders { limit: MAX_HEADERS })
    }

    /// Reads the options of the header at `self.offset` by RFC 8200 4.2; the header ends where `packet` ends.
    fn parse_options(&mut self, packet: &[u8], destination: bool) -> Result<(), Error> {
        let mut at = self.upper_layer_offset + 2;
        while let Some(&option_type) = packet.get(at) {
            if option_type == PAD1 {
                at += 1;
                continue;
            }
            let length = usize::from(u8_at(packet, at + 1, "option")?);
            let data = slice_at(packet, at + 2, length, "option")?;
            match option_type {
                PAD_N => {}
                HOME_ADDRESS_OPTION if destination => {
                    if self.home_address.is_some() {
                        return Err(Error::Repeated { what: "home address option" });
                    }
                    if length != 16 {
                        return Err(Error::Length {
                            what: "home address option",
                            expected: "16",
                            found: length,
                        });
                    }
                    self.home_address = Some(address_at(data, 0, "home address option")?);
                    self.home_address_offset = Some(at);
                }
                TUNNEL_ENCAPSULATION_LIMIT_OPTION if destination => {
                    if length != 1 {
                        return Err(Error::Length {
                            what: "tunnel encapsulation limit option",
                            expected: "1",
                            found: length,
                        });
                    }
                    self.tunnel_encapsulation_limit = Some(u8_at(data, 0, "option")?);
                    self.tunnel_encapsulation_limit_offset = Some(at + 2);
                }
                SEQUENCE_OPTION if destination && length == 4 => {
                    self.sequence = Some(u32::from_be_bytes(array_at::<4>(data, 0, "sequence option")?));
                }
                _ if option_type & 0xc0 != 0 => {
                    return Err(Error::UnrecognizedOption { option_type, offset: at });
                }
                _ => {}
            }
            at += 2 + length;
        }
        Ok(())
    }

    /// Reads the routing header at `self.offset`; returns its Next Header and its end in the packet.
    fn parse_routing_header(&mut self, packet: &[u8]) -> Result<(u8, usize), Error> {
        const NAME_IN_ERRORS: &str = "routing header";
        let start = self.upper_layer_offset;
        let [_, length, routing_type, segments_left] = array_at::<4>(packet, start, NAME_IN_ERRORS)?;
        if routing_type == ROUTING_TYPE_HOME_ADDRESS {
            // RFC 6275 11.3.3: the receiver discards a header with a length other than 2 or Segments Left
            // other than 1.
            let wrong = |what, expected, found, offset| {
                Err(Error::HomeAddressRouting { what, expected, found, offset: start + offset })
            };
            if length != 2 {
                return wrong("header length", 2, length, 1);
            }
            if segments_left != 1 {
                return wrong("segments left", 1, segments_left, 3);
            }
            if self.routing_home_address.is_some() {
                return Err(Error::Repeated { what: "type 2 routing header" });
            }
            self.routing_home_address = Some(address_at(packet, start + 8, NAME_IN_ERRORS)?);
        } else if segments_left != 0 {
            // RFC 8200 4.4: the receiver answers an unknown Routing Type with segments left.
            return Err(Error::UnrecognizedRouting { routing_type, offset: start + 2 });
        }
        next_header_and_end(packet, start, NAME_IN_ERRORS)
    }
}

/// Returns the Next Header and the end in the packet of an extension header with the usual length field.
fn next_header_and_end(packet: &[u8], start: usize, what: &'static str) -> Result<(u8, usize), Error> {
    let [next, length] = array_at::<2>(packet, start, what)?;
    let octets = (usize::from(length) + 1) * 8;
    slice_at(packet, start, octets, what)?;
    Ok((next, start + octets))
}

/// Finds the upper layer of a packet that may be truncated or faulty, and ignores all options.
///
/// Returns the protocol, the offset in octets from the start of the packet, and a flag. The flag is `true` if
/// the upper layer's header is at the offset. It is `false` in a fragment other than the first. Returns
/// `None` if the octets end within the chain or the chain is longer than [`MAX_HEADERS`]. The function
/// ignores the Payload Length, because the packet in an ICMPv6 error is usually truncated.
pub fn find_upper_layer(packet: &[u8]) -> Option<(u8, usize, bool)> {
    let mut next = Header::parse(packet).ok()?.next_header;
    let mut offset = HEADER_LEN;
    for _ in 0..=MAX_HEADERS {
        match next {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                (next, offset) = next_header_and_end(packet, offset, "extension header").ok()?;
            }
            protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(packet.get(offset..)?).ok()?;
                next = fragment.next_header;
                offset += FRAGMENT_HEADER_LEN;
                if fragment.is_later_fragment() {
                    return Some((next, offset, false));
                }
            }
            _ => return Some((next, offset, true)),
        }
    }
    None
}

/// Returns a type 2 routing header with Segments Left 1 (RFC 6275 6.4.1).
pub fn emit_home_address_routing_header(
    next_header: u8,
    home_address: Ipv6Addr,
) -> [u8; HOME_ADDRESS_ROUTING_HEADER_LEN] {
    let mut octets = [0; HOME_ADDRESS_ROUTING_HEADER_LEN];
    octets[..4].copy_from_slice(&[next_header, 2, ROUTING_TYPE_HOME_ADDRESS, 1]);
    octets[8..].copy_from_slice(&home_address.octets());
    octets
}

/// Returns a Destination Options header with a Home Address option at its alignment of 8n+6 (RFC 6275 6.3).
pub fn emit_home_address_options_header(
    next_header: u8,
    home_address: Ipv6Addr,
) -> [u8; HOME_ADDRESS_OPTIONS_HEADER_LEN] {
    let mut octets = [0; HOME_ADDRESS_OPTIONS_HEADER_LEN];
    octets[..8].copy_from_slice(&[next_header, 2, PAD_N, 2, 0, 0, HOME_ADDRESS_OPTION, 16]);
    octets[8..].copy_from_slice(&home_address.octets());
    octets
}

/// Returns a Destination Options header of 8 octets with a Tunnel Encapsulation Limit option (RFC 2473
/// 4.1.1).
pub fn emit_encapsulation_limit_options_header(next_header: u8, limit: u8) -> [u8; 8] {
    [next_header, 0, TUNNEL_ENCAPSULATION_LIMIT_OPTION, 1, limit, PAD_N, 1, 0]
}

/// Returns a Destination Options header with [`SEQUENCE_OPTION`].
pub fn emit_sequence_options_header(next_header: u8, sequence: u32) -> [u8; SEQUENCE_OPTIONS_HEADER_LEN] {
    let [a, b, c, d] = sequence.to_be_bytes();
    [next_header, 0, SEQUENCE_OPTION, 4, a, b, c, d]
}
