//! Sockets that carry IPv6 and IPv4 inside IPv4 and UDP (RFC 5555).
//!
//! Each end of such a tunnel is a socket: UDP, or two raw sockets of protocol 41 for IPv6 and 4 for IPv4. At
//! a mobile router the socket is bound to the address and device of an uplink. So the tunnel's packets leave
//! by this uplink even if the main table prefers another uplink. The kernel then uses only routes through
//! that device; the uplink's own table has the default route. At a home agent the socket is bound to an
//! address only. The desired forwarding state contains the sockets.
//!
//! This module only moves octets; the station checks the inner packet and its sender. The module passes the
//! octet with DSCP and ECN of the outer header in both directions (RFC 6040 4.1). It also passes the address
//! of the remote end. It sets DF, ignores the kernel's own path MTU (`IP_PMTUDISC_PROBE`), and reports the
//! path MTU of ICMP errors to the station. Only a packet that may be fragmented leaves without DF.
//!
//! **Many packets per system call.** Packets of one size to one end leave as one UDP burst (`UDP_SEGMENT`).
//! The kernel or the network card cuts the burst into packets. Received packets arrive as one burst
//! (`UDP_GRO`), unless a fast path handles packets before the sockets, because a fast path needs single
//! packets.
//!
//! All of this works in a user namespace, with the capabilities that the TUN device needs anyhow. UDP sockets
//! could carry IPv6 inside IPv6 in the same way, but no caller uses that.

mod checksum_completion;
mod icmp;
mod reader;
mod socket;
mod socket_option;
mod writer;

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired;

use icmp::IcmpErrorSocket;
pub use reader::{DatagramReader, ReceivedDatagram};
use socket::{InnerIpVersion, OpenTunnelSocket};
pub use writer::DatagramWriter;

/// Maximum number of reports of too large packets that wait for the station.
const MAX_ICMP_REPORTS: usize = 64;

/// The sockets of all tunnels inside IPv4. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct DatagramSockets(Arc<Mutex<SocketTable>>);

#[derive(Debug, Default)]
struct SocketTable {
    open_sockets: Vec<Arc<OpenTunnelSocket>>,
    /// Local ends of the sockets for encrypted sessions.
    session_sockets: BTreeSet<Endpoint>,
    too_big_reports: VecDeque<PacketTooBigReport>,
    /// Number of packets that the sockets could not send, since the start.
    unsent_packets: u64,
}

/// An ICMP report of a router on the path: outer packets are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTooBigReport {
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel.
    pub remote: Endpoint,
    /// MTU that fits, in octets, outer header included.
    pub mtu: u32,
}

impl DatagramSockets {
    fn lock(&self) -> MutexGuard<'_, SocketTable> {
        // Use the list of sockets even if a thread panicked while it held the lock: the list is consistent at
        // any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the tunnel socket of a local end; replaces a socket that this local end already has. With
    /// `merge`, the kernel may merge received packets into a burst.
    pub(crate) fn open(&self, wanted: &desired::TunnelSocket, merge: bool) -> io::Result<()> {
        self.close(wanted);
        let sockets = InnerIpVersion::inner_versions_of_socket(wanted.local)
            .iter()
            .map(|carried| OpenTunnelSocket::open(wanted, *carried, merge));
        let sockets = sockets.map(|socket| socket.map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        self.lock().open_sockets.extend(sockets);
        Ok(())
    }

    /// Opens a socket for encrypted sessions at an address of this machine, if it is not open.
    ///
    /// # Errors
    /// Returns the error of the kernel, for example if another program uses the port.
    pub fn open_socket_at(&self, local: SocketAddrV4) -> io::Result<()> {
        let wanted = desired::TunnelSocket { local: Endpoint::Udp(local), interface: None };
        if self.find_socket(wanted.local, false).is_some() {
            return Ok(());
        }
        // A fast path does not handle encrypted packets, so the kernel may merge them.
        self.lock().session_sockets.insert(wanted.local);
        self.open(&wanted, true)
    }

    /// Closes the socket of [`Self::open_socket_at`].
    pub fn close_socket_at(&self, local: SocketAddrV4) {
        self.lock().session_sockets.remove(&Endpoint::Udp(local));
        self.close(&desired::TunnelSocket { local: Endpoint::Udp(local), interface: None });
    }

    /// Sets for all sockets of tunnels in the clear whether the kernel may merge several packets into one
    /// burst.
    pub(crate) fn allow_merged_receive(&self, merge: bool) {
        let sockets = self.lock();
        let is_clear =
            |socket: &&Arc<OpenTunnelSocket>| !sockets.session_sockets.contains(&socket.desired_socket.local);
        sockets.open_sockets.iter().filter(is_clear).for_each(|socket| socket.allow_merged_receive(merge));
    }

    /// Closes a socket.
    pub(crate) fn close(&self, wanted: &desired::TunnelSocket) {
        self.lock().open_sockets.retain(|socket| socket.desired_socket != *wanted);
    }

    fn all_sockets(&self) -> Vec<Arc<OpenTunnelSocket>> {
        self.lock().open_sockets.clone()
    }

    /// Returns the socket of a local end that carries packets of this family; `None` if no such socket is
    /// open.
    fn find_socket(&self, local: Endpoint, is_ipv4: bool) -> Option<Arc<OpenTunnelSocket>> {
        let carries = |socket: &&Arc<OpenTunnelSocket>| {
            socket.desired_socket.local == local && socket.carries_ip_version(is_ipv4)
        };
        self.lock().open_sockets.iter().find(carries).cloned()
    }

    /// Stores ICMP reports until the station reads them. Drops reports for which the list has no room.
    fn store_icmp_reports(&self, complaints: Vec<PacketTooBigReport>) {
        let mut sockets = self.lock();
        let room = MAX_ICMP_REPORTS.saturating_sub(sockets.too_big_reports.len());
        sockets.too_big_reports.extend(complaints.into_iter().take(room));
    }

    fn count_unsent_packets(&self, packets: u64) {
        self.lock().unsent_packets += packets;
    }

    /// Returns the number of packets that the sockets have failed to send since the start.
    pub(crate) fn unsent_packets(&self) -> u64 {
        self.lock().unsent_packets
    }

    /// Returns the next waiting report that a sent packet was too large for its path; `None` if no report
    /// waits.
    pub fn poll_too_big_report(&self) -> Option<PacketTooBigReport> {
        self.lock().too_big_reports.pop_front()
    }

    /// Waits until a socket may have a packet; waits without end while no socket is open. The future may be
    /// dropped.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut ready = false;
            for socket in &self.lock().open_sockets {
                let icmp = socket.icmp_errors.as_ref().map(IcmpErrorSocket::icmp_socket);
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
