//! Tests how the programs distribute a binding's packets among its tunnels. Each packet must take the same
//! tunnel as on the slow path.

use carnet_base::{Endpoint, Rng};
use carnet_nemo::forwarding::desired::{
    DistributionMember, DistributionRule, FlowAction, FlowDistribution, Ipv6Selector, TrafficSelector,
    Tunnel, TunnelEnd, ValueRange,
};
use carnet_wire::ipv6::protocol;

use super::bench::{HOME_ADDRESS, HOME_AGENT, ProgramOutcome, TestBench, run_on_every_bench};
use super::packets::*;
use crate::fast_path::bpf_programs::AttachmentKind;

/// Creates four tunnels: two in IPv6, one in IPv4, one in UDP.
fn create_four_tunnels(bench: &mut TestBench) -> Vec<Tunnel> {
    let tunnels = vec![
        bench.ipv6_tunnel_over_uplink(0, true),
        bench.ipv6_tunnel_over_uplink(1, true),
        bench.ipv4_tunnel_over_uplink(false, 0, true),
        bench.ipv4_tunnel_over_uplink(true, 1, true),
    ];
    let bids = (1..).zip(tunnels).map(|(bid, tunnel)| Tunnel { bid: Some(bid), ..tunnel });
    let tunnels: Vec<Tunnel> = bids.collect();
    tunnels.iter().for_each(|tunnel| bench.set_tunnel(tunnel.clone()));
    if bench.station_end == TunnelEnd::MobileRouter {
        for interface in ["wan0", "wan1"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"), "1").unwrap();
        }
    }
    tunnels
}

fn distribution_member(tunnel: &Tunnel, weight: u16) -> DistributionMember {
    DistributionMember { bid: tunnel.bid, local: tunnel.local, remote: tunnel.remote, weight }
}

fn new_distribution(bench: &TestBench, rules: Vec<DistributionRule>) -> FlowDistribution {
    FlowDistribution {
        end: bench.station_end,
        home_address: parse_address(HOME_ADDRESS),
        home_agent: parse_address(HOME_AGENT),
        rules,
    }
}

fn rule(
    selector: Option<Ipv6Selector>,
    action: FlowAction,
    members: Vec<DistributionMember>,
) -> DistributionRule {
    DistributionRule { selector: selector.map(TrafficSelector::Ipv6), action, members }
}

/// Returns a packet of a random flow through the tunnel.
fn packet_of_random_flow(bench: &TestBench, rng: &mut Rng) -> Vec<u8> {
    let (source, destination) = match bench.station_end {
        TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
    };
    let next_header = [17, 17, 6, 58, 50, 132, 59][rng.number_below(7) as usize];
    let mut packet = if next_header == 6 {
        tcp_segment(source, destination, 0x10)
    } else {
        super::packets::ipv6_packet(next_header, source, destination, &udp_payload(60))
    };
    packet[0] = 0x60 | rng.number_below(16) as u8;
    packet[1] = rng.number_below(256) as u8;
    for at in [22, 23, 38, 39, 40, 41, 42, 43] {
        if rng.number_below(3) == 0 {
            packet[at] = rng.number_below(256) as u8;
        }
    }
    packet
}

/// Returns the outer IP version of a sent packet, and the outer octets that identify its tunnel. In IPv6 they
/// are the addresses; in IPv4 the protocol, the checksum, the addresses and the next four octets (the UDP
/// ports).
fn outer_addresses(did: &ProgramOutcome) -> (u8, Vec<u8>) {
    match did {
        ProgramOutcome::Sent(frame) if frame[14] >> 4 == 6 => (6, frame[22..54].to_vec()),
        ProgramOutcome::Sent(frame) => (4, frame[23..38].to_vec()),
        ProgramOutcome::Left(why) => panic!("left to the slow path: {why:?}"),
    }
}

