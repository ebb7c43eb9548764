//! Follows an interface by its name, while it appears, changes and vanishes.
//!
//! An event of the kernel only says that some interface has changed. The link then reads the present state of
//! its own interface by name, like the platform's observer.

use std::task::Context;

use crate::error::Result;
use crate::netlink::{Events, LINKS, LinkInfo, Requests};

/// Name of the followed interface, and the socket for the kernel's events.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) name: String,
    /// Index of the interface that has the name at present.
    pub(super) index: Option<u32>,
    pub(super) requests: Requests,
    events: Events,
    /// Whether the interface's state has to be read, because of an event or because the last reading failed.
    due: bool,
}

impl Follow {
    pub(super) fn open(name: String) -> Result<Follow> {
        let events = Events::open(&[LINKS])?;
        Ok(Follow { name, index: None, requests: Requests::open()?, events, due: false })
    }

    /// Reads all events and registers a wake-up for more. Returns whether the interface's state has to be
    /// read.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        self.due |= self.events.poll(cx)?;
        Ok(self.due)
    }

    /// Reads the state of the interface; `None` if no interface has the name.
    pub(super) fn look(&mut self) -> Result<Option<LinkInfo>> {
        self.due = true;
        let link = self.requests.link(&self.name)?;
        self.due = false;
        Ok(link)
    }
}
