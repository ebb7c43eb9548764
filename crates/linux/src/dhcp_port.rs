//! Sockets of a DHCP server on one interface of the mobile network.
//!
//! A UDP socket bound to the interface receives the messages of clients. While it is open, no other program
//! can use port 67 of the interface. The kernel refuses the port if another DHCP server of this machine has
//! it. Messages to clients leave by a packet socket, because a client without address answers no ARP. The
//! packet socket also sends ARP requests and receives ARP replies.
//!
//! The sockets belong to the interface that has the given name when they are opened. If this interface
//! vanishes, the caller opens new sockets.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::task::{Context, Poll};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;
use crate::packet_socket::{self, BPF_JUMP_IF_EQUAL, BPF_LOAD_HALF_WORD, BPF_RETURN};

/// UDP port of servers (RFC 2131 4.1).
const DHCP_SERVER_PORT: u16 = 67;
/// Room for messages that wait, in octets: the requests of some hundred clients that start together.
const RECEIVE_BUFFER_SIZE: usize = 512 << 10;
/// Maximum number of packets that one call passes to the caller.
const MAX_MESSAGES_PER_CALL: usize = 64;
/// Length in octets of the largest message that the server reads. An Ethernet frame cannot contain a longer
/// message.
const MAX_MESSAGE_LENGTH: usize = 1500;

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
    interface_index: u32,
    message_socket: AsyncFd<Socket>,
    raw_socket: AsyncFd<Socket>,
}

impl DhcpPort {
    /// Opens the sockets on an interface.
    ///
    /// # Errors
    /// Fails if the interface is missing, if another program has the port, or if this process may not bind
    /// it.
    pub fn open(interface: &str) -> io::Result<DhcpPort> {
        let index = if_nametoindex(interface)?;
        let messages = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        messages.set_nonblocking(true)?;
        messages.bind_device(Some(interface.as_bytes()))?;
        messages.set_recv_buffer_size(RECEIVE_BUFFER_SIZE)?;
        messages.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DHCP_SERVER_PORT).into())?;
        let packets = packet_socket::open_packet_socket(index, libc::ETH_P_ARP as u16, &arp_reply_filter())?;
        Ok(DhcpPort {
            interface_index: index,
            message_socket: watch_readable(messages)?,
            raw_socket: watch_readable(packets)?,
        })
    }

    /// Returns whether the sockets belong to the interface that has this name now.
    pub fn is_on_interface(&self, interface: &str) -> bool {
        if_nametoindex(interface) == Ok(self.interface_index)
    }

    /// Returns ready if packets may be ready; if not, wakes the task when they are.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut is_ready = false;
        for socket in [&self.message_socket, &self.raw_socket] {
            if let Poll::Ready(Ok(mut guard)) = socket.poll_read_ready(cx) {
                guard.retain_ready();
                is_ready = true;
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Passes the messages and the ARP replies that are ready to `take`, at most 64 of each kind.
    pub fn receive(&self, mut take: impl FnMut(DhcpInput<'_>)) {
        let mut buffer = [const { MaybeUninit::uninit() }; MAX_MESSAGE_LENGTH];
        for _ in 0..MAX_MESSAGES_PER_CALL {
            let Some(octets) = receive_datagram(&self.message_socket, &mut buffer) else { break };
            take(DhcpInput::Message(octets));
        }
        for _ in 0..MAX_MESSAGES_PER_CALL {
            let Some(octets) = receive_datagram(&self.raw_socket, &mut buffer) else { break };
            take(DhcpInput::Arp(octets));
        }
    }

    /// Sends an IPv4 packet to a link-layer address.
    ///
    /// # Errors
    /// Fails if the interface is down or gone.
    pub fn send(&self, destination: [u8; 6], packet: &[u8]) -> io::Result<()> {
        let to = (self.interface_index, libc::ETH_P_IP);
        packet_socket::send_packet(self.raw_socket.get_ref(), to, Some(destination), packet)
    }

    /// Broadcasts an ARP packet.
    ///
    /// # Errors
    /// Fails if the interface is down or gone.
    pub fn send_arp(&self, packet: &[u8]) -> io::Result<()> {
        let to = (self.interface_index, libc::ETH_P_ARP);
        packet_socket::send_packet(self.raw_socket.get_ref(), to, Some([0xff; 6]), packet)
    }
}

/// Reads one packet; `None` if none is ready, or if the interface has an error.
fn receive_datagram<'a>(socket: &AsyncFd<Socket>, buffer: &'a mut [MaybeUninit<u8>]) -> Option<&'a [u8]> {
    let received = socket.try_io(Interest::READABLE, |socket| socket.recv(buffer));
    // SAFETY: the kernel has written as many octets as the call returns.
    buffer.get(..received.ok()?).map(|octets| unsafe { octets.assume_init_ref() })
}

/// Returns a filter that accepts ARP replies, of which the operation is 2 (RFC 826).
fn arp_reply_filter() -> [SockFilter; 4] {
    [
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, 6),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 1, 2),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
    ]
}
