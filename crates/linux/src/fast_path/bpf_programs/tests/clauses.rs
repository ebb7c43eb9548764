//! Tests clause by clause which packets the programs handle. For the packets that the programs leave to the
//! slow path, tests the counted reason.

use std::net::Ipv6Addr;

use carnet_nemo::forwarding::desired::TunnelEnd;
use carnet_wire::ipv6::protocol;

use super::bench::{
    HOME_ADDRESS, HOME_AGENT, NEIGHBOUR_ADDRESSES, ProgramOutcome, TUNNEL_MTU, TestBench, run_on_every_bench,
};
use super::packets::*;
use crate::fast_path::bpf_programs::AttachmentKind;

/// Returns inner source and destination of packets that go into the tunnel.
fn inner_addresses_into_tunnel(bench: &TestBench) -> (&'static str, &'static str) {
    match bench.station_end {
        TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
    }
}

/// Returns source and destination of inner packets that come out of the tunnel.
fn inner_addresses_out_of_tunnel(bench: &TestBench) -> (&'static str, &'static str) {
    let (source, destination) = inner_addresses_into_tunnel(bench);
    (destination, source)
}

/// Returns a packet that arrives through the tunnel with this inner packet.
fn tunnelled_packet(bench: &TestBench, inner: &[u8]) -> Vec<u8> {
    let (source, destination) = bench.arriving_outer_addresses(0);
    encapsulated_in_ipv6(source, destination, inner)
}

fn sent_frame(did: &ProgramOutcome) -> &[u8] {
    match did {
        ProgramOutcome::Sent(frame) => frame,
        ProgramOutcome::Left(why) => panic!("left to the slow path: {why:?}"),
    }
}

/// RFC 2473 3: programs add and remove the outer header.
#[test]
fn common_packets_use_fast_path_in_both_directions() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        for payload in [8, 9, 100, 1000, TUNNEL_MTU as usize - 40] {
            sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(source, destination, payload)));
            let packet = tunnelled_packet(bench, &udp_packet(far, near, payload));
            sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
        }
        for next_header in [protocol::ICMPV6, protocol::NO_NEXT_HEADER, 47, 50, 132] {
            let octets = udp_payload(64);
            sent_frame(&bench.run_on_packet_into_tunnel(&ipv6_packet(
                next_header,
                source,
                destination,
                &octets,
            )));
            let packet = tunnelled_packet(bench, &ipv6_packet(next_header, far, near, &octets));
            sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
        }
        // RFC 3963 9: packets to and from the home address belong to the binding, too.
        let (from, to) = if bench.station_end == TunnelEnd::HomeAgent {
            (CORRESPONDENT_ADDRESS, HOME_ADDRESS)
        } else {
            return;
        };
        sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(from, to, 20)));
        let packet = tunnelled_packet(bench, &udp_packet(to, from, 20));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
    });
}

/// An XDP program writes the neighbour's link-layer address into the frame. With tc, the kernel writes it
/// after the program.
#[test]
fn frames_have_link_layer_address_of_kernel_neighbour() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let entered = bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 100));
        let packet = { tunnelled_packet(bench, &udp_packet(destination, source, 100)) };
        let arrived = bench.run_on_packet_out_of_tunnel(&packet);
        if bench.kind == AttachmentKind::Tc {
            return;
        }
        let (uplink, lan) = match bench.station_end {
            TunnelEnd::MobileRouter => ("wan0", "lan0"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("ha0", "ha0"),
        };
        for (did, interface) in [(entered, uplink), (arrived, lan)] {
            let neighbour = NEIGHBOUR_ADDRESSES.iter().find(|(name, ..)| *name == interface).unwrap().2;
            assert_eq!(sent_frame(&did)[..6], neighbour, "{interface}");
        }
        // carnet reads these neighbours, to tell the kernel that they are in use.
        let used = bench.programs.neighbours_used_within(std::time::Duration::from_secs(60));
        for interface in [uplink, lan] {
            let index = bench.interface_index(interface);
            assert!(used.iter().any(|(of, _)| *of == index), "{interface}: {used:?}");
        }
    });
}

