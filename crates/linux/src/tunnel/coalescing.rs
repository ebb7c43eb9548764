//! Merges packets into bursts, as generic receive offload does for packets from a network card.
//!
//! The module merges successive packets of one TCP or UDP flow that leave the tunnel. So the kernel routes
//! them once, and a TCP receiver gets them together. It merges only packets that the kernel can cut into the
//! same packets again. These packets have the same headers except for length and checksum, and successive TCP
//! sequence numbers. All payloads have the size of the first payload; only the last may be shorter. The
//! kernel computes new checksums, so the module first verifies the old checksum. A packet with PSH ends a
//! burst.
//!
//! Packets of one flow keep their order. If the module cannot tell the flow of a packet, it first writes all
//! held packets. (But a tunnelled packet goes to another tunnel end and does not wait.) The module holds no
//! packet longer than until [`PacketCoalescer::flush_bursts`], at the end of a batch.
//!
//! Left out: extension headers, IPv4, and TCP segments with any flag but ACK and PSH. These packets pass
//! unchanged.

use carnet_wire::checksum;
use carnet_wire::ipv6::{HEADER_LEN, protocol};

use super::segmentation::put_number;
use super::virtio::{self, BurstProperties, Transport, UnfinishedChecksum, VirtioHeader};

/// Largest number of flows whose packets wait for further packets.
const MAX_HELD_FLOWS: usize = 8;
/// Maximum length of a burst in octets: the kernel's limit for a device that declares no other
/// (`GSO_LEGACY_MAX_SIZE`).
const MAX_BURST_LENGTH: usize = 65_535;
/// Maximum number of datagrams in a burst: `UDP_MAX_SEGMENTS` of kernels before 6.9.
const MAX_DATAGRAMS_PER_BURST: usize = 64;

/// Offsets of fields in a TCP header.
const TCP_SEQUENCE_OFFSET: usize = 4;
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_FLAG_ACK: u8 = 0x10;
const TCP_FLAG_PSH: u8 = 0x08;

/// Kinds of bursts that the kernel accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BurstKinds {
    pub accepts_tcp: bool,
    pub accepts_udp: bool,
}

/// Receiver of merged frames.
pub(crate) trait FrameSink {
    /// Receives a packet or burst. `frame` contains the octets of `header`, then those of the packet or
    /// burst.
    fn receive_frame(&mut self, header: &VirtioHeader, frame: &[u8]);
}

/// Merges packets of a flow into bursts. It holds the last packets of some flows, to append further ones.
#[derive(Debug)]
pub(crate) struct PacketCoalescer {
    pub burst_kinds: BurstKinds,
    /// Unwritten bursts, in order of their first packets.
    held_bursts: Vec<HeldBurst>,
    spare_buffers: Vec<Vec<u8>>,
}

/// Fields of a packet that may become part of a burst.
#[derive(Debug, Clone, Copy)]
struct CandidatePacket {
    transport: Transport,
    /// Length of all headers in octets.
    headers_length: usize,
    payload_length: usize,
    sequence: u32,
    /// Whether no packet may follow this one in its burst (PSH).
    has_push_flag: bool,
}

/// Burst of one or more packets of a flow, not written yet.
#[derive(Debug)]
struct HeldBurst {
    /// Octets of the virtio header, then those of the packet or burst.
    frame_octets: Vec<u8>,
    /// Fields of the first packet.
    first_packet: CandidatePacket,
    packet_count: usize,
    next_sequence: u32,
}

impl PacketCoalescer {
    /// Creates a coalescer without packets.
    pub(crate) fn new(kinds: BurstKinds) -> Self {
        PacketCoalescer { burst_kinds: kinds, held_bursts: Vec::new(), spare_buffers: Vec::new() }
    }

