//! Finds the headers around the packets of a ping in a capture: the number of octets before the innermost
//! IPv6 header.
//!
//! The module reads files of tcpdump and dumpcap (pcap, Ethernet), and only the headers of each packet.
//! Tunnels are IPv6 in IPv6, with extension headers between. Left out: packets in fragments, in IPv4 or in
//! UDP.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// Length of an Ethernet header in octets.
const ETHERNET_HEADER_LENGTH: usize = 14;
const ETHER_TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER_LENGTH: usize = 40;
const ICMPV6_ECHO_REQUEST: u8 = 128;

/// Returns the captured octets of each packet in a pcap file.
pub fn captured_packets(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let little = file.first().is_some_and(|first| matches!(first, 0xd4 | 0x4d));
    let word = move |octets: &[u8]| {
        let octets: [u8; 4] = octets.try_into().ok()?;
        Some(if little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) } as usize)
    };
    let mut rest = file.get(24..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = word(rest.get(8..12)?)?;
        let packet = rest.get(16..16 + length)?;
        rest = &rest[16 + length..];
        Some(packet)
    })
}

/// Returns the innermost IPv6 packet of a frame: source, destination, octets before its header, and its
/// ICMPv6 type, if any.
pub fn innermost_header(frame: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, usize, Option<u8>)> {
    if frame.get(12..14)? != ETHER_TYPE_IPV6 {
        return None;
    }
    let mut at = ETHERNET_HEADER_LENGTH;
    loop {
        let header = frame.get(at..at + IPV6_HEADER_LENGTH)?;
        let address = |from: usize| <[u8; 16]>::try_from(&header[from..from + 16]).ok().map(Ipv6Addr::from);
        let (mut next, mut inside) = (header[6], at + IPV6_HEADER_LENGTH);
        // Skip the headers Hop-by-Hop Options (0), Routing (43) and Destination Options (60).
        while matches!(next, 0 | 43 | 60) {
            let extension = frame.get(inside..inside + 2)?;
            (next, inside) = (extension[0], inside + 8 * (usize::from(extension[1]) + 1));
        }
        if next == 41 {
            at = inside;
            continue;
        }
        let kind = if next == 58 { frame.get(inside).copied() } else { None };
        return Some((address(8)?, address(24)?, at - ETHERNET_HEADER_LENGTH, kind));
    }
}

/// Returns, for each pair of innermost addresses, how many octets of headers their Echo Requests had around
/// them, in ascending order.
pub fn outer_headers_of_echo_requests(file: &[u8]) -> BTreeMap<(Ipv6Addr, Ipv6Addr), Vec<usize>> {
    let mut found: BTreeMap<(Ipv6Addr, Ipv6Addr), Vec<usize>> = BTreeMap::new();
    for (source, destination, outer, kind) in captured_packets(file).filter_map(innermost_header) {
        if kind == Some(ICMPV6_ECHO_REQUEST) {
            found.entry((source, destination)).or_default().push(outer);
        }
    }
    found.values_mut().for_each(|outer| outer.sort_unstable());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv6_header(next: u8, source: u16, destination: u16) -> Vec<u8> {
        let mut octets = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        octets.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, source).octets());
        octets.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, destination).octets());
        octets
    }

    fn capture_file(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1];
        file.resize(24, 0);
        for frame in frames {
            file.extend([0; 8]);
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend(frame);
        }
        file
    }

    #[test]
    fn outer_headers_of_captured_pings_are_counted() {
        let frame = |headers: &[Vec<u8>]| {
            let mut frame = vec![0; 12];
            frame.extend(ETHER_TYPE_IPV6);
            frame.extend(headers.concat());
            frame
        };
        let ping = [ipv6_header(58, 1, 2), vec![ICMPV6_ECHO_REQUEST, 0, 0, 0]].concat();
        let answer = [ipv6_header(58, 2, 1), vec![129, 0, 0, 0]].concat();
        let frames = [
            frame(std::slice::from_ref(&ping)),
            frame(&[ipv6_header(41, 3, 4), ipv6_header(41, 5, 6), ping.clone()]),
            frame(&[ipv6_header(60, 3, 4), vec![41, 0, 0x1e, 4, 0, 0, 0, 1], ping.clone()]),
            frame(&[ipv6_header(41, 3, 4), answer]),
            vec![0; 60],
            frame(&[ipv6_header(41, 3, 4)]),
        ];
        let (from, to) = ("2001:db8::1".parse().expect("address"), "2001:db8::2".parse().expect("address"));
        let whole = capture_file(&frames);
        assert_eq!(outer_headers_of_echo_requests(&whole), BTreeMap::from([((from, to), vec![0, 48, 80])]));
        for length in 0..whole.len() {
            assert!(outer_headers_of_echo_requests(&whole[..length]).values().all(|found| found.len() <= 3));
        }
    }
}
