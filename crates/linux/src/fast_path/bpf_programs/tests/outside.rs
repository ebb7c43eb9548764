//! Tests tunnels inside IPv4 and inside UDP and IPv4 (RFC 4213, RFC 5555), clause by clause.

use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::time::Duration;

use carnet_base::{Endpoint, Rng};
use carnet_nemo::forwarding::desired::{Tunnel, TunnelEnd, TunnelSocket};
use carnet_wire::ipv6::protocol;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, SockaddrLike, bind, recv, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use super::bench::{
    ENDPOINTS_BEHIND_NAT, HOME_ADDRESS, ProgramOutcome, TUNNEL_MTU, TestBench, run_ip, run_on_every_bench,
};
use super::packets::*;
use super::routing_changes::pin_to_one_processor;
use crate::datagrams::{DatagramSockets, DatagramWriter};
use crate::fast_path::bpf_programs::AttachmentKind;

/// Runs `body` on every bench, first with a tunnel inside IPv4, then with a tunnel inside UDP.
fn run_with_both_encapsulations(body: fn(&mut TestBench, &Tunnel)) {
    for udp in [false, true] {
        run_on_every_bench(move |bench| {
            set_ipv4_forwarding(bench, true);
            let first = bench.ipv6_tunnel_over_uplink(0, true);
            bench.remove_tunnel(&first);
            let tunnel = bench.ipv4_tunnel_over_uplink(udp, 0, true);
            bench.set_tunnel(tunnel.clone());
            body(bench, &tunnel);
        });
    }
}

/// Turns IPv4 forwarding of this machine on or off. XDP programs can look up routes for a mobile router's
/// packets only while it is on.
fn set_ipv4_forwarding(bench: &TestBench, on: bool) {
    for interface in ["wan0", "wan1"].iter().filter(|_| bench.station_end == TunnelEnd::MobileRouter) {
        let switch = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
        std::fs::write(switch, if on { "1" } else { "0" }).unwrap();
    }
}

/// Returns inner source and destination of packets that go into the tunnel.
fn inner_addresses_into_tunnel(bench: &TestBench) -> (&'static str, &'static str) {
    match bench.station_end {
        TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
    }
}

fn uplink_interface(bench: &TestBench) -> &'static str {
    bench.exit_program_and_interface().1
}

fn sent_frame(did: &ProgramOutcome) -> &[u8] {
    match did {
        ProgramOutcome::Sent(frame) => &frame[14..],
        ProgramOutcome::Left(why) => panic!("left to the slow path: {why:?}"),
    }
}

/// RFC 4213 3.4 and 3.6, RFC 5555 4.1. `run_on_packet_into_tunnel` and `run_on_packet_from_ipv4_tunnel`
/// compare the packets that the programs send with those of the slow path.
#[test]
fn common_packets_inside_ipv4_use_fast_path_in_both_directions() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        for payload in [8, 9, 100, 1000, TUNNEL_MTU as usize - 40] {
            sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(source, destination, payload)));
            sent_frame(&bench.run_on_packet_from_ipv4_tunnel(
                uplink_interface(bench),
                ends,
                0xb8,
                &udp_packet(destination, source, payload),
            ));
        }
        for next_header in [protocol::ICMPV6, protocol::NO_NEXT_HEADER, 47, 50, 132] {
            let octets = udp_payload(64);
            sent_frame(&bench.run_on_packet_into_tunnel(&ipv6_packet(
                next_header,
                source,
                destination,
                &octets,
            )));
            let inner = ipv6_packet(next_header, destination, source, &octets);
            sent_frame(&bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &inner));
        }
        assert!(bench.programs.binding_table.has_tunnel(ends));
        let traffic = bench.programs.tunnel_traffic()[&ends];
        assert_eq!((traffic.encapsulated_packets, traffic.decapsulated_packets), (10, 10));
    });
}

/// RFC 6040 4.1 and 4.2; RFC 2983 3.1.
#[test]
fn fast_path_merges_ecn_marks_inside_ipv4() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        for inner in 0..4 {
            let did = bench.run_on_packet_into_tunnel(&with_ecn(udp_packet(source, destination, 100), inner));
            assert_eq!(sent_frame(&did)[1], 0xb8 | inner);
            for outer in 0..4 {
                let packet = with_ecn(udp_packet(destination, source, 100), inner);
                let did = bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, outer, &packet);
                if (inner, outer) == (0, 3) {
                    assert_eq!(did, ProgramOutcome::Left("congestion"));
                } else {
                    sent_frame(&did);
                }
            }
        }
    });
}

