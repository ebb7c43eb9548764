//! A whole IPv6 packet around a Mobility Header (RFC 6275 6.1.1, 6.3, 6.4, 9.5.4, 11.3.1).
//!
//! The headers have the order that RFC 8200 4.1, RFC 6275 6.3 and 6.4 require: IPv6, type 2 routing header,
//! destination options with the Home Address option, Mobility Header. A Binding Update has the Home Address
//! option, a Binding Acknowledgement the routing header. If the mobile router is at home, a message has
//! neither of the two.

use super::builder::set_checksum;
use crate::extension::{emit_home_address_options_header, emit_home_address_routing_header};
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
    /// Address for a Home Address option; `None` for a packet without the option.
    pub home_address: Option<Ipv6Addr>,
    /// Address for a type 2 routing header; `None` for a packet without the header.
    pub routing_home_address: Option<Ipv6Addr>,
    /// The Mobility Header; the function that emits the packet writes its checksum field.
    pub mobility_header: &'a mut [u8],
}

impl<'a> ControlPacket<'a> {
    /// Returns a packet with a Mobility Header only, without Home Address option and routing header.
    pub fn without_home_address(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        mobility_header: &'a mut [u8],
    ) -> ControlPacket<'a> {
        let (home_address, routing_home_address) = (None, None);
        ControlPacket { source, destination, hop_limit, home_address, routing_home_address, mobility_header }
    }

    /// Returns the packet's octets. The pseudo-header of the checksum has the address of a Home Address
    /// option as source (RFC 6275 6.1.1). It has the address of a routing header as destination (RFC 8200
    /// 8.1).
    pub fn emit(self) -> Vec<u8> {
        set_checksum(
            self.mobility_header,
            self.home_address.unwrap_or(self.source),
            self.routing_home_address.unwrap_or(self.destination),
        );
        // Build the headers from the last to the first, because each header names the next one.
        let mut next = protocol::MOBILITY;
        let options = self.home_address.map(|address| emit_home_address_options_header(next, address));
        if options.is_some() {
            next = protocol::DESTINATION_OPTIONS;
        }
        let routing =
            self.routing_home_address.map(|address| emit_home_address_routing_header(next, address));
        if routing.is_some() {
            next = protocol::ROUTING;
        }
        let routing = routing.as_ref().map_or(&[][..], |octets| octets);
        let options = options.as_ref().map_or(&[][..], |octets| octets);
        let length = routing.len() + options.len() + self.mobility_header.len();
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            // The conversion cannot fail: a Mobility Header has at most 2048 octets.
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
