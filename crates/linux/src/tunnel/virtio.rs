//! The header that precedes each packet of a TUN device with `IFF_VNET_HDR`: `virtio_net_hdr` of
//! linux/virtio_net.h (virtio 1.2, 5.1.6), in the machine's byte order.
//!
//! The header says whether the packet's checksum must be finished, and whether the "packet" is a burst that
//! must be cut into segments.

use carnet_wire::checksum;

/// Length of the header in octets.
pub(crate) const VIRTIO_HEADER_LENGTH: usize = 10;

/// Flag `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds the sum of the pseudo-header only.
const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of bursts, `VIRTIO_NET_HDR_GSO_*`.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM_OFFSET: usize = 6;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM_OFFSET: usize = 16;

/// Transport protocols that can form bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP (`VIRTIO_NET_HDR_GSO_TCPV6` and `_TCPV4`), as for TSO and GRO.
    Tcp,
    /// UDP (`VIRTIO_NET_HDR_GSO_UDP_L4`), as for USO and `UDP_SEGMENT`.
    Udp,
}

impl Transport {
    /// Returns the value of the IPv6 Next Header field for the protocol.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    /// Returns the offset of the checksum in the transport header.
    pub(crate) fn checksum_offset(self) -> usize {
        match self {
            Transport::Tcp => TCP_CHECKSUM_OFFSET,
            Transport::Udp => UDP_CHECKSUM_OFFSET,
        }
    }
}

/// Properties of a burst, which has the payload of several packets after one set of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BurstProperties {
    pub transport: Transport,
    /// Payload of each segment in octets; only the last may be shorter.
    pub segment_size: u16,
}

/// Offsets of an unfinished checksum. The checksum covers all octets from `start` on, and its field is
/// `offset` octets after `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnfinishedChecksum {
    pub checksum_start: u16,
    pub checksum_offset: u16,
}

impl UnfinishedChecksum {
    /// Finishes the checksum. Returns false if the checksum's field is outside of the packet.
    pub(crate) fn finish_checksum(self, packet: &mut [u8]) -> bool {
        let (start, offset) = (usize::from(self.checksum_start), usize::from(self.checksum_offset));
        let Some(covered) = packet.get_mut(start..) else { return false };
        let sum = match checksum::ones_complement_sum(covered) {
            // RFC 768: zero in the checksum field means "no checksum". So use 0xffff for a sum of zero: it is
            // the same number in one's complement.
            0xffff => 0xffff,
            sum => !sum,
        };
        let Some(field) = covered.get_mut(offset..offset + 2) else { return false };
        field.copy_from_slice(&sum.to_be_bytes());
        true
    }
}

/// The virtio header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VirtioHeader {
    pub unfinished_checksum: Option<UnfinishedChecksum>,
    pub burst_properties: Option<BurstProperties>,
    /// Length in octets of all headers of a burst. The kernel uses it only as a hint.
    pub headers_length: u16,
}

/// A kind of burst that carnet did not request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownBurst;

impl VirtioHeader {
    /// Decodes a header.
    pub(crate) fn parse(octets: &[u8; VIRTIO_HEADER_LENGTH]) -> Result<VirtioHeader, UnknownBurst> {
        let [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1] = *octets;
        let word = |a, b| u16::from_ne_bytes([a, b]);
        let burst = |transport| Some(BurstProperties { transport, segment_size: word(g0, g1) });
        Ok(VirtioHeader {
            unfinished_checksum: (flags & NEEDS_CHECKSUM != 0)
                .then(|| UnfinishedChecksum { checksum_start: word(s0, s1), checksum_offset: word(o0, o1) }),
            burst_properties: match kind {
                GSO_NONE => None,
                GSO_TCPV4 | GSO_TCPV6 => burst(Transport::Tcp),
                GSO_UDP_L4 => burst(Transport::Udp),
                _ => return Err(UnknownBurst),
            },
            headers_length: word(h0, h1),
        })
    }

    /// Encodes the header.
    pub(crate) fn emit(&self) -> [u8; VIRTIO_HEADER_LENGTH] {
        let mut octets = [0; VIRTIO_HEADER_LENGTH];
        if let Some(unfinished) = self.unfinished_checksum {
            octets[0] = NEEDS_CHECKSUM;
            octets[6..8].copy_from_slice(&unfinished.checksum_start.to_ne_bytes());
            octets[8..10].copy_from_slice(&unfinished.checksum_offset.to_ne_bytes());
        }
        if let Some(burst) = self.burst_properties {
            octets[1] = match burst.transport {
                Transport::Tcp => GSO_TCPV6,
                Transport::Udp => GSO_UDP_L4,
            };
            octets[4..6].copy_from_slice(&burst.segment_size.to_ne_bytes());
        }
        octets[2..4].copy_from_slice(&self.headers_length.to_ne_bytes());
        octets
    }
}
