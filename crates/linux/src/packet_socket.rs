//! Opens packet sockets for frames of one EtherType that arrive at one interface.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, SockFilter, Socket, Type};

/// Instructions of a filter (`struct sock_filter`): loads of 32 and 16 bits, comparisons with a constant,
/// return.
pub(crate) const BPF_LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(crate) const BPF_LOAD_HALF_WORD: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
pub(crate) const BPF_JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
pub(crate) const BPF_JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
pub(crate) const BPF_RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offset from which a socket filter loads the frame's packet type (`PACKET_HOST` and so on).
pub(crate) const OFFSET_PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

/// Opens a packet socket for frames with this EtherType on one interface that pass the filter. The socket
/// does not get frames that this machine sends: the kernel passes them only to sockets for all EtherTypes.
pub(crate) fn open_frame_socket(index: u32, ether_type: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    // A socket with protocol 0 gets no packets until it is bound. So it gets no packet that has not passed
    // the filter.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(filter)?;
    bind_to_interface(&socket, index, ether_type.into())?;
    Ok(socket)
}

/// Opens a packet socket that receives and sends packets of one EtherType at one interface, without their
/// Ethernet header.
pub(crate) fn open_packet_socket(index: u32, ether_type: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(filter)?;
    bind_to_interface(&socket, index, ether_type.into())?;
    Ok(socket)
}

/// Lets a packet socket receive packets of a protocol (`ETH_P_*`) from one interface.
pub(crate) fn bind_to_interface(socket: &Socket, index: u32, protocol: libc::c_int) -> io::Result<()> {
    let address = packet_socket_address(index, protocol, None);
    // SAFETY: `address` is a live `sockaddr_ll`, and the length is that of its type.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the address for packets of a protocol (`ETH_P_*`) on the interface with this index, to `peer`.
pub(crate) fn packet_socket_address(
    index: u32,
    protocol: libc::c_int,
    peer: Option<[u8; 6]>,
) -> libc::sockaddr_ll {
    let mut octets = [0; 8];
    octets[..6].copy_from_slice(&peer.unwrap_or_default());
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: if peer.is_some() { 6 } else { 0 },
        sll_addr: octets,
    }
}

/// Sends a packet of a protocol on an interface, to the link-layer address `peer`. The socket is of type
/// `SOCK_DGRAM`.
pub(crate) fn send_packet(
    socket: &Socket,
    (index, protocol): (u32, libc::c_int),
    peer: Option<[u8; 6]>,
    packet: &[u8],
) -> io::Result<()> {
    let address = packet_socket_address(index, protocol, peer);
    // SAFETY: `packet` is readable for its length, and `address` is a live `sockaddr_ll` with the length of
    // its type.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
