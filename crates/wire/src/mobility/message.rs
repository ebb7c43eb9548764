//! The messages between a mobile router and its home agent (RFC 6275 6.1, RFC 3963 4).
//!
//! Lifetimes are in units of 4 seconds as on the wire. The parser ignores reserved bits. The parser names the
//! flags of later documents, so that a receiver recognizes what the sender requests. Bit 0x0040 of the
//! Binding Update is O (RFC 5648 4.2) unless P is set. If P is set, the bit is B of Proxy Mobile IPv6 (RFC
//! 6602), and the parser does not return it.

use super::home_agent_switch::HomeAgentSwitch;
use super::message_type;
use super::options::MobilityOptions;
use super::revocation::BindingRevocation;
use crate::Error;
use crate::octets::{address_at, octets_from, u8_at, u16_at, u32_at};
use std::net::Ipv6Addr;

/// The K bit of the Binding Acknowledgement (RFC 6275 6.1.8).
pub(crate) const ACKNOWLEDGEMENT_KEY_MANAGEMENT: u8 = 0x80;
/// The R bit of the Binding Acknowledgement (RFC 3963 4.2).
pub(crate) const ACKNOWLEDGEMENT_MOBILE_ROUTER: u8 = 0x40;

/// The U bit of the Heartbeat message (RFC 5847 3.3).
pub(crate) const HEARTBEAT_UNSOLICITED: u16 = 0x0002;
/// The R bit of the Heartbeat message (RFC 5847 3.3).
pub(crate) const HEARTBEAT_RESPONSE: u16 = 0x0001;

/// A message of the Mobility Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedMobilityMessage<'a> {
    /// Asks the mobile node to renew its binding.
    BindingRefreshRequest(BindingRefreshRequest<'a>),
    /// Creates, renews or ends a binding.
    BindingUpdate(BindingUpdate<'a>),
    /// Answers a Binding Update.
    BindingAcknowledgement(BindingAcknowledgement<'a>),
    /// Reports a missing binding or an unknown MH Type.
    BindingError(BindingError),
    /// Tests whether the peer is reachable, or answers such a test.
    Heartbeat(Heartbeat<'a>),
    /// Asks the mobile node to register with another home agent.
    HomeAgentSwitch(HomeAgentSwitch<'a>),
    /// Revokes bindings, or answers a revocation.
    BindingRevocation(BindingRevocation<'a>),
    /// A message of another MH Type.
    Other(u8),
}

impl<'a> ParsedMobilityMessage<'a> {
    /// Reads the message of a type from a whole Mobility Header.
    pub(crate) fn parse(message_type: u8, octets: &'a [u8]) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "mobility message";
        let options = |offset| MobilityOptions::parse(octets_from(octets, offset, NAME_IN_ERRORS)?);
        Ok(match message_type {
            message_type::BINDING_REFRESH_REQUEST => {
                ParsedMobilityMessage::BindingRefreshRequest(BindingRefreshRequest { options: options(8)? })
            }
            message_type::BINDING_UPDATE => ParsedMobilityMessage::BindingUpdate(BindingUpdate {
                sequence: u16_at(octets, 6, NAME_IN_ERRORS)?,
                flags: BindingUpdateFlags::from_bits(u16_at(octets, 8, NAME_IN_ERRORS)?),
                lifetime: u16_at(octets, 10, NAME_IN_ERRORS)?,
                options: options(12)?,
            }),
            message_type::BINDING_ACKNOWLEDGEMENT => {
                let flags = u8_at(octets, 7, NAME_IN_ERRORS)?;
                ParsedMobilityMessage::BindingAcknowledgement(BindingAcknowledgement {
                    status: u8_at(octets, 6, NAME_IN_ERRORS)?,
                    key_management: flags & ACKNOWLEDGEMENT_KEY_MANAGEMENT != 0,
                    mobile_router: flags & ACKNOWLEDGEMENT_MOBILE_ROUTER != 0,
                    sequence: u16_at(octets, 8, NAME_IN_ERRORS)?,
                    lifetime: u16_at(octets, 10, NAME_IN_ERRORS)?,
                    options: options(12)?,
                })
            }
            message_type::BINDING_ERROR => {
                // No document defines options for a Binding Error; the parser still checks their structure.
                options(24)?;
                ParsedMobilityMessage::BindingError(BindingError {
                    status: u8_at(octets, 6, NAME_IN_ERRORS)?,
                    home_address: address_at(octets, 8, NAME_IN_ERRORS)?,
                })
            }
            message_type::HEARTBEAT => {
                let flags = u16_at(octets, 6, NAME_IN_ERRORS)?;
                ParsedMobilityMessage::Heartbeat(Heartbeat {
                    unsolicited: flags & HEARTBEAT_UNSOLICITED != 0,
                    response: flags & HEARTBEAT_RESPONSE != 0,
                    sequence: u32_at(octets, 8, NAME_IN_ERRORS)?,
                    options: options(12)?,
                })
            }
            message_type::HOME_AGENT_SWITCH => {
                ParsedMobilityMessage::HomeAgentSwitch(HomeAgentSwitch::parse(octets)?)
            }
            message_type::BINDING_REVOCATION => {
                ParsedMobilityMessage::BindingRevocation(BindingRevocation::parse(octets)?)
            }
            other => ParsedMobilityMessage::Other(other),
        })
    }
}

/// Binding Refresh Request (RFC 6275 6.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingRefreshRequest<'a> {
    /// The mobility options; no document defines options for this message.
    pub options: MobilityOptions<'a>,
}

/// Binding Update (RFC 6275 6.1.7, RFC 3963 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingUpdate<'a> {
    /// Sequence number that orders the Binding Updates of a home address, modulo 2^16.
    pub sequence: u16,
    /// Flags of the Binding Update.
    pub flags: BindingUpdateFlags,
    /// Requested lifetime, units of 4 seconds; 0 ends the binding.
    pub lifetime: u16,
    /// The mobility options.
    pub options: MobilityOptions<'a>,
}

/// Binding Acknowledgement (RFC 6275 6.1.8, RFC 3963 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingAcknowledgement<'a> {
    /// Status of the Binding Update: see [`super::BindingStatus`].
    pub status: u8,
    /// K: the key management protocol survives a movement of the mobile node.
    pub key_management: bool,
    /// R: the home agent supports mobile routers.
    pub mobile_router: bool,
    /// Sequence number of the Binding Update; with status 135, the last accepted sequence number.
    pub sequence: u16,
    /// Granted lifetime, units of 4 seconds; undefined if the home agent rejected the Binding Update.
    pub lifetime: u16,
    /// The mobility options.
    pub options: MobilityOptions<'a>,
}

/// Binding Error (RFC 6275 6.1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingError {
    /// 1: no binding for the Home Address option; 2: unknown MH Type.
    pub status: u8,
    /// Address in the Home Address option; unspecified if the packet had no such option.
    pub home_address: Ipv6Addr,
}

impl BindingError {
    /// Status: the node has no binding for the address in the Home Address option.
    pub const UNKNOWN_BINDING: u8 = 1;
    /// Status: the node does not know the MH Type.
    pub const UNKNOWN_MESSAGE_TYPE: u8 = 2;
}

/// Heartbeat (RFC 5847 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// U: an unsolicited response.
    pub unsolicited: bool,
    /// R: the message is a response.
    pub response: bool,
    /// Sequence number of the request.
    pub sequence: u32,
    /// The mobility options; a response carries the Restart Counter.
    pub options: MobilityOptions<'a>,
}

