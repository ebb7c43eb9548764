//! Whether interfaces have a carrier: by the kernel's events, which only say that there is something to look
//! at.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::Result;
use crate::netlink::{Events, LINKS, Requests};

/// Interfaces, by their names.
#[derive(Debug)]
pub struct Carriers {
    names: Vec<String>,
    requests: Requests,
    events: Events,
}

impl Carriers {
    /// Of these interfaces, in the network namespace of the calling thread, which must be one of a tokio
    /// runtime. They need not be there yet.
    ///
    /// # Errors
    /// When the kernel's news cannot be had.
    pub fn open(names: Vec<String>) -> Result<Carriers> {
        // The events first, so that nothing happens between the two.
        let events = Events::open(&[LINKS])?;
        Ok(Carriers { names, requests: Requests::open()?, events })
    }

    /// The first of them that is not there, not up, or has no carrier.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn missing(&mut self) -> Result<Option<&str>> {
        for name in &self.names {
            if !self.requests.link(name)?.is_some_and(|link| link.running) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Waits until it is time for another look. Safe to cancel.
    ///
    /// # Errors
    /// When the kernel's news cannot be had.
    pub async fn changed(&mut self) -> Result<()> {
        poll_fn(|cx| match self.events.poll(cx) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}
