//! Finishes inner packets whose checksum or segmentation another station's fast path has left to the network
//! card.
//!
//! A card finishes packets before they reach the wire. Over a virtual link between two stations of the same
//! machine no card finishes them, and a socket does not report the missing work. But an unfinished checksum
//! is recognisable, because its field has the sum of the pseudo-header. If a finished checksum equals that
//! sum by chance, finishing it again gives the same value. A TCP packet with an unfinished checksum is a
//! super packet (GSO) if it is longer than an Ethernet frame. Its segment size is unknown, so carnet cuts it
//! into segments that every link carries.

use carnet_wire::ipv6::{HEADER_LEN, MIN_MTU};
use carnet_wire::{checksum, ipv4};

use crate::tunnel::segmentation::BurstSegments;
use crate::tunnel::virtio::{BurstProperties, Transport, UnfinishedChecksum, VirtioHeader};

/// Maximum payload of an Ethernet frame in octets; a longer packet is a super packet.
const MAX_ETHERNET_PAYLOAD: usize = 1500;

/// Kind of a received packet.
#[derive(Debug)]
pub(super) enum PacketKind {
    /// The packet is no burst, and its checksum is finished now.
    Packet,
    /// The packet is a super packet, which the caller cuts into segments.
    Super(BurstSegments),
}

/// Completes the checksum of an IPv6 or IPv4 packet, and finds super packets.
pub(super) fn finish_checksum_of(packet: &mut [u8]) -> PacketKind {
    let Some(header) = unfinished_checksum_of(packet) else { return PacketKind::Packet };
    if header.burst_properties.is_some() {
        return BurstSegments::new(&header, packet).map_or(PacketKind::Packet, PacketKind::Super);
    }
    if let Some(unfinished) = header.unfinished_checksum {
        unfinished.finish_checksum(packet);
    }
    PacketKind::Packet
}

/// Returns the missing work as the header that the TUN device uses (`virtio_net_hdr`); `None` if the packet
/// is complete.
fn unfinished_checksum_of(packet: &[u8]) -> Option<VirtioHeader> {
    let (start, number, addresses) = find_upper_layer(packet)?;
    let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|t| t.protocol() == number)?;
    let behind = packet.get(start..)?;
    let offset = transport.checksum_offset();
    let field = behind.get(offset..offset + 2)?;
    let pseudo_header = checksum::ones_complement_add(
        checksum::ones_complement_sum(addresses),
        checksum::sum_of_protocol_and_length(number, behind.len()),
    );
    if field != pseudo_header.to_be_bytes() {
        return None;
    }
    let is_super = transport == Transport::Tcp && packet.len() > MAX_ETHERNET_PAYLOAD;
    let headers = start + usize::from(behind.get(12).map_or(0, |octet| octet >> 4)) * 4;
    let segment = u16::try_from(MIN_MTU.checked_sub(headers)?).ok()?;
    Some(VirtioHeader {
        unfinished_checksum: Some(UnfinishedChecksum {
            checksum_start: start as u16,
            checksum_offset: offset as u16,
        }),
        burst_properties: is_super.then_some(BurstProperties { transport, segment_size: segment }),
        headers_length: 0,
    })
}

