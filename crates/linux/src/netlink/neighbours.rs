//! Reports to the kernel which neighbours carnet uses, and asks for a neighbour's state. The kernel itself
//! resolves link-layer addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use carnet_station::io;

use super::NetlinkRequests;
use crate::error::Result;

fn neighbour_query(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    let (family, destination) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    message.header.family = family;
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::Destination(destination));
    message
}

/// Returns interface index and address of the neighbour in a message; `None` without an address.
pub(super) fn neighbour_of_message(message: &NeighbourMessage) -> Option<(u32, IpAddr)> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })?;
    Some((message.header.ifindex, address))
}

/// An IPv6 neighbour with a link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownNeighbour {
    pub(crate) address: Ipv6Addr,
    pub(crate) link_address: [u8; 6],
    /// Whether the neighbour has lately answered at this link-layer address (RFC 4861 7.3.2).
    pub(crate) is_reachable: bool,
}

impl KnownNeighbour {
    /// Returns the neighbour of a message about this interface; `None` if it has no link-layer address.
    pub(super) fn from_message(message: &NeighbourMessage, index: u32) -> Option<KnownNeighbour> {
        let (of, IpAddr::V6(address)) = neighbour_of_message(message)? else { return None };
        let link_address = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(octets) => octets.as_slice().try_into().ok(),
            _ => None,
        })?;
        let is_reachable = match message.header.state {
            NeighbourState::Reachable | NeighbourState::Permanent => true,
            // The kernel has not verified this link-layer address. Any host can claim it in a packet.
            NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => false,
            _ => return None,
        };
        (of == index).then_some(KnownNeighbour { address, link_address, is_reachable })
    }
}

/// Requests about neighbours.
pub(crate) struct NeighbourRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl NeighbourRequests<'_> {
    /// Reports to the kernel that a fast path has sent a packet to a neighbour. The kernel then verifies that
    /// the neighbour is reachable (RFC 4861 7.3.3), as after a packet that the kernel sends.
    pub(crate) fn report_use(&mut self, index: u32, address: IpAddr) -> Result<()> {
        let mut message = neighbour_query(index, address);
        message.header.flags = NeighbourFlags::Use;
        // The flag `NTF_USE` changes no stored value, so do not count the request as a change of the kernel's
        // state.
        self.0
            .request_object(RouteNetlinkMessage::NewNeighbour(message), || {
                format!("report that neighbour {address} is in use")
            })
            .map(|_| ())
    }

    /// Returns the indices of the interfaces at which the kernel knows a neighbour with this link-layer
    /// address, each once.
    pub(crate) fn interfaces_with_neighbour(&mut self, address: [u8; 6]) -> Result<BTreeSet<u32>> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.0.dump_objects(question, || "list the neighbours".to_owned())?;
        let is_of_host = |message: &NeighbourMessage| {
            let address = NeighbourAttribute::LinkLayerAddress(address.to_vec());
            let is_unknown =
                matches!(message.header.state, NeighbourState::Incomplete | NeighbourState::Failed);
            !is_unknown && message.attributes.contains(&address)
        };
        let indices = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) if is_of_host(&message) => {
                Some(message.header.ifindex)
            }
            _ => None,
        });
        Ok(indices.collect())
    }

    /// Returns the IPv6 neighbours of an interface that have a link-layer address.
    pub(crate) fn list_neighbours(&mut self, index: u32) -> Result<Vec<KnownNeighbour>> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.attributes.push(NeighbourAttribute::IfIndex(index));
        let answers = self
            .0
            .dump_objects(RouteNetlinkMessage::GetNeighbour(message), || "list the neighbours".to_owned())?;
        let neighbours = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => KnownNeighbour::from_message(message, index),
            _ => None,
        });
        Ok(neighbours.collect())
    }

    /// Returns the kernel's state of a neighbour. Before Linux 5.0 the state is unknown, because the kernel
    /// can only list all neighbours.
    pub(crate) fn neighbour_state(&mut self, index: u32, address: IpAddr) -> Result<io::NeighbourState> {
        let message = RouteNetlinkMessage::GetNeighbour(neighbour_query(index, address));
        let answers = match self.0.request_object(message, || format!("look up neighbour {address}")) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL)
                ) =>
            {
                return Ok(io::NeighbourState::Unknown);
            }
            answers => answers?,
        };
        let state = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => Some(message.header.state),
            _ => None,
        });
        Ok(match state {
            None | Some(NeighbourState::None | NeighbourState::Noarp) => io::NeighbourState::Unknown,
            Some(NeighbourState::Incomplete) => io::NeighbourState::Incomplete,
            Some(NeighbourState::Failed) => io::NeighbourState::Failed,
            Some(_) => io::NeighbourState::Known,
        })
    }
}
