//! Receives and sends many messages per system call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::{SockAddr, SockAddrStorage, Socket};

use super::MAX_FRAMES_PER_CALL;

/// Octets that a buffer has in addition to the MTU: more than the header of any medium.
const EXTRA_BUFFER_OCTETS: usize = 18;

/// Buffers for a batch of received messages.
#[derive(Debug)]
pub(super) struct ReceiveBatch {
    octets: Vec<u8>,
    /// Size in octets of the buffer for one message.
    slot_size: usize,
}

impl ReceiveBatch {
    /// Creates buffers for messages of `mtu` octets after their header.
    pub(super) fn new(mtu: usize) -> ReceiveBatch {
        let mut batch = ReceiveBatch { octets: Vec::new(), slot_size: 0 };
        batch.grow_buffers(mtu.max(1500));
        batch
    }

    /// Enlarges the buffers for messages of `mtu` octets.
    pub(super) fn grow_buffers(&mut self, mtu: usize) {
        if mtu + EXTRA_BUFFER_OCTETS > self.slot_size {
            self.slot_size = mtu + EXTRA_BUFFER_OCTETS;
            self.octets = vec![0; self.slot_size * MAX_FRAMES_PER_CALL];
        }
    }

    /// Returns the buffer of the first message.
    pub(super) fn first_slot(&mut self) -> &mut [u8] {
        &mut self.octets[..self.slot_size]
    }

    /// Receives the available messages without waiting. Passes each message to the caller's function, with
    /// the sender's address if `named`, and whether the message was truncated. Returns the number of
    /// messages; fewer than [`MAX_FRAMES_PER_CALL`] means that no more are available.
    pub(super) fn receive_messages(
        &mut self,
        socket: &Socket,
        named: bool,
        mut take: impl FnMut(&[u8], Option<SocketAddr>, bool),
    ) -> io::Result<usize> {
        let mut names = Vec::new();
        if named {
            names.resize_with(MAX_FRAMES_PER_CALL, SockAddrStorage::zeroed);
        }
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_FRAMES_PER_CALL];
        // SAFETY: `mmsghdr` is a plain C structure for which all zeros is a valid value.
        let mut headers: [libc::mmsghdr; MAX_FRAMES_PER_CALL] = unsafe { std::mem::zeroed() };
        let slots = self.octets.chunks_exact_mut(self.slot_size);
        for ((header, vector), slot) in headers.iter_mut().zip(&mut vectors).zip(slots) {
            *vector = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        for (header, name) in headers.iter_mut().zip(&mut names) {
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            header.msg_hdr.msg_namelen = name.size_of();
        }
        // SAFETY: every header points to its own vector and at most one name, and every vector to its own
        // slot of the right length. All are live and writable during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                MAX_FRAMES_PER_CALL as libc::c_uint,
                // Let the compiler infer the type of the flags, which differs between glibc and musl.
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let mut names = names.into_iter();
        for (header, slot) in headers.iter().zip(self.octets.chunks_exact(self.slot_size)).take(received) {
            let length = (header.msg_len as usize).min(slot.len());
            let from = names.next().and_then(|name| {
                // SAFETY: the kernel wrote an address of `msg_namelen` octets into `name`, which began as
                // zeros.
                unsafe { SockAddr::new(name, header.msg_hdr.msg_namelen) }.as_socket()
            });
            take(&slot[..length], from, header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0);
        }
        Ok(received)
    }
}

/// Sends up to [`MAX_FRAMES_PER_CALL`] messages without waiting. Returns how many the kernel accepted, at
/// least one. A message without an address goes to the socket's bound destination.
pub(super) fn send_messages(socket: &Socket, messages: &[(&[u8], Option<&SockAddr>)]) -> io::Result<usize> {
    let count = messages.len().min(MAX_FRAMES_PER_CALL);
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_FRAMES_PER_CALL];
    // SAFETY: `mmsghdr` is a plain C structure for which all zeros is a valid value.
    let mut headers: [libc::mmsghdr; MAX_FRAMES_PER_CALL] = unsafe { std::mem::zeroed() };
    for ((header, vector), (octets, to)) in headers.iter_mut().zip(&mut vectors).zip(messages) {
        *vector = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if let Some(to) = to {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
        }
    }
    // SAFETY: each of the first `count` headers points to its own vector, and the vector to a live message of
    // the right length. Each header points to at most one live address of the right length. The kernel writes
    // only `msg_len`.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
