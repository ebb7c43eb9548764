//! Builds the packets of the benchmark: UDP to the discard port (RFC 863) in IPv6 or IPv4, plain or inside
//! one IPv6 header.
//!
//! The payload begins with a number and its complement, which cancel each other in the checksum. So the
//! checksum is the same for every number, and the sender numbers a packet by writing eight octets.
//!
//! The next two octets are chosen so that the checksum equals the sum of the pseudo-header. This sum is also
//! what the kernel writes into the checksum field when it leaves the checksum to an interface. So the packet
//! is valid whether or not an interface completes the checksum. As with a network card, no program has to
//! compute the checksum.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Length of an Ethernet header in octets.
pub const ETHERNET_HEADER_LENGTH: usize = 14;
/// Length of an IPv6 header in octets.
pub const IPV6_HEADER_LENGTH: usize = 40;
/// Length of an IPv4 header without options in octets.
const IPV4_HEADER_LENGTH: usize = 20;
/// Length of a UDP header in octets.
pub const UDP_HEADER_LENGTH: usize = 8;
/// Offset, in the datagram, of the two octets that make the checksum equal to the sum of the pseudo-header.
const CHECKSUM_BALANCE_OFFSET: usize = UDP_HEADER_LENGTH + 8;
/// Length of the smallest inner packet in octets.
pub const SMALLEST_PACKET_LENGTH: usize = IPV6_HEADER_LENGTH + CHECKSUM_BALANCE_OFFSET + 2;
/// Protocol number of IPv6 in IPv6 (RFC 2473).
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_UDP: u8 = 17;
/// Port of the discard protocol (RFC 863).
const DISCARD_PORT: u16 = 9;
const SOURCE_PORT: u16 = 4096;

/// Source and destination address.
pub type PacketAddresses = (Ipv6Addr, Ipv6Addr);

/// A complete frame, ready to be sent.
#[derive(Debug, Clone)]
pub struct Frame {
    octets: Vec<u8>,
    /// Offset of the inner packet in the frame.
    inner_offset: usize,
    /// Length of the inner packet's IP header in octets.
    ip_header_length: usize,
}

