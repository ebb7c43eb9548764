//! A whole IPv6 packet around a Mobility Header (RFC 6275 6.1.1, 6.3, 6.4, 9.5.4, 11.3.1).
//!
//! The headers stand in the order of RFC 8200 4.1 as RFC 6275 6.3 and 6.4 want them: IPv6, type 2 routing
//! header, destination options with the Home Address option, Mobility Header. A Binding Update has the Home
//! Address option, a Binding Acknowledgement the routing header; neither is there when the mobile router is
//! at home.

use super::builder::set_checksum;
use crate::extension::{home_address_destination, home_address_routing};
use crate::ipv6::{HEADER_LEN, Header, protocol};
use std::net::Ipv6Addr;

/// Parts of a control packet.
#[derive(Debug, PartialEq, Eq)]
pub struct ControlPacket<'a> {
    /// The IPv6 source: for a Binding Update the care-of address.
    pub source: Ipv6Addr,
    /// The IPv6 destination: for a Binding Acknowledgement the care-of address.
    pub destination: Ipv6Addr,
    /// The hop limit.
    pub hop_limit: u8,
    /// The address for a Home Address option; none without.
    pub home_address: Option<Ipv6Addr>,
    /// The address for a type 2 routing header; none without.
    pub routing_home_address: Option<Ipv6Addr>,
    /// The Mobility Header; its checksum field is written.
    pub mobility_header: &'a mut [u8],
}

impl<'a> ControlPacket<'a> {
    /// One of a Mobility Header alone, without Home Address option and routing header.
    pub fn plain(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        mobility_header: &'a mut [u8],
    ) -> ControlPacket<'a> {
        let (home_address, routing_home_address) = (None, None);
        ControlPacket { source, destination, hop_limit, home_address, routing_home_address, mobility_header }
    }

    /// Returns the packet's octets. The checksum covers the home address of a Home Address option as source.
    /// It covers the address in a routing header as destination (RFC 6275 6.1.1, RFC 8200 8.1).
    pub fn emit(self) -> Vec<u8> {
        set_checksum(
            self.mobility_header,
            self.home_address.unwrap_or(self.source),
            self.routing_home_address.unwrap_or(self.destination),
        );
        // From the last header to the first, for each names the one behind it.
        let mut next = protocol::MOBILITY;
        let options = self.home_address.map(|address| home_address_destination(next, address));
        if options.is_some() {
            next = protocol::DESTINATION_OPTIONS;
        }
        let routing = self.routing_home_address.map(|address| home_address_routing(next, address));
        if routing.is_some() {
            next = protocol::ROUTING;
        }
        let routing = routing.as_ref().map_or(&[][..], |octets| octets);
        let options = options.as_ref().map_or(&[][..], |octets| octets);
        let length = routing.len() + options.len() + self.mobility_header.len();
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            // A Mobility Header has at most 2048 octets.
            payload_length: u16::try_from(length).unwrap_or(u16::MAX),
            next_header: next,
            hop_limit: self.hop_limit,
            source: self.source,
            destination: self.destination,
        };
        let mut packet = Vec::with_capacity(HEADER_LEN + length);
        packet.extend_from_slice(&header.emit());
        packet.extend_from_slice(routing);
        packet.extend_from_slice(options);
        packet.extend_from_slice(self.mobility_header);
        packet
    }
}
