//! Reads single IPv6 packets, also from merged bursts.
//!
//! The reader reads a packet directly into the caller's buffer, with the virtio header before it. If it gets
//! a burst instead, it copies the burst into a separate buffer and cuts it there. After a burst, the next
//! read goes directly into the separate buffer. So a burst that follows another burst needs no copy.

use std::io;

use carnet_nemo::forwarding::packet::PacketBuffer;

use super::segmentation::BurstSegments;
use super::steering::{self, QueueProgress};
use super::{DeviceQueue, QUEUE_LENGTH, TunDevice, virtio};

/// Length in octets of the largest packet and its virtio header.
const PACKET_BUFFER_SIZE: usize = virtio::VIRTIO_HEADER_LENGTH + 40 + 65_535;

/// Reads packets of the TUN device. Each packet has a finished checksum, and bursts are cut into packets.
#[derive(Debug)]
pub struct TunnelReader {
    tun_device: TunDevice,
    packet_buffer: Box<[u8]>,
    /// Length of the burst in the buffer [`Self::packet_buffer`], and its remaining segments; `None` if no
    /// burst is being cut.
    burst_in_buffer: Option<(usize, BurstSegments)>,
    /// Whether the last read returned a burst of packets.
    had_burst: bool,
    /// Reading progress of both queues of control messages.
    queue_progress: [(DeviceQueue, QueueProgress); 2],
}

impl TunnelReader {
    /// Creates the reader of the device. A device may have only one: several readers would each get a part of
    /// the packets.
    pub fn new(io: TunDevice) -> Self {
        let progress = [DeviceQueue::Known, DeviceQueue::OtherSenders]
            .map(|queue| (queue, QueueProgress::new(steering::monotonic_nanoseconds())));
        TunnelReader {
            tun_device: io,
            packet_buffer: vec![0; PACKET_BUFFER_SIZE].into_boxed_slice(),
            burst_in_buffer: None,
            had_burst: false,
            queue_progress: progress,
        }
    }

    /// Returns whether the reader already has the next packet; then [`TunDevice::readable`] does not report
    /// it.
    pub fn is_inside_burst(&self) -> bool {
        self.burst_in_buffer.is_some()
    }

    /// Copies the next packet of any queue into `packet`; makes `packet` empty if it does not match its
    /// virtio header.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if no queue has a packet.
    pub fn try_read(&mut self, packet: &mut PacketBuffer) -> io::Result<()> {
        let mut result = Err(io::ErrorKind::WouldBlock.into());
        for queue in [DeviceQueue::Forwarded, DeviceQueue::Known, DeviceQueue::OtherSenders] {
            result = self.try_read_from(queue, packet);
            if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        result
    }

    /// Copies the next packet of one queue into `packet`; packets of a burst that is being read come first.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if the queue has no packet.
    pub fn try_read_from(&mut self, queue: DeviceQueue, packet: &mut PacketBuffer) -> io::Result<()> {
        if !self.tun_device.0.has_header {
            let length =
                read_packet(&self.tun_device, &mut self.queue_progress, queue, packet.empty_space())?;
            packet.set_filled_length(length);
            return Ok(());
        }
        loop {
            if let Some((length, segments)) = &mut self.burst_in_buffer {
                let whole = self.packet_buffer.get(virtio::VIRTIO_HEADER_LENGTH..*length).unwrap_or_default();
                let length = segments.next_segment(whole, packet.empty_space());
                if segments.has_returned_all_segments(whole) {
                    self.burst_in_buffer = None;
                }
                if let Some(length) = length {
                    packet.set_filled_length(length);
                    return Ok(());
                }
            }
            if self.had_burst {
                let length =
                    read_packet(&self.tun_device, &mut self.queue_progress, queue, &mut self.packet_buffer)?;
                self.had_burst = false;
                match check_packet_checksum(self.packet_buffer.get_mut(..length).unwrap_or_default()) {
                    ReadOutcome::Packet(from) => {
                        packet.copy_from(from);
                        return Ok(());
                    }
                    ReadOutcome::Burst(segments) => self.begin_burst(length, segments),
                    ReadOutcome::Nonsense => {
                        packet.set_filled_length(0);
                        return Ok(());
                    }
                }
                continue;
            }
            let frame = packet.empty_space_after(virtio::VIRTIO_HEADER_LENGTH);
            let length = read_packet(&self.tun_device, &mut self.queue_progress, queue, frame)?;
            let frame = frame.get_mut(..length).unwrap_or_default();
            match check_packet_checksum(frame) {
                ReadOutcome::Packet(from) => {
                    let length = from.len();
                    packet.set_filled_length(length);
                    return Ok(());
                }
                ReadOutcome::Burst(segments) => {
                    if let (Some(to), from) = (self.packet_buffer.get_mut(..length), &*frame) {
                        to.copy_from_slice(from);
                    }
                    self.begin_burst(length, segments);
                }
                ReadOutcome::Nonsense => {
                    packet.set_filled_length(0);
                    return Ok(());
                }
            }
        }
    }

    /// Moves new known senders to the second queue, and former ones back to the third. The caller calls it at
    /// intervals, after it has handled all packets that it has read.
    pub fn move_known_senders(&mut self) {
        let Some(control) = &self.tun_device.0.control_queues else { return };
        control.queues.note_all_packets_read();
        let now = steering::monotonic_nanoseconds();
        for (queue, progress) in &mut self.queue_progress {
            if let Some(before) =
                progress.handled_until(now, QUEUE_LENGTH, || self.tun_device.is_empty(*queue))
            {
                control.steering.set_read_until(*queue, before);
            }
        }
    }

    fn begin_burst(&mut self, length: usize, segments: BurstSegments) {
        self.burst_in_buffer = Some((length, segments));
        self.had_burst = true;
    }
}

/// Reads the next packet of a queue.
fn read_packet(
    io: &TunDevice,
    progress: &mut [(DeviceQueue, QueueProgress); 2],
    queue: DeviceQueue,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let length = io.try_read(queue, buffer)?;
    progress.iter_mut().filter(|(of, _)| *of == queue).for_each(|(_, progress)| progress.count_packet_read());
    Ok(length)
}

/// Kind of data that a read returned.
pub(super) enum ReadOutcome<'a> {
    Packet(&'a [u8]),
    Burst(BurstSegments),
    Nonsense,
}

/// Checks a packet with its virtio header, and finishes its checksum.
pub(super) fn check_packet_checksum(frame: &mut [u8]) -> ReadOutcome<'_> {
    let Some((header, packet)) = frame.split_first_chunk_mut() else { return ReadOutcome::Nonsense };
    let Ok(header) = virtio::VirtioHeader::parse(header) else { return ReadOutcome::Nonsense };
    if header.burst_properties.is_some() {
        return BurstSegments::new(&header, packet).map_or(ReadOutcome::Nonsense, ReadOutcome::Burst);
    }
    match header.unfinished_checksum {
        Some(unfinished) if !unfinished.finish_checksum(packet) => ReadOutcome::Nonsense,
        _ => ReadOutcome::Packet(packet),
    }
}