fn write_ipv6_header(octets: &mut [u8], ends: PacketAddresses, next_header: u8, payload: usize) {
    octets[0] = 0x60;
    octets[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    octets[6] = next_header;
    octets[7] = 64;
    octets[8..24].copy_from_slice(&ends.0.octets());
    octets[24..40].copy_from_slice(&ends.1.octets());
}

/// Writes the length of an IPv4 packet and the checksum into its header.
pub fn set_ipv4_length(header: &mut [u8], length: usize) {
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[10..12].fill(0);
    let checksum = !ones_complement_sum(0, &header[..IPV4_HEADER_LENGTH]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

impl Frame {
    /// Creates a frame with an inner packet of `size` octets between `ends`, and, if `outer` is given, with
    /// an outer header between these addresses. `link` has the hardware addresses of the sending interface
    /// and of its peer.
    pub fn new(
        link: ([u8; 6], [u8; 6]),
        outer: Option<PacketAddresses>,
        ends: PacketAddresses,
        size: usize,
    ) -> Frame {
        let inner = ETHERNET_HEADER_LENGTH + if outer.is_some() { IPV6_HEADER_LENGTH } else { 0 };
        let size = size.max(SMALLEST_PACKET_LENGTH);
        let mut octets = vec![0; inner + size];
        octets[0..6].copy_from_slice(&link.1);
        octets[6..12].copy_from_slice(&link.0);
        octets[12..14].copy_from_slice(&[0x86, 0xdd]);
        if let Some(outer) = outer {
            write_ipv6_header(&mut octets[ETHERNET_HEADER_LENGTH..], outer, PROTOCOL_IPV6, size);
        }
        write_ipv6_header(&mut octets[inner..], ends, PROTOCOL_UDP, size - IPV6_HEADER_LENGTH);
        Frame { octets, inner_offset: inner, ip_header_length: IPV6_HEADER_LENGTH }.with_udp_datagram()
    }

    /// Creates a frame with an IPv4 packet of `size` octets between `ends`. Routers must not cut the packet.
    pub fn new_ipv4(link: ([u8; 6], [u8; 6]), ends: (Ipv4Addr, Ipv4Addr), size: usize) -> Frame {
        let size = size.max(SMALLEST_PACKET_LENGTH);
        let mut octets = vec![0; ETHERNET_HEADER_LENGTH + size];
        octets[0..6].copy_from_slice(&link.1);
        octets[6..12].copy_from_slice(&link.0);
        octets[12..14].copy_from_slice(&[0x08, 0x00]);
        let header = &mut octets[ETHERNET_HEADER_LENGTH..];
        header[0] = 0x45;
        header[6] = 0x40; // do not fragment
        header[8] = 64;
        header[9] = PROTOCOL_UDP;
        header[12..16].copy_from_slice(&ends.0.octets());
        header[16..20].copy_from_slice(&ends.1.octets());
        set_ipv4_length(header, size);
        Frame { octets, inner_offset: ETHERNET_HEADER_LENGTH, ip_header_length: IPV4_HEADER_LENGTH }
            .with_udp_datagram()
    }

    /// Writes the datagram after the headers, and returns the frame.
    fn with_udp_datagram(mut self) -> Frame {
        let at = self.inner_offset + self.ip_header_length;
        let length = self.octets.len() - at;
        let datagram = &mut self.octets[at..];
        datagram[0..2].copy_from_slice(&SOURCE_PORT.to_be_bytes());
        datagram[2..4].copy_from_slice(&DISCARD_PORT.to_be_bytes());
        datagram[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        self.set_packet_number(0);
        let pseudo = pseudo_header_sum(&self.octets[self.inner_offset..], length);
        self.octets[at + 6..at + 8].copy_from_slice(&pseudo.to_be_bytes());
        let rest = !ones_complement_sum(u32::from(pseudo), &self.octets[at..]);
        self.octets[at + CHECKSUM_BALANCE_OFFSET..at + CHECKSUM_BALANCE_OFFSET + 2]
            .copy_from_slice(&rest.to_be_bytes());
        self
    }

    /// Exchanges the ports of the datagram, as in an answer. The checksum stays valid.
    pub fn swap_ports(&mut self) {
        let at = self.inner_offset + self.ip_header_length;
        let [a, b, c, d] = [0, 1, 2, 3].map(|port| self.octets[at + port]);
        self.octets[at..at + 4].copy_from_slice(&[c, d, a, b]);
    }

    /// Wraps the octets of a complete frame. Only [`Self::octets`] is valid for it.
    pub fn of_octets(octets: Vec<u8>) -> Frame {
        Frame { octets, inner_offset: ETHERNET_HEADER_LENGTH, ip_header_length: IPV6_HEADER_LENGTH }
    }

    /// Returns the octets of the frame.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Returns all headers except the outer header.
    pub fn header_octets(&self) -> Vec<u8> {
        [
            &self.octets[..ETHERNET_HEADER_LENGTH],
            &self.octets[self.inner_offset..self.inner_offset + self.ip_header_length + UDP_HEADER_LENGTH],
        ]
        .concat()
    }

    /// Returns the payload after the headers.
    pub fn payload(&self) -> &[u8] {
        &self.octets[self.inner_offset + self.ip_header_length + UDP_HEADER_LENGTH..]
    }

    /// Returns the outer header; `None` if the frame has none.
    pub fn outer_header(&self) -> Option<&[u8]> {
        (self.inner_offset > ETHERNET_HEADER_LENGTH)
            .then(|| &self.octets[ETHERNET_HEADER_LENGTH..self.inner_offset])
    }

    /// Writes a number into the payload, by which the sink recognises the packet.
    pub fn set_packet_number(&mut self, number: u32) {
        let at = self.inner_offset + self.ip_header_length + UDP_HEADER_LENGTH;
        self.octets[at..at + 4].copy_from_slice(&number.to_be_bytes());
        self.octets[at + 4..at + 8].copy_from_slice(&(!number).to_be_bytes());
    }

    /// Returns the range of octets in the frame with the inner packet's destination address, or with its
    /// source address if `destination` is false.
    fn inner_address_range(&self, destination: bool) -> Range<usize> {
        let at = self.inner_offset + if destination { 24 } else { 8 };
        at..at + 16
    }

    /// Writes an inner address. The address must have the same sum (RFC 1071) as the previous address, see
    /// [`address_with_constant_sum`].
    pub fn set_inner_address(&mut self, destination: bool, address: [u8; 16]) {
        let range = self.inner_address_range(destination);
        self.octets[range].copy_from_slice(&address);
    }

    /// Writes the source of the outer packet, which is in no checksum.
    pub fn set_outer_source(&mut self, address: [u8; 16]) {
        self.octets[ETHERNET_HEADER_LENGTH + 8..ETHERNET_HEADER_LENGTH + 24].copy_from_slice(&address);
    }
}

/// Returns the ones' complement sum (RFC 1071).
fn ones_complement_sum(start: u32, octets: &[u8]) -> u16 {
    let mut sum = start;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum of the pseudo-header (RFC 8200 8.1, RFC 768) for `length` octets of UDP after this IPv6 or
/// IPv4 header.
pub fn pseudo_header_sum(header: &[u8], length: usize) -> u16 {
    let addresses = if header[0] >> 4 == 4 { 12..IPV4_HEADER_LENGTH } else { 8..IPV6_HEADER_LENGTH };
    ones_complement_sum(u32::from(PROTOCOL_UDP) + length as u32, &header[addresses])
}

/// Returns an address in the `/64` with this number. All addresses that the function returns for a prefix
/// have the same sum. The number is in the last 32 bits of the prefix, and its complement in the interface
/// identifier.
pub fn address_with_constant_sum(prefix: u32, number: u32) -> [u8; 16] {
    let mut address = [0; 16];
    address[0..4].copy_from_slice(&prefix.to_be_bytes());
    address[4..8].copy_from_slice(&number.to_be_bytes());
    address[8..12].copy_from_slice(&(!number).to_be_bytes());
    address[15] = 2;
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_ADDRESSES: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);

    fn test_addresses() -> PacketAddresses {
        ("2001:db8:a::2".parse().expect("address"), "2001:db8:c::2".parse().expect("address"))
    }

    /// Returns whether the sum over pseudo-header and datagram, checksum included, is valid.
    fn has_valid_checksum(packet: &[u8]) -> bool {
        let (header, addresses) = if packet[0] == 0x45 { (20, 12) } else { (40, 8) };
        let mut sum = 17 + packet.len() as u64 - header;
        for pair in packet[addresses..].chunks(2) {
            sum += u64::from(pair[0]) * 256 + u64::from(pair.get(1).copied().unwrap_or(0));
        }
        sum.is_multiple_of(0xffff)
    }

    #[test]
    fn checksum_stays_valid_for_every_number_and_prefix() {
        for size in [64, 65, 1250] {
            let mut frame = Frame::new(LINK_ADDRESSES, None, test_addresses(), size);
            assert_eq!(frame.octets().len(), 14 + size);
            for number in [0, 1, 77, u32::MAX] {
                frame.set_packet_number(number);
                assert!(has_valid_checksum(&frame.octets()[14..]), "size {size}, number {number}");
            }
            let base = address_with_constant_sum(0x2001_0db8, 0);
            let mut frame = Frame::new(LINK_ADDRESSES, None, (test_addresses().0, base.into()), size);
            for number in [0, 1, 99_999] {
                frame.set_inner_address(true, address_with_constant_sum(0x2001_0db8, number));
                assert!(has_valid_checksum(&frame.octets()[14..]), "size {size}, prefix {number}");
            }
        }
    }

    #[test]
    fn ipv4_packet_has_valid_checksums_in_both_directions() {
        let ends = (Ipv4Addr::new(10, 42, 7, 2), Ipv4Addr::new(192, 0, 2, 2));
        for size in [64, 65, 1250] {
            let mut frame = Frame::new_ipv4(LINK_ADDRESSES, ends, size);
            assert_eq!(frame.octets().len(), 14 + size);
            assert_eq!(ones_complement_sum(0, &frame.octets()[14..34]), 0xffff);
            frame.set_packet_number(77);
            assert!(has_valid_checksum(&frame.octets()[14..]), "size {size}");
            frame.swap_ports();
            assert_eq!(frame.octets()[34..36], [0, 9]);
            assert!(has_valid_checksum(&frame.octets()[14..]), "size {size}");
        }
    }

    #[test]
    fn outer_header_encloses_the_inner_packet() {
        let outer = ("2001:db8:f0::2".parse().expect("address"), "2001:db8:1::1".parse().expect("address"));
        let frame = Frame::new(LINK_ADDRESSES, Some(outer), test_addresses(), 64);
        let octets = frame.octets();
        assert_eq!(octets.len(), 14 + 40 + 64);
        assert_eq!((octets[20], octets[60]), (41, 17));
        assert_eq!(u16::from_be_bytes([octets[18], octets[19]]), 64);
        assert!(has_valid_checksum(&octets[54..]));
    }
}
