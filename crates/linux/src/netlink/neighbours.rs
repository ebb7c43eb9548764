//! Neighbours: who has which link-layer address is the kernel's business. carnet only tells it who is in use.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Requests;
use crate::error::Result;

impl Requests {
    /// A packet was sent to a neighbour past the kernel, which then sees to it that the neighbour is still there
    /// (RFC 4861 7.3.3), as after a packet of its own.
    pub(crate) fn use_neighbour(&mut self, index: u32, address: IpAddr) -> Result<()> {
        let mut message = NeighbourMessage::default();
        let (family, destination) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.header.ifindex = index;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(destination));
        // It changes nothing that anybody wants.
        self.get(RouteNetlinkMessage::NewNeighbour(message), || format!("use neighbour {address}"))
            .map(|_| ())
    }
}
