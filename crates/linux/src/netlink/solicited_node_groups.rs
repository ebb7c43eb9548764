//! Joins the solicited-node multicast groups (RFC 4861 7.2.1) of addresses that carnet adds.
//!
//! The kernel joins the group of a new address in a worker, some milliseconds after it has acknowledged the
//! address. A Neighbor Solicitation that arrives in between is lost, and the neighbour repeats it only after
//! `RetransTimer`, a whole second. A mobile router that returns home would lose all packets from the home
//! agent during this time. So a socket of carnet joins the group first, and the kernel's own membership
//! follows.

use std::net::Ipv6Addr;

use carnet_wire::nd;
use socket2::{Domain, Socket, Type};

/// A socket that has joined groups for carnet. Its memberships end when the process ends.
#[derive(Debug, Default)]
pub(super) struct SolicitedGroups {
    socket: Option<Socket>,
}

impl SolicitedGroups {
    /// Joins the group of `address`. If that fails, the kernel's worker joins the group some milliseconds
    /// later.
    pub fn join_group_of(&mut self, index: u32, address: Ipv6Addr) {
        if self.socket.is_none() {
            self.socket = Socket::new(Domain::IPV6, Type::DGRAM, None).ok();
        }
        if let Some(socket) = &self.socket
            && let Err(error) = socket.join_multicast_v6(&nd::solicited_node_address(address), index)
        {
            tracing::debug!(%address, index, %error, "cannot join the solicited-node multicast group");
        }
    }

    /// Leaves the solicited-node group of `address`. Does nothing if carnet has not joined it.
    pub fn leave_group_of(&mut self, index: u32, address: Ipv6Addr) {
        if let Some(socket) = &self.socket {
            let _ = socket.leave_multicast_v6(&nd::solicited_node_address(address), index);
        }
    }
}
