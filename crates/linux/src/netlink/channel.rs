//! The way to the kernel that [`Requests`](super::Requests) take: octets of rtnetlink there and back.
//!
//! In the program it is a socket; where faults are made up (`crate::simulated`), a kernel of their own.

use std::io;
use std::net::Ipv6Addr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::solicited::SolicitedGroups;

/// Somebody who takes requests and answers them.
pub(crate) trait Channel {
    /// Its port: what it did is told to others with it.
    fn port(&self) -> u32;
    /// Takes one request.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;
    /// Puts some of the answers, whole messages, behind what is in the buffer; waits for them.
    fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<()>;
    /// Joins the solicited-node group of an address: see [`SolicitedGroups`].
    fn join(&mut self, index: u32, address: Ipv6Addr);
    /// Leaves it.
    fn leave(&mut self, index: u32, address: Ipv6Addr);
}

/// The kernel of this machine.
pub(super) struct KernelSocket {
    socket: Socket,
    port: u32,
    groups: SolicitedGroups,
}

impl KernelSocket {
    /// Opens it in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<KernelSocket> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Old kernels know neither of these three; all of them only spare work or explain errors.
        let _ = socket.set_netlink_get_strict_chk(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(KernelSocket { socket, port, groups: SolicitedGroups::default() })
    }
}

impl Channel for KernelSocket {
    fn port(&self) -> u32 {
        self.port
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.socket.send(request, 0).map(drop)
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.socket.recv(buffer, 0).map(drop)
    }

    fn join(&mut self, index: u32, address: Ipv6Addr) {
        self.groups.join(index, address);
    }

    fn leave(&mut self, index: u32, address: Ipv6Addr) {
        self.groups.leave(index, address);
    }
}
