//! Tests IPv4 packets inside tunnels (RFC 5555 4.4.3, 4.5.1), in outer IPv6, IPv4 and UDP.

use std::net::Ipv4Addr;

use carnet_base::{Endpoint, Rng, Time};
use carnet_nemo::forwarding::desired::{Tunnel, TunnelEnd};
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wire::ipv4;
use carnet_wire::ipv6::{Header, protocol};

use super::bench::{ProgramOutcome, TestBench, run_ip, run_on_every_bench};
use super::packets::*;
use crate::fast_path::bpf_programs::AttachmentKind;

const INNER_IPV4_HOST: &str = "10.42.7.5";
const OUTER_IPV4_CORRESPONDENT: &str = "10.99.0.1";
/// The mobile network 10.42.7.0/24 in IPv4-mapped form.
const MAPPED_MOBILE_NETWORK: &str = "::ffff:10.42.7.0/120";

const ROUTER_SETUP: &str = "
    addr add 10.42.7.1/24 dev lan0
    neigh add 10.42.7.5 lladdr 02:00:00:00:01:00 dev lan0
    rule add pref 120 to 10.42.7.0/24 lookup main
    rule add pref 140 iif lan0 from 10.42.7.0/24 lookup 13501
    route add default dev carnet0 table 13501";

const HOME_AGENT_SETUP: &str = "
    route add 10.42.7.0/24 dev carnet0";

/// Changes a packet.
type PacketChange = fn(&mut Vec<u8>);

/// Outer headers of the tests' tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OuterHeader {
    Ipv6,
    Ipv4,
    Udp,
}

/// Runs `body` on every bench, with a tunnel of each kind that carries the IPv4 mobile network.
fn run_in_every_outer_header(body: fn(&mut TestBench, &Tunnel)) {
    run_with_outer_headers(&[OuterHeader::Ipv6, OuterHeader::Ipv4, OuterHeader::Udp], body);
}

/// Runs `body` on every bench, with a tunnel of each of these kinds that carries the IPv4 mobile network.
fn run_with_outer_headers(outer: &[OuterHeader], body: fn(&mut TestBench, &Tunnel)) {
    for outer in outer.iter().copied() {
        run_on_every_bench(move |bench| {
            let (lines, interfaces) = match bench.station_end {
                TunnelEnd::MobileRouter => (ROUTER_SETUP, &["lan0", "wan0", "wan1"][..]),
                TunnelEnd::HomeAgent | TunnelEnd::Direct => (HOME_AGENT_SETUP, &["ha0"][..]),
            };
            for interface in interfaces {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"), "1").unwrap();
            }
            for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
                run_ip(&format!("-4 {line}"));
            }
            let first = bench.ipv6_tunnel_over_uplink(0, true);
            bench.remove_tunnel(&first);
            let tunnel = match outer {
                OuterHeader::Ipv6 => first,
                OuterHeader::Ipv4 | OuterHeader::Udp => {
                    bench.ipv4_tunnel_over_uplink(outer == OuterHeader::Udp, 0, true)
                }
            };
            let inner =
                tunnel.inner.iter().copied().chain([MAPPED_MOBILE_NETWORK.parse().unwrap()]).collect();
            let tunnel = Tunnel { inner, ..tunnel };
            bench.set_tunnel(tunnel.clone());
            bench.invalidate_lookups();
            body(bench, &tunnel);
        });
    }
}

/// Returns source and destination of packets that go into the tunnel.
fn addresses_into_tunnel(bench: &TestBench) -> (&'static str, &'static str) {
    match bench.station_end {
        TunnelEnd::MobileRouter => (INNER_IPV4_HOST, OUTER_IPV4_CORRESPONDENT),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (OUTER_IPV4_CORRESPONDENT, INNER_IPV4_HOST),
    }
}

