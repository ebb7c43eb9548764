//! Reads and writes IPv6 in Ethernet frames with a virtio header, through a TAP device or through a packet
//! socket on an interface.
//!
//! With the virtio header the kernel passes a burst (GSO) in one piece, and this module cuts it into packets.
//! The module also completes checksums that the sender left to its network card. On a veth, for example,
//! packets arrive with incomplete checksums.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use socket2::{SockFilter, Socket};

use crate::error::{Error, Result};
use crate::packet_socket::{self, AT_LEAST, EQUAL, LOAD_HALF, LOAD_WORD, PACKET_TYPE, RETURN};
use crate::readable::watch;
use crate::tunnel::device::{self, DeviceFeatures, Kind};
use crate::tunnel::segmentation::Segments;
use crate::tunnel::virtio;

/// Length of an Ethernet header in octets.
const ETHERNET: usize = 14;
/// EtherType of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Length in octets of the largest frame and its virtio header.
const BUFFER: usize = virtio::LENGTH + ETHERNET + 40 + 65_535;

/// A 48-bit link-layer address.
type MacAddress = [u8; 6];

/// Largest number of frames that the caller receives from one device before it receives from the next.
const BATCH: usize = 64;

/// Counters of frames, over one or more devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that the kernel refused to send.
    pub write_errors: u64,
    /// Number of times that the received data were no valid frame.
    pub malformed: u64,
}

impl FrameCounters {
    /// Returns the counters by name.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        let FrameCounters { received, sent, write_errors, malformed } = *self;
        [("received", received), ("sent", sent), ("write_errors", write_errors), ("malformed", malformed)]
    }

    /// Counts a sent or refused frame; `None` if no device existed for the frame.
    pub(crate) fn written(&mut self, result: Option<io::Result<()>>) {
        match result {
            Some(Ok(())) => self.sent += 1,
            _ => self.write_errors += 1,
        }
    }
}

/// Reads and writes the frames of one device.
#[derive(Debug)]
pub(crate) struct FrameDevice {
    file: AsyncFd<OwnedFd>,
    has_header: bool,
    /// Buffer for the frame that was read last.
    buffer: Box<[u8]>,
    /// Length of the burst in [`Self::buffer`], and its remaining segments.
    burst: Option<(usize, Segments)>,
    segment: Box<[u8]>,
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) ether_type: u16,
    pub(crate) payload: &'a [u8],
}

impl FrameDevice {
    /// Creates a TAP device, which is still down. Reading it returns the frames that the host sends.
    pub(crate) fn tap(name: &str) -> Result<FrameDevice> {
        let (file, DeviceFeatures { has_header, .. }) = device::create(name, Kind::Tap)?;
        FrameDevice::new(file, has_header, name)
    }

    /// Opens a socket that receives the IPv6 frames to multicast groups at an interface. The interface
    /// accepts frames to any group while the socket exists.
    pub(crate) fn set_multicast_groups(index: u32, name: &str) -> Result<FrameDevice> {
        let failed = |e| Error::kernel(format!("set the multicast groups of {name}"), e);
        let socket = packet_socket::open(index, u16::from_be_bytes(IPV6), &filter()).map_err(failed)?;
        let has_header = set_option(&socket, libc::PACKET_VNET_HDR, &1).is_ok();
        let membership = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&socket, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(failed)?;
        FrameDevice::new(socket.into(), has_header, name)
    }

    fn new(file: OwnedFd, has_header: bool, name: &str) -> Result<FrameDevice> {
        let file = watch(file).map_err(|e| Error::kernel(format!("wait for frames of {name}"), e))?;
        let buffer = || vec![0; BUFFER].into_boxed_slice();
        Ok(FrameDevice { file, has_header, buffer: buffer(), burst: None, segment: buffer() })
    }

    /// Returns ready if frames may be ready; if not, wakes the task when they are.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.burst.is_some() {
            return Poll::Ready(());
        }
        self.file.poll_read_ready(cx).map(|guard| drop(guard.map(|mut guard| guard.retain_ready())))
    }

    /// Receives the frames that are ready, at most a batch, and passes each to `take`.
    pub(crate) fn receive(&mut self, counters: &mut FrameCounters, mut take: impl FnMut(Frame<'_>)) {
        let mut count = 0;
        while count < BATCH || self.burst.is_some() {
            match self.try_receive() {
                Ok(Some(frame)) => {
                    counters.received += 1;
                    take(frame);
                }
                Ok(None) => counters.malformed += 1,
                // No frame is ready, or the interface is gone. The kernel's link events report a vanished
                // interface.
                Err(_) => break,
            }
            count += 1;
        }
    }

    /// Returns the next frame with its checksum finished; `None` for invalid data.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::WouldBlock`] if no frame is ready.
    fn try_receive(&mut self) -> io::Result<Option<Frame<'_>>> {
        if self.burst.is_none() {
            let FrameDevice { file, buffer, .. } = self;
            let length =
                file.try_io(Interest::READABLE, |fd| nix::unistd::read(fd, buffer).map_err(io::Error::from))?;
            if !self.has_header {
                return Ok(frame(self.buffer.get(..length).unwrap_or_default()));
            }
            match check_frame(self.buffer.get_mut(..length).unwrap_or_default()) {
                ReadOutcome::Frame => {
                    return Ok(frame(self.buffer.get(virtio::LENGTH..length).unwrap_or_default()));
                }
                ReadOutcome::Burst(segments) => self.burst = Some((length, segments)),
                ReadOutcome::Nonsense => return Ok(None),
            }
        }
        let FrameDevice { buffer, burst, segment, .. } = self;
        let Some((length, segments)) = burst else { return Ok(None) };
        let (ethernet, packet) = buffer
            .get(virtio::LENGTH..*length)
            .and_then(|frame| frame.split_at_checked(ETHERNET))
            .unwrap_or_default();
        let cut = segments.next(packet, segment);
        if segments.is_done(packet) {
            *burst = None;
        }
        let payload = cut.and_then(|cut| segment.get(..cut)).unwrap_or_default();
        Ok(addresses(ethernet).map(|(destination, source, ether_type)| Frame {
            destination,
            source,
            ether_type,
            payload,
        }))
    }

    /// Sends an IPv6 packet in a frame.
    pub(crate) fn write(&self, destination: MacAddress, source: MacAddress, packet: &[u8]) -> io::Result<()> {
        let parts = [
            IoSlice::new(&[0; virtio::LENGTH]),
            IoSlice::new(&destination),
            IoSlice::new(&source),
            IoSlice::new(&IPV6),
            IoSlice::new(packet),
        ];
        let parts = if self.has_header { &parts[..] } else { &parts[1..] };
        nix::sys::uio::writev(self.file.get_ref(), parts)?;
        Ok(())
    }
}