/// RFC 6275 10.4.5, RFC 3963 9: outer addresses, port and interface of a packet must be those of the tunnel.
/// The inner source must belong to the binding.
#[test]
fn fast_path_checks_inner_source_inside_ipv4() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let inner = udp_packet(destination, source, 50);
        let (local, remote) = (tunnel.local, tunnel.remote);
        let other = |end: Endpoint| match end {
            Endpoint::Udp(mut socket) => {
                socket.set_port(socket.port() ^ 1);
                Endpoint::Udp(socket)
            }
            _ => Endpoint::Ipv4([192, 0, 2, 66].into()),
        };
        let stranger = |end: Endpoint| match end {
            Endpoint::Udp(mut socket) => {
                socket.set_ip([192, 0, 2, 66].into());
                Endpoint::Udp(socket)
            }
            end => other(end),
        };
        for _ in 0..2 {
            sent_frame(&bench.run_on_packet_from_ipv4_tunnel(
                uplink_interface(bench),
                (local, remote),
                0,
                &inner,
            ));
            for ends in [(local, stranger(remote)), (stranger(local), remote), (remote, local)] {
                let did = bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &inner);
                assert_eq!(did, ProgramOutcome::Left("outer_source"), "{ends:?}");
            }
            // Change the port of the tunnel's remote end.
            let far = if bench.station_end == TunnelEnd::HomeAgent {
                (local, other(remote))
            } else {
                (other(local), remote)
            };
            assert_eq!(
                bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), far, 0, &inner),
                ProgramOutcome::Left("outer_source")
            );
            // The programs refuse a packet that has the tunnel's addresses but not its encapsulation (IPv4 or
            // UDP).
            let address = |end: Endpoint| Endpoint::Ipv4(end.ipv4().unwrap());
            let udp = |end: Endpoint| Endpoint::Udp(SocketAddrV4::new(end.ipv4().unwrap(), 4191));
            let otherwise = match local {
                Endpoint::Udp(_) => (address(local), address(remote)),
                _ => (udp(local), udp(remote)),
            };
            assert_eq!(
                bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), otherwise, 0, &inner),
                ProgramOutcome::Left("outer_source")
            );
            let spoofed = match bench.station_end {
                TunnelEnd::HomeAgent | TunnelEnd::Direct => udp_packet_between("2001:db8:b::10", source),
                TunnelEnd::MobileRouter => udp_packet_between("2001:db8:a::77", source),
            };
            let did =
                bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), (local, remote), 0, &spoofed);
            assert!(matches!(did, ProgramOutcome::Left("inner_source" | "")), "{did:?}");
        }
        // A socket that is bound to an interface receives no packets from other interfaces.
        if bench.station_end == TunnelEnd::MobileRouter {
            let did = bench.run_on_packet_from_ipv4_tunnel("wan1", (local, remote), 0, &inner);
            assert_eq!(did, ProgramOutcome::Left("outer_source"));
        }
    });
}

fn udp_packet_between(source: &str, destination: &str) -> Vec<u8> {
    udp_packet(source, destination, 50)
}

/// Each of these changed headers makes the programs leave the packet to the kernel.
#[test]
fn unusual_ipv4_headers_take_the_slow_path() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let inner = udp_packet(destination, source, 50);
        let packet = encapsulated_in_ipv4(ends.1, ends.0, 0, &inner);
        sent_frame(&bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &inner));
        let (program, interface) = bench.exit_program_and_interface();
        let mut left = |change: &dyn Fn(&mut Vec<u8>), sums: bool, why: &'static str, what: &str| {
            let mut packet = packet.clone();
            change(&mut packet);
            let packet = if sums { fill_in_checksum(packet) } else { packet };
            assert_eq!(
                bench.program_outcome(program, interface, &ethernet_frame(0x0800, &packet)),
                ProgramOutcome::Left(why),
                "{what}"
            );
        };
        left(&|p| p[10] ^= 1, false, "", "header checksum");
        left(&|p| p[8] ^= 1, false, "", "a bit of the TTL");
        left(&|p| p[0] = 0x46, true, "", "options");
        left(&|p| p[0] = 0x65, true, "", "version");
        left(&|p| p[6] |= 0x20, true, "", "more fragments");
        left(&|p| p[7] = 1, true, "", "fragment offset");
        left(&|p| p[6] |= 0x80, true, "", "reserved bit");
        left(&|p| p[3] ^= 1, true, "", "length");
        left(&|p| p[9] = 47, true, "", "protocol");
        let at = if matches!(ends.0, Endpoint::Udp(_)) { 28 } else { 20 };
        left(&|p| p[at] = 0x45, true, "", "IPv4 inside");
        left(&|p| p[at + 5] ^= 1, true, "malformed", "inner length");
        left(&|p| p[at + 7] = 1, true, "hop_limit", "inner hop limit");
        if at == 28 {
            left(&|p| p[25] ^= 1, true, "", "UDP length");
            left(&|p| p[26] = 1, true, "checksum", "a checksum that nobody has verified");
            left(&|p| p[20..24].fill(9), true, "", "other ports");
        }
        // The value of DF in the outer header does not matter, because a middlebox may clear DF.
        let mut packet = packet.clone();
        packet[6] &= !0x40;
        packet[4] = 7;
        let frame = ethernet_frame(0x0800, &fill_in_checksum(packet));
        assert!(matches!(bench.program_outcome(program, interface, &frame), ProgramOutcome::Sent(_)));
        for length in 14..frame.len() {
            // In a test run of a tc program, the kernel accepts only frames with complete headers.
            if length >= bench.shortest_frame_length() {
                assert_eq!(
                    bench.program_outcome(program, interface, &frame[..length]),
                    ProgramOutcome::Left(""),
                    "{length}"
                );
            }
        }
    });
}