/// Returns an IPv4 packet with TTL 64, DF and a DSCP.
fn ipv4_packet(protocol: u8, source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let [a, b] = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let head = [0x45, 0xb8, a, b, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
    fill_in_checksum([&head[..], &octets(source), &octets(destination), payload].concat())
}

fn ipv4_udp_packet(source: &str, destination: &str, length: usize) -> Vec<u8> {
    ipv4_packet(protocol::UDP, source, destination, &udp_payload(length))
}

fn ipv4_tcp_segment(source: &str, destination: &str, flags: u8) -> Vec<u8> {
    ipv4_packet(
        protocol::TCP,
        source,
        destination,
        &tcp_segment(HOST_ADDRESS, CORRESPONDENT_ADDRESS, flags)[40..],
    )
}

/// Returns the packet with other octets in its header and the right checksum.
fn with_changed_header(packet: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = packet.to_vec();
    change(&mut packet);
    fill_in_checksum(packet)
}

/// Decrements the TTL as the kernel does (`ip_decrease_ttl`). Returns `None` if the kernel drops the packet:
/// an expired TTL, or a wrong checksum.
fn decrement_ttl(mut packet: Vec<u8>) -> Option<Vec<u8>> {
    if fill_in_checksum(packet.clone()) != packet || packet[8] <= 1 {
        return None;
    }
    let check = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x0100;
    let check = (check + u32::from(check >= 0xffff)) as u16;
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet[8] -= 1;
    Some(packet)
}

/// Returns the outer packet that slow path and kernel together send for an IPv4 packet; `None` if they do not
/// send exactly one.
fn encapsulated_by_slow_path(bench: &mut TestBench, packet: &[u8]) -> Option<Vec<u8>> {
    let (header, whole) = ipv4::Header::parse_packet(packet).ok()?;
    let packet = decrement_ttl(whole.to_vec())?;
    let header = Header { hop_limit: header.ttl - 1, ..header.as_ipv6() };
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(&packet);
    let verdict = bench.slow_path_mut().encapsulate(Time::ZERO, &header, &mut buffer);
    let mut rest = false;
    while bench.slow_path_mut().poll_output().is_some() {
        rest = true;
    }
    match verdict {
        _ if rest => None,
        ForwardingVerdict::Forward => {
            buffer.as_mut_slice()[7] -= 1;
            Some(buffer.as_slice().to_vec())
        }
        ForwardingVerdict::Encapsulate { local, remote, may_fragment: false, .. } => {
            Some(tunnelled_packet((local, remote), header.traffic_class, buffer.as_slice()))
        }
        _ => None,
    }
}

/// Returns an IPv4 packet in a tunnel inside IPv4 or UDP, or inside IPv6.
fn tunnelled_packet((from, to): (Endpoint, Endpoint), class: u8, inner: &[u8]) -> Vec<u8> {
    let (Endpoint::Ipv6(source), Endpoint::Ipv6(destination)) = (from, to) else {
        let mut packet = encapsulated_in_ipv4(from, to, class, inner);
        if packet[9] == protocol::IPV6 {
            packet[9] = protocol::IPV4;
        }
        return fill_in_checksum(packet);
    };
    let header = Header {
        traffic_class: class,
        flow_label: 0x12345,
        payload_length: u16::try_from(inner.len()).unwrap(),
        next_header: protocol::IPV4,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], inner].concat()
}

fn sent_frame(did: &ProgramOutcome) -> &[u8] {
    match did {
        ProgramOutcome::Sent(frame) => &frame[14..],
        ProgramOutcome::Left(why) => panic!("left to the slow path: {why:?}"),
    }
}

/// Runs the program for packets that go into the tunnel on an IPv4 packet. Compares the frame that it sends
/// with the slow path's.
fn run_on_packet_into_tunnel(bench: &mut TestBench, packet: &[u8]) -> ProgramOutcome {
    let (program, interface) = bench.entrance_program_and_interface();
    let did = bench.program_outcome(program, interface, &ethernet_frame(0x0800, packet));
    if let ProgramOutcome::Sent(sent) = &did {
        let expected = encapsulated_by_slow_path(bench, packet);
        assert_eq!(Some(&sent[14..]), expected.as_deref(), "{packet:02x?}");
        let ethertype: [u8; 2] = if sent[14] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        assert!(bench.kind == AttachmentKind::Tc || sent[12..14] == ethertype);
    }
    did
}