    /// Appends a packet to a burst, or begins a new burst with it. Returns false if the caller must write the
    /// packet unchanged. First writes the bursts to `sink` that must precede the packet.
    pub(crate) fn push_packet(&mut self, packet: &[u8], sink: &mut impl FrameSink) -> bool {
        let transport = match packet.get(6) {
            Some(&protocol::TCP) if self.burst_kinds.accepts_tcp => Transport::Tcp,
            Some(&protocol::UDP) if self.burst_kinds.accepts_udp => Transport::Udp,
            // A tunnelled packet goes to another tunnel end, so it does not wait for held packets.
            Some(&protocol::IPV6) => return false,
            Some(&protocol::TCP | &protocol::UDP) => return false,
            _ => {
                self.flush_bursts(sink);
                return false;
            }
        };
        let at = self.held_bursts.iter().position(|held| held.is_same_flow(packet));
        let candidate = CandidatePacket::parse(transport, packet);
        if let Some(at) = at {
            if let Some(candidate) = &candidate
                && let Some(held) = self.held_bursts.get_mut(at)
                && held.may_append(candidate, packet)
            {
                // Check a packet's checksum only when a second packet joins it: a single packet is written
                // unchanged.
                if held.packet_count > 1 || has_valid_checksum(held.packet_octets(), transport) {
                    if !has_valid_checksum(packet, transport) {
                        self.write_burst(at, sink);
                        return false;
                    }
                    held.append_packet(candidate, packet);
                    if held.is_full_after(candidate) {
                        self.write_burst(at, sink);
                    }
                    return true;
                }
            }
            self.write_burst(at, sink);
        }
        let Some(candidate) = candidate.filter(|candidate| !candidate.has_push_flag) else { return false };
        if self.held_bursts.len() >= MAX_HELD_FLOWS {
            self.write_burst(0, sink);
        }
        let mut frame = self.spare_buffers.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(&[0; virtio::VIRTIO_HEADER_LENGTH]);
        frame.extend_from_slice(packet);
        let next_sequence = candidate.sequence.wrapping_add(candidate.payload_length as u32);
        self.held_bursts.push(HeldBurst {
            frame_octets: frame,
            first_packet: candidate,
            packet_count: 1,
            next_sequence,
        });
        true
    }

    /// Writes all bursts that wait.
    pub(crate) fn flush_bursts(&mut self, sink: &mut impl FrameSink) {
        while !self.held_bursts.is_empty() {
            self.write_burst(0, sink);
        }
    }

    fn write_burst(&mut self, at: usize, sink: &mut impl FrameSink) {
        let mut held = self.held_bursts.remove(at);
        let header = held.finish_burst();
        sink.receive_frame(&header, &held.frame_octets);
        self.spare_buffers.push(held.frame_octets);
    }
}

impl CandidatePacket {
    fn parse(transport: Transport, packet: &[u8]) -> Option<CandidatePacket> {
        let (ip, rest) = packet.split_at_checked(HEADER_LEN)?;
        let length = u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]);
        if ip.first()? >> 4 != 6 || rest.len() != usize::from(length) {
            return None;
        }
        let (header, sequence, push) = match transport {
            Transport::Tcp => {
                let header = rest.split_at_checked(20)?.0;
                let [data_offset, flags] = *header.get(12..14)?.as_array()?;
                if flags & !TCP_FLAG_PSH != TCP_FLAG_ACK || data_offset >> 4 < 5 {
                    return None;
                }
                let sequence = u32::from_be_bytes(
                    *header.get(TCP_SEQUENCE_OFFSET..TCP_SEQUENCE_OFFSET + 4)?.as_array()?,
                );
                (usize::from(data_offset >> 4) * 4, sequence, flags & TCP_FLAG_PSH != 0)
            }
            Transport::Udp => {
                let [l0, l1, c0, c1] = *rest.get(4..8)?.as_array()?;
                if u16::from_be_bytes([l0, l1]) != length || [c0, c1] == [0, 0] {
                    return None;
                }
                (8, 0, false)
            }
        };
        let payload = rest.len().checked_sub(header).filter(|payload| *payload > 0)?;
        Some(CandidatePacket {
            transport,
            headers_length: HEADER_LEN + header,
            payload_length: payload,
            sequence,
            has_push_flag: push,
        })
    }
}

impl HeldBurst {
    fn packet_octets(&self) -> &[u8] {
        self.frame_octets.get(virtio::VIRTIO_HEADER_LENGTH..).unwrap_or_default()
    }

    /// Compares addresses and protocol, and the octets at the offset of the ports, whatever the protocol.
    fn is_same_flow(&self, packet: &[u8]) -> bool {
        let mine = self.packet_octets();
        mine.get(6) == packet.get(6) && mine.get(8..44) == packet.get(8..44)
    }

