//! Clamps TCP's Maximum Segment Size to the MTU of a tunnel.
//!
//! A SYN announces the largest segment that its sender accepts (RFC 9293 3.7.1). The forwarder lowers this
//! size to the tunnel's MTU less the IP and TCP headers. Then every segment of the connection fits into the
//! tunnel, even if hosts do not receive Packet Too Big. The forwarder updates the checksum by the difference
//! alone (RFC 1624). So a wrong checksum stays wrong, and a first fragment needs no other treatment than a
//! whole packet.
//!
//! The forwarder changes only the option of a SYN, and only if its value is too large. The checksum of the
//! packet must be a complete one. A partial checksum for checksum offload (a TUN device with
//! `virtio_net_hdr`) covers only the pseudo-header, and must not change with the options.

use carnet_wire::ipv6::{HEADER_LEN, protocol};
use carnet_wire::{extension, ipv4};

use super::inner_packet;

/// Octets of the IPv6 and TCP headers without options. RFC 9293 3.7.1: the MSS is the MTU less these octets,
/// whatever options a segment has.
const IPV6_TCP_HEADERS_LENGTH: usize = 60;
/// Octets of the IPv4 and TCP headers without options.
const IPV4_TCP_HEADERS_LENGTH: usize = 40;
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_CHECKSUM_OFFSET: usize = 16;
const TCP_HEADER_LENGTH: usize = 20;
const TCP_FLAG_SYN: u8 = 0x02;
const TCP_OPTION_END: u8 = 0;
const TCP_OPTION_NOP: u8 = 1;
const TCP_OPTION_MSS: u8 = 2;

/// Lowers the MSS option in the SYN of an IPv6 or IPv4 packet, so that segments fit into `mtu` octets.
/// Returns whether the option was too large.
#[inline]
pub fn clamp_mss(packet: &mut [u8], mtu: usize) -> bool {
    if inner_packet::is_ipv4(packet) {
        return clamp_mss_in_ipv4(packet, mtu);
    }
    // Most packets are not TCP, so this check returns early.
    let at = match packet.get(6) {
        Some(&protocol::TCP) => HEADER_LEN,
        Some(
            &(protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING | protocol::FRAGMENT),
        ) => match extension::find_upper_layer(packet) {
            Some((protocol::TCP, at, true)) => at,
            _ => return false,
        },
        _ => return false,
    };
    match packet.get_mut(at..) {
        Some(segment) if segment.get(TCP_FLAGS_OFFSET).is_some_and(|flags| flags & TCP_FLAG_SYN != 0) => {
            clamp_mss_in_segment(
                segment,
                u16::try_from(mtu.saturating_sub(IPV6_TCP_HEADERS_LENGTH)).unwrap_or(u16::MAX),
            )
        }
        _ => false,
    }
}

fn clamp_mss_in_ipv4(packet: &mut [u8], mtu: usize) -> bool {
    let tcp = ipv4::Header::parse(packet)
        .ok()
        .filter(|header| header.protocol == protocol::TCP && !header.is_later_fragment());
    match tcp.and_then(|header| packet.get_mut(header.header_length..)) {
        Some(segment) if segment.get(TCP_FLAGS_OFFSET).is_some_and(|flags| flags & TCP_FLAG_SYN != 0) => {
            clamp_mss_in_segment(
                segment,
                u16::try_from(mtu.saturating_sub(IPV4_TCP_HEADERS_LENGTH)).unwrap_or(u16::MAX),
            )
        }
        _ => false,
    }
}

/// Lowers the option of a TCP segment; `segment` begins with the TCP header.
fn clamp_mss_in_segment(segment: &mut [u8], limit: u16) -> bool {
    let header_len = segment.get(12).map_or(0, |octet| usize::from(octet >> 4) * 4);
    let Some(header) = segment.get_mut(..header_len) else { return false };
    let mut at = TCP_HEADER_LENGTH;
    let mut lowered = false;
    while let Some(&kind) = header.get(at) {
        if kind == TCP_OPTION_END {
            break;
        }
        if kind == TCP_OPTION_NOP {
            at += 1;
            continue;
        }
        let length = header.get(at + 1).map_or(0, |length| usize::from(*length));
        if length < 2 || at + length > header.len() {
            break;
        }
        if kind == TCP_OPTION_MSS && length == 4 {
            lowered |= limit_mss_field(header, at + 2, limit);
        }
        at += length;
    }
    lowered
}