/// Runs the program for packets that come out of the tunnel on an IPv4 packet inside a tunnel. Compares the
/// frame that it sends with the slow path's.
fn run_on_packet_out_of_tunnel(
    bench: &mut TestBench,
    (local, remote): (Endpoint, Endpoint),
    class: u8,
    inner: &[u8],
) -> ProgramOutcome {
    let (program, interface) = bench.exit_program_and_interface();
    let packet = tunnelled_packet((remote, local), class, inner);
    let ethertype = if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
    let did = bench.program_outcome(program, interface, &ethernet_frame(ethertype, &packet));
    if let ProgramOutcome::Sent(sent) = &did {
        let expected = decapsulated_by_slow_path(bench, (local, remote), class, inner);
        assert_eq!(Some(&sent[14..]), expected.as_deref(), "{inner:02x?}");
        assert!(bench.kind == AttachmentKind::Tc || sent[12..14] == [8, 0]);
    }
    did
}

fn decapsulated_by_slow_path(
    bench: &mut TestBench,
    ends: (Endpoint, Endpoint),
    class: u8,
    inner: &[u8],
) -> Option<Vec<u8>> {
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(inner);
    bench.slow_path_mut().decapsulate(ends, class, None, 0, &mut buffer).ok()?;
    decrement_ttl(buffer.as_slice().to_vec())
}

/// Returns the length in octets of the largest inner packet that fits into the tunnel.
fn largest_inner_packet(tunnel: &Tunnel) -> usize {
    tunnel.mtu as usize
}

#[test]
fn common_ipv4_packets_use_fast_path_in_both_directions() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        for payload in [8, 9, 40, 100, 1000, largest_inner_packet(tunnel) - 20] {
            for flags in [0x40, 0] {
                let there =
                    with_changed_header(&ipv4_udp_packet(source, destination, payload), |p| p[6] = flags);
                sent_frame(&run_on_packet_into_tunnel(bench, &there));
                let back =
                    with_changed_header(&ipv4_udp_packet(destination, source, payload), |p| p[6] = flags);
                sent_frame(&run_on_packet_out_of_tunnel(bench, ends, 0xb8, &back));
            }
        }
        for number in [ipv4::ICMP, 47, 50, 132] {
            sent_frame(&run_on_packet_into_tunnel(
                bench,
                &ipv4_packet(number, source, destination, &udp_payload(64)),
            ));
            let back = ipv4_packet(number, destination, source, &udp_payload(64));
            sent_frame(&run_on_packet_out_of_tunnel(bench, ends, 0, &back));
        }
        sent_frame(&run_on_packet_into_tunnel(bench, &ipv4_tcp_segment(source, destination, 0x10)));
        sent_frame(&run_on_packet_out_of_tunnel(
            bench,
            ends,
            0,
            &ipv4_tcp_segment(destination, source, 0x10),
        ));
        let traffic = bench.programs.tunnel_traffic()[&ends];
        assert_eq!((traffic.encapsulated_packets, traffic.decapsulated_packets), (17, 17));
        let octets =
            2 * (5 * 20 + 8 + 9 + 40 + 100 + 1000 + largest_inner_packet(tunnel) as u64) + 4 * 84 + 49;
        assert_eq!((traffic.encapsulated_octets, traffic.decapsulated_octets), (octets, octets));
        // IPv6 packets still pass through the same tunnel.
        let (inside, outside) = match bench.station_end {
            TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
        };
        sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(inside, outside, 100)));
    });
}

/// RFC 6040 4.1 and 4.2; RFC 2983 3.1. A changed DSCP or ECN field also changes the header checksum.
#[test]
fn fast_path_copies_dscp_and_merges_ecn_marks_of_ipv4() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        for class in (0..=255).step_by(7).chain(0..4) {
            let packet = with_changed_header(&ipv4_udp_packet(source, destination, 100), |p| p[1] = class);
            let did = run_on_packet_into_tunnel(bench, &packet);
            let outer = sent_frame(&did);
            let found = if outer[0] >> 4 == 6 { outer[0] << 4 | outer[1] >> 4 } else { outer[1] };
            assert_eq!(found, class);
            for outer in 0..4 {
                let inner = with_changed_header(&ipv4_udp_packet(destination, source, 100), |p| p[1] = class);
                let did = run_on_packet_out_of_tunnel(bench, ends, outer, &inner);
                if (class & 3, outer) == (0, 3) {
                    assert_eq!(did, ProgramOutcome::Left("congestion"));
                } else {
                    assert_eq!(sent_frame(&did)[1] >> 2, class >> 2);
                }
            }
        }
    });
}

