//! Watches whether interfaces have a carrier. After each link event of the kernel, carnet reads the state of
//! all interfaces again instead of using the event's content.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::Result;
use crate::netlink::{GROUP_LINKS, KernelEvents, NetlinkRequests};

/// Interfaces to watch, by name.
#[derive(Debug)]
pub struct CarrierWatch {
    interface_names: Vec<String>,
    requests: NetlinkRequests,
    events: KernelEvents,
}

impl CarrierWatch {
    /// Watches these interfaces, in the network namespace of the calling thread, which must be one of a tokio
    /// runtime. The interfaces may appear later.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable.
    pub fn open(names: Vec<String>) -> Result<CarrierWatch> {
        // Subscribe to the kernel's events before reading the interfaces, so that no change in between is
        // missed.
        let events = KernelEvents::open(&[GROUP_LINKS])?;
        Ok(CarrierWatch { interface_names: names, requests: NetlinkRequests::open()?, events })
    }

    /// Returns the first interface that is missing, down, or without a carrier; `None` if all interfaces have
    /// a carrier.
    ///
    /// # Errors
    /// Fails if the kernel does not list its interfaces.
    pub fn first_interface_without_carrier(&mut self) -> Result<Option<&str>> {
        for name in &self.interface_names {
            if !self.requests.link_requests().find_link(name)?.is_some_and(|link| link.is_running) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Waits until the state of an interface may have changed. Safe to cancel.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable.
    pub async fn wait_for_carrier_change(&mut self) -> Result<()> {
        poll_fn(|cx| match self.events.poll(cx) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}
