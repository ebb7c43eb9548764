//! Reading: one IPv6 packet at a time, whatever the kernel has put together.

use std::io;

use super::segmentation::Segments;
use super::{TunnelIo, virtio};

/// The largest packet, with a virtio header before it.
const BUFFER: usize = virtio::LENGTH + 40 + 65_535;

/// Reads packets of the tunnel device, each with its checksum finished and none larger than its sender meant
/// it to be.
#[derive(Debug)]
pub struct TunnelReader {
    io: TunnelIo,
    buffer: Box<[u8]>,
    /// Octets of [`Self::buffer`] that are a burst, and what of it is still to be handed out.
    burst: Option<(usize, Segments)>,
}

impl TunnelReader {
    /// A reader of this device. There should be one only, or each gets a part of the packets.
    pub fn new(io: TunnelIo) -> Self {
        TunnelReader { io, buffer: vec![0; BUFFER].into_boxed_slice(), burst: None }
    }

    /// Whether the next packet has been read already, so that [`TunnelIo::readable`] knows nothing of it.
    pub fn is_inside_burst(&self) -> bool {
        self.burst.is_some()
    }

    /// Puts the next packet into `packet` and returns its length; a longer packet is cut off. The length is 0
    /// for one that makes no sense with its virtio header.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn try_read(&mut self, packet: &mut [u8]) -> io::Result<usize> {
        if !self.io.0.has_header {
            return self.io.try_read(packet);
        }
        loop {
            if let Some((length, segments)) = &mut self.burst {
                let whole = self.buffer.get(virtio::LENGTH..*length).unwrap_or_default();
                let length = segments.next(whole, packet);
                if segments.is_done(whole) {
                    self.burst = None;
                }
                if let Some(length) = length {
                    return Ok(length);
                }
            }
            let length = self.io.try_read(&mut self.buffer)?;
            match take(self.buffer.get_mut(..length).unwrap_or_default()) {
                Taken::Packet(from) => {
                    let length = from.len().min(packet.len());
                    if let (Some(to), Some(from)) = (packet.get_mut(..length), from.get(..length)) {
                        to.copy_from_slice(from);
                    }
                    return Ok(length);
                }
                Taken::Burst(segments) => self.burst = Some((length, segments)),
                Taken::Nonsense => return Ok(0),
            }
        }
    }
}

/// What was read.
pub(super) enum Taken<'a> {
    Packet(&'a [u8]),
    Burst(Segments),
    Nonsense,
}

/// Judges a packet with its virtio header, and finishes its checksum.
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
