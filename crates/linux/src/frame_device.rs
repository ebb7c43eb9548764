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

use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};
use crate::packet_socket::{
    self, BPF_JUMP_IF_AT_LEAST, BPF_JUMP_IF_EQUAL, BPF_LOAD_HALF_WORD, BPF_LOAD_WORD, BPF_RETURN,
    OFFSET_PACKET_TYPE,
};
use crate::tunnel::device::{self, DeviceFeatures, DeviceKind};
use crate::tunnel::segmentation::BurstSegments;
use crate::tunnel::virtio;

/// Length of an Ethernet header in octets.
const ETHERNET_HEADER_LENGTH: usize = 14;
/// EtherType of IPv6.
const ETHER_TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Length in octets of the largest frame and its virtio header.
const FRAME_BUFFER_SIZE: usize = virtio::VIRTIO_HEADER_LENGTH + ETHERNET_HEADER_LENGTH + 40 + 65_535;

/// A 48-bit link-layer address.
type MacAddress = [u8; 6];

/// Largest number of frames that the caller receives from one device before it receives from the next.
const MAX_FRAMES_PER_CALL: usize = 64;

/// Counters of frames, over one or more devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Frames received.
    pub received_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames that the kernel refused to send.
    pub write_errors: u64,
    /// Number of reads that returned no valid frame.
    pub malformed_frames: u64,
}

impl FrameCounters {
    /// Returns the counters by name.
    pub fn named_counters(&self) -> [(&'static str, u64); 4] {
        let FrameCounters {
            received_frames: received,
            sent_frames: sent,
            write_errors,
            malformed_frames: malformed,
        } = *self;
        [("received", received), ("sent", sent), ("write_errors", write_errors), ("malformed", malformed)]
    }

    /// Counts a sent or refused frame; `None` if no device existed for the frame.
    pub(crate) fn count_write_result(&mut self, result: Option<io::Result<()>>) {
        match result {
            Some(Ok(())) => self.sent_frames += 1,
            _ => self.write_errors += 1,
        }
    }
}

/// Reads and writes the frames of one device.
#[derive(Debug)]
pub(crate) struct FrameDevice {
    file: AsyncFd<OwnedFd>,
    has_virtio_header: bool,
    /// Buffer for the frame that was read last.
    frame_buffer: Box<[u8]>,
    /// Length of the burst in the buffer [`Self::frame_buffer`], and its remaining segments; `None` if no
    /// burst is being cut.
    burst_in_buffer: Option<(usize, BurstSegments)>,
    segment_buffer: Box<[u8]>,
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedFrame<'a> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) ether_type: u16,
    pub(crate) payload: &'a [u8],
}

impl FrameDevice {
    /// Creates a TAP device, which is still down. Reading it returns the frames that the host sends.
    pub(crate) fn open_tap_device(name: &str) -> Result<FrameDevice> {
        let (file, DeviceFeatures { has_header, .. }) = device::create_device(name, DeviceKind::Tap)?;
        FrameDevice::new(file, has_header, name)
    }

    /// Opens a socket that receives the IPv6 frames to multicast groups at an interface. The interface
    /// accepts frames to any group while the socket exists.
    pub(crate) fn open_multicast_socket(index: u32, name: &str) -> Result<FrameDevice> {
        let failed = |e| Error::from_kernel_refusal(format!("set the multicast groups of {name}"), e);
        let socket = packet_socket::open_frame_socket(
            index,
            u16::from_be_bytes(ETHER_TYPE_IPV6),
            &ipv6_multicast_filter(),
        )
        .map_err(failed)?;
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
        let file = watch_readable(file)
            .map_err(|e| Error::from_kernel_refusal(format!("wait for frames of {name}"), e))?;
        let buffer = || vec![0; FRAME_BUFFER_SIZE].into_boxed_slice();
        Ok(FrameDevice {
            file,
            has_virtio_header: has_header,
            frame_buffer: buffer(),
            burst_in_buffer: None,
            segment_buffer: buffer(),
        })
    }

