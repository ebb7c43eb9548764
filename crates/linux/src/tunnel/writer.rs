//! Writes packets to the TUN device. Packets of one flow leave as one burst, if the kernel accepts bursts.

use std::io;

use carnet_nemo::forwarding::packet::PacketBuffer;

use super::TunnelIo;
use super::coalescing::{BurstKinds, Coalescer, Sink};
use super::segmentation::Segments;
use super::virtio::{self, Header, Transport};

/// Writes packets to the TUN device. A written packet may wait until [`TunnelWriter::flush`].
#[derive(Debug)]
pub struct TunnelWriter {
    coalescer: Coalescer,
    output: Output<TunnelIo>,
}

/// A device to which the writer writes packets and bursts: the TUN device, or a device of a test.
pub(super) trait Device {
    /// Writes a packet without a virtio header.
    fn packet(&self, packet: &[u8]) -> io::Result<usize>;
    /// Writes a packet whose buffer has room for a virtio header before the packet.
    fn packet_in_place(&self, packet: &mut PacketBuffer) -> io::Result<usize> {
        self.packet(packet.as_slice())
    }
    /// Writes a packet or a burst that begins with its virtio header.
    fn frame(&self, frame: &[u8]) -> io::Result<usize>;
}

impl Device for TunnelIo {
    fn packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.try_write(packet)
    }

    fn packet_in_place(&self, packet: &mut PacketBuffer) -> io::Result<usize> {
        match packet.packet_with_prefix(&[0; virtio::LENGTH]) {
            Some(frame) if self.0.has_header => self.try_write_frame(frame),
            _ => self.try_write(packet.as_slice()),
        }
    }

    fn frame(&self, frame: &[u8]) -> io::Result<usize> {
        self.try_write_frame(frame)
    }
}

#[derive(Debug)]
pub(super) struct Output<D> {
    pub device: D,
    /// Kinds of bursts that the kernel has not refused so far.
    pub kinds: BurstKinds,
    /// Number of packets that the kernel refused.
    pub errors: u64,
}

impl TunnelWriter {
    /// Creates a writer to this device.
    pub fn new(io: TunnelIo) -> Self {
        let kinds = io.0.kinds;
        TunnelWriter { coalescer: Coalescer::new(kinds), output: Output::new(io, kinds) }
    }

    /// Writes an IPv6 packet to the kernel, which routes it, at the latest at the next [`Self::flush`].
    /// Packets of a flow keep their order.
    pub fn write(&mut self, packet: &[u8]) {
        if !self.coalescer.push(packet, &mut self.output) {
            self.output.packet(packet);
        }
    }

    /// Writes a packet whose buffer has room for a virtio header, as [`Self::write`] does.
    pub fn write_in_place(&mut self, packet: &mut PacketBuffer) {
        if !self.coalescer.push(packet.as_slice(), &mut self.output)
            && self.output.device.packet_in_place(packet).is_err()
        {
            self.output.errors += 1;
        }
    }

    /// Writes all packets that wait for further packets of their flow.
    pub fn flush(&mut self) {
        self.coalescer.flush(&mut self.output);
        self.coalescer.kinds = self.output.kinds;
    }

    /// Returns the number of packets that the kernel refused.
    pub fn errors(&self) -> u64 {
        self.output.errors
    }
}

impl<D: Device> Output<D> {
    pub fn new(device: D, kinds: BurstKinds) -> Self {
        Output { device, kinds, errors: 0 }
    }

    fn packet(&mut self, packet: &[u8]) {
        if self.device.packet(packet).is_err() {
            self.errors += 1;
        }
    }

    /// Writes the packets of a burst one by one, after the kernel has refused the burst.
    fn one_by_one(&mut self, header: &Header, frame: &[u8]) {
        let packet = frame.get(virtio::LENGTH..).unwrap_or_default();
        let mut buffer = vec![0; packet.len()];
        let Some(mut segments) = Segments::new(header, packet) else { return };
        while let Some(length) = segments.next(packet, &mut buffer) {
            self.packet(buffer.get(..length).unwrap_or_default());
        }
    }
}

impl<D: Device> Sink for Output<D> {
    fn frame(&mut self, header: &Header, frame: &[u8]) {
        match (self.device.frame(frame), header.burst) {
            (Ok(_), _) => {}
            // The kernel refuses bursts of this kind, so from now on write their packets one by one. This is
            // only slower.
            (Err(error), Some(burst)) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (kind, name) = match burst.transport {
                    Transport::Tcp => (&mut self.kinds.tcp, "TCP"),
                    Transport::Udp => (&mut self.kinds.udp, "UDP"),
                };
                if std::mem::take(kind) {
                    tracing::info!(
                        "this kernel refuses segmentation offload for {name} ({error}): carnet handles \
                         these packets one by one"
                    );
                }
                self.one_by_one(header, frame);
            }
            (Err(_), Some(_)) => self.errors += packets(header, frame),
            (Err(_), None) => self.errors += 1,
        }
    }
}

/// Returns the number of packets in a burst.
fn packets(header: &Header, frame: &[u8]) -> u64 {
    let payload = frame.len().saturating_sub(virtio::LENGTH + usize::from(header.headers));
    let segment = header.burst.map_or(1, |burst| usize::from(burst.segment).max(1));
    payload.div_ceil(segment) as u64
}
