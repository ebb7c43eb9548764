//! Opens sockets at addresses that the machine may get later.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait until carnet accepts them.
const BACKLOG: i32 = 1024;

/// Listens at an address, which an interface may get later (`IP_FREEBIND`, `IPV6_FREEBIND`): the port answers
/// as soon as an interface has the address.
///
/// # Errors
/// Fails if another program has the port, or this process has no permission to use it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    // `TcpListener::bind` sets this option too. Without it, closed connections of an earlier run would block
    // the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Opens a UDP socket at an address, which an interface may get later.
///
/// # Errors
/// Fails if another program has the port, or this process has no permission to use it.
pub fn bind_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Returns whether an interface of this machine has the address now.
pub fn has_address(address: SocketAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}
