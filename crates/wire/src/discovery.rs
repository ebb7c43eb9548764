//! Dynamic Home Agent Address Discovery (RFC 6275 6.5 and 6.6) with the Mobile Router Support flag of
//! RFC 3963 7.1 and 7.2.
//!
//! Two ICMPv6 messages. As everywhere in this crate the checksum is [`crate::icmpv6`]'s: parsers expect it
//! verified, emitters leave it zero. The order of the addresses in a reply is the preference of the home
//! agents and is not judged here.

use crate::Error;
use crate::icmpv6::types;
use crate::octets::{array, rest, u16_at};
use std::net::Ipv6Addr;

/// The Mobile Router Support flag in the field after the identifier (RFC 3963 7.1).
const MOBILE_ROUTER: u16 = 0x8000;

/// Home Agent Address Discovery Request, ICMPv6 type 144.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryRequest {
    /// Matches the reply to the request.
    pub identifier: u16,
    /// R: home agents that support mobile routers are wanted.
    pub mobile_router: bool,
}

impl DiscoveryRequest {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] under 8 octets, [`Error::Value`] for another type or a code that is not 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let (identifier, flags) = fixed(message, types::DHAAD_REQUEST, "144")?;
        Ok(DiscoveryRequest { identifier, mobile_router: flags & MOBILE_ROUTER != 0 })
    }

    /// The message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        emit(types::DHAAD_REQUEST, self.identifier, flags(self.mobile_router))
    }
}

/// Home Agent Address Discovery Reply, ICMPv6 type 145.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryReply<'a> {
    /// The request's identifier.
    pub identifier: u16,
    /// R: the home agents listed support mobile routers.
    pub mobile_router: bool,
    addresses: &'a [u8],
}

impl<'a> DiscoveryReply<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] under 8 octets. [`Error::Value`] for another type or a code other than 0.
    /// [`Error::Length`] if the length of the addresses is not a multiple of 16 octets.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        let (identifier, flags) = fixed(message, types::DHAAD_REPLY, "145")?;
        let addresses = rest(message, 8, WHAT)?;
        if !addresses.len().is_multiple_of(16) {
            return Err(Error::Length {
                what: "home agent addresses",
                expected: "a multiple of 16",
                found: addresses.len(),
            });
        }
        Ok(DiscoveryReply { identifier, mobile_router: flags & MOBILE_ROUTER != 0, addresses })
    }

    /// The home agents' addresses, the most preferred first.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        self.addresses
            .chunks_exact(16)
            .filter_map(|octets| octets.first_chunk::<16>().copied().map(Ipv6Addr::from))
    }
}

/// A Home Agent Address Discovery Reply with a zero checksum; how many addresses fit a packet is the caller's
/// care (77 in 1280 octets; RFC 6275 10.5.1 asks to keep within the minimum MTU).
pub fn discovery_reply(identifier: u16, mobile_router: bool, addresses: &[Ipv6Addr]) -> Vec<u8> {
    let mut message = emit(types::DHAAD_REPLY, identifier, flags(mobile_router));
    for address in addresses {
        message.extend_from_slice(&address.octets());
    }
    message
}

/// The Mobile IPv6 Home-Agents anycast address of a 64-bit home prefix: interface identifier
/// fdff:ffff:ffff:fffe (RFC 2526, RFC 6275 6.5). The low 64 bits of `prefix` are ignored.
pub fn home_agents_anycast(prefix: Ipv6Addr) -> Ipv6Addr {
    let high = u128::from(prefix) & !u128::from(u64::MAX);
    Ipv6Addr::from(high | 0xfdff_ffff_ffff_fffe)
}

const WHAT: &str = "home agent discovery";

/// Identifier and flags of a message of the type wanted; mobile prefix discovery has the same.
pub(crate) fn fixed(message: &[u8], wanted: u8, expected: &'static str) -> Result<(u16, u16), Error> {
    let [message_type, code] = array::<2>(message, 0, WHAT)?;
    if message_type != wanted {
        return Err(Error::Value { what: "ICMPv6 type", expected, found: u32::from(message_type) });
    }
    if code != 0 {
        return Err(Error::Value { what: "ICMPv6 code", expected: "0", found: u32::from(code) });
    }
    Ok((u16_at(message, 4, WHAT)?, u16_at(message, 6, WHAT)?))
}

/// The field after the identifier.
fn flags(mobile_router: bool) -> u16 {
    if mobile_router { MOBILE_ROUTER } else { 0 }
}

/// The fixed part of a message with a zero checksum.
pub(crate) fn emit(message_type: u8, identifier: u16, flags: u16) -> Vec<u8> {
    let mut message = vec![message_type, 0, 0, 0];
    message.extend_from_slice(&identifier.to_be_bytes());
    message.extend_from_slice(&flags.to_be_bytes());
    message
}