/// The program updates the header checksum like the kernel, for many checksums and TTLs.
#[test]
fn fast_path_updates_ipv4_checksum_as_the_kernel_does() {
    run_with_outer_headers(&[OuterHeader::Ipv6], |bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let mut rng = Rng::new(0x1624);
        for _ in 0..300 {
            let mut random = || rng.number_below(256) as u8;
            let (a, b, ttl) = (random(), random(), random().max(2));
            let set = |p: &mut Vec<u8>| (p[4], p[5], p[8]) = (a, b, ttl);
            sent_frame(&run_on_packet_into_tunnel(
                bench,
                &with_changed_header(&ipv4_udp_packet(source, destination, 30), set),
            ));
            sent_frame(&run_on_packet_out_of_tunnel(
                bench,
                ends,
                1,
                &with_changed_header(&ipv4_udp_packet(destination, source, 30), set),
            ));
        }
    });
}

#[test]
fn unusual_ipv4_packets_take_the_slow_path() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let (there, back) =
            (ipv4_udp_packet(source, destination, 60), ipv4_udp_packet(destination, source, 60));
        let with_option = |packet: &[u8]| {
            let mut packet = [&packet[..20], &[1, 1, 1, 0], &packet[20..]].concat();
            packet[0] = 0x46;
            packet[3] += 4;
            // `fill_in_checksum` sums only the first 20 octets of the header. So add the two words of the
            // option, 0x0101 and 0x0100, to the sum.
            let mut packet = fill_in_checksum(packet);
            let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]])) + 0x0201;
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet
        };
        // In the second round, the programs find a cached flow.
        for _ in 0..2 {
            sent_frame(&run_on_packet_into_tunnel(bench, &there));
            sent_frame(&run_on_packet_out_of_tunnel(bench, ends, 0, &back));
            let changes: [(&str, &'static str, PacketChange); 6] = [
                ("TTL 1", "hop_limit", |p| p[8] = 1),
                ("TTL 0", "hop_limit", |p| p[8] = 0),
                ("more fragments", "", |p| p[6] |= 0x20),
                ("fragment offset", "", |p| p[7] = 1),
                ("reserved flag", "", |p| p[6] |= 0x80),
                ("header length 16", "", |p| p[0] = 0x44),
            ];
            for (what, why, change) in changes {
                let did = run_on_packet_into_tunnel(bench, &with_changed_header(&there, change));
                assert_eq!(did, ProgramOutcome::Left(why), "{what}");
                let did = run_on_packet_out_of_tunnel(bench, ends, 0, &with_changed_header(&back, change));
                assert_eq!(did, ProgramOutcome::Left(why), "{what}");
            }
            for octet in [1, 8, 10, 13] {
                let mut wrong = there.clone();
                wrong[octet] ^= 1;
                assert_eq!(run_on_packet_into_tunnel(bench, &wrong), ProgramOutcome::Left(""), "checksum");
                let mut wrong = back.clone();
                wrong[octet] ^= 1;
                assert_eq!(
                    run_on_packet_out_of_tunnel(bench, ends, 0, &wrong),
                    ProgramOutcome::Left(""),
                    "checksum"
                );
            }
            assert_eq!(run_on_packet_into_tunnel(bench, &with_option(&there)), ProgramOutcome::Left(""));
            assert_eq!(
                run_on_packet_out_of_tunnel(bench, ends, 0, &with_option(&back)),
                ProgramOutcome::Left("")
            );
            assert_eq!(
                run_on_packet_into_tunnel(bench, &ipv4_tcp_segment(source, destination, 2)),
                ProgramOutcome::Left("syn")
            );
            let inner = ipv4_tcp_segment(destination, source, 0x12);
            assert_eq!(run_on_packet_out_of_tunnel(bench, ends, 0, &inner), ProgramOutcome::Left("syn"));
            // The slow path gets nested tunnels and packets with surplus octets after the inner packet.
            for number in [protocol::IPV6, protocol::IPV4] {
                let did =
                    run_on_packet_into_tunnel(bench, &ipv4_packet(number, source, destination, &[0x45; 40]));
                assert!(matches!(did, ProgramOutcome::Left("extension" | "")), "{did:?}");
            }
            let longer = [&back[..], &[0; 4]].concat();
            let did = run_on_packet_out_of_tunnel(bench, ends, 0, &longer);
            assert_eq!(did, ProgramOutcome::Left("malformed"));
            let larger = ipv4_udp_packet(source, destination, largest_inner_packet(tunnel) - 19);
            assert_eq!(run_on_packet_into_tunnel(bench, &larger), ProgramOutcome::Left("too_big"));
        }
    });
}

