//! Writing: packets of one flow together, where the kernel takes that.

use super::TunnelIo;
use super::coalescing::{Coalescer, Kinds, Sink};
use super::segmentation::Segments;
use super::virtio::{self, Header, Transport};

/// Writes packets to the tunnel device. What was written is on its way after [`TunnelWriter::flush`].
#[derive(Debug)]
pub struct TunnelWriter {
    coalescer: Coalescer,
    output: Output,
}

#[derive(Debug)]
struct Output {
    io: TunnelIo,
    /// Bursts that the kernel takes, as far as is known.
    kinds: Kinds,
    /// Packets that the kernel did not take.
    errors: u64,
}

impl TunnelWriter {
    /// A writer to this device.
    pub fn new(io: TunnelIo) -> Self {
        let kinds = io.0.kinds;
        TunnelWriter { coalescer: Coalescer::new(kinds), output: Output { io, kinds, errors: 0 } }
    }

    /// Hands one IPv6 packet to the kernel, which routes it, or holds it until [`Self::flush`]. Packets of one
    /// flow keep their order.
    pub fn write(&mut self, packet: &[u8]) {
        if !self.coalescer.push(packet, &mut self.output) {
            self.output.packet(packet);
        }
    }

    /// Hands over everything that is held.
    pub fn flush(&mut self) {
        self.coalescer.flush(&mut self.output);
        self.coalescer.kinds = self.output.kinds;
    }

    /// How many packets the kernel did not take.
    pub fn errors(&self) -> u64 {
        self.output.errors
    }
}

impl Output {
    fn packet(&mut self, packet: &[u8]) {
        if self.io.try_write(packet).is_err() {
            self.errors += 1;
        }
    }

    /// Writes the packets of a burst that the kernel has refused.
    fn one_by_one(&mut self, header: &Header, frame: &[u8]) {
        let packet = frame.get(virtio::LENGTH..).unwrap_or_default();
        let mut buffer = vec![0; packet.len()];
        let Some(mut segments) = Segments::new(header, packet) else { return };
        while let Some(length) = segments.next(packet, &mut buffer) {
            self.packet(buffer.get(..length).unwrap_or_default());
        }
    }
}

impl Sink for Output {
    fn frame(&mut self, header: &Header, frame: &[u8]) {
        match (self.io.try_write_frame(frame), header.burst) {
            (Ok(_), _) => {}
            // Some kernels refuse headers that others take: nothing is lost but time.
            (Err(error), Some(burst)) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (kind, name) = match burst.transport {
                    Transport::Tcp => (&mut self.kinds.tcp, "TCP"),
                    Transport::Udp => (&mut self.kinds.udp, "UDP"),
                };
                if std::mem::take(kind) {
                    tracing::info!("this kernel refuses bursts of {name} ({error}): packets go one by one");
                }
                self.one_by_one(header, frame);
            }
            (Err(_), Some(_)) => self.errors += packets(header, frame),
            (Err(_), None) => self.errors += 1,
        }
    }
}

/// How many packets a burst is.
fn packets(header: &Header, frame: &[u8]) -> u64 {
    let payload = frame.len().saturating_sub(virtio::LENGTH + usize::from(header.headers));
    let segment = header.burst.map_or(1, |burst| usize::from(burst.segment).max(1));
    payload.div_ceil(segment) as u64
}
