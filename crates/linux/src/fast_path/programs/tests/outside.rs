//! Tests tunnels in IPv4 and in UDP in IPv4 (RFC 4213, RFC 5555), clause by clause.

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

use super::bench::{BEHIND_NAT, Bench, HOME_ADDRESS, MTU, ProgramAction, ip, on_every_bench};
use super::following::pin_to_one_processor;
use super::packets::*;
use crate::datagrams::{DatagramWriter, Datagrams};
use crate::fast_path::programs::Kind;

/// Runs `body` on every bench, with a tunnel in IPv4 and with one in UDP.
fn in_both(body: fn(&mut Bench, &Tunnel)) {
    for udp in [false, true] {
        on_every_bench(move |bench| {
            forward_ipv4(bench, true);
            let first = bench.tunnel(0, true);
            bench.remove(&first);
            let tunnel = bench.tunnel_in_ipv4(udp, 0, true);
            bench.set(tunnel.clone());
            body(bench, &tunnel);
        });
    }
}

/// Turns IPv4 forwarding of this machine on or off. XDP programs can look up routes for a mobile router's
/// packets only while it is on.
fn forward_ipv4(bench: &Bench, on: bool) {
    for interface in ["wan0", "wan1"].iter().filter(|_| bench.end == TunnelEnd::MobileRouter) {
        let switch = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
        std::fs::write(switch, if on { "1" } else { "0" }).unwrap();
    }
}

/// Returns inner source and destination of packets that go into the tunnel.
fn inwards(bench: &Bench) -> (&'static str, &'static str) {
    match bench.end {
        TunnelEnd::MobileRouter => (INSIDE, OUTSIDE),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (OUTSIDE, INSIDE),
    }
}

fn uplink(bench: &Bench) -> &'static str {
    bench.exit().1
}

fn sent(did: &ProgramAction) -> &[u8] {
    match did {
        ProgramAction::Sent(frame) => &frame[14..],
        ProgramAction::Left(why) => panic!("left to the slow path: {why:?}"),
    }
}

/// RFC 4213 3.4 and 3.6, RFC 5555 4.1. `enters` and `arrives_in_ipv4` compare the sent packets with the
/// oracle.
#[test]
fn common_packets_inside_ipv4_use_fast_path_in_both_directions() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let ends = (tunnel.local, tunnel.remote);
        for payload in [8, 9, 100, 1000, MTU as usize - 40] {
            sent(&bench.enters(&udp(source, destination, payload)));
            sent(&bench.arrives_in_ipv4(uplink(bench), ends, 0xb8, &udp(destination, source, payload)));
        }
        for next_header in [protocol::ICMPV6, protocol::NO_NEXT_HEADER, 47, 50, 132] {
            let octets = udp_payload(64);
            sent(&bench.enters(&packet(next_header, source, destination, &octets)));
            let inner = packet(next_header, destination, source, &octets);
            sent(&bench.arrives_in_ipv4(uplink(bench), ends, 0, &inner));
        }
        assert!(bench.programs.table.has(ends));
        let traffic = bench.programs.tunnel_traffic()[&ends];
        assert_eq!((traffic.encapsulated_packets, traffic.decapsulated_packets), (10, 10));
    });
}

/// RFC 6040 4.1 and 4.2; RFC 2983 3.1.
#[test]
fn fast_path_merges_ecn_marks_inside_ipv4() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let ends = (tunnel.local, tunnel.remote);
        for inner in 0..4 {
            let did = bench.enters(&with_ecn(udp(source, destination, 100), inner));
            assert_eq!(sent(&did)[1], 0xb8 | inner);
            for outer in 0..4 {
                let packet = with_ecn(udp(destination, source, 100), inner);
                let did = bench.arrives_in_ipv4(uplink(bench), ends, outer, &packet);
                if (inner, outer) == (0, 3) {
                    assert_eq!(did, ProgramAction::Left("congestion"));
                } else {
                    sent(&did);
                }
            }
        }
    });
}

