//! Reads bursts from the sockets and returns their single packets.

use std::io::{self, IoSliceMut};
use std::net::SocketAddrV4;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use carnet_base::Endpoint;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use tokio::io::Interest;

use super::Datagrams;
use super::socket::{Socket, socket_address};
use super::unfinished::{self, Found};
use crate::tunnel::segmentation::Segments;

/// Size of the largest IPv4 packet in octets, and so of the largest burst.
const BURST_MAX: usize = 65_535;
const IPV4_HEADER: usize = 20;
/// Maximum number of successive errors of one socket before the reader continues with the next socket.
const PATIENCE: usize = 4;

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Octets of the packet.
    pub length: usize,
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel, by the outer source.
    pub remote: Endpoint,
    /// DSCP and ECN of the outer header.
    pub traffic_class: u8,
}

/// Reads single packets from the sockets of all tunnels inside IPv4.
#[derive(Debug)]
pub struct DatagramReader {
    io: Datagrams,
    burst: Vec<u8>,
    control: Vec<u8>,
    /// Unread part of the burst that the reader took last from a socket.
    rest: Option<Rest>,
    /// Super packet of the burst that the reader is cutting.
    cut: Option<Cut>,
    /// Index of the next socket to read.
    turn: usize,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    at: usize,
    end: usize,
    segment: usize,
    of: Received,
}

#[derive(Debug)]
struct Cut {
    range: Range<usize>,
    segments: Segments,
    of: Received,
}

impl DatagramReader {
    /// Creates a reader of these sockets.
    pub fn new(io: Datagrams) -> DatagramReader {
        DatagramReader {
            io,
            burst: vec![0; BURST_MAX],
            control: nix::cmsg_space!(i32, u8),
            rest: None,
            cut: None,
            turn: 0,
        }
    }

    /// Returns whether the reader holds further packets of a burst that it has already taken from a socket.
    pub fn is_inside_burst(&self) -> bool {
        self.rest.is_some() || self.cut.is_some()
    }

    /// Puts the next packet into `buffer`. A longer packet is truncated.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if no socket has a packet.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if let Some(received) = self.next_segment(buffer) {
            return Ok(received);
        }
        if self.rest.is_none() {
            self.receive()?;
        }
        let Some(rest) = &mut self.rest else { return Err(io::ErrorKind::WouldBlock.into()) };
        let range = rest.at..(rest.at + rest.segment).min(rest.end);
        let next = range.end;
        let packet = self.burst.get_mut(range.clone()).unwrap_or_default();
        if let Found::Super(segments) = unfinished::look(packet) {
            self.cut = Some(Cut { range, segments, of: rest.of });
            rest.at = next;
            if rest.at >= rest.end {
                self.rest = None;
            }
            return self.next_segment(buffer).ok_or_else(|| io::ErrorKind::WouldBlock.into());
        }
        let packet: &[u8] = packet;
        let length = packet.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), packet.get(..length)) {
            to.copy_from_slice(from);
        }
        let received = Received { length, ..rest.of };
        rest.at = next;
        if rest.at >= rest.end {
            self.rest = None;
        }
        Ok(received)
    }

    /// Returns the next segment of the super packet that the reader is cutting.
    fn next_segment(&mut self, buffer: &mut [u8]) -> Option<Received> {
        let cut = self.cut.as_mut()?;
        let packet = self.burst.get(cut.range.clone()).unwrap_or_default();
        let length = cut.segments.next(packet, buffer);
        let of = cut.of;
        if length.is_none() || cut.segments.is_done(packet) {
            self.cut = None;
        }
        length.map(|length| Received { length, ..of })
    }

    /// Receives the next burst, from each socket in turn.
    fn receive(&mut self) -> io::Result<()> {
        let sockets = self.io.all();
        for step in 0..sockets.len() {
            let at = (self.turn + step) % sockets.len();
            let Some(socket) = sockets.get(at) else { continue };
            if let Some(icmp) = &socket.icmp {
                self.io.hear(icmp.complaints());
            }
            for _ in 0..PATIENCE {
                match self.receive_from(socket) {
                    Ok(()) if self.rest.is_some() => {
                        self.turn = at + 1;
                        return Ok(());
                    }
                    // The datagram contains no packet: try the next datagram.
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The error is an ICMP message about a sent packet. The socket reports it once.
                    Err(_) => self.io.hear(socket.errors()),
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn receive_from(&mut self, socket: &Arc<Socket>) -> io::Result<()> {
        let (burst, control) = (&mut self.burst, &mut self.control);
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
                let from: Option<SocketAddrV4> = message.address.as_ref().and_then(socket_address);
                Ok((message.bytes, from, traffic_class, segment))
            })?;
        let mut at = 0;
        if socket.is_raw {
            let header = self.burst.get(..length).and_then(|packet| packet.first_chunk::<IPV4_HEADER>());
            let Some([first, octet, ..]) = header else { return Ok(()) };
            at = usize::from(first & 0x0f) * 4;
            traffic_class = *octet;
        }
        let Some(from) = from.filter(|_| at < length) else { return Ok(()) };
        self.rest = Some(Rest {
            at,
            end: length,
            segment: segment.filter(|size| *size > 0).unwrap_or(length),
            of: Received {
                length: 0,
                local: socket.wanted.local,
                remote: socket.remote(from),
                traffic_class,
            },
        });
        Ok(())
    }
}
