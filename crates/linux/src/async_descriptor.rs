//! Registers descriptors with tokio, which watches them for input.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_sys::Socket as NetlinkSocket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Owner of a file descriptor. The descriptor stays open and does not change while the owner lives.
pub(crate) trait DescriptorOwner: AsRawFd {}

impl DescriptorOwner for OwnedFd {}
impl DescriptorOwner for socket2::Socket {}
impl DescriptorOwner for NetlinkSocket {}

/// Registers the descriptor of `owner` for input with the runtime of this thread.
pub(crate) fn watch_readable<T: DescriptorOwner>(owner: T) -> io::Result<AsyncFd<T>> {
    watch_for_interest(owner, Interest::READABLE)
}

/// Watches a socket for input, and also for events that the kernel calls urgent (`EPOLLPRI`).
pub(crate) fn watch_readable_or_priority<T: DescriptorOwner>(owner: T) -> io::Result<AsyncFd<T>> {
    watch_for_interest(owner, Interest::READABLE | Interest::PRIORITY)
}

fn watch_for_interest<T: DescriptorOwner>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: every `DescriptorOwner` keeps its one descriptor open until it is dropped, and `AsyncFd` drops
    // it last.
    let watched = unsafe { AsyncFd::register_with_interest(owner, interest) };
    watched.map_err(|error| error.into_parts().1)
}