/// Returns a filter that accepts frames to IPv6 groups from outside (RFC 2464 7). Frames to other stations
/// (`PACKET_OTHERHOST`, 3) arrive if a program has made the interface promiscuous; they go to no group.
fn filter() -> [SockFilter; 6] {
    [
        SockFilter::new(LOAD_WORD, 0, 0, PACKET_TYPE),
        SockFilter::new(AT_LEAST, 3, 0, 3),
        SockFilter::new(LOAD_HALF, 0, 0, 0),
        SockFilter::new(EQUAL, 0, 1, 0x3333),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

fn set_option<T>(socket: &Socket, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` octets of a live value.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn addresses(ethernet: &[u8]) -> Option<(MacAddress, MacAddress, u16)> {
    let (destination, rest) = ethernet.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    Some((*destination, *source, u16::from_be_bytes(*rest.first_chunk()?)))
}

fn frame(octets: &[u8]) -> Option<Frame<'_>> {
    let (destination, source, ether_type) = addresses(octets)?;
    Some(Frame { destination, source, ether_type, payload: octets.get(ETHERNET..)? })
}

/// Kind of the data that a read returned.
#[derive(Debug)]
enum ReadOutcome {
    Frame,
    Burst(Segments),
    Nonsense,
}

/// Checks a frame with its virtio header, and finishes its checksum. The offsets in the virtio header count
/// from the begin of the Ethernet header. The functions for cutting and checksums need offsets from the begin
/// of the packet.
fn check_frame(frame: &mut [u8]) -> ReadOutcome {
    let Some((header, frame)) = frame.split_first_chunk_mut() else { return ReadOutcome::Nonsense };
    let Ok(mut header) = virtio::Header::parse(header) else { return ReadOutcome::Nonsense };
    let Some((_, packet)) = frame.split_at_mut_checked(ETHERNET) else { return ReadOutcome::Nonsense };
    if let Some(unfinished) = &mut header.unfinished {
        let Some(start) = unfinished.start.checked_sub(ETHERNET as u16) else { return ReadOutcome::Nonsense };
        unfinished.start = start;
    }
    if header.burst.is_some() {
        return Segments::new(&header, packet).map_or(ReadOutcome::Nonsense, ReadOutcome::Burst);
    }
    match header.unfinished {
        Some(unfinished) if !unfinished.finish(packet) => ReadOutcome::Nonsense,
        _ => ReadOutcome::Frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with a virtio header that requests a checksum at `start` + `offset`.
    fn read(start: u16, offset: u16, payload: usize) -> Vec<u8> {
        let unfinished = Some(virtio::Unfinished { start, offset });
        let header = virtio::Header { unfinished, ..virtio::Header::default() };
        let ethernet = [[2; 6], [4; 6]].concat();
        [&header.emit()[..], &ethernet, &IPV6, &vec![1; payload]].concat()
    }

    #[test]
    fn unfinished_checksum_behind_ethernet_header_is_completed() {
        let mut octets = read(14 + 40, 6, 60);
        assert!(matches!(check_frame(&mut octets), ReadOutcome::Frame));
        let changed: Vec<usize> = octets
            .iter()
            .skip(virtio::LENGTH + ETHERNET)
            .enumerate()
            .filter(|(_, o)| **o != 1)
            .map(|(i, _)| i)
            .collect();
        assert_eq!(changed, [46, 47]);
    }

    #[test]
    fn virtio_header_beyond_frame_is_refused() {
        for (start, offset, payload) in [(13, 0, 60), (14 + 60, 0, 60), (14, 60, 60), (0xffff, 0xffff, 60)] {
            assert!(
                matches!(check_frame(&mut read(start, offset, payload)), ReadOutcome::Nonsense),
                "{start} {offset}"
            );
        }
        assert!(matches!(check_frame(&mut [0; virtio::LENGTH + ETHERNET - 1]), ReadOutcome::Nonsense));
        assert!(matches!(check_frame(&mut []), ReadOutcome::Nonsense));
    }
}