/// The flags of a Binding Update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BindingUpdateFlags {
    /// A, 0x8000: the sender wants an acknowledgement (RFC 6275 6.1.7).
    pub acknowledge: bool,
    /// H, 0x4000: home registration (RFC 6275 6.1.7).
    pub home_registration: bool,
    /// L, 0x2000: the home address has the interface identifier of the link-local address (RFC 6275 6.1.7).
    pub link_local: bool,
    /// K, 0x1000: key management survives a movement of the mobile node (RFC 6275 6.1.7).
    pub key_management: bool,
    /// M, 0x0800: registration with a mobility anchor point (RFC 5380).
    pub map: bool,
    /// R, 0x0400: the sender is a mobile router (RFC 3963 4.1).
    pub mobile_router: bool,
    /// P, 0x0200: proxy registration (RFC 5213).
    pub proxy: bool,
    /// F, 0x0100: the sender wants UDP encapsulation on any path (RFC 5555).
    pub force_udp: bool,
    /// T, 0x0080: the tunnel has a TLV header (RFC 5845).
    pub tlv: bool,
    /// O, 0x0040 without P: this update replaces all bindings of the home address (RFC 5648 4.2).
    pub overwrite: bool,
}

impl BindingUpdateFlags {
    /// Returns the flags of the 16-bit field; ignores bits without a name.
    pub fn from_bits(bits: u16) -> Self {
        let proxy = bits & 0x0200 != 0;
        BindingUpdateFlags {
            acknowledge: bits & 0x8000 != 0,
            home_registration: bits & 0x4000 != 0,
            link_local: bits & 0x2000 != 0,
            key_management: bits & 0x1000 != 0,
            map: bits & 0x0800 != 0,
            mobile_router: bits & 0x0400 != 0,
            proxy,
            force_udp: bits & 0x0100 != 0,
            tlv: bits & 0x0080 != 0,
            overwrite: bits & 0x0040 != 0 && !proxy,
        }
    }

    /// Returns the 16-bit field. If `proxy` is set, the bit of `overwrite` has another meaning, so the
    /// function does not write `overwrite`.
    pub fn bits(self) -> u16 {
        u16::from(self.acknowledge) << 15
            | u16::from(self.home_registration) << 14
            | u16::from(self.link_local) << 13
            | u16::from(self.key_management) << 12
            | u16::from(self.map) << 11
            | u16::from(self.mobile_router) << 10
            | u16::from(self.proxy) << 9
            | u16::from(self.force_udp) << 8
            | u16::from(self.tlv) << 7
            | u16::from(self.overwrite && !self.proxy) << 6
    }
}
