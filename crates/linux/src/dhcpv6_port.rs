//! Socket of a DHCPv6 server on one interface of the mobile network.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::task::{Context, Poll};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;

/// UDP port of DHCPv6 servers (RFC 8415 7.2). `DHCPV6_CLIENT_PORT` is the port of clients.
const DHCPV6_SERVER_PORT: u16 = 547;
const DHCPV6_CLIENT_PORT: u16 = 546;
/// Group of all servers on a link (RFC 8415 7.1).
const ALL_DHCPV6_SERVERS_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Maximum number of messages that one call passes to the caller.
const MAX_MESSAGES_PER_CALL: usize = 64;
/// Length in octets of the largest message that the server reads.
const MAX_MESSAGE_LENGTH: usize = 1500;

/// The socket of a DHCPv6 server on one interface.
#[derive(Debug)]
pub struct Dhcpv6Port {
    interface_index: u32,
    socket: AsyncFd<Socket>,
}

impl Dhcpv6Port {
    /// Opens the socket on an interface.
    ///
    /// # Errors
    /// Fails if the interface is missing, if another program has the port, or if this process may not bind
    /// it.
    pub fn open(interface: &str) -> io::Result<Dhcpv6Port> {
        let index = if_nametoindex(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_only_v6(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, DHCPV6_SERVER_PORT, 0, 0).into())?;
        socket.join_multicast_v6(&ALL_DHCPV6_SERVERS_ADDRESS, index)?;
        Ok(Dhcpv6Port { interface_index: index, socket: watch_readable(socket)? })
    }

    /// Returns whether the socket belongs to the interface that has this name now.
    pub fn is_on_interface(&self, interface: &str) -> bool {
        if_nametoindex(interface) == Ok(self.interface_index)
    }

    /// Returns ready if messages may be ready; if not, wakes the task when they are.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_read_ready(cx).map(|guard| drop(guard.map(|mut guard| guard.retain_ready())))
    }

    /// Passes the messages that are ready, at most 64, to `answer` with the sender's address.
    pub fn receive(&self, mut answer: impl FnMut(Ipv6Addr, &[u8])) {
        let mut buffer = [const { MaybeUninit::uninit() }; MAX_MESSAGE_LENGTH];
        for _ in 0..MAX_MESSAGES_PER_CALL {
            let received = self.socket.try_io(Interest::READABLE, |socket| socket.recv_from(&mut buffer));
            let Ok((length, sender)) = received else { return };
            let Some(sender) = sender.as_socket_ipv6() else { continue };
            // SAFETY: the kernel has written as many octets as the call returns.
            let octets = buffer.get(..length).map(|octets| unsafe { octets.assume_init_ref() });
            answer(*sender.ip(), octets.unwrap_or_default());
        }
    }

    /// Sends a reply to a host with this link-local address.
    pub fn send(&self, host: Ipv6Addr, reply: &[u8]) {
        let host = SocketAddrV6::new(host, DHCPV6_CLIENT_PORT, 0, self.interface_index);
        // If the interface is down, the host asks again.
        let _ = self.socket.get_ref().send_to(reply, &host.into());
    }
}
