//! IPv6 inside IPv4 and UDP (RFC 5555): the sockets that carry it.
//!
//! Each end of such a tunnel is a socket: UDP, or raw of protocol 41. At a mobile router it is bound to its
//! uplink's address and device. So its packets leave by this uplink, whatever the main table prefers. The
//! kernel then uses only routes by that device; the uplink's own table has the default route. At a home agent
//! it is bound to an address only. The desired forwarding state contains the sockets.
//!
//! This module moves octets in and out; the station checks the inner packet and its sender. Of the outer
//! header the module passes the octet with DSCP and ECN in both directions (RFC 6040 4.1). It also passes the
//! address of the other end. It sets DF and ignores the kernel's own path MTU (`IP_PMTUDISC_PROBE`), and
//! reports ICMP's to the station. Only a packet that may be fragmented leaves without DF.
//!
//! **Many packets per system call.** Packets of one size to one end leave as one UDP burst (`UDP_SEGMENT`),
//! which the kernel or the card cuts. They arrive as one (`UDP_GRO`) unless a fast path stands before the
//! sockets, which needs them one by one.
//!
//! All of this works in a user namespace, with the rights that the TUN device needs anyhow. Left out: IPv6
//! inside UDP inside IPv6 needs no more than its addresses and is carried too, but nothing asks for it yet.

mod icmp;
mod reader;
mod socket;
mod unfinished;
mod writer;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use carnet_base::Endpoint;
use carnet_station::forwarding::desired;

use icmp::Icmp;
pub use reader::{DatagramReader, Received};
use socket::Socket;
pub use writer::DatagramWriter;

/// Messages about too large packets that may wait to be told.
const COMPLAINTS_MAX: usize = 64;

/// The sockets. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Datagrams(Arc<Mutex<Sockets>>);

#[derive(Debug, Default)]
struct Sockets {
    open: Vec<Arc<Socket>>,
    complaints: VecDeque<TooBig>,
    /// Packets that could not be sent.
    unsent: u64,
}

/// A router on the path reported that outer packets are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig {
    /// Our end.
    pub local: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// How many octets would fit, with the outer header.
    pub mtu: u32,
}

impl Datagrams {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        // A list is whole even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a socket, in place of one for the same end. With `merge` the kernel may hand several packets
    /// over in one piece.
    pub(crate) fn open(&self, wanted: &desired::Socket, merge: bool) -> io::Result<()> {
        self.close(wanted);
        let socket = Arc::new(Socket::open(wanted, merge)?);
        self.lock().open.push(socket);
        Ok(())
    }

    /// Whether the kernel may hand several packets over in one piece, for all sockets that there are.
    pub(crate) fn merge(&self, merge: bool) {
        self.all().iter().for_each(|socket| socket.merge(merge));
    }

    /// Closes a socket.
    pub(crate) fn close(&self, wanted: &desired::Socket) {
        self.lock().open.retain(|socket| socket.wanted != *wanted);
    }

    fn all(&self) -> Vec<Arc<Socket>> {
        self.lock().open.clone()
    }

    fn find(&self, local: Endpoint) -> Option<Arc<Socket>> {
        self.lock().open.iter().find(|socket| socket.wanted.local == local).cloned()
    }

    /// Keeps what ICMP had to say, to be told.
    fn hear(&self, complaints: Vec<TooBig>) {
        let mut sockets = self.lock();
        let room = COMPLAINTS_MAX.saturating_sub(sockets.complaints.len());
        sockets.complaints.extend(complaints.into_iter().take(room));
    }

    fn lose(&self, packets: u64) {
        self.lock().unsent += packets;
    }

    /// How many packets could not be sent so far.
    pub(crate) fn unsent(&self) -> u64 {
        self.lock().unsent
    }

    /// The next complaint that packets are too large.
    pub fn poll_too_big(&self) -> Option<TooBig> {
        self.lock().complaints.pop_front()
    }

    /// Waits until there may be a packet to read; for ever without sockets. Safe to cancel.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut ready = false;
            for socket in &self.lock().open {
                let icmp = socket.icmp.as_ref().map(Icmp::file);
                for file in icmp.into_iter().chain([&socket.file]) {
                    ready |= match file.poll_read_ready(cx) {
                        Poll::Ready(Ok(_)) => true,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => false,
                    };
                }
            }
            if ready { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}
