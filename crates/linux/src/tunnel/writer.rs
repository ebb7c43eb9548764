//! Writes packets to the TUN device. Packets of one flow leave as one burst, if the kernel accepts bursts.

use std::io;

use carnet_nemo::forwarding::packet::PacketBuffer;

use super::TunDevice;
use super::coalescing::{BurstKinds, FrameSink, PacketCoalescer};
use super::segmentation::BurstSegments;
use super::virtio::{self, Transport, VirtioHeader};

/// Writes packets to the TUN device. A written packet may wait until [`TunnelWriter::flush`].
#[derive(Debug)]
pub struct TunnelWriter {
    packet_coalescer: PacketCoalescer,
    device_output: DeviceOutput<TunDevice>,
}

/// A device to which the writer writes packets and bursts: the TUN device, or a device of a test.
pub(super) trait BurstDevice {
    /// Writes a packet without a virtio header.
    fn write_packet(&self, packet: &[u8]) -> io::Result<usize>;
    /// Writes a packet whose buffer has room for a virtio header before the packet.
    fn write_packet_in_place(&self, packet: &mut PacketBuffer) -> io::Result<usize> {
        self.write_packet(packet.as_slice())
    }
    /// Writes a packet or a burst that begins with its virtio header.
    fn write_frame(&self, frame: &[u8]) -> io::Result<usize>;
}

impl BurstDevice for TunDevice {
    fn write_packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.try_write(packet)
    }

    fn write_packet_in_place(&self, packet: &mut PacketBuffer) -> io::Result<usize> {
        match packet.packet_with_prefix(&[0; virtio::VIRTIO_HEADER_LENGTH]) {
            Some(frame) if self.0.has_header => self.try_write_frame(frame),
            _ => self.try_write(packet.as_slice()),
        }
    }

    fn write_frame(&self, frame: &[u8]) -> io::Result<usize> {
        self.try_write_frame(frame)
    }
}

#[derive(Debug)]
pub(super) struct DeviceOutput<D> {
    pub device: D,
    /// Kinds of bursts that the kernel has not refused so far.
    pub burst_kinds: BurstKinds,
    /// Number of packets that the kernel refused.
    pub write_error_count: u64,
}

impl TunnelWriter {
    /// Creates a writer to this device.
    pub fn new(io: TunDevice) -> Self {
        let kinds = io.0.burst_kinds;
        TunnelWriter {
            packet_coalescer: PacketCoalescer::new(kinds),
            device_output: DeviceOutput::new(io, kinds),
        }
    }

    /// Writes an IPv6 packet to the kernel, which routes it. The packet leaves at the latest at the next
    /// [`Self::flush`]. Packets of a flow keep their order.
    pub fn write(&mut self, packet: &[u8]) {
        if !self.packet_coalescer.push_packet(packet, &mut self.device_output) {
            self.device_output.write_packet(packet);
        }
    }

    /// Writes a packet whose buffer has room for a virtio header, as [`Self::write`] does.
    pub fn write_in_place(&mut self, packet: &mut PacketBuffer) {
        if !self.packet_coalescer.push_packet(packet.as_slice(), &mut self.device_output)
            && self.device_output.device.write_packet_in_place(packet).is_err()
        {
            self.device_output.write_error_count += 1;
        }
    }

    /// Writes all packets that wait for further packets of their flow.
    pub fn flush(&mut self) {
        self.packet_coalescer.flush_bursts(&mut self.device_output);
        self.packet_coalescer.burst_kinds = self.device_output.burst_kinds;
    }

    /// Returns the number of packets that the kernel refused.
    pub fn write_error_count(&self) -> u64 {
        self.device_output.write_error_count
    }
}

impl<D: BurstDevice> DeviceOutput<D> {
    pub fn new(device: D, kinds: BurstKinds) -> Self {
        DeviceOutput { device, burst_kinds: kinds, write_error_count: 0 }
    }

    fn write_packet(&mut self, packet: &[u8]) {
        if self.device.write_packet(packet).is_err() {
            self.write_error_count += 1;
        }
    }

    /// Writes the packets of a burst one by one, after the kernel has refused the burst.
    fn write_segments_separately(&mut self, header: &VirtioHeader, frame: &[u8]) {
        let packet = frame.get(virtio::VIRTIO_HEADER_LENGTH..).unwrap_or_default();
        let mut buffer = vec![0; packet.len()];
        let Some(mut segments) = BurstSegments::new(header, packet) else { return };
        while let Some(length) = segments.next_segment(packet, &mut buffer) {
            self.write_packet(buffer.get(..length).unwrap_or_default());
        }
    }
}

impl<D: BurstDevice> FrameSink for DeviceOutput<D> {
    fn receive_frame(&mut self, header: &VirtioHeader, frame: &[u8]) {
        match (self.device.write_frame(frame), header.burst_properties) {
            (Ok(_), _) => {}
            // The kernel refuses bursts of this kind. From now on write their packets one by one, which is
            // only slower.
            (Err(error), Some(burst)) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (kind, name) = match burst.transport {
                    Transport::Tcp => (&mut self.burst_kinds.accepts_tcp, "TCP"),
                    Transport::Udp => (&mut self.burst_kinds.accepts_udp, "UDP"),
                };
                if std::mem::take(kind) {
                    tracing::info!(
                        "this kernel refuses segmentation offload for {name} ({error}): carnet handles \
                         these packets one by one"
                    );
                }
                self.write_segments_separately(header, frame);
            }
            (Err(_), Some(_)) => self.write_error_count += packet_count_of(header, frame),
            (Err(_), None) => self.write_error_count += 1,
        }
    }
}

/// Returns the number of packets in a burst.
fn packet_count_of(header: &VirtioHeader, frame: &[u8]) -> u64 {
    let payload =
        frame.len().saturating_sub(virtio::VIRTIO_HEADER_LENGTH + usize::from(header.headers_length));
    let segment = header.burst_properties.map_or(1, |burst| usize::from(burst.segment_size).max(1));
    payload.div_ceil(segment) as u64
}
