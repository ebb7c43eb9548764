//! Sends packets. Successive packets of one size to one remote end leave as one burst.

use std::io::{self, IoSlice};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;

use carnet_base::Endpoint;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

use super::DatagramSockets;
use super::socket::OpenTunnelSocket;

/// Largest number of segments in a burst: the limit of the first kernels with `UDP_SEGMENT`.
const MAX_SEGMENTS: usize = 64;
/// Maximum size of a burst in octets: with IPv4 and UDP headers it must fit into one IPv4 packet.
const MAX_BURST_LENGTH: usize = 65_535 - 28;
/// Maximum number of attempts to send a packet. An attempt fails if the socket has a pending error.
const MAX_SEND_ATTEMPTS: usize = 4;

/// Tunnel ends and traffic class of the packets in a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BurstDestination {
    local: Endpoint,
    remote: Endpoint,
    traffic_class: u8,
    /// Whether the packets are IPv4 packets.
    is_ipv4: bool,
}

/// Sends packets through the sockets of all tunnels inside IPv4. A written packet may wait until
/// [`DatagramWriter::flush`].
#[derive(Debug)]
pub struct DatagramWriter {
    sockets: DatagramSockets,
    burst_buffer: Vec<u8>,
    burst_destination: Option<BurstDestination>,
    /// Size in octets of each packet in the burst. Only the last packet may be shorter.
    segment_length: usize,
    packets_in_burst: usize,
    /// Whether the kernel accepts bursts; true until a burst fails.
    kernel_accepts_bursts: bool,
}

impl DatagramWriter {
    /// Creates a writer to these sockets.
    pub fn new(io: DatagramSockets) -> DatagramWriter {
        DatagramWriter {
            sockets: io,
            burst_buffer: Vec::with_capacity(MAX_BURST_LENGTH),
            burst_destination: None,
            segment_length: 0,
            packets_in_burst: 0,
            kernel_accepts_bursts: true,
        }
    }

    /// Returns the number of packets that the sockets could not send, from all writers.
    pub fn write_error_count(&self) -> u64 {
        self.sockets.unsent_packets()
    }

    /// Sends a packet inside IPv4 from one tunnel end to the other, at the latest at the next
    /// [`Self::flush`]. The outer header has the traffic class of the packet. The order of packets stays.
    pub fn write(&mut self, local: Endpoint, remote: Endpoint, may_fragment: bool, packet: &[u8]) {
        let [first, second, ..] = packet else { return };
        // The first four octets of an IPv6 header contain Version, Traffic Class and Flow Label (RFC 8200 3).
        // The second octet of an IPv4 header is DS field and ECN.
        let is_ipv4 = first >> 4 == 4;
        let traffic_class = if is_ipv4 { *second } else { first << 4 | second >> 4 };
        self.write_to(BurstDestination { local, remote, traffic_class, is_ipv4 }, may_fragment, packet);
    }

    /// Sends a datagram that is no IP packet: a message of an encrypted session. The outer header has this
    /// traffic class. The order of packets and datagrams stays.
    pub fn write_datagram(
        &mut self,
        local: Endpoint,
        remote: Endpoint,
        traffic_class: u8,
        may_fragment: bool,
        datagram: &[u8],
    ) {
        let to = BurstDestination { local, remote, traffic_class, is_ipv4: false };
        self.write_to(to, may_fragment, datagram);
    }

    fn write_to(&mut self, to: BurstDestination, may_fragment: bool, packet: &[u8]) {
        let fits = self.burst_destination == Some(to)
            && packet.len() <= self.segment_length
            && self.packets_in_burst < MAX_SEGMENTS
            && self.burst_buffer.len() + packet.len() <= MAX_BURST_LENGTH;
        if !fits || may_fragment {
            self.flush();
        }
        if may_fragment || !self.kernel_accepts_bursts || matches!(to.local, Endpoint::Ipv4(_)) {
            return self.send_single_packet(to, may_fragment, packet);
        }
        if self.packets_in_burst == 0 {
            self.burst_destination = Some(to);
            self.segment_length = packet.len();
        }
        self.burst_buffer.extend_from_slice(packet);
        self.packets_in_burst += 1;
        if packet.len() < self.segment_length {
            // Only the last packet of a burst may be shorter than the others, so send the burst now.
            self.flush();
        }
    }

