//! Watches whether interfaces have a carrier. An event of the kernel only causes carnet to read their state
//! again.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::Result;
use crate::netlink::{Events, LINKS, Requests};

/// Interfaces to watch, by name.
#[derive(Debug)]
pub struct Carriers {
    names: Vec<String>,
    requests: Requests,
    events: Events,
}

impl Carriers {
    /// Watches these interfaces, in the network namespace of the calling thread, which must be one of a tokio
    /// runtime. The interfaces may appear later.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable.
    pub fn open(names: Vec<String>) -> Result<Carriers> {
        // Subscribe to the kernel's events before reading the interfaces, so that no change in between is
        // missed.
        let events = Events::open(&[LINKS])?;
        Ok(Carriers { names, requests: Requests::open()?, events })
    }

    /// Returns the first interface that is missing, down, or without a carrier; `None` if all interfaces have
    /// a carrier.
    ///
    /// # Errors
    /// Fails if the kernel does not list its interfaces.
    pub fn first_interface_without_carrier(&mut self) -> Result<Option<&str>> {
        for name in &self.names {
            if !self.requests.links().find(name)?.is_some_and(|link| link.running) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Waits until the state of an interface may have changed. Safe to cancel.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable.
    pub async fn changed(&mut self) -> Result<()> {
        poll_fn(|cx| match self.events.poll(cx) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}