/// RFC 6040 4.1 and 4.2, figure 4; RFC 2983 3.1, uniform model.
#[test]
fn fast_path_merges_every_combination_of_ecn_marks() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        for inner in 0..4 {
            let did = bench.run_on_packet_into_tunnel(&with_ecn(udp_packet(source, destination, 100), inner));
            assert_eq!(sent_frame(&did)[15] >> 4 & 3, inner);
            assert_eq!(sent_frame(&did)[14] & 0xf, 0xb, "DSCP");
            for outer in 0..4 {
                let packet = tunnelled_packet(bench, &with_ecn(udp_packet(far, near, 100), inner));
                let did = bench.run_on_packet_out_of_tunnel(&with_ecn(packet, outer));
                if (inner, outer) == (0, 3) {
                    assert_eq!(did, ProgramOutcome::Left("congestion"));
                    continue;
                }
                let expected = match (inner, outer) {
                    (0, _) => 0,
                    (_, 3) => 3,
                    (2, 1) => 1,
                    _ => inner,
                };
                assert_eq!(sent_frame(&did)[15] >> 4 & 3, expected, "inner {inner}, outer {outer}");
            }
        }
    });
}

/// RFC 6438 3: the outer flow label is a keyed hash of the inner addresses and flow label.
/// `run_on_packet_into_tunnel` compares it with the slow path's.
#[test]
fn fast_path_and_slow_path_write_same_flow_labels() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let mut labels = std::collections::BTreeSet::new();
        for number in 0..200u32 {
            let mut packet = udp_packet(source, destination, 50);
            // Each packet of the loop has another flow label and other hosts at both ends.
            packet[2] = number as u8;
            packet[22] = (number * 3) as u8;
            packet[38] = (number * 5) as u8;
            let did = bench.run_on_packet_into_tunnel(&packet);
            let frame = sent_frame(&did);
            labels.insert((frame[15] & 0xf, frame[16], frame[17]));
        }
        assert!(labels.len() > 190, "{}", labels.len());
    });
}

/// RFC 8200 3: a forwarder decrements the hop limit and never sends zero. RFC 2473 6.3: the outer hop limit
/// is 64.
#[test]
fn fast_path_decrements_hop_limit_like_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        for hops in [0, 1, 2, 255] {
            let entered =
                bench.run_on_packet_into_tunnel(&with_hop_limit(udp_packet(source, destination, 50), hops));
            let packet = tunnelled_packet(bench, &with_hop_limit(udp_packet(far, near, 50), hops));
            let arrived = bench.run_on_packet_out_of_tunnel(&packet);
            if hops < 2 {
                assert_eq!(
                    (entered, arrived),
                    (ProgramOutcome::Left("hop_limit"), ProgramOutcome::Left("hop_limit"))
                );
                continue;
            }
            assert_eq!((sent_frame(&entered)[14 + 7], sent_frame(&entered)[14 + 47]), (64, hops - 1));
            assert_eq!(sent_frame(&arrived)[14 + 7], hops - 1);
        }
        // The programs do not check the hop limit of a received outer packet.
        let packet = with_hop_limit(tunnelled_packet(bench, &udp_packet(far, near, 50)), 1);
        sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
    });
}

/// RFC 4291 2.5.2, 2.5.3, 2.5.6, 2.7: packets with these addresses stay on their link, or in their host.
#[test]
fn fast_path_leaves_special_addresses_to_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        for special in ["::", "::1", "fe80::1", "febf::1", "ff02::1", "ff0e::1"] {
            for (from, to) in [(special, destination), (source, special)] {
                let did = bench.run_on_packet_into_tunnel(&udp_packet(from, to, 50));
                assert!(matches!(did, ProgramOutcome::Left("scope" | "")), "{from} to {to}: {did:?}");
            }
            for (from, to) in [(special, near), (far, special)] {
                let packet = tunnelled_packet(bench, &udp_packet(from, to, 50));
                let did = bench.run_on_packet_out_of_tunnel(&packet);
                assert!(matches!(did, ProgramOutcome::Left("scope" | "")), "{from} to {to}: {did:?}");
            }
        }
    });
}

