//! Reads single IPv6 packets, also from merged bursts.
//!
//! The reader reads a single packet directly into the caller's buffer, with the virtio header before it. It
//! cuts a burst in a separate buffer. It copies the first burst into that buffer, and reads directly
//! successive bursts into it.

use std::io;

use carnet_nemo::forwarding::packet::PacketBuffer;

use super::segmentation::Segments;
use super::steering::{self, Progress};
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
    /// Whether the last read returned a burst.
    had_burst: bool,
    /// Reading progress of both queues of control messages.
    progress: [(Queue, Progress); 2],
}

impl TunnelReader {
    /// Creates a reader of this device. A device may have only one reader: each of several would get a part
    /// of the packets.
    pub fn new(io: TunnelIo) -> Self {
        let progress = [Queue::Known, Queue::Strangers].map(|queue| (queue, Progress::new(steering::now())));
        TunnelReader {
            io,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            burst: None,
            had_burst: false,
            progress,
        }
    }

    /// Returns whether the next packet is already in the reader, so that [`TunnelIo::readable`] does not
    /// report it.
    pub fn is_inside_burst(&self) -> bool {
        self.burst.is_some()
    }

    /// Puts the next packet of any queue into `packet`; leaves it empty if the packet does not match its
    /// virtio header.
    ///
    /// # Errors
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

    /// Reads the next packet of one queue. The rest of a burst of any queue comes first.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::WouldBlock`] if the queue has no packet.
    pub fn try_read_from(&mut self, queue: Queue, packet: &mut PacketBuffer) -> io::Result<()> {
        if !self.io.0.has_header {
            let length = read(&self.io, &mut self.progress, queue, packet.space())?;
            packet.filled(length);
            return Ok(());
        }
        loop {
            if let Some((length, segments)) = &mut self.burst {
                let whole = self.buffer.get(virtio::LENGTH..*length).unwrap_or_default();
                let length = segments.next(whole, packet.space());
                if segments.is_done(whole) {
                    self.burst = None;
                }
                if let Some(length) = length {
                    packet.filled(length);
                    return Ok(());
                }
            }
            if self.had_burst {
                let length = read(&self.io, &mut self.progress, queue, &mut self.buffer)?;
                self.had_burst = false;
                match take(self.buffer.get_mut(..length).unwrap_or_default()) {
                    Taken::Packet(from) => {
                        packet.copy_from(from);
                        return Ok(());
                    }
                    Taken::Burst(segments) => self.begin(length, segments),
                    Taken::Nonsense => {
                        packet.filled(0);
                        return Ok(());
                    }
                }
                continue;
            }
            let frame = packet.space_with(virtio::LENGTH);
            let length = read(&self.io, &mut self.progress, queue, frame)?;
            let frame = frame.get_mut(..length).unwrap_or_default();
            match take(frame) {
                Taken::Packet(from) => {
                    let length = from.len();
                    packet.filled(length);
                    return Ok(());
                }
                Taken::Burst(segments) => {
                    if let (Some(to), from) = (self.buffer.get_mut(..length), &*frame) {
                        to.copy_from_slice(from);
                    }
                    self.begin(length, segments);
                }
                Taken::Nonsense => {
                    packet.filled(0);
                    return Ok(());
                }
            }
        }
    }

    /// Lets senders that became known move to the second queue, and lets former known senders move back to
    /// the third. The caller calls it at intervals, after it has handled all packets that it has read.
    pub fn handled(&mut self) {
        let Some(control) = &self.io.0.control else { return };
        control.queues.was_read();
        let now = steering::now();
        for (queue, progress) in &mut self.progress {
            if let Some(before) = progress.look(now, QUEUE, || self.io.is_empty(*queue)) {
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
    progress: &mut [(Queue, Progress); 2],
    queue: Queue,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let length = io.try_read(queue, buffer)?;
    progress.iter_mut().filter(|(of, _)| *of == queue).for_each(|(_, progress)| progress.read());
    Ok(length)
}

/// Kind of data that a read returned.
pub(super) enum Taken<'a> {
    Packet(&'a [u8]),
    Burst(Segments),
    Nonsense,
}

/// Checks a packet with its virtio header, and finishes its checksum.
pub(super) fn take(frame: &mut [u8]) -> Taken<'_> {
    let Some((header, packet)) = frame.split_first_chunk_mut() else { return Taken::Nonsense };
    let Ok(header) = virtio::Header::parse(header) else { return Taken::Nonsense };
    if header.burst.is_some() {
        return Segments::new(&header, packet).map_or(Taken::Nonsense, Taken::Burst);
    }
    match header.unfinished {
        Some(unfinished) if !unfinished.finish(packet) => Taken::Nonsense,
        _ => Taken::Packet(packet),
    }
}