/// RFC 1812 5.3: the slow path gets packets with multicast, broadcast and unroutable addresses.
#[test]
fn special_ipv4_addresses_take_the_slow_path() {
    run_with_outer_headers(&[OuterHeader::Ipv6], |bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let special = [
            "224.0.0.251",
            "239.1.2.3",
            "255.255.255.255",
            "127.0.0.1",
            "0.0.0.0",
            "169.254.1.1",
            "240.0.0.1",
        ];
        for address in special {
            for (from, to) in [(source, address), (address, destination)] {
                let did = run_on_packet_into_tunnel(bench, &ipv4_udp_packet(from, to, 40));
                assert!(matches!(did, ProgramOutcome::Left("scope" | "filter" | "")), "{from} {to}: {did:?}");
            }
            for (from, to) in [(destination, address), (address, source)] {
                let did = run_on_packet_out_of_tunnel(bench, ends, 0, &ipv4_udp_packet(from, to, 40));
                assert!(matches!(did, ProgramOutcome::Left("scope" | "filter" | "")), "{from} {to}: {did:?}");
            }
        }
        if bench.station_end == TunnelEnd::MobileRouter {
            for address in ["10.42.7.255", "10.42.7.1"] {
                let did = run_on_packet_out_of_tunnel(
                    bench,
                    ends,
                    0,
                    &ipv4_udp_packet(OUTER_IPV4_CORRESPONDENT, address, 40),
                );
                assert_eq!(did, ProgramOutcome::Left("route"), "{address}");
            }
        }
    });
}

/// RFC 3963 6.2 and 9: the inner source must belong to the binding's IPv4 prefixes, and the outer addresses
/// to its tunnel.
#[test]
fn foreign_ipv4_sources_take_the_slow_path() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        for _ in 0..2 {
            sent_frame(&run_on_packet_out_of_tunnel(
                bench,
                ends,
                0,
                &ipv4_udp_packet(destination, source, 40),
            ));
            let foreign = match bench.station_end {
                // A packet from outside cannot have a source of the mobile network.
                TunnelEnd::MobileRouter => ["10.42.7.77", "10.42.7.1"],
                TunnelEnd::HomeAgent | TunnelEnd::Direct => ["10.42.8.5", "10.41.7.5"],
            };
            for address in foreign {
                let did = run_on_packet_out_of_tunnel(bench, ends, 0, &ipv4_udp_packet(address, source, 40));
                assert!(matches!(did, ProgramOutcome::Left("inner_source" | "")), "{address}: {did:?}");
            }
            let stranger = match tunnel.remote {
                Endpoint::Ipv6(_) => Endpoint::Ipv6(parse_address("2001:db8:f9::66")),
                Endpoint::Ipv4(_) => Endpoint::Ipv4([192, 0, 2, 66].into()),
                Endpoint::Udp(_) => Endpoint::Udp("192.0.2.66:4191".parse().unwrap()),
            };
            let did = run_on_packet_out_of_tunnel(
                bench,
                (tunnel.local, stranger),
                0,
                &ipv4_udp_packet(destination, source, 40),
            );
            assert_eq!(did, ProgramOutcome::Left("outer_source"));
            if bench.station_end == TunnelEnd::MobileRouter {
                let did = run_on_packet_into_tunnel(
                    bench,
                    &ipv4_udp_packet("10.42.8.5", OUTER_IPV4_CORRESPONDENT, 40),
                );
                assert_eq!(did, ProgramOutcome::Left(""));
                // 10.42.7.1 is the router's own address, and the kernel accepts no packet from it (reverse
                // path check).
                let did = run_on_packet_into_tunnel(
                    bench,
                    &ipv4_udp_packet("10.42.7.1", OUTER_IPV4_CORRESPONDENT, 40),
                );
                assert_eq!(did, ProgramOutcome::Left("route"));
            }
        }
    });
}