/// RFC 6275 10.4.5, RFC 3963 9: the outer source is the care-of address, and the inner source belongs to the
/// binding.
#[test]
fn fast_path_checks_inner_source_of_reverse_tunnel() {
    run_on_every_bench(|bench| {
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let inner = udp_packet(far, near, 50);
        let (from, to) = bench.arriving_outer_addresses(0);
        let (other, other_end) = bench.arriving_outer_addresses(1);
        // Between the two rounds a valid packet passes, and its lookup is cached. This lookup must not let
        // the invalid packets pass.
        for _ in 0..2 {
            for (source, destination) in [("2001:db8:f1::11", to), (from, "2001:db8:f1::11"), (to, from)] {
                assert_eq!(
                    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(source, destination, &inner)),
                    ProgramOutcome::Left("outer_source")
                );
            }
            assert_eq!(
                bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(other, other_end, &inner)),
                ProgramOutcome::Left("outer_source")
            );
            sent_frame(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &inner)));
        }
        match bench.station_end {
            TunnelEnd::HomeAgent | TunnelEnd::Direct => {
                let spoofed = udp_packet("2001:db8:b::10", near, 50);
                assert_eq!(
                    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &spoofed)),
                    ProgramOutcome::Left("")
                );
            }
            TunnelEnd::MobileRouter => {
                // The packet has a source in the mobile network and a destination outside.
                let elsewhere = udp_packet(far, "2001:db8:b::10", 50);
                assert_eq!(
                    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &elsewhere)),
                    ProgramOutcome::Left("")
                );
                let spoofed = udp_packet("2001:db8:a::77", near, 50);
                assert_eq!(
                    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &spoofed)),
                    ProgramOutcome::Left("inner_source")
                );
                // A packet between two hosts of the mobile network does not go into the tunnel (RFC 3963
                // 5.5).
                assert_eq!(
                    bench.run_on_packet_into_tunnel(&udp_packet(HOST_ADDRESS, "2001:db8:a::77", 50)),
                    ProgramOutcome::Left("")
                );
                assert_eq!(
                    bench.run_on_packet_into_tunnel(&udp_packet("2001:db8:b::10", CORRESPONDENT_ADDRESS, 50)),
                    ProgramOutcome::Left("")
                );
            }
        }
    });
}

/// RFC 6275 11.7.2, RFC 3963 5.5: without a registered care-of address, the station sends no packet into the
/// tunnel. It still accepts packets through the tunnel of the previous care-of address.
#[test]
fn fast_path_only_receives_at_previous_care_of_address() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let (packet, old) =
            (udp_packet(source, destination, 50), tunnelled_packet(bench, &udp_packet(far, near, 50)));
        sent_frame(&bench.run_on_packet_into_tunnel(&packet));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&old));
        let tunnel = bench.ipv6_tunnel_over_uplink(0, false);
        bench.set_tunnel(tunnel.clone());
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("no_path"));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&old));
        // After a handover the station sends from the new care-of address at once. It still accepts packets
        // to the previous care-of address, until the tunnel is removed.
        let new = bench.ipv6_tunnel_over_uplink(1, true);
        bench.set_tunnel(new.clone());
        let octets = |end: carnet_base::Endpoint| end.ipv6().unwrap().octets().to_vec();
        let outer_of =
            |did: &ProgramOutcome| (sent_frame(did)[22..38].to_vec(), sent_frame(did)[38..54].to_vec());
        let ends = (octets(new.local), octets(new.remote));
        for port in 0..50 {
            let mut packet = packet.clone();
            packet[41] = port;
            let did = bench.run_on_packet_into_tunnel(&packet);
            assert_eq!(outer_of(&did), ends);
        }
        sent_frame(&bench.run_on_packet_out_of_tunnel(&old));
        // As soon as the previous tunnel is removed, the programs no longer accept its packets.
        bench.remove_tunnel(&tunnel);
        assert_eq!(bench.run_on_packet_out_of_tunnel(&old), ProgramOutcome::Left("outer_source"));
        bench.remove_tunnel(&new);
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left(""));
        assert_eq!(bench.run_on_packet_out_of_tunnel(&old), ProgramOutcome::Left(""));
    });
}

