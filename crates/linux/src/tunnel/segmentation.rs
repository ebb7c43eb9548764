//! Cuts bursts into packets, as a network card with TSO and USO does.
//!
//! The kernel delivers TCP and UDP payload of one flow as one packet that is larger than any path carries,
//! together with the segment size. Each segment gets the headers of the burst, with its own lengths, TCP
//! sequence number and checksum. An IPv4 segment also gets its own Identification. Only the last segment
//! keeps FIN and PSH, and only the first keeps CWR (RFC 3168 6.1.2). The station never sees a burst, so it
//! compares the real packets with the path MTU.
//!
//! The module rejects a virtio header whose values point outside of the packet. Left out: fragments, and
//! bursts inside tunnels, which the device does not request.

use carnet_wire::ipv6::HEADER_LEN;
use carnet_wire::{checksum, ipv4};

use super::virtio::{BurstProperties, Transport, UnfinishedChecksum, VirtioHeader};

const TCP_HEADER_LENGTH: usize = 20;
const UDP_HEADER_LENGTH: usize = 8;

const TCP_FLAG_FIN: u8 = 0x01;
const TCP_FLAG_PSH: u8 = 0x08;
const TCP_FLAG_CWR: u8 = 0x80;

/// Progress of splitting a burst into packets. The caller passes the burst itself in each call.
#[derive(Debug)]
pub(crate) struct BurstSegments {
    transport: Transport,
    is_ipv4: bool,
    unfinished_checksum: UnfinishedChecksum,
    /// Length of all headers in octets.
    headers_length: usize,
    /// Payload of each segment in octets; only the last may be shorter.
    segment_size: usize,
    /// Offset at which the next segment's payload begins.
    next_payload_offset: usize,
}

impl BurstSegments {
    /// Begins to cut `packet`; `None` if the virtio header does not match the packet.
    pub(crate) fn new(header: &VirtioHeader, packet: &[u8]) -> Option<BurstSegments> {
        let BurstProperties { transport, segment_size: segment } = header.burst_properties?;
        let unfinished = header.unfinished_checksum?;
        let start = usize::from(unfinished.checksum_start);
        let is_ipv4 = packet.first()? >> 4 == 4;
        let (least, length) = match packet.get(..HEADER_LEN)? {
            [first, _, _, _, high, low, ..] if first >> 4 == 6 => {
                (HEADER_LEN, HEADER_LEN + usize::from(u16::from_be_bytes([*high, *low])))
            }
            _ => {
                let header = ipv4::Header::parse(packet).ok()?;
                (header.header_length, header.total_length.into())
            }
        };
        let whole = start >= least && packet.len() == length;
        let behind = packet.get(start..)?;
        let transport_header = match transport {
            Transport::Tcp => usize::from(behind.get(12)? >> 4) * 4,
            Transport::Udp => UDP_HEADER_LENGTH,
        };
        let smallest = if transport == Transport::Tcp { TCP_HEADER_LENGTH } else { UDP_HEADER_LENGTH };
        let headers = start + transport_header;
        let fits = transport_header >= smallest
            && headers < packet.len()
            && usize::from(unfinished.checksum_offset) == transport.checksum_offset();
        (whole && fits && segment > 0).then(|| BurstSegments {
            transport,
            is_ipv4,
            unfinished_checksum: unfinished,
            headers_length: headers,
            segment_size: segment.into(),
            next_payload_offset: headers,
        })
    }

    /// Writes the length, the Identification and the checksum into the IPv4 header of a segment.
    fn finish_ipv4_header(&self, header: &mut [u8], length: u16) {
        let number = (self.next_payload_offset - self.headers_length) / self.segment_size;
        if let Some([high, low]) = header.get(4..6).and_then(|field| field.first_chunk()).copied() {
            put_number(header, 4, u16::from_be_bytes([high, low]).wrapping_add(number as u16));
        }
        put_number(header, 2, length);
        ipv4::set_checksum(header);
    }

    /// Returns whether all segments have been returned.
    pub(crate) fn has_returned_all_segments(&self, packet: &[u8]) -> bool {
        self.next_payload_offset >= packet.len()
    }

    /// Writes the next segment into `buffer` and returns its length; `None` after the last one. Truncates a
    /// segment that is longer than `buffer`, as a read does.
    pub(crate) fn next_segment(&mut self, packet: &[u8], buffer: &mut [u8]) -> Option<usize> {
        let payload = packet.get(self.next_payload_offset..).filter(|rest| !rest.is_empty())?;
        let payload = payload.get(..self.segment_size).unwrap_or(payload);
        let headers = packet.get(..self.headers_length)?;
        let length = self.headers_length + payload.len();
        let Some(segment) = buffer.get_mut(..length) else {
            // The headers of this segment cannot be written, so skip it.
            self.next_payload_offset += payload.len();
            return Some(0);
        };
        let (front, back) = segment.split_at_mut(self.headers_length);
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        let (first, last) = (
            self.next_payload_offset == self.headers_length,
            self.next_payload_offset + payload.len() == packet.len(),
        );
        match self.is_ipv4 {
            true => self.finish_ipv4_header(front, length as u16),
            false => put_number(front, 4, (length - HEADER_LEN) as u16),
        }
        let start = usize::from(self.unfinished_checksum.checksum_start);
        let transport_length = length - start;
        let transport = front.get_mut(start..)?;
        match self.transport {
            Transport::Tcp => {
                if let Some(field) = transport.get_mut(4..8)
                    && let Ok(number) = <[u8; 4]>::try_from(&*field)
                {
                    let passed = (self.next_payload_offset - self.headers_length) as u32;
                    field.copy_from_slice(&u32::from_be_bytes(number).wrapping_add(passed).to_be_bytes());
                }
                if let Some(flags) = transport.get_mut(13) {
                    *flags &= !(if last { 0 } else { TCP_FLAG_FIN | TCP_FLAG_PSH }
                        | if first { 0 } else { TCP_FLAG_CWR });
                }
            }
            Transport::Udp => put_number(transport, 4, transport_length as u16),
        }
        // The checksum field has the pseudo-header's sum, computed with the length of the whole burst.
        let offset = usize::from(self.unfinished_checksum.checksum_offset);
        let sum = match transport.get(offset..offset + 2) {
            Some([high, low]) => u16::from_be_bytes([*high, *low]),
            _ => return None,
        };
        let sum = checksum::ones_complement_add(sum, !((packet.len() - start) as u16));
        put_number(transport, offset, checksum::ones_complement_add(sum, transport_length as u16));
        self.unfinished_checksum.finish_checksum(segment);
        self.next_payload_offset += self.segment_size.min(packet.len() - self.next_payload_offset);
        Some(length)
    }
}

/// Writes a number into a header that is long enough.
pub(super) fn put_number(header: &mut [u8], offset: usize, number: u16) {
    if let Some(field) = header.get_mut(offset..offset + 2) {
        field.copy_from_slice(&number.to_be_bytes());
    }
}