/// RFC 6275 10.4.5, RFC 3963 9: outer address, port and interface must be the tunnel's. The inner address
/// must belong to the binding.
#[test]
fn fast_path_checks_inner_source_inside_ipv4() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let inner = udp(destination, source, 50);
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
            sent(&bench.arrives_in_ipv4(uplink(bench), (local, remote), 0, &inner));
            for ends in [(local, stranger(remote)), (stranger(local), remote), (remote, local)] {
                let did = bench.arrives_in_ipv4(uplink(bench), ends, 0, &inner);
                assert_eq!(did, ProgramAction::Left("outer_source"), "{ends:?}");
            }
            // Change the port of the tunnel's remote end.
            let far = if bench.end == TunnelEnd::HomeAgent {
                (local, other(remote))
            } else {
                (other(local), remote)
            };
            assert_eq!(
                bench.arrives_in_ipv4(uplink(bench), far, 0, &inner),
                ProgramAction::Left("outer_source")
            );
            // The programs refuse a packet with these addresses and the other encapsulation.
            let address = |end: Endpoint| Endpoint::Ipv4(end.ipv4().unwrap());
            let udp = |end: Endpoint| Endpoint::Udp(SocketAddrV4::new(end.ipv4().unwrap(), 4191));
            let otherwise = match local {
                Endpoint::Udp(_) => (address(local), address(remote)),
                _ => (udp(local), udp(remote)),
            };
            assert_eq!(
                bench.arrives_in_ipv4(uplink(bench), otherwise, 0, &inner),
                ProgramAction::Left("outer_source")
            );
            let spoofed = match bench.end {
                TunnelEnd::HomeAgent | TunnelEnd::Direct => udp_from("2001:db8:b::10", source),
                TunnelEnd::MobileRouter => udp_from("2001:db8:a::77", source),
            };
            let did = bench.arrives_in_ipv4(uplink(bench), (local, remote), 0, &spoofed);
            assert!(matches!(did, ProgramAction::Left("inner_source" | "")), "{did:?}");
        }
        // A socket that is bound to an interface receives no packets from other interfaces.
        if bench.end == TunnelEnd::MobileRouter {
            let did = bench.arrives_in_ipv4("wan1", (local, remote), 0, &inner);
            assert_eq!(did, ProgramAction::Left("outer_source"));
        }
    });
}

fn udp_from(source: &str, destination: &str) -> Vec<u8> {
    udp(source, destination, 50)
}

/// Each of these changed headers makes the programs leave the packet to the kernel.
#[test]
fn unusual_ipv4_headers_take_the_slow_path() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let ends = (tunnel.local, tunnel.remote);
        let inner = udp(destination, source, 50);
        let packet = in_ipv4(ends.1, ends.0, 0, &inner);
        sent(&bench.arrives_in_ipv4(uplink(bench), ends, 0, &inner));
        let (program, interface) = bench.exit();
        let mut left = |change: &dyn Fn(&mut Vec<u8>), sums: bool, why: &'static str, what: &str| {
            let mut packet = packet.clone();
            change(&mut packet);
            let packet = if sums { with_sum(packet) } else { packet };
            assert_eq!(
                bench.program_action(program, interface, &frame(0x0800, &packet)),
                ProgramAction::Left(why),
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
        let frame = frame(0x0800, &with_sum(packet));
        assert!(matches!(bench.program_action(program, interface, &frame), ProgramAction::Sent(_)));
        for length in 14..frame.len() {
            // For a test run of a tc program, the kernel requires a complete header.
            if length >= bench.shortest() {
                assert_eq!(
                    bench.program_action(program, interface, &frame[..length]),
                    ProgramAction::Left(""),
                    "{length}"
                );
            }
        }
    });
}

/// Mobility Headers, SYN segments and packets to the station itself take the slow path.
#[test]
fn control_messages_take_the_slow_path() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let ends = (tunnel.local, tunnel.remote);
        let inner = packet(135, destination, source, &[59, 1, 6, 0, 0, 0, 0, 0]);
        assert_eq!(bench.arrives_in_ipv4(uplink(bench), ends, 0, &inner), ProgramAction::Left("extension"));
        assert_eq!(bench.enters(&tcp(source, destination, 2)), ProgramAction::Left("syn"));
        let inner = tcp(destination, source, 0x12);
        assert_eq!(bench.arrives_in_ipv4(uplink(bench), ends, 0, &inner), ProgramAction::Left("syn"));
        let (from, to) = match bench.end {
            TunnelEnd::MobileRouter => (OUTSIDE, HOME_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (INSIDE, super::bench::HOME_AGENT),
        };
        let did = bench.arrives_in_ipv4(uplink(bench), ends, 0, &udp(from, to, 50));
        assert_eq!(did, ProgramAction::Left("route"));
    });
}

