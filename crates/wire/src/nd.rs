//! Neighbor Discovery (RFC 4861) with the additions of Mobile IPv6, NEMO and RFC 4191.
//!
//! The module reads and writes Router Solicitation and Advertisement, Neighbor Solicitation and
//! Advertisement. The additions are:
//!
//! * the H flag of the Router Advertisement and the R flag of the Prefix Information option (RFC 6275 7.1,
//!   7.2),
//!
//! * the Home Agent Information option (RFC 6275 7.4) with its R flag (RFC 3963 7.3),
//!
//! * the router preference and the Route Information option (RFC 4191 2.2, 2.3).
//!
//! `parse` makes the checks of RFC 4861 6.1 and 7.1 that need only the message. It checks type, code, length
//! and structure of the options, and rejects a multicast target. [`check_header`] checks the hop limit of 255
//! and the checksum, which need the IPv6 header. The caller makes the other checks:
//!
//! * A Router Advertisement has a link-local source (6.1.2).
//!
//! * A solicitation from the unspecified address has no source link-layer address and goes to a
//!   solicited-node address (6.1.1, 7.1.1).
//!
//! * A Neighbor Advertisement to a multicast address is not solicited (7.1.2).
//!
//! Options are in [`crate::nd::nd_option`]. Link-layer addresses are Ethernet addresses. Emitters leave the
//! checksum zero: [`crate::icmpv6::emit_packet`] or [`crate::icmpv6::set_checksum`] sets it.
//!
//! Some options have their own files: [`address_registration`] of an address with a router (RFC 8505), and
//! [`nesting`] of mobile routers, an experiment. [`host_configuration`] has DNS, NAT64 and captive portal
//! (RFC 8106, RFC 8781, RFC 8910).
//!
//! Left out: Redirect and secure Neighbor Discovery. A receiver sees their options as [`NdOption::Unknown`].

pub mod address_registration;
pub mod host_configuration;
pub mod nd_option;
pub mod nesting;

pub use address_registration::AddressRegistration;
pub use host_configuration::{CaptivePortal, DnsSearchList, Pref64, RecursiveDnsServers};
pub use nd_option::{
    HomeAgentInformation, NdOption, NdOptions, PrefixInformation, RouteInformation, RoutePreference,
};
pub use nesting::NestingInformation;

use crate::icmpv6::{self, message_type};
use crate::ipv6::{Header, protocol};
use crate::octets::{address_at, array_at, octets_from, u8_at, u16_at, u32_at};
use crate::{Error, nd};
use std::net::Ipv6Addr;

/// Hop limit of every Neighbor Discovery packet: a router on the path would lower it, so the packet comes
/// from this link.
pub const HOP_LIMIT: u8 = 255;
/// All nodes on the link, ff02::1.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link, ff02::2.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The solicited-node multicast address of a unicast address: ff02::1:ff00:0/104 and its low 24 bits
/// (RFC 4291 2.7.1).
pub fn solicited_node_address(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// Makes the checks of RFC 4861 6.1 and 7.1 for every Neighbor Discovery packet: ICMPv6, hop limit 255,
/// checksum.
///
/// `message` is the payload of a packet without extension headers.
///
/// # Errors
/// [`Error::Value`] for another protocol or hop limit, [`Error::Checksum`], [`Error::Truncated`].
pub fn check_header(header: &Header, message: &[u8]) -> Result<(), Error> {
    if header.next_header != protocol::ICMPV6 {
        let found = u32::from(header.next_header);
        return Err(Error::Value { what: "neighbor discovery next header", expected: "58", found });
    }
    if header.hop_limit != HOP_LIMIT {
        let found = u32::from(header.hop_limit);
        return Err(Error::Value { what: "neighbor discovery hop limit", expected: "255", found });
    }
    icmpv6::verify_checksum(header.source, header.destination, message)
}

/// Router Solicitation (RFC 4861 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterSolicitation {
    /// Link-layer address of the sender, if the message has a Source Link-Layer Address option.
    pub source_link_address: Option<[u8; 6]>,
}