    fn may_append(&self, next: &CandidatePacket, packet: &[u8]) -> bool {
        let (mine, first) = (self.packet_octets(), &self.first_packet);
        // Compares version, traffic class, flow label, and hop limit.
        let same_ip = mine.get(..4) == packet.get(..4) && mine.get(7) == packet.get(7);
        let room = mine.len() + next.payload_length <= MAX_BURST_LENGTH;
        if !same_ip
            || !room
            || next.headers_length != first.headers_length
            || next.payload_length > first.payload_length
        {
            return false;
        }
        match first.transport {
            Transport::Udp => true,
            Transport::Tcp => {
                let same = |from: usize, to: usize| {
                    mine.get(HEADER_LEN + from..HEADER_LEN + to)
                        == packet.get(HEADER_LEN + from..HEADER_LEN + to)
                };
                // Compares acknowledgement and data offset, window, urgent pointer and options.
                next.sequence == self.next_sequence
                    && same(8, TCP_FLAGS_OFFSET)
                    && same(14, 16)
                    && same(18, first.headers_length - HEADER_LEN)
            }
        }
    }

    fn append_packet(&mut self, next: &CandidatePacket, packet: &[u8]) {
        self.frame_octets.extend_from_slice(packet.get(next.headers_length..).unwrap_or_default());
        self.packet_count += 1;
        self.next_sequence = self.next_sequence.wrapping_add(next.payload_length as u32);
        if next.has_push_flag
            && let Some(flags) =
                self.frame_octets.get_mut(virtio::VIRTIO_HEADER_LENGTH + HEADER_LEN + TCP_FLAGS_OFFSET)
        {
            *flags |= TCP_FLAG_PSH;
        }
    }

    /// Returns whether the burst is complete after the packet `last`.
    fn is_full_after(&self, last: &CandidatePacket) -> bool {
        last.has_push_flag
            || last.payload_length < self.first_packet.payload_length
            || self.first_packet.transport == Transport::Udp && self.packet_count >= MAX_DATAGRAMS_PER_BURST
    }

    /// Writes lengths and checksum of a burst, and returns its virtio header.
    fn finish_burst(&mut self) -> VirtioHeader {
        let CandidatePacket { transport, headers_length: headers, payload_length: payload, .. } =
            self.first_packet;
        if self.packet_count == 1 {
            return VirtioHeader::default();
        }
        let header = VirtioHeader {
            unfinished_checksum: Some(UnfinishedChecksum {
                checksum_start: HEADER_LEN as u16,
                checksum_offset: transport.checksum_offset() as u16,
            }),
            burst_properties: Some(BurstProperties { transport, segment_size: payload as u16 }),
            headers_length: headers as u16,
        };
        let Some((front, packet)) = self.frame_octets.split_at_mut_checked(virtio::VIRTIO_HEADER_LENGTH)
        else {
            return header;
        };
        front.copy_from_slice(&header.emit());
        let length = packet.len().saturating_sub(HEADER_LEN);
        put_number(packet, 4, length as u16);
        let sum = pseudo_header_sum(packet, transport, length);
        let Some(rest) = packet.get_mut(HEADER_LEN..) else { return header };
        if transport == Transport::Udp {
            put_number(rest, 4, length as u16);
        }
        put_number(rest, transport.checksum_offset(), sum);
        header
    }
}

/// Returns the sum of the pseudo-header for `length` octets of TCP or UDP (RFC 8200 8.1).
pub(crate) fn pseudo_header_sum(packet: &[u8], transport: Transport, length: usize) -> u16 {
    let addresses = checksum::ones_complement_sum(packet.get(8..HEADER_LEN).unwrap_or_default());
    checksum::ones_complement_add(
        addresses,
        checksum::sum_of_protocol_and_length(transport.protocol(), length),
    )
}

/// Returns whether the checksum of a packet without extension headers is right.
fn has_valid_checksum(packet: &[u8], transport: Transport) -> bool {
    let rest = packet.get(HEADER_LEN..).unwrap_or_default();
    checksum::ones_complement_add(
        pseudo_header_sum(packet, transport, rest.len()),
        checksum::ones_complement_sum(rest),
    ) == 0xffff
}