/// Mobility Headers, SYN segments and packets to the station itself take the slow path.
#[test]
fn control_messages_take_the_slow_path() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let inner = ipv6_packet(135, destination, source, &[59, 1, 6, 0, 0, 0, 0, 0]);
        assert_eq!(
            bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &inner),
            ProgramOutcome::Left("extension")
        );
        assert_eq!(
            bench.run_on_packet_into_tunnel(&tcp_segment(source, destination, 2)),
            ProgramOutcome::Left("syn")
        );
        let inner = tcp_segment(destination, source, 0x12);
        assert_eq!(
            bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &inner),
            ProgramOutcome::Left("syn")
        );
        let (from, to) = match bench.station_end {
            TunnelEnd::MobileRouter => (CORRESPONDENT_ADDRESS, HOME_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (HOST_ADDRESS, super::bench::HOME_AGENT),
        };
        let did =
            bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &udp_packet(from, to, 50));
        assert_eq!(did, ProgramOutcome::Left("route"));
    });
}

#[test]
fn fast_path_leaves_large_packets_inside_ipv4_to_slow_path() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        for _ in 0..2 {
            assert_eq!(
                bench.run_on_packet_into_tunnel(&udp_packet(source, destination, TUNNEL_MTU as usize - 39)),
                ProgramOutcome::Left("too_big")
            );
            sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(
                source,
                destination,
                TUNNEL_MTU as usize - 40,
            )));
        }
        bench.set_tunnel(Tunnel { mtu: 1279, ..tunnel.clone() });
        assert_eq!(
            bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 1240)),
            ProgramOutcome::Left("too_big")
        );
        sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 1239)));
        bench.set_tunnel(tunnel.clone());
        if bench.station_end == TunnelEnd::HomeAgent {
            run_ip("link set ha0 mtu 1400");
            bench.invalidate_lookups();
            let room = 1400 - tunnel.remote.encapsulation_overhead() as usize - 40;
            sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(source, destination, room)));
            assert_eq!(
                bench.run_on_packet_into_tunnel(&udp_packet(source, destination, room + 1)),
                ProgramOutcome::Left("too_big")
            );
        }
    });
}

