//! Reads bursts from the sockets and returns their single packets.

use std::io::{self, IoSliceMut};
use std::net::SocketAddrV4;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use carnet_base::Endpoint;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use tokio::io::Interest;

use super::DatagramSockets;
use super::checksum_completion::{self, PacketKind};
use super::socket::{OpenTunnelSocket, ipv4_socket_address};
use crate::tunnel::segmentation::BurstSegments;

/// Largest size of an IPv4 packet in octets. No received burst is larger.
const MAX_BURST_LENGTH: usize = 65_535;
const IPV4_HEADER_LENGTH: usize = 20;
/// Number of successive errors of a socket after which the reader goes on to the next socket.
const MAX_ERRORS_PER_SOCKET: usize = 4;

/// Properties of a packet that arrived through a tunnel inside IPv4. The caller's buffer contains its octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Length of the packet in octets.
    pub length: usize,
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel, by the source of the outer header.
    pub remote: Endpoint,
    /// DSCP and ECN of the outer header.
    pub traffic_class: u8,
}

/// Reads single packets from the sockets of all tunnels inside IPv4.
#[derive(Debug)]
pub struct DatagramReader {
    sockets: DatagramSockets,
    burst_buffer: Vec<u8>,
    control_buffer: Vec<u8>,
    /// Part of the last received burst that the reader has not returned yet; `None` if no packet of it is
    /// left.
    rest_of_burst: Option<RestOfBurst>,
    /// A burst that is one super packet (GSO), of which the reader still has to return segments. `None`
    /// without such a burst.
    burst_being_split: Option<BurstBeingSplit>,
    /// Index of the next socket to read.
    next_socket_index: usize,
}

#[derive(Debug, Clone, Copy)]
struct RestOfBurst {
    next_segment_offset: usize,
    burst_end_offset: usize,
    segment_length: usize,
    datagram_info: ReceivedDatagram,
}

#[derive(Debug)]
struct BurstBeingSplit {
    payload_range: Range<usize>,
    segments: BurstSegments,
    datagram_info: ReceivedDatagram,
}

impl DatagramReader {
    /// Creates a reader of these sockets.
    pub fn new(io: DatagramSockets) -> DatagramReader {
        DatagramReader {
            sockets: io,
            burst_buffer: vec![0; MAX_BURST_LENGTH],
            control_buffer: nix::cmsg_space!(i32, u8),
            rest_of_burst: None,
            burst_being_split: None,
            next_socket_index: 0,
        }
    }

    /// Returns whether the reader still has packets of a burst that it has received.
    pub fn is_inside_burst(&self) -> bool {
        self.rest_of_burst.is_some() || self.burst_being_split.is_some()
    }