impl RouterSolicitation {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a short message, [`Error::Value`] for another type or code, [`Error::Length`]
    /// for an option of length 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let options = check_fixed_part(message, message_type::ROUTER_SOLICITATION, "133", 8)?;
        Ok(RouterSolicitation { source_link_address: options.source_link_address() })
    }

    /// Returns the octets of the message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        let mut message = vec![message_type::ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        if let Some(address) = self.source_link_address {
            NdOption::SourceLinkAddress(address).emit_into(&mut message);
        }
        message
    }
}

/// A received Router Advertisement (RFC 4861 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterAdvertisement<'a> {
    /// Hop limit for the packets of hosts; 0 if the router gives no value.
    pub hop_limit: u8,
    /// M: hosts get addresses by DHCPv6.
    pub managed: bool,
    /// O: hosts get other configuration by DHCPv6.
    pub other_configuration: bool,
    /// H: the router is a home agent on this link (RFC 6275 7.1).
    pub home_agent: bool,
    /// Preference of the router as default router (RFC 4191 2.2). The reserved value 10 reads as medium.
    pub preference: RoutePreference,
    /// Router lifetime in seconds; 0 if the router is not a default router.
    pub router_lifetime: u16,
    /// Reachable time, milliseconds; 0 if the router gives no value.
    pub reachable_time: u32,
    /// Retransmission timer, milliseconds; 0 if the router gives no value.
    pub retrans_timer: u32,
    options: NdOptions<'a>,
}

impl<'a> RouterAdvertisement<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a short message, [`Error::Value`] for another type or code, [`Error::Length`]
    /// for an option of length 0.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "router advertisement";
        let options = check_fixed_part(message, message_type::ROUTER_ADVERTISEMENT, "134", 16)?;
        let flags = u8_at(message, 5, NAME_IN_ERRORS)?;
        Ok(RouterAdvertisement {
            hop_limit: u8_at(message, 4, NAME_IN_ERRORS)?,
            managed: flags & 0x80 != 0,
            other_configuration: flags & 0x40 != 0,
            home_agent: flags & 0x20 != 0,
            preference: RoutePreference::from_bits(flags >> 3).unwrap_or_default(),
            router_lifetime: u16_at(message, 6, NAME_IN_ERRORS)?,
            reachable_time: u32_at(message, 8, NAME_IN_ERRORS)?,
            retrans_timer: u32_at(message, 12, NAME_IN_ERRORS)?,
            options,
        })
    }

    /// Returns the options in the order of the message.
    pub fn options(&self) -> NdOptions<'a> {
        self.options
    }
}

/// A Router Advertisement for sending; its fields are those of [`RouterAdvertisement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouterAdvertisementRepr<'a> {
    /// Hop limit for the packets of hosts; 0 if the router gives no value.
    pub hop_limit: u8,
    /// M: hosts get addresses by DHCPv6.
    pub managed: bool,
    /// O: hosts get other configuration by DHCPv6.
    pub other_configuration: bool,
    /// H: the router is a home agent on this link (RFC 6275 7.1).
    pub home_agent: bool,
    /// Preference of the router as default router; the emitter writes medium if the router lifetime is 0 (RFC
    /// 4191 2.2).
    pub preference: RoutePreference,
    /// Router lifetime in seconds; 0 if the router is not a default router.
    pub router_lifetime: u16,
    /// Reachable time, milliseconds; 0 if the router gives no value.
    pub reachable_time: u32,
    /// Retransmission timer, milliseconds; 0 if the router gives no value.
    pub retrans_timer: u32,
    /// The options, in the order of the message.
    pub options: &'a [NdOption<'a>],
}

/// Returns the octets of a Router Advertisement with a zero checksum.
pub fn emit_router_advertisement(repr: &RouterAdvertisementRepr<'_>) -> Vec<u8> {
    // RFC 4191 2.2: if the router lifetime is 0, the preference MUST be 00.
    let preference = if repr.router_lifetime == 0 { RoutePreference::Medium } else { repr.preference };
    let flags = u8::from(repr.managed) << 7
        | u8::from(repr.other_configuration) << 6
        | u8::from(repr.home_agent) << 5
        | preference.bits() << 3;
    let mut message = vec![message_type::ROUTER_ADVERTISEMENT, 0, 0, 0, repr.hop_limit, flags];
    message.extend_from_slice(&repr.router_lifetime.to_be_bytes());
    message.extend_from_slice(&repr.reachable_time.to_be_bytes());
    message.extend_from_slice(&repr.retrans_timer.to_be_bytes());
    for option in repr.options {
        option.emit_into(&mut message);
    }
    message
}

