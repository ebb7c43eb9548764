//! Opens sockets at addresses that the machine may get later, and binds packet sockets to interfaces.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait until carnet accepts them.
const MAX_WAITING_CONNECTIONS: i32 = 1024;

/// Opens a listening TCP socket. The address may belong to no interface yet (`IP_FREEBIND`, `IPV6_FREEBIND`);
/// connections work as soon as an interface has it.
///
/// # Errors
///
/// Fails if another program uses the port, or this process may not use it.
pub fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    // `TcpListener::bind` sets this option as well: without it, closed connections of an earlier run block
    // the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(MAX_WAITING_CONNECTIONS)?;
    Ok(socket.into())
}

/// Opens a UDP socket. The address may belong to no interface yet.
///
/// # Errors
///
/// Fails if another program uses the port, or this process may not use it.
pub fn bind_udp_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Returns whether an interface of this machine has the address at the time of the call.
pub fn is_local_address(address: SocketAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}

/// Binds a packet socket (`AF_PACKET`) to an interface. The socket keeps the EtherType with which it was
/// opened.
///
/// # Errors
///
/// Fails with `ENODEV` if there is no such interface, and if the interface is down.
pub fn bind_packet_socket(socket: &impl AsFd, interface: &str) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: 0,
        sll_ifindex: if_nametoindex(interface)? as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a live `sockaddr_ll`, and the length is that of its type.
    let result = unsafe {
        libc::bind(
            socket.as_fd().as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