#[test]
fn fast_path_leaves_large_packets_inside_ipv4_to_slow_path() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        for _ in 0..2 {
            assert_eq!(
                bench.enters(&udp(source, destination, MTU as usize - 39)),
                ProgramAction::Left("too_big")
            );
            sent(&bench.enters(&udp(source, destination, MTU as usize - 40)));
        }
        bench.set(Tunnel { mtu: 1279, ..tunnel.clone() });
        assert_eq!(bench.enters(&udp(source, destination, 1240)), ProgramAction::Left("too_big"));
        sent(&bench.enters(&udp(source, destination, 1239)));
        bench.set(tunnel.clone());
        if bench.end == TunnelEnd::HomeAgent {
            ip("link set ha0 mtu 1400");
            bench.forget();
            let room = 1400 - tunnel.remote.encapsulation_overhead() as usize - 40;
            sent(&bench.enters(&udp(source, destination, room)));
            assert_eq!(bench.enters(&udp(source, destination, room + 1)), ProgramAction::Left("too_big"));
        }
    });
}

/// A handover from one kind of tunnel to another is one write to the maps. The programs still accept packets
/// in transit from the old tunnel.
#[test]
fn handover_between_tunnel_kinds_accepts_both() {
    in_both(|bench, tunnel| {
        pin_to_one_processor();
        let (source, destination) = inwards(bench);
        let (packet, back) = (udp(source, destination, 50), udp(destination, source, 50));
        let ends = (tunnel.local, tunnel.remote);
        assert_eq!(sent(&bench.enters(&packet))[0], 0x45);
        bench.set(Tunnel { transmit: false, ..tunnel.clone() });
        bench.set(bench.tunnel(1, true));
        for port in 0..50 {
            let mut packet = packet.clone();
            packet[41] = port;
            assert_eq!(sent(&bench.enters(&packet))[0] >> 4, 6);
        }
        sent(&bench.arrives_in_ipv4(uplink(bench), ends, 0, &back));
        // A packet in transit does not change how the program sends by a cached next hop.
        assert_eq!(sent(&bench.enters(&packet))[0] >> 4, 6);
        let (from, to) = bench.arriving(1);
        sent(&bench.arrives(&within(from, to, &back)));
        bench.remove(tunnel);
        assert_eq!(bench.arrives_in_ipv4(uplink(bench), ends, 0, &back), ProgramAction::Left("outer_source"));
        // After the handover back, the socket of the IPv4 tunnel is closed, and its packets belong to no
        // binding.
        bench.set(tunnel.clone());
        assert_eq!(sent(&bench.enters(&packet))[0], 0x45);
        bench.programs.table.set_socket(tunnel.local, None);
        bench.programs.commit().unwrap();
        assert_eq!(bench.enters(&packet), ProgramAction::Left("no_path"));
        assert_eq!(bench.arrives_in_ipv4(uplink(bench), ends, 0, &back), ProgramAction::Left("outer_source"));
    });
}

/// Two modems of the same type may assign the same address. Then only interface and port distinguish the
/// uplinks.
#[test]
fn fast_path_distinguishes_two_uplinks_with_one_ipv4_address() {
    on_every_bench(|bench| {
        if bench.end == TunnelEnd::HomeAgent || bench.kind == Kind::Xdp {
            return;
        }
        let first = bench.tunnel(0, true);
        bench.remove(&first);
        let one = bench.tunnel_in_ipv4(true, 0, true);
        let end: Endpoint = "udp:192.0.2.10:4192".parse().unwrap();
        bench.programs.table.set_socket(end, Some(bench.index("wan1")));
        let other = Tunnel { local: end, ..one.clone() };
        bench.set(one.clone());
        bench.set(other.clone());
        let inner = udp(OUTSIDE, INSIDE, 50);
        for (interface, tunnel, elsewhere) in [("wan0", &one, "wan1"), ("wan1", &other, "wan0")] {
            let ends = (tunnel.local, tunnel.remote);
            sent(&bench.arrives_in_ipv4(interface, ends, 0, &inner));
            assert_eq!(
                bench.arrives_in_ipv4(elsewhere, ends, 0, &inner),
                ProgramAction::Left("outer_source")
            );
        }
        let did = bench.enters(&udp(INSIDE, OUTSIDE, 50));
        assert_eq!(sent(&did)[20..22], 4192u16.to_be_bytes(), "the one that was told last");
    });
}