/// A handover from a tunnel of one kind to a tunnel of another kind is one write to the maps. The programs
/// still accept packets in transit from the old tunnel.
#[test]
fn handover_between_tunnel_kinds_accepts_both() {
    run_with_both_encapsulations(|bench, tunnel| {
        pin_to_one_processor();
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (packet, back) = (udp_packet(source, destination, 50), udp_packet(destination, source, 50));
        let ends = (tunnel.local, tunnel.remote);
        assert_eq!(sent_frame(&bench.run_on_packet_into_tunnel(&packet))[0], 0x45);
        bench.set_tunnel(Tunnel { transmit: false, ..tunnel.clone() });
        bench.set_tunnel(bench.ipv6_tunnel_over_uplink(1, true));
        for port in 0..50 {
            let mut packet = packet.clone();
            packet[41] = port;
            assert_eq!(sent_frame(&bench.run_on_packet_into_tunnel(&packet))[0] >> 4, 6);
        }
        sent_frame(&bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &back));
        // A packet that arrives through the old tunnel does not change the tunnel that packets to the mobile
        // network take.
        assert_eq!(sent_frame(&bench.run_on_packet_into_tunnel(&packet))[0] >> 4, 6);
        let (from, to) = bench.arriving_outer_addresses(1);
        sent_frame(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &back)));
        bench.remove_tunnel(tunnel);
        assert_eq!(
            bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &back),
            ProgramOutcome::Left("outer_source")
        );
        // After the handover back, the socket of the IPv4 tunnel is closed, and its packets belong to no
        // binding.
        bench.set_tunnel(tunnel.clone());
        assert_eq!(sent_frame(&bench.run_on_packet_into_tunnel(&packet))[0], 0x45);
        bench.programs.binding_table.set_socket_interface(tunnel.local, None);
        bench.programs.commit_entries().unwrap();
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("no_path"));
        assert_eq!(
            bench.run_on_packet_from_ipv4_tunnel(uplink_interface(bench), ends, 0, &back),
            ProgramOutcome::Left("outer_source")
        );
    });
}

/// Two modems of the same type may assign the same address. Then only interface and port distinguish the
/// uplinks.
#[test]
fn fast_path_distinguishes_two_uplinks_with_one_ipv4_address() {
    run_on_every_bench(|bench| {
        if bench.station_end == TunnelEnd::HomeAgent || bench.kind == AttachmentKind::Xdp {
            return;
        }
        let first = bench.ipv6_tunnel_over_uplink(0, true);
        bench.remove_tunnel(&first);
        let one = bench.ipv4_tunnel_over_uplink(true, 0, true);
        let end: Endpoint = "udp:192.0.2.10:4192".parse().unwrap();
        bench.programs.binding_table.set_socket_interface(end, Some(bench.interface_index("wan1")));
        let other = Tunnel { local: end, ..one.clone() };
        bench.set_tunnel(one.clone());
        bench.set_tunnel(other.clone());
        let inner = udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, 50);
        for (interface, tunnel, elsewhere) in [("wan0", &one, "wan1"), ("wan1", &other, "wan0")] {
            let ends = (tunnel.local, tunnel.remote);
            sent_frame(&bench.run_on_packet_from_ipv4_tunnel(interface, ends, 0, &inner));
            assert_eq!(
                bench.run_on_packet_from_ipv4_tunnel(elsewhere, ends, 0, &inner),
                ProgramOutcome::Left("outer_source")
            );
        }
        let did = bench.run_on_packet_into_tunnel(&udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50));
        assert_eq!(sent_frame(&did)[20..22], 4192u16.to_be_bytes(), "the one that was told last");
    });
}

/// The kernel's route lookup for XDP fails at an uplink on which forwarding is off.
#[test]
fn xdp_needs_ipv4_forwarding_on_uplink() {
    run_with_both_encapsulations(|bench, _| {
        if (bench.station_end, bench.kind) != (TunnelEnd::MobileRouter, AttachmentKind::Xdp) {
            return;
        }
        sent_frame(&bench.run_on_packet_into_tunnel(&udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)));
        set_ipv4_forwarding(bench, false);
        bench.invalidate_lookups();
        assert_eq!(
            bench.run_on_packet_into_tunnel(&udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)),
            ProgramOutcome::Left("route")
        );
    });
}

/// Changes packets at random. A program must forward the same packet as the slow path, or leave the packet
/// unchanged.
#[test]
fn mutated_packets_are_forwarded_correctly_or_left_to_slow_path() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let ends = (tunnel.local, tunnel.remote);
        let mut rng = Rng::new(0x0040_0041 + bench.kind as u64);
        let seeds = [udp_packet(destination, source, 40), tcp_segment(destination, source, 0x10)];
        let at = if matches!(ends.0, Endpoint::Udp(_)) { 28 } else { 20 };
        let (mut taken, mut left) = (0, 0);
        for number in 0..4000 {
            let mut packet =
                encapsulated_in_ipv4(ends.1, ends.0, rng.number_below(256) as u8, &seeds[number % 2]);
            for _ in 0..rng.number_below(3) {
                let where_to = if rng.number_below(2) == 0 { at + 48 } else { packet.len() };
                let place = rng.number_below(where_to as u64) as usize;
                packet[place] ^= 1 << rng.number_below(8);
            }
            if rng.number_below(4) == 0 {
                packet.truncate(1 + rng.number_below(packet.len() as u64) as usize);
            }
            if packet.len() < 20.max(bench.shortest_frame_length() - 14) {
                continue;
            }
            if rng.number_below(2) == 0 {
                packet = fill_in_checksum(packet);
            }
            let (program, interface) = bench.exit_program_and_interface();
            match bench.program_outcome(program, interface, &ethernet_frame(0x0800, &packet)) {
                ProgramOutcome::Left(_) => left += 1,
                ProgramOutcome::Sent(sent) => {
                    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
                    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
                    let end = |ip: usize, udp: usize| match packet[9] {
                        17 => Endpoint::Udp(SocketAddrV4::new(address(ip).into(), port(udp))),
                        _ => Endpoint::Ipv4(address(ip).into()),
                    };
                    let expected =
                        bench.expected_ipv4_packet((end(16, 22), end(12, 20)), packet[1], &packet[at..]);
                    assert_eq!(Some(&sent[14..]), expected.as_deref(), "{packet:02x?}");
                    assert_eq!(fill_in_checksum(packet.clone()), packet, "the header's checksum");
                    taken += 1;
                }
            }
        }
        assert!(taken > 400 && left > 400, "{taken}, {left}");
    });
}

