//! A socket that hears that something has changed, and does not care what: whoever hears it looks.

use std::io;
use std::task::{Context, Poll};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::readable::watch;

/// `RTNLGRP_LINK`: the multicast group of news about interfaces.
pub(crate) const LINKS: u32 = 1;
/// `RTNLGRP_IPV6_IFADDR`: of IPv6 addresses.
pub(crate) const IPV6_ADDRESSES: u32 = 9;

/// The socket.
#[derive(Debug)]
pub(crate) struct Events {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
}

impl Events {
    /// Hears these groups, in the network namespace of the calling thread.
    pub(crate) fn open(groups: &[u32]) -> Result<Events> {
        let failed = |e: io::Error| Error::kernel("listen to netlink events", e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        for group in groups {
            socket.add_membership(*group).map_err(failed)?;
        }
        Ok(Events { socket: watch(socket).map_err(failed)?, buffer: Vec::with_capacity(4096) })
    }

    /// Reads all events and asks to be woken by more; whether there were any.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let failed = |e: io::Error| Error::kernel("receive netlink events", e);
        let mut heard = false;
        while let Poll::Ready(guard) = self.socket.poll_read_ready(cx) {
            let mut guard = guard.map_err(failed)?;
            loop {
                self.buffer.clear();
                match guard.get_inner().recv(&mut self.buffer, 0) {
                    Ok(_) => heard = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Events got lost: all the more reason to look.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => heard = true,
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(heard)
    }
}
