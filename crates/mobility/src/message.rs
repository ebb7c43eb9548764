//! A received Mobility Header message with its addresses.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::MobilityHeader;

use crate::SessionPeer;

/// A packet whose upper layer is the Mobility Header, parsed by the caller.
#[derive(Debug, Clone, Copy)]
pub struct MobilityMessage<'a> {
    /// IPv6 source of the packet.
    pub source: Ipv6Addr,
    /// IPv6 destination of the packet.
    pub destination: Ipv6Addr,
    /// Address of the Home Address destination option (RFC 6275 6.3); `None` without the option.
    pub home_address: Option<Ipv6Addr>,
    /// Address of the type 2 routing header (RFC 6275 6.4); `None` without the header.
    pub routing_home_address: Option<Ipv6Addr>,
    /// Local and remote tunnel end if the packet came inside IPv4 or UDP (RFC 5555 4.1). Behind a NAT the
    /// remote end is the NAT's address. `None` if the packet came over IPv6.
    pub tunnel_ends: Option<(Endpoint, Endpoint)>,
    /// Whether an IPsec security association between home address and home agent protected the packet (RFC
    /// 4877). ESP does not cover the care-of address, because that is in the outer header.
    pub is_ipsec_protected: bool,
    /// The remote key of the encrypted session through which the packet came; `None` outside of a session.
    pub session: Option<SessionPeer>,
    /// The whole packet, which error messages quote.
    pub packet: &'a [u8],
    /// Offset of the Mobility Header in `packet`.
    pub mobility_header_offset: usize,
}

impl<'a> MobilityMessage<'a> {
    /// Builds the message from its parts; `None` if the upper layer is not the Mobility Header or the packet
    /// is a fragment.
    pub fn new(packet: &'a [u8], header: &Header, extensions: &ExtensionHeaders) -> Option<Self> {
        if extensions.protocol != protocol::MOBILITY || extensions.fragment.is_some() {
            return None;
        }
        Some(MobilityMessage {
            source: header.source,
            destination: header.destination,
            home_address: extensions.home_address,
            routing_home_address: extensions.routing_home_address,
            tunnel_ends: None,
            is_ipsec_protected: false,
            session: None,
            packet,
            mobility_header_offset: extensions.upper_layer_offset,
        })
    }

    /// Returns this message as one that came inside IPv4 or UDP between these ends.
    pub fn inside_tunnel(self, local: Endpoint, remote: Endpoint) -> Self {
        MobilityMessage { tunnel_ends: Some((local, remote)), ..self }
    }

    /// Returns this message as one that IPsec has protected.
    pub fn under_ipsec(self) -> Self {
        MobilityMessage { is_ipsec_protected: true, ..self }
    }

    /// Returns this message as one that came through the encrypted session of this key.
    pub fn in_session(self, peer: SessionPeer) -> Self {
        MobilityMessage { session: Some(peer), ..self }
    }

    /// Returns the Mobility Header and everything after it.
    pub fn octets(&self) -> &'a [u8] {
        self.packet.get(self.mobility_header_offset..).unwrap_or_default()
    }

    /// Returns the Mobility Header, after the check of its checksum (RFC 6275 9.2).
    ///
    /// # Errors
    /// Returns the errors of [`MobilityHeader::parse_verified`].
    pub fn verified_header(&self) -> Result<MobilityHeader<'a>, carnet_wire::Error> {
        MobilityHeader::parse_verified(self.octets(), self.pseudo_source(), self.pseudo_destination())
    }

    /// Returns the source of the pseudo-header: the home address if the packet names one (RFC 6275 6.1.1).
    pub fn pseudo_source(&self) -> Ipv6Addr {
        self.home_address.unwrap_or(self.source)
    }

    /// Returns the destination of the pseudo-header: the final destination if the packet has a routing
    /// header.
    pub fn pseudo_destination(&self) -> Ipv6Addr {
        self.routing_home_address.unwrap_or(self.destination)
    }
}
