//! Reads single IPv6 packets, also from merged bursts.
//!
//! The reader reads a single packet directly into the caller's buffer, with the virtio header before it. It
//! cuts a burst in a separate buffer, into which it copies the burst. The read after a burst goes directly
//! into the separate buffer. So a burst that follows another burst needs no copy.

use std::io;

use carnet_nemo::forwarding::packet::PacketBuffer;

use super::segmentation::Segments;
use super::steering::{self, QueueProgress};
use super::{QUEUE, Queue, TunnelIo, virtio};

/// Length in octets of the largest packet and its virtio header.
const BUFFER: usize = virtio::LENGTH + 40 + 65_535;

/// Reads packets of the TUN device. Each packet has a finished checksum, and bursts are cut into packets.
#[derive(Debug)]
pub struct TunnelReader {
    io: TunnelIo,
    buffer: Box<[u8]>,
    /// Length of the burst in [`Self::buffer`], and its remaining segments.
    burst: Option<(usize, Segments)>,
    /// Whether the last read returned a burst of packets.
    had_burst: bool,
    /// Reading progress of both queues of control messages.
    progress: [(Queue, QueueProgress); 2],
}

impl TunnelReader {
    /// Creates the reader of the device. A device may have only one: several readers would each get a part of
    /// the packets.
    pub fn new(io: TunnelIo) -> Self {
        let progress =
            [Queue::Known, Queue::Strangers].map(|queue| (queue, QueueProgress::new(steering::now())));
        TunnelReader {
            io,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            burst: None,
            had_burst: false,
            progress,
        }
    }

    /// Returns whether the reader already has the next packet; then [`TunnelIo::readable`] does not report
    /// it.
    pub fn is_inside_burst(&self) -> bool {
        self.burst.is_some()
    }

    /// Copies the next packet of any queue into `packet`; makes `packet` empty if it does not match its
    /// virtio header.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if no queue has a packet.
    pub fn try_read(&mut self, packet: &mut PacketBuffer) -> io::Result<()> {
        let mut result = Err(io::ErrorKind::WouldBlock.into());
        for queue in [Queue::Forwarded, Queue::Known, Queue::Strangers] {
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
    pub fn try_read_from(&mut self, queue: Queue, packet: &mut PacketBuffer) -> io::Result<()> {
        if !self.io.0.has_header {
            let length = read(&self.io, &mut self.progress, queue, packet.empty_space())?;
            packet.set_filled_length(length);
            return Ok(());
        }
        loop {
            if let Some((length, segments)) = &mut self.burst {
                let whole = self.buffer.get(virtio::LENGTH..*length).unwrap_or_default();
                let length = segments.next(whole, packet.empty_space());
                if segments.is_done(whole) {
                    self.burst = None;
                }
                if let Some(length) = length {
                    packet.set_filled_length(length);
                    return Ok(());
                }
            }
            if self.had_burst {
                let length = read(&self.io, &mut self.progress, queue, &mut self.buffer)?;
                self.had_burst = false;
                match check_packet(self.buffer.get_mut(..length).unwrap_or_default()) {
                    ReadOutcome::Packet(from) => {
                        packet.copy_from(from);
                        return Ok(());
                    }
                    ReadOutcome::Burst(segments) => self.begin(length, segments),
                    ReadOutcome::Nonsense => {
                        packet.set_filled_length(0);
                        return Ok(());
                    }
                }
                continue;
            }
            let frame = packet.empty_space_after(virtio::LENGTH);
            let length = read(&self.io, &mut self.progress, queue, frame)?;
            let frame = frame.get_mut(..length).unwrap_or_default();
            match check_packet(frame) {
                ReadOutcome::Packet(from) => {
                    let length = from.len();
                    packet.set_filled_length(length);
                    return Ok(());
                }
                ReadOutcome::Burst(segments) => {
                    if let (Some(to), from) = (self.buffer.get_mut(..length), &*frame) {
                        to.copy_from_slice(from);
                    }
                    self.begin(length, segments);
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
    pub fn move_senders(&mut self) {
        let Some(control) = &self.io.0.control else { return };
        control.queues.was_read();
        let now = steering::now();
        for (queue, progress) in &mut self.progress {
            if let Some(before) = progress.handled_until(now, QUEUE, || self.io.is_empty(*queue)) {
                control.steering.has_read(*queue, before);
            }
        }
    }

    fn begin(&mut self, length: usize, segments: Segments) {
        self.burst = Some((length, segments));
        self.had_burst = true;
    }
}

/// Reads the next packet of a queue.
fn read(
    io: &TunnelIo,
    progress: &mut [(Queue, QueueProgress); 2],
    queue: Queue,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let length = io.try_read(queue, buffer)?;
    progress.iter_mut().filter(|(of, _)| *of == queue).for_each(|(_, progress)| progress.read());
    Ok(length)
}

/// Kind of data that a read returned.
pub(super) enum ReadOutcome<'a> {
    Packet(&'a [u8]),
    Burst(Segments),
    Nonsense,
}

/// Checks a packet with its virtio header, and finishes its checksum.
pub(super) fn check_packet(frame: &mut [u8]) -> ReadOutcome<'_> {
    let Some((header, packet)) = frame.split_first_chunk_mut() else { return ReadOutcome::Nonsense };
    let Ok(header) = virtio::Header::parse(header) else { return ReadOutcome::Nonsense };
    if header.burst.is_some() {
        return Segments::new(&header, packet).map_or(ReadOutcome::Nonsense, ReadOutcome::Burst);
    }
    match header.unfinished {
        Some(unfinished) if !unfinished.finish(packet) => ReadOutcome::Nonsense,
        _ => ReadOutcome::Packet(packet),
    }
}