/// RFC 3704: the home agent's route to the source leads to another interface than the one on which the packet
/// arrived.
#[test]
fn ipv4_packets_from_unexpected_interface_take_the_slow_path() {
    run_with_outer_headers(&[OuterHeader::Ipv6], |bench, _| {
        if bench.station_end == TunnelEnd::MobileRouter {
            return;
        }
        sent_frame(&run_on_packet_into_tunnel(
            bench,
            &ipv4_udp_packet(OUTER_IPV4_CORRESPONDENT, INNER_IPV4_HOST, 40),
        ));
        run_ip("-4 route add 10.99.0.0/24 dev lo");
        bench.invalidate_lookups();
        let did =
            run_on_packet_into_tunnel(bench, &ipv4_udp_packet(OUTER_IPV4_CORRESPONDENT, INNER_IPV4_HOST, 40));
        assert_eq!(did, ProgramOutcome::Left("route"));
    });
}

/// An operator may have rules of NAT at the home agent, which must see packets between a private and a public
/// address in both directions.
#[test]
fn ipv4_packets_that_may_need_nat_take_the_slow_path_of_home_agent() {
    run_with_outer_headers(&[OuterHeader::Ipv6], |bench, tunnel| {
        let ends = (tunnel.local, tunnel.remote);
        const PUBLIC_ADDRESS: &str = "203.0.113.200";
        let (there, back) = match bench.station_end {
            TunnelEnd::MobileRouter => ((INNER_IPV4_HOST, PUBLIC_ADDRESS), (PUBLIC_ADDRESS, INNER_IPV4_HOST)),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => {
                ((PUBLIC_ADDRESS, INNER_IPV4_HOST), (INNER_IPV4_HOST, PUBLIC_ADDRESS))
            }
        };
        for _ in 0..2 {
            let entered = run_on_packet_into_tunnel(bench, &ipv4_udp_packet(there.0, there.1, 40));
            let arrived = run_on_packet_out_of_tunnel(bench, ends, 0, &ipv4_udp_packet(back.0, back.1, 40));
            if bench.station_end == TunnelEnd::MobileRouter {
                sent_frame(&entered);
                sent_frame(&arrived);
            } else {
                assert_eq!(entered, ProgramOutcome::Left("filter"));
                assert_eq!(arrived, ProgramOutcome::Left("filter"));
            }
        }
    });
}

/// A program does not use the cached flow of an IPv4 packet for an IPv6 packet with IPv4-mapped addresses.
#[test]
fn ipv6_packet_with_mapped_addresses_does_not_use_flow_of_ipv4() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let mapped = |text: &str| format!("::ffff:{text}");
        sent_frame(&run_on_packet_into_tunnel(bench, &ipv4_udp_packet(source, destination, 40)));
        let mut packet = udp_packet(&mapped(source), &mapped(destination), 40);
        // Give this packet the same fields as the IPv4 packet, which has no flow label.
        (packet[1], packet[2], packet[3]) = (packet[1] & 0xf0, 0, 0);
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("scope"));
        sent_frame(&run_on_packet_out_of_tunnel(
            bench,
            (tunnel.local, tunnel.remote),
            0,
            &ipv4_udp_packet(destination, source, 40),
        ));
        let mut inner = udp_packet(&mapped(destination), &mapped(source), 40);
        (inner[1], inner[2], inner[3]) = (inner[1] & 0xf0, 0, 0);
        let did = match (tunnel.local, tunnel.remote) {
            (Endpoint::Ipv6(local), Endpoint::Ipv6(remote)) => bench.run_on_packet_out_of_tunnel(
                &encapsulated_in_ipv6(&remote.to_string(), &local.to_string(), &inner),
            ),
            ends => {
                bench.run_on_packet_from_ipv4_tunnel(bench.exit_program_and_interface().1, ends, 0, &inner)
            }
        };
        assert_eq!(did, ProgramOutcome::Left("scope"));
    });
}