/// Neighbor Solicitation (RFC 4861 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborSolicitation {
    /// Address whose link-layer address the sender asks for; not a multicast address.
    pub target: Ipv6Addr,
    /// Link-layer address of the sender, if the message has a Source Link-Layer Address option.
    pub source_link_address: Option<[u8; 6]>,
}

impl NeighborSolicitation {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a short message, [`Error::Value`] for another type or code or a multicast
    /// target, [`Error::Length`] for an option of length 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let options = check_fixed_part(message, message_type::NEIGHBOR_SOLICITATION, "135", 24)?;
        let target = parse_target(message)?;
        Ok(NeighborSolicitation { target, source_link_address: options.source_link_address() })
    }

    /// Returns the octets of the message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        let mut message = vec![message_type::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&self.target.octets());
        if let Some(address) = self.source_link_address {
            NdOption::SourceLinkAddress(address).emit_into(&mut message);
        }
        message
    }
}

/// Neighbor Advertisement (RFC 4861 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborAdvertisement {
    /// Address that the sender advertises; not a multicast address.
    pub target: Ipv6Addr,
    /// R: the sender is a router. A home agent sets the flag when it acts as proxy for the home address of a
    /// mobile router (RFC 3963 6.2).
    pub router: bool,
    /// S: the advertisement answers a solicitation.
    pub solicited: bool,
    /// O: the receiver replaces the link-layer address in its cache.
    pub override_: bool,
    /// Link-layer address of the target, if the message has a Target Link-Layer Address option.
    pub target_link_address: Option<[u8; 6]>,
}

impl NeighborAdvertisement {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a short message, [`Error::Value`] for another type or code or a multicast
    /// target, [`Error::Length`] for an option of length 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let options = check_fixed_part(message, message_type::NEIGHBOR_ADVERTISEMENT, "136", 24)?;
        let flags = u8_at(message, 4, nd::NAME_IN_ERRORS)?;
        Ok(NeighborAdvertisement {
            target: parse_target(message)?,
            router: flags & 0x80 != 0,
            solicited: flags & 0x40 != 0,
            override_: flags & 0x20 != 0,
            target_link_address: options.target_link_address(),
        })
    }

    /// Returns the octets of the message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        let flags =
            u8::from(self.router) << 7 | u8::from(self.solicited) << 6 | u8::from(self.override_) << 5;
        let mut message = vec![message_type::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
        message.extend_from_slice(&self.target.octets());
        if let Some(address) = self.target_link_address {
            NdOption::TargetLinkAddress(address).emit_into(&mut message);
        }
        message
    }
}

const NAME_IN_ERRORS: &str = "neighbor discovery message";

/// Checks type, code and length, and the structure of the options after the `length` fixed octets.
fn check_fixed_part<'a>(
    message: &'a [u8],
    wanted: u8,
    expected: &'static str,
    length: usize,
) -> Result<NdOptions<'a>, Error> {
    let [message_type, code] = array_at::<2>(message, 0, NAME_IN_ERRORS)?;
    if message_type != wanted {
        return Err(Error::Value { what: "ICMPv6 type", expected, found: u32::from(message_type) });
    }
    if code != 0 {
        return Err(Error::Value { what: "ICMPv6 code", expected: "0", found: u32::from(code) });
    }
    NdOptions::parse(octets_from(message, length, NAME_IN_ERRORS)?)
}

/// Reads the target of a Neighbor Solicitation or Advertisement.
fn parse_target(message: &[u8]) -> Result<Ipv6Addr, Error> {
    let target = address_at(message, 8, NAME_IN_ERRORS)?;
    if target.is_multicast() {
        let found = u32::from(target.octets()[0]);
        return Err(Error::Value { what: "first octet of the target", expected: "not multicast", found });
    }
    Ok(target)
}
