//! The way to the kernel that [`Requests`](super::Requests) take: octets of rtnetlink there and back.
//!
//! In the program it is a socket; where faults are made up (`crate::simulated`), a kernel of their own.

use std::io;
use std::net::Ipv6Addr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::utsname::uname;

use super::solicited::SolicitedGroups;

/// Kernel, or a simulated one, that answers requests.
pub(crate) trait Channel {
    /// Its port: what it did is told to others with it.
    fn port(&self) -> u32;
    /// Whether addresses keep the mark of who has made them.
    fn keeps_marks(&self) -> bool;
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
    keeps_marks: bool,
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
        let keeps_marks = uname().is_ok_and(|name| is_since(&name.release().to_string_lossy(), (5, 18)));
        Ok(KernelSocket { socket, port, keeps_marks, groups: SolicitedGroups::default() })
    }
}

/// Whether a kernel's release is this version or a later one.
fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map_while(|number| number.parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= version)
}

impl Channel for KernelSocket {
    fn port(&self) -> u32 {
        self.port
    }

    fn keeps_marks(&self) -> bool {
        self.keeps_marks
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for release in ["5.18.0", "5.18-rc1", "6.1.0-13-amd64", "10.0"] {
            assert!(is_since(release, (5, 18)), "{release}");
        }
        for release in ["5.17.99", "5.4.0-150-generic", "4.19.0", "5", "", "unknown"] {
            assert!(!is_since(release, (5, 18)), "{release}");
        }
    }
}