    /// Puts the next packet into `buffer`. A longer packet is truncated.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if no socket has a packet.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
        if let Some(received) = self.next_segment(buffer) {
            return Ok(received);
        }
        if self.rest_of_burst.is_none() {
            self.receive_from_next_socket()?;
        }
        let Some(rest) = &mut self.rest_of_burst else { return Err(io::ErrorKind::WouldBlock.into()) };
        let range = rest.next_segment_offset
            ..(rest.next_segment_offset + rest.segment_length).min(rest.burst_end_offset);
        let next = range.end;
        let packet = self.burst_buffer.get_mut(range.clone()).unwrap_or_default();
        if let PacketKind::Super(segments) = checksum_completion::finish_checksum_of(packet) {
            self.burst_being_split =
                Some(BurstBeingSplit { payload_range: range, segments, datagram_info: rest.datagram_info });
            rest.next_segment_offset = next;
            if rest.next_segment_offset >= rest.burst_end_offset {
                self.rest_of_burst = None;
            }
            return self.next_segment(buffer).ok_or_else(|| io::ErrorKind::WouldBlock.into());
        }
        let packet: &[u8] = packet;
        let length = packet.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), packet.get(..length)) {
            to.copy_from_slice(from);
        }
        let received = ReceivedDatagram { length, ..rest.datagram_info };
        rest.next_segment_offset = next;
        if rest.next_segment_offset >= rest.burst_end_offset {
            self.rest_of_burst = None;
        }
        Ok(received)
    }

    /// Returns the next segment of the received super packet; `None` if no super packet has segments left.
    fn next_segment(&mut self, buffer: &mut [u8]) -> Option<ReceivedDatagram> {
        let cut = self.burst_being_split.as_mut()?;
        let packet = self.burst_buffer.get(cut.payload_range.clone()).unwrap_or_default();
        let length = cut.segments.next_segment(packet, buffer);
        let of = cut.datagram_info;
        if length.is_none() || cut.segments.has_returned_all_segments(packet) {
            self.burst_being_split = None;
        }
        length.map(|length| ReceivedDatagram { length, ..of })
    }

    /// Receives the next datagram or burst. The sockets take turns: each call begins with the next socket.
    fn receive_from_next_socket(&mut self) -> io::Result<()> {
        let sockets = self.sockets.all_sockets();
        for step in 0..sockets.len() {
            let at = (self.next_socket_index + step) % sockets.len();
            let Some(socket) = sockets.get(at) else { continue };
            if let Some(icmp) = &socket.icmp_errors {
                self.sockets.store_icmp_reports(icmp.read_too_big_reports());
            }
            for _ in 0..MAX_ERRORS_PER_SOCKET {
                match self.receive_from_socket(socket) {
                    Ok(()) if self.rest_of_burst.is_some() => {
                        self.next_socket_index = at + 1;
                        return Ok(());
                    }
                    // The datagram contains no packet, so receive the next datagram.
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The error is an ICMP message about a sent packet, which the socket reports once. Store
                    // the reports and try the socket again.
                    Err(_) => self.sockets.store_icmp_reports(socket.take_too_big_reports()),
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn receive_from_socket(&mut self, socket: &Arc<OpenTunnelSocket>) -> io::Result<()> {
        let (burst, control) = (&mut self.burst_buffer, &mut self.control_buffer);
        let (length, from, mut traffic_class, segment) =
            socket.file.try_io(Interest::READABLE, |file: &socket2::Socket| {
                let mut parts = [IoSliceMut::new(burst)];
                let message = recvmsg::<SockaddrStorage>(
                    file.as_raw_fd(),
                    &mut parts,
                    Some(control),
                    MsgFlags::MSG_DONTWAIT,
                )?;
                let (mut traffic_class, mut segment) = (0, None);
                for control in message.cmsgs()? {
                    match control {
                        ControlMessageOwned::Ipv4Tos(octet) => traffic_class = octet,
                        ControlMessageOwned::UdpGroSegments(size) => segment = usize::try_from(size).ok(),
                        _ => {}
                    }
                }
                let from: Option<SocketAddrV4> = message.address.as_ref().and_then(ipv4_socket_address);
                Ok((message.bytes, from, traffic_class, segment))
            })?;
        let mut at = 0;
        if socket.is_raw {
            let header =
                self.burst_buffer.get(..length).and_then(|packet| packet.first_chunk::<IPV4_HEADER_LENGTH>());
            let Some([first, octet, ..]) = header else { return Ok(()) };
            at = usize::from(first & 0x0f) * 4;
            traffic_class = *octet;
        }
        let Some(from) = from.filter(|_| at < length) else { return Ok(()) };
        self.rest_of_burst = Some(RestOfBurst {
            next_segment_offset: at,
            burst_end_offset: length,
            segment_length: segment.filter(|size| *size > 0).unwrap_or(length),
            datagram_info: ReceivedDatagram {
                length: 0,
                local: socket.desired_socket.local,
                remote: socket.remote_endpoint_at(from),
                traffic_class,
            },
        });
        Ok(())
    }
}