/// RFC 2473 7: the slow path informs the sender, or fragments the outer packet.
#[test]
fn fast_path_leaves_packets_above_mtu_to_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let fits = udp_packet(source, destination, TUNNEL_MTU as usize - 40);
        let larger = udp_packet(source, destination, TUNNEL_MTU as usize - 39);
        // The programs treat each packet alike in any order of the packets, and also in the second round,
        // with a cached lookup.
        for _ in 0..2 {
            assert_eq!(bench.run_on_packet_into_tunnel(&larger), ProgramOutcome::Left("too_big"));
            sent_frame(&bench.run_on_packet_into_tunnel(&fits));
        }
        let narrow = bench.ipv6_tunnel_over_uplink(0, true);
        bench.set_tunnel(carnet_nemo::forwarding::desired::Tunnel { mtu: 1279, ..narrow });
        assert_eq!(
            bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 1240)),
            ProgramOutcome::Left("too_big")
        );
        sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 1239)));
        // The route of the decapsulated packets has an MTU, too.
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let departure = if bench.station_end == TunnelEnd::MobileRouter { "lan0" } else { "ha0" };
        super::bench::run_ip(&format!("link set {departure} mtu 1400"));
        bench.invalidate_lookups();
        let packet = tunnelled_packet(bench, &udp_packet(far, near, 1360));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
        let packet = tunnelled_packet(bench, &udp_packet(far, near, 1361));
        assert_eq!(bench.run_on_packet_out_of_tunnel(&packet), ProgramOutcome::Left("too_big"));
    });
}

/// RFC 8200 4.3 to 4.6: a forwarder does not read headers between IPv6 and payload. RFC 2473 4.1.1: the slow
/// path counts nested tunnels.
#[test]
fn fast_path_leaves_extension_headers_and_nested_tunnels_to_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let behind = [&[protocol::UDP, 0, 1, 4, 0, 0, 0, 0][..], &udp_payload(30)].concat();
        for next_header in [0, 43, 60, 135] {
            let did =
                bench.run_on_packet_into_tunnel(&ipv6_packet(next_header, source, destination, &behind));
            assert_eq!(did, ProgramOutcome::Left("extension"), "{next_header}");
            let packet = tunnelled_packet(bench, &ipv6_packet(next_header, far, near, &behind));
            assert_eq!(
                bench.run_on_packet_out_of_tunnel(&packet),
                ProgramOutcome::Left("extension"),
                "{next_header}"
            );
            // The programs leave outer packets with extension headers to the slow path.
            let (from, to) = bench.arriving_outer_addresses(0);
            let outer = super::packets::ipv6_packet(
                next_header,
                from,
                to,
                &[&[41, 0, 1, 4, 0, 0, 0, 0][..], &packet].concat(),
            );
            assert_eq!(bench.run_on_packet_out_of_tunnel(&outer), ProgramOutcome::Left(""), "{next_header}");
        }
        // The programs encapsulate a fragment from a host like any other packet.
        sent_frame(&bench.run_on_packet_into_tunnel(&ipv6_packet(
            protocol::FRAGMENT,
            source,
            destination,
            &behind,
        )));
        let packet = tunnelled_packet(bench, &ipv6_packet(protocol::FRAGMENT, far, near, &behind));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
        // The kernel must first reassemble fragments of outer packets.
        let (from, to) = bench.arriving_outer_addresses(0);
        let pieces = [&[41, 0, 0, 1, 0, 0, 0, 9][..], &udp_packet(far, near, 40)].concat();
        let fragment = super::packets::ipv6_packet(protocol::FRAGMENT, from, to, &pieces);
        assert_eq!(bench.run_on_packet_out_of_tunnel(&fragment), ProgramOutcome::Left(""));
        // The packet contains two tunnels.
        let inner = encapsulated_in_ipv6(source, destination, &udp_packet(source, destination, 20));
        let did = bench.run_on_packet_into_tunnel(&inner);
        assert!(matches!(did, ProgramOutcome::Left("extension" | "")), "{did:?}");
    });
}

