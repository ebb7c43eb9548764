//! A socket that receives the kernel's events about changes. It ignores their content, and the caller reads
//! the present state.

use std::io;
use std::net::Ipv6Addr;
use std::task::{Context, Poll};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use tokio::io::unix::AsyncFd;

use super::AddressInfo;
use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};
use crate::frame_device::FrameDevice;

/// `RTNLGRP_LINK`: multicast group of events about interfaces.
pub(crate) const GROUP_LINKS: u32 = 1;
/// `RTNLGRP_IPV6_IFADDR`: multicast group of events about IPv6 addresses.
pub(crate) const GROUP_IPV6_ADDRESSES: u32 = 9;

/// A type that receives frames from devices and reads the kernel's state again after events.
pub(crate) trait FrameDeviceWatcher {
    /// Type of the events that the watcher returns.
    type Event;
    /// Event to return when frames may be ready.
    const FRAMES_EVENT: Self::Event;

    /// Returns the event socket, and the flag that says whether to read the kernel's state again.
    fn event_socket(&mut self) -> (&mut KernelEvents, &mut bool);
    /// Reads the kernel's state. Returns a change that the watcher has not reported yet, if any.
    fn read_pending_change(&mut self) -> Result<Option<Self::Event>>;
    /// Returns the devices whose frames the watcher reads.
    fn frame_devices(&self) -> impl Iterator<Item = &FrameDevice>;

    /// Returns the next event, or pending until an event arrives.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Event>> {
        let (events, dirty) = self.event_socket();
        *dirty |= events.poll(cx)?;
        if *dirty {
            if let Some(event) = self.read_pending_change()? {
                return Poll::Ready(Ok(event));
            }
            *self.event_socket().1 = false;
        }
        let mut ready = false;
        for device in self.frame_devices() {
            ready |= device.poll_readable(cx).is_ready();
        }
        if ready { Poll::Ready(Ok(Self::FRAMES_EVENT)) } else { Poll::Pending }
    }
}

/// Returns the usable addresses of an interface in ascending order, with their prefix lengths. An address is
/// usable after duplicate address detection.
pub(crate) fn usable_addresses(known: &[AddressInfo], index: Option<u32>) -> Vec<(Ipv6Addr, u8)> {
    let own = known.iter().filter(|known| Some(known.index) == index).map(|known| &known.address);
    let usable = own.filter(|address| !address.tentative && !address.duplicate);
    let mut addresses: Vec<_> = usable.map(|address| (address.address, address.prefix_length)).collect();
    addresses.sort();
    addresses
}

/// Socket for the kernel's events.
#[derive(Debug)]
pub(crate) struct KernelEvents {
    socket: AsyncFd<Socket>,
    receive_buffer: Vec<u8>,
}

impl KernelEvents {
    /// Joins these multicast groups of the kernel, in the network namespace of the calling thread.
    pub(crate) fn open(groups: &[u32]) -> Result<KernelEvents> {
        let failed = |e: io::Error| Error::from_kernel_refusal("listen to netlink events", e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        for group in groups {
            socket.add_membership(*group).map_err(failed)?;
        }
        Ok(KernelEvents {
            socket: watch_readable(socket).map_err(failed)?,
            receive_buffer: Vec::with_capacity(4096),
        })
    }

    /// Reads all events and registers a wake-up for more. Returns whether any events had arrived.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let failed = |e: io::Error| Error::from_kernel_refusal("receive netlink events", e);
        let mut heard = false;
        while let Poll::Ready(guard) = self.socket.poll_read_ready(cx) {
            let mut guard = guard.map_err(failed)?;
            loop {
                self.receive_buffer.clear();
                match guard.get_inner().recv(&mut self.receive_buffer, 0) {
                    Ok(_) => heard = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The kernel has dropped events, so read its state again.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => heard = true,
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(heard)
    }
}