/// `run_on_packet_into_tunnel` compares each packet with the slow path's. In addition, this test checks that
/// each tunnel gets the share of flows that its weight says.
#[test]
fn fast_path_balances_flows_like_the_slow_path() {
    run_on_every_bench(|bench| {
        let tunnels = create_four_tunnels(bench);
        let members = tunnels
            .iter()
            .zip([4, 3, 2, 1])
            .map(|(tunnel, weight)| distribution_member(tunnel, weight * 100));
        let rules = vec![rule(None, FlowAction::Balance, members.collect())];
        let all = new_distribution(bench, rules);
        bench.set_distribution(&all);
        let mut rng = Rng::new(0xba1a);
        let mut counts = std::collections::BTreeMap::<_, u32>::new();
        for _ in 0..2000 {
            let packet = packet_of_random_flow(bench, &mut rng);
            let did = bench.run_on_packet_into_tunnel(&packet);
            let mut which = outer_addresses(&did);
            if which.0 == 4 {
                // Of an outer IPv4 header, keep only the protocol (41 or UDP) as the tunnel's mark, because
                // the header checksum differs from packet to packet.
                which.1.truncate(1);
            }
            *counts.entry(which).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable();
        let expected = [200.0, 400.0, 600.0, 800.0_f64];
        assert!(
            counts.len() == 4 && counts.iter().zip(expected).all(|(n, e)| (f64::from(*n) - e).abs() < 100.0),
            "{counts:?}"
        );
        let traffic = bench.programs.tunnel_traffic();
        for tunnel in &tunnels {
            assert!(traffic[&(tunnel.local, tunnel.remote)].encapsulated_packets > 100, "{traffic:?}");
        }
        let used = bench.programs.used();
        assert_eq!(used.len(), 4, "{used:?}");
    });
}

/// RFC 6088 3.2, RFC 6089 4.1: the first matching rule decides, for all fields and ranges.
#[test]
fn fast_path_rules_match_same_packets_as_slow_path() {
    run_on_every_bench(|bench| {
        let tunnels = create_four_tunnels(bench);
        let only = |at: usize| vec![distribution_member(&tunnels[at], 1)];
        let mut rng = Rng::new(0x5e1e + bench.kind as u64);
        for _ in 0..30 {
            let mut range = |bits: u64| {
                let (one, other) = (rng.number_below(1 << bits), rng.number_below(1 << bits));
                (one.min(other), one.max(other))
            };
            let ports = |(first, last): (u64, u64)| Some(ValueRange::new(first as u16, last as u16));
            let octets = |(first, last): (u64, u64)| Some(ValueRange::new(first as u8, last as u8));
            let selectors = [
                Ipv6Selector { source_port: ports(range(16)), ..Ipv6Selector::default() },
                Ipv6Selector {
                    destination_port: ports(range(16)),
                    next_header: octets(range(8)),
                    ..Ipv6Selector::default()
                },
                Ipv6Selector { traffic_class: octets(range(8)), ..Ipv6Selector::default() },
                Ipv6Selector {
                    spi: Some(ValueRange::new(0x3039_0000, 0x3039_ffff)),
                    ..Ipv6Selector::default()
                },
                Ipv6Selector {
                    flow_label: Some(ValueRange::new(range(19).0 as u32, 0x6_2345)),
                    ..Ipv6Selector::default()
                },
                Ipv6Selector {
                    source: Some(ValueRange::new(
                        parse_address("2001:db8:c::"),
                        parse_address("2001:db8:c::8000"),
                    )),
                    destination: Some(ValueRange::new(
                        parse_address("2001:db8:a::"),
                        parse_address("2001:db8:a::7fff"),
                    )),
                    ..Ipv6Selector::default()
                },
            ];
            let mut rules = Vec::new();
            for (at, selector) in selectors.into_iter().enumerate() {
                let action = if at % 3 == 2 { FlowAction::Balance } else { FlowAction::Failover };
                let members = if at % 3 == 2 {
                    tunnels.iter().map(|t| distribution_member(t, 5)).collect()
                } else {
                    only(at % 4)
                };
                rules.push(rule(Some(selector), action, members));
            }
            rules.push(rule(None, FlowAction::Failover, only(3)));
            let all = new_distribution(bench, rules);
            bench.set_distribution(&all);
            for _ in 0..60 {
                let packet = packet_of_random_flow(bench, &mut rng);
                outer_addresses(&bench.run_on_packet_into_tunnel(&packet));
            }
        }
    });
}

/// The slow path gets packets that a rule duplicates, because their copies need a sequence number. It also
/// gets fragments after the first, which have no ports.
#[test]
fn duplicated_packets_and_fragments_take_the_slow_path() {
    run_on_every_bench(|bench| {
        let tunnels = create_four_tunnels(bench);
        let everywhere: Vec<DistributionMember> =
            tunnels.iter().map(|tunnel| distribution_member(tunnel, 1)).collect();
        let voice = Ipv6Selector { next_header: Some(ValueRange::single(17)), ..Ipv6Selector::default() };
        let all = new_distribution(
            bench,
            vec![
                rule(Some(voice), FlowAction::Duplicate, everywhere.clone()),
                rule(None, FlowAction::Balance, everywhere.clone()),
            ],
        );
        bench.set_distribution(&all);
        let (source, destination) = match bench.station_end {
            TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
        };
        assert_eq!(
            bench.run_on_packet_into_tunnel(&udp_packet(source, destination, 50)),
            ProgramOutcome::Left("policy")
        );
        outer_addresses(&bench.run_on_packet_into_tunnel(&tcp_segment(source, destination, 0x10)));
        let fragment = [&[6, 0, 0, 1, 0, 0, 0, 9][..], &udp_payload(30)].concat();
        let fragment = ipv6_packet(protocol::FRAGMENT, source, destination, &fragment);
        assert_eq!(bench.run_on_packet_into_tunnel(&fragment), ProgramOutcome::Left("policy"));
        // The programs accept packets from each tunnel.
        let back = tcp_segment(destination, source, 0x10);
        for (way, tunnel) in tunnels.iter().enumerate() {
            let did = match tunnel.local {
                Endpoint::Ipv6(_) => {
                    let (from, to) = bench.arriving_outer_addresses(way);
                    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, &back))
                }
                _ => {
                    let interface = match bench.station_end {
                        TunnelEnd::HomeAgent | TunnelEnd::Direct => "ha0",
                        TunnelEnd::MobileRouter => ["wan0", "wan1"][way - 2],
                    };
                    bench.run_on_packet_from_ipv4_tunnel(interface, (tunnel.local, tunnel.remote), 0, &back)
                }
            };
            assert!(matches!(did, ProgramOutcome::Sent(_)), "{way}: {did:?}");
        }
        // A binding has more rules than the programs have room for.
        let ports =
            |port| Ipv6Selector { source_port: Some(ValueRange::single(port)), ..Ipv6Selector::default() };
        let many = (0..9).map(|port| rule(Some(ports(port)), FlowAction::Failover, everywhere.clone()));
        let many = new_distribution(bench, many.collect());
        bench.set_distribution(&many);
        assert_eq!(
            bench.run_on_packet_into_tunnel(&tcp_segment(source, destination, 0x10)),
            ProgramOutcome::Left("no_path")
        );
        assert!(bench.kind == AttachmentKind::Tc || bench.kind == AttachmentKind::Xdp);
    });
}
