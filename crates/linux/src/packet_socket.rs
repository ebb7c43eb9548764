//! Opens packet sockets for frames of one EtherType that arrive at one interface.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, SockFilter, Socket, Type};

/// Instructions of a filter (`struct sock_filter`): loads of 32 and 16 bits, comparisons with a constant,
/// return.
pub(crate) const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(crate) const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
pub(crate) const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
pub(crate) const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
pub(crate) const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offset from which a socket filter loads the frame's packet type (`PACKET_HOST` and so on).
pub(crate) const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

/// Opens a packet socket for frames with this EtherType on one interface that pass the filter. The socket
/// does not get frames that this machine sends: the kernel passes them only to sockets for all EtherTypes.
pub(crate) fn open(index: u32, ether_type: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    // A socket with protocol 0 gets no packets until it is bound, so none arrives before the filter is
    // attached.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(filter)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a live `sockaddr_ll`, and the length is that of its type.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