/// The slow path gets all messages of Mobile IPv6: Binding Updates (Home Address option), Binding
/// Acknowledgements (type 2 routing header), and ICMPv6 errors about outer packets (RFC 2473 8).
#[test]
fn packets_addressed_to_a_tunnel_end_take_the_slow_path() {
    run_on_every_bench(|bench| {
        let home: Ipv6Addr = parse_address(HOME_ADDRESS);
        let mobility = [59, 1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 1, 2];
        let routing = [&[135, 2, 2, 1, 0, 0, 0, 0][..], &home.octets(), &mobility].concat();
        let options = [&[135, 2, 1, 2, 0, 0, 0xc9, 16][..], &home.octets(), &mobility].concat();
        let (from, to) = bench.arriving_outer_addresses(0);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let quoted = encapsulated_in_ipv6(to, from, &udp_packet(near, far, 50));
        let error = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &quoted].concat();
        for (next_header, payload) in [
            (43, &routing[..]),
            (60, &options),
            (135, &mobility),
            (58, &error),
            (17, &udp_payload(30)),
            (59, &[0; 8]),
        ] {
            for source in [from, "2001:db8:c::7"] {
                assert_eq!(
                    bench.run_on_packet_out_of_tunnel(&ipv6_packet(next_header, source, to, payload)),
                    ProgramOutcome::Left("")
                );
            }
        }
    });
}

/// RFC 9293 3.7.1: the slow path lowers the Maximum Segment Size of a SYN. The programs handle all other TCP
/// segments.
#[test]
fn tcp_segments_except_syn_use_fast_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        for flags in [0x02, 0x12, 0x10, 0x18, 0x11, 0x04] {
            let entered = bench.run_on_packet_into_tunnel(&tcp_segment(source, destination, flags));
            let packet = tunnelled_packet(bench, &tcp_segment(far, near, flags));
            let arrived = bench.run_on_packet_out_of_tunnel(&packet);
            if flags & 2 != 0 {
                assert_eq!(
                    (entered, arrived),
                    (ProgramOutcome::Left("syn"), ProgramOutcome::Left("syn")),
                    "{flags:#x}"
                );
            } else {
                sent_frame(&entered);
                sent_frame(&arrived);
            }
        }
    });
}

/// RFC 8200 3: the IPv6 header has the length of the payload. The slow path gets packets with a wrong length.
#[test]
fn packets_with_wrong_length_take_the_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let with_length = |mut packet: Vec<u8>, at: usize, length: u16| {
            packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
            packet
        };
        let (packet, outer) =
            (udp_packet(source, destination, 50), tunnelled_packet(bench, &udp_packet(far, near, 50)));
        for (length, why) in [(51, ""), (0, ""), (0xffff, ""), (49, "")] {
            assert_eq!(
                bench.run_on_packet_into_tunnel(&with_length(packet.clone(), 4, length)),
                ProgramOutcome::Left(why),
                "{length}"
            );
        }
        for (length, why) in [(91, ""), (89, ""), (39, ""), (0, ""), (0xffff, "")] {
            assert_eq!(
                bench.run_on_packet_out_of_tunnel(&with_length(outer.clone(), 4, length)),
                ProgramOutcome::Left(why),
                "{length}"
            );
        }
        for length in [51, 49, 0, 0xffff] {
            let did = bench.run_on_packet_out_of_tunnel(&with_length(outer.clone(), 44, length));
            assert_eq!(did, ProgramOutcome::Left("malformed"), "{length}");
        }
        // The outer packet contains 7 more octets after the inner packet.
        let inner = [&udp_packet(far, near, 50)[..], &[0xee; 7]].concat();
        let packet = tunnelled_packet(bench, &inner);
        assert_eq!(bench.run_on_packet_out_of_tunnel(&packet), ProgramOutcome::Left("malformed"));
    });
}