/// Lowers the 16-bit field at `at` to `limit`, and updates the checksum.
fn limit_mss_field(header: &mut [u8], at: usize, limit: u16) -> bool {
    let field = |header: &[u8], at: usize| {
        header.get(at..at + 2).and_then(|octets| octets.try_into().ok()).map(u16::from_be_bytes)
    };
    let (Some(old), Some(checksum)) = (field(header, at), field(header, TCP_CHECKSUM_OFFSET)) else {
        return false;
    };
    if old <= limit {
        return false;
    }
    // At an odd offset, the checksum adds the two octets of the value in swapped order (RFC 1071 2 (B)).
    let weigh = |value: u16| if at.is_multiple_of(2) { value } else { value.swap_bytes() };
    // RFC 1624 3, equation 3: the new checksum from the old one and the changed value.
    let mut sum = u32::from(!checksum) + u32::from(!weigh(old)) + u32::from(weigh(limit));
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    for (at, value) in [(at, limit), (TCP_CHECKSUM_OFFSET, !(sum as u16))] {
        if let Some(octets) = header.get_mut(at..at + 2) {
            octets.copy_from_slice(&value.to_be_bytes());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_wire::checksum;
    use carnet_wire::fragment::FragmentHeader;
    use carnet_wire::ipv6::Header;
    use proptest::prelude::*;

    const FLAGS_SYN_ACK: u8 = 0x12;

    /// Returns an IPv6 packet with a TCP segment and its checksum. `extensions` are the extension headers in
    /// front: the Next Header of the first one, and their octets.
    fn tcp_packet_with_extensions(
        flags: u8,
        options: &[u8],
        data: &[u8],
        extensions: Option<(u8, &[u8])>,
    ) -> Vec<u8> {
        let (source, destination) =
            ("2001:db8:a::5".parse().expect("address"), "2001:db8:c::1".parse().expect("address"));
        let mut options = options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut segment = vec![0x12, 0x34, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8];
        segment.push(u8::try_from((TCP_HEADER_LENGTH + options.len()) / 4).expect("fits") << 4);
        segment.extend_from_slice(&[flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend_from_slice(&options);
        segment.extend_from_slice(data);
        let sum = checksum::upper_layer_checksum(source, destination, protocol::TCP, &segment);
        segment[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
        let (next_header, before) = extensions.unwrap_or((protocol::TCP, &[]));
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(before.len() + segment.len()).expect("fits"),
            next_header,
            hop_limit: 64,
            source,
            destination,
        };
        [&header.emit()[..], before, &segment].concat()
    }

    fn has_valid_checksum(packet: &[u8]) -> bool {
        let header = Header::parse(packet).expect("a header");
        let (_, at, _) = extension::find_upper_layer(packet).expect("TCP");
        checksum::upper_layer_checksum(header.source, header.destination, protocol::TCP, &packet[at..]) == 0
    }

    /// Returns the values of the MSS options of a packet without extension headers.
    fn mss_options_of(packet: &[u8]) -> Vec<u16> {
        let options = packet[60..].windows(4);
        options.filter(|w| w[..2] == [2, 4]).map(|w| u16::from_be_bytes([w[2], w[3]])).collect()
    }

    #[test]
    fn mss_option_is_lowered_at_any_position_and_never_raised() {
        for nops in 0..4 {
            for flags in [TCP_FLAG_SYN, FLAGS_SYN_ACK] {
                let options = [&[1; 4][..nops], &[2, 4, 0x05, 0xa0, 1, 3, 3, 7, 4, 2][..]].concat();
                let mut clamped = tcp_packet_with_extensions(flags, &options, b"data", None);
                assert!(clamp_mss(&mut clamped, 1360) && has_valid_checksum(&clamped));
                assert_eq!(mss_options_of(&clamped), [1300]);
                assert!(!clamp_mss(&mut clamped, 1360), "once is enough");
                assert!(!clamp_mss(&mut clamped, 1460));
                assert_eq!(mss_options_of(&clamped), [1300]);
            }
        }
    }

    #[test]
    fn packet_without_syn_or_mss_option_stays_unchanged() {
        let mss = [2, 4, 0x05, 0xa0];
        for (flags, options) in
            [(0x10, &mss[..]), (TCP_FLAG_SYN, &[]), (TCP_FLAG_SYN, &[1, 1, 1, 0, 2, 4, 5, 0xa0])]
        {
            let before = tcp_packet_with_extensions(flags, options, b"", None);
            let mut after = before.clone();
            assert!(!clamp_mss(&mut after, 1280));
            assert_eq!(after, before);
        }
        // A UDP datagram with the same octets must stay unchanged.
        let mut udp = tcp_packet_with_extensions(TCP_FLAG_SYN, &mss, b"", None);
        udp[6] = protocol::UDP;
        assert!(!clamp_mss(&mut udp, 1280));
    }

    #[test]
    fn mss_is_lowered_after_extension_headers_and_in_first_fragments() {
        let mss = [2, 4, 0x05, 0xa0];
        let options = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
        for kind in [protocol::HOP_BY_HOP, protocol::DESTINATION_OPTIONS] {
            let mut clamped = tcp_packet_with_extensions(TCP_FLAG_SYN, &mss, b"", Some((kind, &options)));
            assert!(clamp_mss(&mut clamped, 1360) && has_valid_checksum(&clamped));
        }
        for (offset, expected) in [(0, true), (8, false)] {
            let header = FragmentHeader {
                next_header: protocol::TCP,
                offset,
                more_fragments: true,
                identification: 7,
            };
            let before = tcp_packet_with_extensions(
                TCP_FLAG_SYN,
                &mss,
                b"",
                Some((protocol::FRAGMENT, &header.emit())),
            );
            let mut after = before.clone();
            assert_eq!(clamp_mss(&mut after, 1360), expected);
            assert_eq!(after != before, expected);
        }
    }

    proptest! {
        #[test]
        fn lowering_mss_keeps_checksum_valid_or_invalid(
            value in any::<u16>(),
            mtu in 1240_usize..9000,
            nops in 0_usize..4,
            data in proptest::collection::vec(any::<u8>(), 0..40),
            error in any::<u16>(),
        ) {
            let mut options = vec![1; nops];
            options.extend_from_slice(&[2, 4]);
            options.extend_from_slice(&value.to_be_bytes());
            let mut packet = tcp_packet_with_extensions(TCP_FLAG_SYN, &options, &data, None);
            let wrong = error & 0xff == 0 && error != 0;
            if wrong {
                packet[42] ^= (error >> 8) as u8;
            }
            prop_assert_eq!(clamp_mss(&mut packet, mtu), usize::from(value) > mtu - 60);
            prop_assert_eq!(has_valid_checksum(&packet), !wrong);
            let at = 62 + nops;
            let now = u16::from_be_bytes([packet[at], packet[at + 1]]);
            prop_assert_eq!(usize::from(now), usize::from(value).min(mtu - 60));
        }

        #[test]
        fn random_octets_do_not_panic_mss_clamping(
            octets in proptest::collection::vec(any::<u8>(), 0..200), mtu in any::<usize>(),
        ) {
            let mut packet = octets.clone();
            clamp_mss(&mut packet, mtu);
            let mut tcp = tcp_packet(octets);
            let length = tcp.len();
            clamp_mss(&mut tcp, mtu);
            prop_assert_eq!(tcp.len(), length);
        }
    }

    /// Makes these octets look like a SYN by overwriting some fields, if there are enough octets.
    fn tcp_packet(mut octets: Vec<u8>) -> Vec<u8> {
        for (at, value) in [(0, 0x60), (6, protocol::TCP), (53, TCP_FLAG_SYN)] {
            if let Some(octet) = octets.get_mut(at) {
                *octet = value;
            }
        }
        octets
    }
}