/// Returns the length of the IP header, the protocol that follows, and the octets of both addresses. `None`
/// for a fragment, and for a packet of another length than its header says.
fn find_upper_layer(packet: &[u8]) -> Option<(usize, u8, &[u8])> {
    if packet.first()? >> 4 == 4 {
        let header = ipv4::Header::parse(packet).ok()?;
        let is_whole = usize::from(header.total_length) == packet.len();
        let is_fragment = header.more_fragments || header.is_later_fragment();
        let addresses = packet.get(12..ipv4::HEADER_LEN)?;
        return (is_whole && !is_fragment).then_some((header.header_length, header.protocol, addresses));
    }
    let [first, _, _, _, high, low, next_header, ..] = packet.first_chunk::<HEADER_LEN>()?;
    let is_whole = HEADER_LEN + usize::from(u16::from_be_bytes([*high, *low])) == packet.len();
    (first >> 4 == 6 && is_whole).then_some((HEADER_LEN, *next_header, packet.get(8..HEADER_LEN)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tunnel::coalescing::pseudo_header_sum;
    use carnet_wire::ipv6::Header as Ipv6;

    fn packet(next_header: u8, length: usize) -> Vec<u8> {
        let mut octets: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        match next_header {
            6 => octets[12] = 0x50,
            _ => octets[4..6].copy_from_slice(&(length as u16).to_be_bytes()),
        }
        let header = Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            payload_length: length as u16,
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        [&header.emit()[..], &octets].concat()
    }

    fn has_valid_checksum(packet: &[u8]) -> bool {
        let (header, payload) = Ipv6::parse_packet(packet).unwrap();
        checksum::upper_layer_checksum(header.source, header.destination, header.next_header, payload) == 0
    }

    fn ipv6_packet_with(next_header: u8, length: usize) -> Vec<u8> {
        let mut packet = packet(next_header, length);
        let transport = if next_header == 6 { Transport::Tcp } else { Transport::Udp };
        let at = HEADER_LEN + transport.checksum_offset();
        let sum = pseudo_header_sum(&packet, transport, length);
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn incomplete_checksums_are_finished_and_complete_ones_stay() {
        for next_header in [6, 17] {
            for length in [20, 21, 500, 1460] {
                let mut packet = ipv6_packet_with(next_header, length);
                assert!(!has_valid_checksum(&packet));
                assert!(matches!(finish_checksum_of(&mut packet), PacketKind::Packet));
                assert!(has_valid_checksum(&packet), "{next_header} {length}");
                // A finished checksum stays unchanged, and a wrong checksum stays wrong.
                let at = packet.len() - 1;
                for change in [0, 1] {
                    packet[at] ^= change;
                    let before = packet.clone();
                    finish_checksum_of(&mut packet);
                    assert_eq!(packet, before);
                }
            }
        }
    }

    /// Returns an IPv4 packet whose checksum is unfinished: its checksum field has the sum of the
    /// pseudo-header.
    fn ipv4_packet_with(number: u8, length: usize) -> Vec<u8> {
        let payload = packet(number, length).split_off(HEADER_LEN);
        let [a, b] = (20 + length as u16).to_be_bytes();
        let head = [0x45, 0, a, b, 1, 2, 0x40, 0, 64, number, 0, 0, 10, 42, 7, 5, 10, 99, 0, 1];
        let mut packet = [&head[..], &payload].concat();
        ipv4::set_checksum(&mut packet);
        let at = 20 + if number == 6 { 16 } else { 6 };
        let sum = checksum::ones_complement_add(
            checksum::ones_complement_sum(&head[12..]),
            checksum::sum_of_protocol_and_length(number, length),
        );
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn has_valid_ipv4_checksums(packet: &[u8]) -> bool {
        let (header, packet) = ipv4::Header::parse_packet(packet).unwrap();
        let payload = &packet[20..];
        let pseudo_header = checksum::sum_of_protocol_and_length(header.protocol, payload.len());
        let sum =
            checksum::ones_complement_add(checksum::ones_complement_sum(&packet[12..20]), pseudo_header);
        checksum::ones_complement_sum(&packet[..20]) == 0xffff
            && checksum::ones_complement_add(sum, checksum::ones_complement_sum(payload)) == 0xffff
    }

    #[test]
    fn incomplete_checksums_of_ipv4_are_finished() {
        for number in [6, 17] {
            for length in [20, 21, 500, 1460] {
                let mut packet = ipv4_packet_with(number, length);
                assert!(!has_valid_ipv4_checksums(&packet));
                assert!(matches!(finish_checksum_of(&mut packet), PacketKind::Packet));
                assert!(has_valid_ipv4_checksums(&packet), "{number} {length}");
                for change in [|p: &mut Vec<u8>| p[6] = 0x20, |p: &mut Vec<u8>| p[7] = 1] {
                    let mut fragment = ipv4_packet_with(number, length);
                    change(&mut fragment);
                    let before = fragment.clone();
                    finish_checksum_of(&mut fragment);
                    assert_eq!(fragment, before);
                }
            }
        }
        let mut whole = ipv4_packet_with(6, 20 + 20_000);
        let PacketKind::Super(mut segments) = finish_checksum_of(&mut whole) else { panic!("not seen") };
        let (mut payload, mut buffer) = (Vec::new(), vec![0; 2000]);
        while let Some(length) = segments.next_segment(&whole, &mut buffer) {
            assert!(length <= MIN_MTU && has_valid_ipv4_checksums(&buffer[..length]));
            payload.extend_from_slice(&buffer[40..length]);
        }
        assert_eq!(payload, whole[40..]);
    }

    #[test]
    fn gso_packets_are_segmented_to_minimum_mtu() {
        let mut whole = ipv6_packet_with(6, 20 + 20_000);
        let PacketKind::Super(mut segments) = finish_checksum_of(&mut whole) else { panic!("not seen") };
        let (mut payload, mut buffer) = (Vec::new(), vec![0; 2000]);
        while let Some(length) = segments.next_segment(&whole, &mut buffer) {
            assert!(length <= MIN_MTU && has_valid_checksum(&buffer[..length]));
            payload.extend_from_slice(&buffer[60..length]);
        }
        assert_eq!(payload, whole[60..]);
    }

    #[test]
    fn packet_with_invalid_headers_stays_unchanged() {
        for length in 0..70 {
            let mut packet = ipv6_packet_with(6, 40);
            packet.truncate(length);
            let before = packet.clone();
            finish_checksum_of(&mut packet);
            assert_eq!(packet, before);
        }
        let mut packet = ipv6_packet_with(6, 2000);
        packet[52] = 0xf0;
        packet[4] = 0xff;
        assert!(matches!(finish_checksum_of(&mut packet), PacketKind::Packet));
    }
}
