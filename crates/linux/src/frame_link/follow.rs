//! An interface, followed by its name.
//!
//! The kernel's events only say that some interface changed. The link then asks for the present state of its
//! own interface by name, like the platform's observer.

use std::task::Context;

use crate::error::Result;
use crate::netlink::{Events, LINKS, LinkInfo, Requests};

/// The name, and who tells about it.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) name: String,
    /// The interface that has the name at present.
    pub(super) index: Option<u32>,
    pub(super) requests: Requests,
    events: Events,
    /// A look is due, because of an event or because the last one failed.
    due: bool,
}

impl Follow {
    pub(super) fn open(name: String) -> Result<Follow> {
        let events = Events::open(&[LINKS])?;
        Ok(Follow { name, index: None, requests: Requests::open()?, events, due: false })
    }

    /// Reads all events and asks to be woken by more; whether a look is due.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        self.due |= self.events.poll(cx)?;
        Ok(self.due)
    }

    /// Returns the present interface; `None` if it does not exist.
    pub(super) fn look(&mut self) -> Result<Option<LinkInfo>> {
        self.due = true;
        let link = self.requests.link(&self.name)?;
        self.due = false;
        Ok(link)
    }
}