    /// Returns ready if frames may be ready; if not, wakes the task when they are.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.burst_in_buffer.is_some() {
            return Poll::Ready(());
        }
        self.file.poll_read_ready(cx).map(|guard| drop(guard.map(|mut guard| guard.retain_ready())))
    }

    /// Receives the frames that are ready, at most a batch, and passes each to `take`.
    pub(crate) fn receive(&mut self, counters: &mut FrameCounters, mut take: impl FnMut(ReceivedFrame<'_>)) {
        let mut count = 0;
        while count < MAX_FRAMES_PER_CALL || self.burst_in_buffer.is_some() {
            match self.try_receive_frame() {
                Ok(Some(frame)) => {
                    counters.received_frames += 1;
                    take(frame);
                }
                Ok(None) => counters.malformed_frames += 1,
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
    fn try_receive_frame(&mut self) -> io::Result<Option<ReceivedFrame<'_>>> {
        if self.burst_in_buffer.is_none() {
            let FrameDevice { file, frame_buffer: buffer, .. } = self;
            let length =
                file.try_io(Interest::READABLE, |fd| nix::unistd::read(fd, buffer).map_err(io::Error::from))?;
            if !self.has_virtio_header {
                return Ok(parse_frame(self.frame_buffer.get(..length).unwrap_or_default()));
            }
            match check_frame_checksum(self.frame_buffer.get_mut(..length).unwrap_or_default()) {
                ReadOutcome::Frame => {
                    return Ok(parse_frame(
                        self.frame_buffer.get(virtio::VIRTIO_HEADER_LENGTH..length).unwrap_or_default(),
                    ));
                }
                ReadOutcome::Burst(segments) => self.burst_in_buffer = Some((length, segments)),
                ReadOutcome::Nonsense => return Ok(None),
            }
        }
        let FrameDevice { frame_buffer: buffer, burst_in_buffer: burst, segment_buffer: segment, .. } = self;
        let Some((length, segments)) = burst else { return Ok(None) };
        let (ethernet, packet) = buffer
            .get(virtio::VIRTIO_HEADER_LENGTH..*length)
            .and_then(|frame| frame.split_at_checked(ETHERNET_HEADER_LENGTH))
            .unwrap_or_default();
        let cut = segments.next_segment(packet, segment);
        if segments.has_returned_all_segments(packet) {
            *burst = None;
        }
        let payload = cut.and_then(|cut| segment.get(..cut)).unwrap_or_default();
        Ok(addresses_and_ether_type(ethernet).map(|(destination, source, ether_type)| ReceivedFrame {
            destination,
            source,
            ether_type,
            payload,
        }))
    }

    /// Sends an IPv6 packet in a frame.
    pub(crate) fn write_ipv6_frame(
        &self,
        destination: MacAddress,
        source: MacAddress,
        packet: &[u8],
    ) -> io::Result<()> {
        let parts = [
            IoSlice::new(&[0; virtio::VIRTIO_HEADER_LENGTH]),
            IoSlice::new(&destination),
            IoSlice::new(&source),
            IoSlice::new(&ETHER_TYPE_IPV6),
            IoSlice::new(packet),
        ];
        let parts = if self.has_virtio_header { &parts[..] } else { &parts[1..] };
        nix::sys::uio::writev(self.file.get_ref(), parts)?;
        Ok(())
    }
}

/// Returns a filter that accepts frames to IPv6 multicast groups (RFC 2464 7), except frames that this
/// machine sends. It also drops frames to other stations (`PACKET_OTHERHOST`, 3), which a promiscuous
/// interface receives.
fn ipv6_multicast_filter() -> [SockFilter; 6] {
    [
        SockFilter::new(BPF_LOAD_WORD, 0, 0, OFFSET_PACKET_TYPE),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 3, 0, 3),
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, 0),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 1, 0x3333),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
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

fn addresses_and_ether_type(ethernet: &[u8]) -> Option<(MacAddress, MacAddress, u16)> {
    let (destination, rest) = ethernet.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    Some((*destination, *source, u16::from_be_bytes(*rest.first_chunk()?)))
}

fn parse_frame(octets: &[u8]) -> Option<ReceivedFrame<'_>> {
    let (destination, source, ether_type) = addresses_and_ether_type(octets)?;
    Some(ReceivedFrame { destination, source, ether_type, payload: octets.get(ETHERNET_HEADER_LENGTH..)? })
}

/// Kind of the data that a read returned.
#[derive(Debug)]
enum ReadOutcome {
    Frame,
    Burst(BurstSegments),
    Nonsense,
}

/// Checks a frame with its virtio header, and finishes its checksum. The offsets in the virtio header count
/// from the beginning of the Ethernet header. The functions for cutting and checksums need offsets from the
/// beginning of the packet.
fn check_frame_checksum(frame: &mut [u8]) -> ReadOutcome {
    let Some((header, frame)) = frame.split_first_chunk_mut() else { return ReadOutcome::Nonsense };
    let Ok(mut header) = virtio::VirtioHeader::parse(header) else { return ReadOutcome::Nonsense };
    let Some((_, packet)) = frame.split_at_mut_checked(ETHERNET_HEADER_LENGTH) else {
        return ReadOutcome::Nonsense;
    };
    if let Some(unfinished) = &mut header.unfinished_checksum {
        let Some(start) = unfinished.checksum_start.checked_sub(ETHERNET_HEADER_LENGTH as u16) else {
            return ReadOutcome::Nonsense;
        };
        unfinished.checksum_start = start;
    }
    if header.burst_properties.is_some() {
        return BurstSegments::new(&header, packet).map_or(ReadOutcome::Nonsense, ReadOutcome::Burst);
    }
    match header.unfinished_checksum {
        Some(unfinished) if !unfinished.finish_checksum(packet) => ReadOutcome::Nonsense,
        _ => ReadOutcome::Frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with a virtio header that requests a checksum at `start` + `offset`.
    fn frame_with_unfinished_checksum(start: u16, offset: u16, payload: usize) -> Vec<u8> {
        let unfinished = Some(virtio::UnfinishedChecksum { checksum_start: start, checksum_offset: offset });
        let header =
            virtio::VirtioHeader { unfinished_checksum: unfinished, ..virtio::VirtioHeader::default() };
        let ethernet = [[2; 6], [4; 6]].concat();
        [&header.emit()[..], &ethernet, &ETHER_TYPE_IPV6, &vec![1; payload]].concat()
    }

    #[test]
    fn incomplete_checksum_after_ethernet_header_is_completed() {
        let mut octets = frame_with_unfinished_checksum(14 + 40, 6, 60);
        assert!(matches!(check_frame_checksum(&mut octets), ReadOutcome::Frame));
        let changed: Vec<usize> = octets
            .iter()
            .skip(virtio::VIRTIO_HEADER_LENGTH + ETHERNET_HEADER_LENGTH)
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
                matches!(
                    check_frame_checksum(&mut frame_with_unfinished_checksum(start, offset, payload)),
                    ReadOutcome::Nonsense
                ),
                "{start} {offset}"
            );
        }
        assert!(matches!(
            check_frame_checksum(&mut [0; virtio::VIRTIO_HEADER_LENGTH + ETHERNET_HEADER_LENGTH - 1]),
            ReadOutcome::Nonsense
        ));
        assert!(matches!(check_frame_checksum(&mut []), ReadOutcome::Nonsense));
    }
}
