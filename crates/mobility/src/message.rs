//! A received Mobility Header message with the addresses that give it its meaning.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_wire::extension::Extensions;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::MobilityHeader;

/// A packet whose upper layer is the Mobility Header, taken apart by the caller.
#[derive(Debug, Clone, Copy)]
pub struct MobilityMessage<'a> {
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// From the Home Address destination option (RFC 6275 6.3).
    pub home_address: Option<Ipv6Addr>,
    /// From the type 2 routing header (RFC 6275 6.4).
    pub routing_home_address: Option<Ipv6Addr>,
    /// Our end and the sender's when the packet came inside IPv4 or UDP (RFC 5555 4.1), the sender's as we
    /// see it; `None` when it came by plain IPv6.
    pub outer: Option<(Endpoint, Endpoint)>,
    /// Whether a security association of IPsec between home address and home agent has brought it (RFC 4877).
    /// Then everything but the care-of address is as it was sent: that is outside of what ESP protects.
    pub protected: bool,
    /// The whole packet, for error messages about it.
    pub packet: &'a [u8],
    /// Where the Mobility Header begins in `packet`.
    pub offset: usize,
}

impl<'a> MobilityMessage<'a> {
    /// Puts the pieces together; `None` when the upper layer is not the Mobility Header or the packet is a
    /// fragment.
    pub fn new(packet: &'a [u8], header: &Header, extensions: &Extensions) -> Option<Self> {
        if extensions.protocol != protocol::MOBILITY || extensions.fragment.is_some() {
            return None;
        }
        Some(MobilityMessage {
            source: header.source,
            destination: header.destination,
            home_address: extensions.home_address,
            routing_home_address: extensions.routing_home_address,
            outer: None,
            protected: false,
            packet,
            offset: extensions.offset,
        })
    }

    /// The same message, which came inside IPv4 or UDP between these ends.
    pub fn inside(self, local: Endpoint, remote: Endpoint) -> Self {
        MobilityMessage { outer: Some((local, remote)), ..self }
    }

    /// The same message, which IPsec has protected.
    pub fn under_ipsec(self) -> Self {
        MobilityMessage { protected: true, ..self }
    }

    /// The Mobility Header and what follows it.
    pub fn octets(&self) -> &'a [u8] {
        self.packet.get(self.offset..).unwrap_or_default()
    }

    /// The Mobility Header, its checksum verified before anything else (RFC 6275 9.2).
    ///
    /// # Errors
    /// Those of [`MobilityHeader::parse_verified`].
    pub fn header(&self) -> Result<MobilityHeader<'a>, carnet_wire::Error> {
        MobilityHeader::parse_verified(self.octets(), self.pseudo_source(), self.pseudo_destination())
    }

    /// The source of the pseudo-header: the home address when the packet names one (RFC 6275 6.1.1).
    pub fn pseudo_source(&self) -> Ipv6Addr {
        self.home_address.unwrap_or(self.source)
    }

    /// The destination of the pseudo-header: the final one, which a routing header names.
    pub fn pseudo_destination(&self) -> Ipv6Addr {
        self.routing_home_address.unwrap_or(self.destination)
    }
}