/// The kernel's route lookup for XDP fails at an uplink on which forwarding is off.
#[test]
fn xdp_needs_ipv4_forwarding_on_uplink() {
    in_both(|bench, _| {
        if (bench.end, bench.kind) != (TunnelEnd::MobileRouter, Kind::Xdp) {
            return;
        }
        sent(&bench.enters(&udp(INSIDE, OUTSIDE, 50)));
        forward_ipv4(bench, false);
        bench.forget();
        assert_eq!(bench.enters(&udp(INSIDE, OUTSIDE, 50)), ProgramAction::Left("route"));
    });
}

/// Changes packets at random. A program must forward the same packet as the slow path, or leave the packet
/// unchanged.
#[test]
fn mutated_packets_are_forwarded_correctly_or_left_to_slow_path() {
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let ends = (tunnel.local, tunnel.remote);
        let mut rng = Rng::new(0x0040_0041 + bench.kind as u64);
        let seeds = [udp(destination, source, 40), tcp(destination, source, 0x10)];
        let at = if matches!(ends.0, Endpoint::Udp(_)) { 28 } else { 20 };
        let (mut taken, mut left) = (0, 0);
        for number in 0..4000 {
            let mut packet = in_ipv4(ends.1, ends.0, rng.below(256) as u8, &seeds[number % 2]);
            for _ in 0..rng.below(3) {
                let where_to = if rng.below(2) == 0 { at + 48 } else { packet.len() };
                let place = rng.below(where_to as u64) as usize;
                packet[place] ^= 1 << rng.below(8);
            }
            if rng.below(4) == 0 {
                packet.truncate(1 + rng.below(packet.len() as u64) as usize);
            }
            if packet.len() < 20.max(bench.shortest() - 14) {
                continue;
            }
            if rng.below(2) == 0 {
                packet = with_sum(packet);
            }
            let (program, interface) = bench.exit();
            match bench.program_action(program, interface, &frame(0x0800, &packet)) {
                ProgramAction::Left(_) => left += 1,
                ProgramAction::Sent(sent) => {
                    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
                    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
                    let end = |ip: usize, udp: usize| match packet[9] {
                        17 => Endpoint::Udp(SocketAddrV4::new(address(ip).into(), port(udp))),
                        _ => Endpoint::Ipv4(address(ip).into()),
                    };
                    let expected = bench.oracle_of_ipv4((end(16, 22), end(12, 20)), packet[1], &packet[at..]);
                    assert_eq!(Some(&sent[14..]), expected.as_deref(), "{packet:02x?}");
                    assert_eq!(with_sum(packet.clone()), packet, "the header's checksum");
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
    in_both(|bench, tunnel| {
        let (source, destination) = inwards(bench);
        let (interface, peer) = match bench.end {
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
        let inner = udp(source, destination, 200);
        let did = bench.enters(&inner);
        let expected = sent(&did).to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (local, remote) = (tunnel.local, tunnel.remote);
        runtime.block_on(async {
            let sockets = Datagrams::default();
            let interface = (bench.end == TunnelEnd::MobileRouter).then(|| interface.to_owned());
            sockets.open(&TunnelSocket { local, interface }, false).unwrap();
            let mut writer = DatagramWriter::new(sockets);
            // The kernel forwards the packet before the slow path's socket sends it, so its hop limit is 63.
            let inner = with_hop_limit(inner.clone(), 63);
            writer.write(local, remote, false, &inner);
            writer.flush();
            assert_eq!(writer.errors(), 0);
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
        assert!(BEHIND_NAT.len() == 2);
    });
}

/// The kernel verifies at most a million instructions of a program, and the station's start waits for the
/// verification.
#[test]
fn bpf_programs_stay_far_below_verifier_limit() {
    use aya::programs::{SchedClassifier, Xdp};

    use crate::fast_path::programs::{find_program, load};

    on_every_bench(|bench| {
        let ebpf = &mut bench.programs.ebpf;
        for name in ["lan", "uplink", "agent", "agent_lan", "agent_uplink"] {
            load(ebpf, bench.kind, name).unwrap();
            let info = match bench.kind {
                Kind::Tc => find_program::<SchedClassifier>(ebpf, name).unwrap().info(),
                Kind::Xdp => find_program::<Xdp>(ebpf, name).unwrap().info(),
            };
            // A kernel before Linux 5.16 does not report the number of verified instructions.
            let Some(count) = info.unwrap().verified_instruction_count() else { return };
            println!("{:?} {name}: {count} instructions", bench.kind);
            assert!(count < 60_000, "{name}: {count}");
        }
    });
}
