//! An interface, followed by its name.
//!
//! The kernel's events only say that some interface changed; what the one of this name is now is then asked
//! for, as the platform's observer does.

use std::io;
use std::task::{Context, Poll};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::netlink::{LinkInfo, Requests};
use crate::readable::watch;

/// `RTNLGRP_LINK`: the multicast group of news about interfaces.
const LINKS: u32 = 1;

/// The name, and who tells about it.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) name: String,
    /// The interface that has the name at present.
    pub(super) index: Option<u32>,
    pub(super) requests: Requests,
    events: AsyncFd<Socket>,
    buffer: Vec<u8>,
    /// A look is due, because of an event or because the last one failed.
    due: bool,
}

impl Follow {
    pub(super) fn open(name: String) -> Result<Follow> {
        let failed = |e: io::Error| Error::kernel("listen to netlink events", e);
        let mut events = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        events.bind_auto().map_err(failed)?;
        events.set_non_blocking(true).map_err(failed)?;
        events.add_membership(LINKS).map_err(failed)?;
        let events = watch(events).map_err(failed)?;
        let requests = Requests::open()?;
        Ok(Follow { name, index: None, requests, events, buffer: Vec::with_capacity(4096), due: false })
    }

    /// Reads all events and asks to be woken by more; whether a look is due.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let failed = |e: io::Error| Error::kernel("receive netlink events", e);
        while let Poll::Ready(guard) = self.events.poll_read_ready(cx) {
            let mut guard = guard.map_err(failed)?;
            loop {
                self.buffer.clear();
                match guard.get_inner().recv(&mut self.buffer, 0) {
                    Ok(_) => self.due = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Events got lost: all the more reason to look.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.due = true,
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(self.due)
    }

    /// The interface as it is now; `None` where there is none.
    pub(super) fn look(&mut self) -> Result<Option<LinkInfo>> {
        self.due = true;
        let link = self.requests.link(&self.name)?;
        self.due = false;
        Ok(link)
    }
}