/// The programs leave frames with IEEE 802.1Q tags, IPv4, ARP and other EtherTypes.
#[test]
fn frames_of_other_ethertypes_take_the_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let packet = udp_packet(source, destination, 50);
        let (program, interface) = bench.entrance_program_and_interface();
        let tagged = [&[0, 7, 0x86, 0xdd][..], &packet].concat();
        let mut version = packet.clone();
        version[0] = 0x45;
        for (ethertype, payload) in [
            (0x8100, &tagged[..]),
            (0x88a8, &tagged),
            (0x0800, &packet),
            (0x0806, &packet),
            (0x86dd, &version),
        ] {
            assert_eq!(
                bench.program_outcome(program, interface, &ethernet_frame(ethertype, payload)),
                ProgramOutcome::Left(""),
                "{ethertype:#x}"
            );
        }
    });
}

/// While a program captures on an interface, the interface also receives frames for other stations. The
/// kernel drops these frames, so the programs must leave them.
#[test]
fn frames_for_other_stations_are_left_to_the_kernel() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (program, interface) = bench.entrance_program_and_interface();
        let mut frame = ethernet_frame(0x86dd, &udp_packet(source, destination, 50));
        sent_frame(&bench.program_outcome(program, interface, &frame));
        frame[5] ^= 1;
        assert_eq!(bench.program_outcome(program, interface, &frame), ProgramOutcome::Left(""));
        frame[..6].fill(0xff);
        assert_eq!(bench.program_outcome(program, interface, &frame), ProgramOutcome::Left(""));
    });
}

/// If a frame ends early, the program does not read beyond its end.
#[test]
fn truncated_frames_take_the_slow_path() {
    run_on_every_bench(|bench| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (far, near) = inner_addresses_out_of_tunnel(bench);
        let outer = tunnelled_packet(bench, &tcp_segment(far, near, 0x10));
        for (packet, (program, interface)) in [
            (tcp_segment(source, destination, 0x10), bench.entrance_program_and_interface()),
            (outer, bench.exit_program_and_interface()),
        ] {
            let whole = ethernet_frame(0x86dd, &packet);
            // In a test run of a tc program, the kernel accepts only frames with complete headers.
            for length in bench.shortest_frame_length()..whole.len() {
                assert_eq!(
                    bench.program_outcome(program, interface, &whole[..length]),
                    ProgramOutcome::Left(""),
                    "{length}"
                );
            }
            sent_frame(&bench.program_outcome(program, interface, &whole));
            // In this loop, the IPv6 header gives the length of the truncated packet.
            for length in 1..packet.len() - 40 {
                let mut packet = packet[..40 + length].to_vec();
                packet[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
                let tunnelled = interface == bench.exit_program_and_interface().1;
                match bench.program_outcome(program, interface, &ethernet_frame(0x86dd, &packet)) {
                    ProgramOutcome::Sent(sent) => bench.assert_equals_slow_path(&packet, tunnelled, &sent),
                    ProgramOutcome::Left(_) => {}
                }
            }
        }
    });
}