/// The programs' outer headers equal those of the slow path's sockets, except for the UDP checksum.
#[test]
fn fast_path_headers_equal_those_of_sockets() {
    run_with_both_encapsulations(|bench, tunnel| {
        let (source, destination) = inner_addresses_into_tunnel(bench);
        let (interface, peer) = match bench.station_end {
            TunnelEnd::MobileRouter => ("wan0", "wan0x"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("ha0", "ha0x"),
        };
        let flags = SockFlag::SOCK_NONBLOCK;
        let sniffer = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
        setsockopt(&sniffer, sockopt::ReceiveTimeout, &TimeVal::new(1, 0)).unwrap();
        let index = nix::net::if_::if_nametoindex(peer).unwrap();
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: `address` is a complete `sockaddr_ll`.
        let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), None) }.unwrap();
        bind(sniffer.as_raw_fd(), &address).unwrap();
        let inner = udp_packet(source, destination, 200);
        let did = bench.run_on_packet_into_tunnel(&inner);
        let expected = sent_frame(&did).to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (local, remote) = (tunnel.local, tunnel.remote);
        runtime.block_on(async {
            let sockets = DatagramSockets::default();
            let interface = (bench.station_end == TunnelEnd::MobileRouter).then(|| interface.to_owned());
            sockets.open(&TunnelSocket { local, interface }, false).unwrap();
            let mut writer = DatagramWriter::new(sockets);
            // The kernel forwards the packet before the slow path's socket sends it, so its hop limit is 63.
            let inner = with_hop_limit(inner.clone(), 63);
            writer.write(local, remote, false, &inner);
            writer.flush();
            assert_eq!(writer.write_error_count(), 0);
        });
        let mut found = Vec::new();
        for _ in 0..200 {
            let mut frame = [0; 2000];
            match recv(sniffer.as_raw_fd(), &mut frame, nix::sys::socket::MsgFlags::MSG_DONTWAIT) {
                Ok(length) if frame[12..14] == [8, 0] && length > 100 => {
                    found = frame[14..length].to_vec();
                    break;
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        if matches!(local, Endpoint::Udp(_)) {
            assert!(found.len() > 28, "the socket has sent nothing");
            found[26..28].fill(0);
        }
        assert_eq!(found, expected);
        assert!(ENDPOINTS_BEHIND_NAT.len() == 2);
    });
}

/// The kernel verifies at most a million instructions of a program, and the station's start waits for the
/// verification.
#[test]
fn bpf_programs_stay_far_below_verifier_limit() {
    use aya::programs::{SchedClassifier, Xdp};

    use crate::fast_path::bpf_programs::{find_program, load_program};

    run_on_every_bench(|bench| {
        let ebpf = &mut bench.programs.ebpf;
        for name in ["lan", "uplink", "agent", "agent_lan", "agent_uplink"] {
            load_program(ebpf, bench.kind, name).unwrap();
            let info = match bench.kind {
                AttachmentKind::Tc => find_program::<SchedClassifier>(ebpf, name).unwrap().info(),
                AttachmentKind::Xdp => find_program::<Xdp>(ebpf, name).unwrap().info(),
            };
            // A kernel before Linux 5.16 does not report the number of verified instructions.
            let Some(count) = info.unwrap().verified_instruction_count() else { return };
            println!("{:?} {name}: {count} instructions", bench.kind);
            assert!(count < 60_000, "{name}: {count}");
        }
    });
}
