//! Sockets of a DHCP server on one interface of the mobile network.
//!
//! A UDP socket bound to the interface receives the messages of clients, and keeps port 67 of the interface
//! from other programs. The kernel refuses the port if another DHCP server of this machine has it. Messages
//! to clients leave by a packet socket, because a client without address answers no ARP. The packet socket
//! also sends ARP requests, and receives the answers.
//!
//! The sockets belong to the interface that has the name now. If the interface vanishes, the caller opens
//! new ones.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::task::{Context, Poll};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::packet_socket::{self, EQUAL, LOAD_HALF, RETURN};
use crate::readable::watch;

/// UDP port of servers (RFC 2131 4.1).
const SERVER_PORT: u16 = 67;
/// Room for messages that wait, in octets: the requests of some hundred clients that start together.
const RECEIVE_BUFFER: usize = 512 << 10;
/// Maximum number of packets that one call passes to the caller.
const BATCH: usize = 64;
/// Length in octets of the largest message that the server reads. An Ethernet frame cannot contain a longer
/// message.
const MESSAGE: usize = 1500;

/// A packet for the DHCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhcpInput<'a> {
    /// Message of a client.
    Message(&'a [u8]),
    /// ARP reply, without its Ethernet header.
    Arp(&'a [u8]),
}

/// The sockets of a DHCP server on one interface.
#[derive(Debug)]
pub struct DhcpPort {
    index: u32,
    messages: AsyncFd<Socket>,
    packets: AsyncFd<Socket>,
}

impl DhcpPort {
    /// Opens the sockets on an interface.
    ///
    /// # Errors
    /// Fails if the interface is missing, if another program has the port, or without the right to it.
    pub fn open(interface: &str) -> io::Result<DhcpPort> {
        let index = if_nametoindex(interface)?;
        let messages = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        messages.set_nonblocking(true)?;
        messages.bind_device(Some(interface.as_bytes()))?;
        messages.set_recv_buffer_size(RECEIVE_BUFFER)?;
        messages.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT).into())?;
        let packets = packet_socket::open_packets(index, libc::ETH_P_ARP as u16, &replies())?;
        Ok(DhcpPort { index, messages: watch(messages)?, packets: watch(packets)? })
    }

    /// Returns whether the sockets belong to the interface that has this name now.
    pub fn is_on(&self, interface: &str) -> bool {
        if_nametoindex(interface) == Ok(self.index)
    }

    /// Returns ready if packets may be ready; if not, wakes the task when they are.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut is_ready = false;
        for socket in [&self.messages, &self.packets] {
            if let Poll::Ready(Ok(mut guard)) = socket.poll_read_ready(cx) {
                guard.retain_ready();
                is_ready = true;
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Passes the messages and the ARP replies that are ready to `take`, at most 64 of each kind.
    pub fn receive(&self, mut take: impl FnMut(DhcpInput<'_>)) {
        let mut buffer = [const { MaybeUninit::uninit() }; MESSAGE];
        for _ in 0..BATCH {
            let Some(octets) = read(&self.messages, &mut buffer) else { break };
            take(DhcpInput::Message(octets));
        }
        for _ in 0..BATCH {
            let Some(octets) = read(&self.packets, &mut buffer) else { break };
            take(DhcpInput::Arp(octets));
        }
    }

    /// Sends an IPv4 packet to a link-layer address.
    ///
    /// # Errors
    /// Fails if the interface is down or gone.
    pub fn send(&self, destination: [u8; 6], packet: &[u8]) -> io::Result<()> {
        let to = (self.index, libc::ETH_P_IP);
        packet_socket::send(self.packets.get_ref(), to, Some(destination), packet)
    }

    /// Broadcasts an ARP packet.
    ///
    /// # Errors
    /// Fails if the interface is down or gone.
    pub fn send_arp(&self, packet: &[u8]) -> io::Result<()> {
        let to = (self.index, libc::ETH_P_ARP);
        packet_socket::send(self.packets.get_ref(), to, Some([0xff; 6]), packet)
    }
}

/// Reads one packet; `None` if none is ready, or if the interface has an error.
fn read<'a>(socket: &AsyncFd<Socket>, buffer: &'a mut [MaybeUninit<u8>]) -> Option<&'a [u8]> {
    let received = socket.try_io(Interest::READABLE, |socket| socket.recv(buffer));
    // SAFETY: the kernel has written as many octets as the call returns.
    buffer.get(..received.ok()?).map(|octets| unsafe { octets.assume_init_ref() })
}

/// Returns a filter that accepts ARP replies, of which the operation is 2 (RFC 826).
fn replies() -> [SockFilter; 4] {
    [
        SockFilter::new(LOAD_HALF, 0, 0, 6),
        SockFilter::new(EQUAL, 0, 1, 2),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}