/// If each of two bindings has its care-of address in the other's network, outer packets would loop (RFC 2473
/// 4.1).
#[test]
fn fast_path_does_not_encapsulate_its_own_outer_packets_again() {
    run_on_every_bench(|bench| {
        if bench.station_end != TunnelEnd::HomeAgent {
            return;
        }
        let own = ipv6_packet(protocol::FRAGMENT, HOME_AGENT, HOST_ADDRESS, &[41, 0, 0, 1, 0, 0, 0, 9, 1, 2]);
        assert_eq!(bench.run_on_packet_into_tunnel(&own), ProgramOutcome::Left("extension"));
    });
}

/// Cached lookups of tunnelled packets are valid only for the interface on which the packets arrived: another
/// interface may have another role.
#[test]
fn changed_role_of_interface_invalidates_cached_lookups() {
    run_on_every_bench(|bench| {
        if bench.station_end == TunnelEnd::HomeAgent {
            return;
        }
        let packet = tunnelled_packet(bench, &udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, 50));
        sent_frame(&bench.run_on_packet_out_of_tunnel(&packet));
        assert_eq!(
            bench.program_outcome("agent", "lan0", &ethernet_frame(0x86dd, &packet)),
            ProgramOutcome::Left("")
        );
    });
}

/// On a modem interface, packets begin with the IPv6 header. The kernel redirects only frames with an
/// Ethernet header, so the program adds one.
#[test]
fn fast_path_forwards_packets_without_ethernet_header() {
    run_on_every_bench(|bench| {
        if bench.kind == AttachmentKind::Xdp {
            return;
        }
        // The kernel's test run takes octets 12 and 13 of a packet for the EtherType. It does not move octets
        // 0 to 13 when the program removes the outer header. So inner and outer header have equal addresses
        // at these octets.
        const FAR_HOST_ADDRESS: &str = "2001:db8:86dd::1";
        const NEAR_HOST_ADDRESS: &str = "2001:db8:86dd:a::10";
        let (entrance, exit) = match bench.station_end {
            TunnelEnd::MobileRouter => {
                super::bench::run_ip("-6 rule add pref 139 iif lan0 from 2001:db8:86dd:a::/64 lookup 13501");
                ("lan_bare", "uplink_bare")
            }
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("agent_bare", "agent_bare"),
        };
        let mut tunnel = bench.ipv6_tunnel_over_uplink(0, true);
        bench.remove_tunnel(&tunnel.clone());
        tunnel.inner.push("2001:db8:86dd:a::/64".parse().unwrap());
        tunnel.remote = parse_address(FAR_HOST_ADDRESS).into();
        bench.set_tunnel(tunnel.clone());
        let (from, to) = match bench.station_end {
            TunnelEnd::MobileRouter => (NEAR_HOST_ADDRESS, CORRESPONDENT_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("2001:db8:86dd:c::1", HOST_ADDRESS),
        };
        let (far, near) = match bench.station_end {
            TunnelEnd::MobileRouter => ("2001:db8:86dd:c::1", HOST_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (NEAR_HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        };
        let local = tunnel.local.to_string();
        for length in [20, 100, 1400] {
            let (plain, outer) = (
                udp_packet(from, to, length),
                encapsulated_in_ipv6(FAR_HOST_ADDRESS, &local, &udp_packet(far, near, length)),
            );
            for (program, interface, packet, tunnelled) in [
                (entrance, bench.entrance_program_and_interface().1, &plain, false),
                (exit, bench.exit_program_and_interface().1, &outer, true),
            ] {
                let did = bench.program_outcome(program, interface, packet);
                let expected = bench.expected_packet(packet, tunnelled).unwrap();
                assert_eq!(sent_frame(&did)[14..], expected, "{program}");
                for hops in [0, 1] {
                    let mut packet = packet.clone();
                    packet[if tunnelled { 47 } else { 7 }] = hops;
                    assert_eq!(
                        bench.program_outcome(program, interface, &packet),
                        ProgramOutcome::Left("hop_limit")
                    );
                }
            }
        }
    });
}