/// A frame that is shorter than the minimum of IEEE 802.3 has padding after the packet. The padding does not
/// enter the tunnel.
#[test]
fn padding_of_short_frames_does_not_enter_the_tunnel() {
    run_in_every_outer_header(|bench, _| {
        let (source, destination) = addresses_into_tunnel(bench);
        for length in [8, 12, 20] {
            let packet = ipv4_udp_packet(source, destination, length);
            let mut padded = packet.clone();
            padded.resize(46, 0xee);
            let (program, interface) = bench.entrance_program_and_interface();
            let did = bench.program_outcome(program, interface, &ethernet_frame(0x0800, &padded));
            let expected = encapsulated_by_slow_path(bench, &packet);
            assert_eq!(Some(sent_frame(&did)), expected.as_deref());
        }
    });
}

/// If the binding has no IPv4 prefix, the programs leave IPv4 packets of the mobile network to the kernel.
#[test]
fn fast_path_ignores_ipv4_packets_without_an_ipv4_prefix() {
    run_with_outer_headers(&[OuterHeader::Ipv6], |bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        sent_frame(&run_on_packet_into_tunnel(bench, &ipv4_udp_packet(source, destination, 40)));
        let inner =
            tunnel.inner.iter().copied().filter(|it| *it != MAPPED_MOBILE_NETWORK.parse().unwrap()).collect();
        bench.set_tunnel(Tunnel { inner, ..tunnel.clone() });
        assert_eq!(
            run_on_packet_into_tunnel(bench, &ipv4_udp_packet(source, destination, 40)),
            ProgramOutcome::Left("")
        );
        let back = ipv4_udp_packet(destination, source, 40);
        let did = run_on_packet_out_of_tunnel(bench, (tunnel.local, tunnel.remote), 0, &back);
        assert_eq!(did, ProgramOutcome::Left(""));
    });
}

/// Changes packets at random. A program must forward the same packet as the slow path, or leave the packet
/// unchanged.
#[test]
fn mutated_ipv4_packets_are_forwarded_correctly_or_left_to_slow_path() {
    run_in_every_outer_header(|bench, tunnel| {
        let (source, destination) = addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let mut rng = Rng::new(0x0004_0004 + bench.kind as u64);
        let seeds = |from, to| [ipv4_udp_packet(from, to, 40), ipv4_tcp_segment(from, to, 0x10)];
        let (inside, outside) = (seeds(source, destination), seeds(destination, source));
        let (mut taken, mut left) = (0, 0);
        for number in 0..4000 {
            let is_entering = rng.number_below(2) == 0;
            let mut packet = if is_entering { &inside } else { &outside }[number % 2].clone();
            for _ in 0..rng.number_below(3) {
                let place = rng.number_below(packet.len() as u64) as usize;
                packet[place] ^= 1 << rng.number_below(8);
            }
            if rng.number_below(4) == 0 {
                packet.truncate(1 + rng.number_below(packet.len() as u64) as usize);
            }
            if packet.len() >= 20 && rng.number_below(4) != 0 {
                packet = fill_in_checksum(packet);
            }
            if packet.len() < 20.max(bench.shortest_frame_length() - 14) {
                continue;
            }
            let did = match is_entering {
                true => run_on_packet_into_tunnel(bench, &packet),
                false => run_on_packet_out_of_tunnel(bench, ends, rng.number_below(256) as u8, &packet),
            };
            match did {
                ProgramOutcome::Sent(_) => taken += 1,
                ProgramOutcome::Left(_) => left += 1,
            }
        }
        assert!(taken > 400 && left > 400, "{taken}, {left}");
    });
}
