//! Sets socket options whose value is an integer.

use std::io;
use std::os::fd::AsRawFd;

/// Sets an option of a socket.
pub(super) fn set_socket_option(
    socket: &socket2::Socket,
    level: i32,
    name: i32,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads one `int` from `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
