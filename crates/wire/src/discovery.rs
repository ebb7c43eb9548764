//! Dynamic Home Agent Address Discovery (RFC 6275 6.5 and 6.6) with the Mobile Router Support flag of
//! RFC 3963 7.1 and 7.2.
//!
//! Each of the two messages is an ICMPv6 message. The functions in [`crate::icmpv6`] verify and set the
//! checksum: parsers here expect a verified checksum, and emitters leave the field zero. A reply lists the
//! home agents in order of preference; this module does not check the order.

use crate::Error;
use crate::icmpv6::message_type;
use crate::octets::{array_at, octets_from, u16_at};
use std::net::Ipv6Addr;

/// The Mobile Router Support flag, in the 16-bit field after the identifier (RFC 3963 7.1).
const MOBILE_ROUTER_FLAG: u16 = 0x8000;

/// Home Agent Address Discovery Request, ICMPv6 type 144.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentDiscoveryRequest {
    /// Number that a reply copies from its request.
    pub identifier: u16,
    /// R: the sender wants home agents that support mobile routers.
    pub mobile_router: bool,
}

impl HomeAgentDiscoveryRequest {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 8 octets, [`Error::Value`] for another type or a code
    /// other than 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let (identifier, flags) = parse_identifier_and_flags(message, message_type::DHAAD_REQUEST, "144")?;
        Ok(HomeAgentDiscoveryRequest { identifier, mobile_router: flags & MOBILE_ROUTER_FLAG != 0 })
    }

    /// Returns the octets of the message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        emit_header(message_type::DHAAD_REQUEST, self.identifier, flags_field(self.mobile_router))
    }
}

/// Home Agent Address Discovery Reply, ICMPv6 type 145.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentDiscoveryReply<'a> {
    /// Identifier of the request.
    pub identifier: u16,
    /// R: the listed home agents support mobile routers.
    pub mobile_router: bool,
    addresses: &'a [u8],
}

impl<'a> HomeAgentDiscoveryReply<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 8 octets. [`Error::Value`] for another type or a code
    /// other than 0. [`Error::Length`] if the length of the addresses is not a multiple of 16 octets.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        let (identifier, flags) = parse_identifier_and_flags(message, message_type::DHAAD_REPLY, "145")?;
        let addresses = octets_from(message, 8, NAME_IN_ERRORS)?;
        if !addresses.len().is_multiple_of(16) {
            return Err(Error::Length {
                what: "home agent addresses",
                expected: "a multiple of 16",
                found: addresses.len(),
            });
        }
        Ok(HomeAgentDiscoveryReply { identifier, mobile_router: flags & MOBILE_ROUTER_FLAG != 0, addresses })
    }

    /// Returns the addresses of the home agents, the most preferred first.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        self.addresses
            .chunks_exact(16)
            .filter_map(|octets| octets.first_chunk::<16>().copied().map(Ipv6Addr::from))
    }
}

/// Returns a Home Agent Address Discovery Reply with a zero checksum. The caller limits the number of
/// addresses: 77 fit a packet of 1280 octets, and RFC 6275 10.5.1 asks to stay within the minimum MTU.
pub fn emit_discovery_reply(identifier: u16, mobile_router: bool, addresses: &[Ipv6Addr]) -> Vec<u8> {
    let mut message = emit_header(message_type::DHAAD_REPLY, identifier, flags_field(mobile_router));
    for address in addresses {
        message.extend_from_slice(&address.octets());
    }
    message
}

/// Returns the Mobile IPv6 Home-Agents anycast address of a 64-bit home prefix: interface identifier
/// fdff:ffff:ffff:fffe (RFC 2526, RFC 6275 6.5). Ignores the low 64 bits of `prefix`.
pub fn home_agents_anycast(prefix: Ipv6Addr) -> Ipv6Addr {
    let high = u128::from(prefix) & !u128::from(u64::MAX);
    Ipv6Addr::from(high | 0xfdff_ffff_ffff_fffe)
}

const NAME_IN_ERRORS: &str = "home agent discovery";

/// Reads identifier and flags of a message of type `wanted`. The messages of mobile prefix discovery have the
/// same fixed part.
pub(crate) fn parse_identifier_and_flags(
    message: &[u8],
    wanted: u8,
    expected: &'static str,
) -> Result<(u16, u16), Error> {
    let [message_type, code] = array_at::<2>(message, 0, NAME_IN_ERRORS)?;
    if message_type != wanted {
        return Err(Error::Value { what: "ICMPv6 type", expected, found: u32::from(message_type) });
    }
    if code != 0 {
        return Err(Error::Value { what: "ICMPv6 code", expected: "0", found: u32::from(code) });
    }
    Ok((u16_at(message, 4, NAME_IN_ERRORS)?, u16_at(message, 6, NAME_IN_ERRORS)?))
}

/// Returns the 16-bit field after the identifier, with the R flag set if `mobile_router` is true.
fn flags_field(mobile_router: bool) -> u16 {
    if mobile_router { MOBILE_ROUTER_FLAG } else { 0 }
}

/// Returns the fixed part of a message with a zero checksum.
pub(crate) fn emit_header(message_type: u8, identifier: u16, flags: u16) -> Vec<u8> {
    let mut message = vec![message_type, 0, 0, 0];
    message.extend_from_slice(&identifier.to_be_bytes());
    message.extend_from_slice(&flags.to_be_bytes());
    message
}