    /// Sends all packets that the writer holds.
    pub fn flush(&mut self) {
        let packets = std::mem::take(&mut self.packets_in_burst);
        let Some(to) = self.burst_destination.take().filter(|_| packets > 0) else { return };
        let burst = std::mem::take(&mut self.burst_buffer);
        match self.sockets.find_socket(to.local, to.is_ipv4) {
            None => self.sockets.count_unsent_packets(packets as u64),
            Some(socket) => {
                let segment = u16::try_from(self.segment_length).ok().filter(|_| packets > 1);
                let result = self.send_burst(&socket, to, segment, &burst);
                match (result, segment) {
                    (Ok(()), _) => {}
                    (Err(error), Some(_)) if !is_temporary_error(&error) => {
                        // The kernel refuses bursts for a device that cannot complete checksums. The error
                        // EMSGSIZE has another cause, the size of this burst, so later bursts stay enabled.
                        if error.raw_os_error() != Some(libc::EMSGSIZE) {
                            self.kernel_accepts_bursts = false;
                            tracing::info!(
                                "the kernel refuses UDP segmentation offload ({error}): carnet sends \
                                 tunnel packets one by one"
                            );
                        }
                        for packet in burst.chunks(self.segment_length) {
                            self.send_single_packet(to, false, packet);
                        }
                    }
                    (Err(_), _) => self.sockets.count_unsent_packets(packets as u64),
                }
            }
        }
        self.burst_buffer = burst;
        self.burst_buffer.clear();
    }

    fn send_single_packet(&mut self, to: BurstDestination, may_fragment: bool, packet: &[u8]) {
        let Some(socket) = self.sockets.find_socket(to.local, to.is_ipv4) else {
            self.sockets.count_unsent_packets(1);
            return;
        };
        if may_fragment && socket.allow_fragments(true).is_err() {
            self.sockets.count_unsent_packets(1);
            return;
        }
        if self.send_burst(&socket, to, None, packet).is_err() {
            self.sockets.count_unsent_packets(1);
        }
        if may_fragment && let Err(error) = socket.allow_fragments(false) {
            tracing::warn!("cannot set \"don't fragment\" on the tunnel socket at {}: {error}", to.local);
        }
    }

    fn send_burst(
        &self,
        socket: &OpenTunnelSocket,
        to: BurstDestination,
        segment: Option<u16>,
        octets: &[u8],
    ) -> io::Result<()> {
        let remote = match to.remote {
            Endpoint::Udp(remote) if !socket.is_raw => remote,
            Endpoint::Ipv4(remote) if socket.is_raw => SocketAddrV4::new(remote, 0),
            _ => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        let address = SockaddrStorage::from(remote);
        let traffic_class = ControlMessage::Ipv4Tos(&to.traffic_class);
        let parts = [IoSlice::new(octets)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let descriptor = socket.file.get_ref().as_raw_fd();
        let send = || match &segment {
            Some(segment) => {
                let control = [traffic_class, ControlMessage::UdpGsoSegments(segment)];
                sendmsg(descriptor, &parts, &control, flags, Some(&address))
            }
            None => sendmsg(descriptor, &parts, &[traffic_class], flags, Some(&address)),
        };
        let mut result = send();
        let mut told = false;
        for _ in 0..MAX_SEND_ATTEMPTS {
            if matches!(result, Ok(_) | Err(nix::errno::Errno::EAGAIN)) {
                break;
            }
            // The socket reports each pending error once, possibly for an earlier packet or because of a
            // forged ICMP message. So try again. Read the ICMP reports only after the attempts, because
            // reading takes long.
            told = true;
            result = send();
        }
        if told {
            self.sockets.store_icmp_reports(socket.take_too_big_reports());
        }
        match result {
            Ok(_) => Ok(()),
            Err(nix::errno::Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns whether an error may be temporary: such an error does not show that the device refuses bursts.
fn is_temporary_error(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock
        || matches!(code, Some(libc::ENOBUFS | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN))
        || matches!(code, Some(libc::EPERM | libc::ECONNREFUSED | libc::ENODEV | libc::EACCES))
}
