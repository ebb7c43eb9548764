//! Channel of [`NetlinkRequests`](super::NetlinkRequests) to the kernel: carries rtnetlink messages in both
//! directions.
//!
//! In the program the channel is a socket. Tests with faults use a simulated kernel (`crate::simulated`).

use std::io;
use std::net::Ipv6Addr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::utsname::uname;

use super::solicited_node_groups::SolicitedGroups;

/// A kernel that answers requests: the real one or a simulated one.
pub(crate) trait NetlinkChannel {
    /// Returns the netlink port of the channel. The kernel's events about changes that carnet requested have
    /// this port number.
    fn port_id(&self) -> u32;
    /// Returns whether the kernel stores the mark of the program that added an address.
    fn kernel_stores_address_protocol(&self) -> bool;
    /// Sends one request to the kernel.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;
    /// Waits for answers of the kernel, and appends complete netlink messages to the buffer.
    fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<()>;
    /// Joins the solicited-node multicast group of an address; see [`SolicitedGroups`] for the reason.
    fn join_solicited_node_group(&mut self, index: u32, address: Ipv6Addr);
    /// Leaves the solicited-node multicast group of an address.
    fn leave_solicited_node_group(&mut self, index: u32, address: Ipv6Addr);
}

/// Socket to the kernel of this machine.
pub(super) struct KernelNetlinkSocket {
    socket: Socket,
    port: u32,
    stores_address_protocol: bool,
    solicited_groups: SolicitedGroups,
}

impl KernelNetlinkSocket {
    /// Opens the socket in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<KernelNetlinkSocket> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Old kernels lack these three options. Without them, answers are longer and errors have less detail,
        // so ignore a failure.
        let _ = socket.set_netlink_get_strict_chk(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        let keeps_marks =
            uname().is_ok_and(|name| is_release_at_least(&name.release().to_string_lossy(), (5, 18)));
        Ok(KernelNetlinkSocket {
            socket,
            port,
            stores_address_protocol: keeps_marks,
            solicited_groups: SolicitedGroups::default(),
        })
    }
}

/// Returns whether a kernel's release is this version or a later one.
fn is_release_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map_while(|number| number.parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= version)
}

impl NetlinkChannel for KernelNetlinkSocket {
    fn port_id(&self) -> u32 {
        self.port
    }

    fn kernel_stores_address_protocol(&self) -> bool {
        self.stores_address_protocol
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.socket.send(request, 0).map(drop)
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.socket.recv(buffer, 0).map(drop)
    }

    fn join_solicited_node_group(&mut self, index: u32, address: Ipv6Addr) {
        self.solicited_groups.join_group_of(index, address);
    }

    fn leave_solicited_node_group(&mut self, index: u32, address: Ipv6Addr) {
        self.solicited_groups.leave_group_of(index, address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        for release in ["5.18.0", "5.18-rc1", "6.1.0-13-amd64", "10.0"] {
            assert!(is_release_at_least(release, (5, 18)), "{release}");
        }
        for release in ["5.17.99", "5.4.0-150-generic", "4.19.0", "5", "", "unknown"] {
            assert!(!is_release_at_least(release, (5, 18)), "{release}");
        }
    }
}
