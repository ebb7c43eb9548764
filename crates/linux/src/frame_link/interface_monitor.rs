//! Follows an interface by its name, while it appears, changes and vanishes.
//!
//! An event of the kernel only says that some interface has changed. The link then reads the present state of
//! its own interface by name, like the platform's observer.

use std::task::Context;

use crate::error::Result;
use crate::netlink::{GROUP_LINKS, KernelEvents, LinkInfo, NetlinkRequests};

/// Name of the followed interface, and the socket for the kernel's events.
#[derive(Debug)]
pub(super) struct InterfaceMonitor {
    pub(super) name: String,
    /// Index of the interface that now has the followed name; `None` if no interface has it.
    pub(super) index: Option<u32>,
    pub(super) requests: NetlinkRequests,
    events: KernelEvents,
    /// Whether to read the interface's state: an event has arrived, or the last reading failed.
    must_read_state: bool,
}

impl InterfaceMonitor {
    pub(super) fn open(name: String) -> Result<InterfaceMonitor> {
        let events = KernelEvents::open(&[GROUP_LINKS])?;
        Ok(InterfaceMonitor {
            name,
            index: None,
            requests: NetlinkRequests::open()?,
            events,
            must_read_state: false,
        })
    }

    /// Reads all events and registers a wake-up for more. Returns whether the interface's state has to be
    /// read.
    pub(super) fn poll_changes(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        self.must_read_state |= self.events.poll(cx)?;
        Ok(self.must_read_state)
    }

    /// Reads the state of the interface; `None` if no interface has the name.
    pub(super) fn read_state(&mut self) -> Result<Option<LinkInfo>> {
        self.must_read_state = true;
        let link = self.requests.link_requests().find_link(&self.name)?;
        self.must_read_state = false;
        Ok(link)
    }
}
