//! Tunnels inside IPv4, several tunnels at once, and packets that take all of them.

use carnet_mobility::flow::{FlowAction, Ipv6Selector, TrafficSelector, ValueRange};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::forwarding::desired::{DistributionMember, DistributionRule, FlowDistribution};

const HOME_AGENT_ADDRESS: &str = "2001:db8:1::1";
const HOME_ADDRESS: &str = "2001:db8:1::1234";
const HOST_ADDRESS: &str = "2001:db8:a::5";
const CORRESPONDENT_ADDRESS: &str = "2001:db8:99::1";

/// Local and remote end of one tunnel of each kind, on the mobile router's side.
const TUNNEL_ENDS: [(&str, &str); 3] = [
    ("2001:db8:f1::10", HOME_AGENT_ADDRESS),
    ("udp:192.0.2.10:4191", "udp:198.51.100.1:4191"),
    ("203.0.113.10", "198.51.100.1"),
];

fn tunnel_with_index(end: TunnelEnd, way: usize, transmit: bool) -> Tunnel {
    let (router, agent) = TUNNEL_ENDS[way];
    let (local, remote) = if end == TunnelEnd::MobileRouter { (router, agent) } else { (agent, router) };
    let made = new_tunnel(end, local, remote, transmit);
    let mtu = 1500 - made.remote.encapsulation_overhead();
    Tunnel { mtu, bid: Some(way as u16 + 1), ..made }
}

fn distribution_rules(
    end: TunnelEnd,
    selector: Option<TrafficSelector>,
    action: FlowAction,
    ways: &[usize],
) -> FlowDistribution {
    let member = |at: &usize| {
        let Tunnel { bid, local, remote, .. } = tunnel_with_index(end, *at, true);
        DistributionMember { bid, local, remote, weight: 1 }
    };
    let rule = |selector, action, ways: &[usize]| DistributionRule {
        selector,
        action,
        members: ways.iter().map(member).collect(),
    };
    FlowDistribution {
        end,
        home_address: parse_address(HOME_ADDRESS),
        home_agent: parse_address(HOME_AGENT_ADDRESS),
        rules: vec![rule(selector, action, ways), rule(None, FlowAction::Failover, &[0, 1, 2])],
    }
}

/// Returns the forwarders of both ends, with all tunnels.
fn both_forwarders() -> [Forwarder; 2] {
    [TunnelEnd::MobileRouter, TunnelEnd::HomeAgent].map(|end| {
        let mut forwarder = Forwarder::new(&mut Rng::new(1));
        (0..3).for_each(|at| forwarder.set_tunnel(tunnel_with_index(end, at, true)));
        forwarder
    })
}

/// Returns the packets that one end sends, each with the index of its tunnel.
fn sent_packets(
    forwarder: &mut Forwarder,
    verdict: ForwardingVerdict,
    buffer: &PacketBuffer,
) -> Vec<(usize, Vec<u8>)> {
    let find = |ends: TunnelEnds| {
        TUNNEL_ENDS.iter().position(|(router, agent)| {
            let there = super::tunnel_ends(router, agent);
            ends == there || (ends.1, ends.0) == there
        })
    };
    let packet = |packet: Vec<u8>| {
        let header = Header::parse(&packet).expect("header");
        (find((header.source.into(), header.destination.into())).expect("a way"), packet)
    };
    let first = match verdict {
        ForwardingVerdict::Forward => Some(packet(buffer.as_slice().to_vec())),
        ForwardingVerdict::Encapsulate { local, remote, .. } => {
            Some((find((local, remote)).expect("a way"), buffer.as_slice().to_vec()))
        }
        _ => None,
    };
    let caused = std::iter::from_fn(|| forwarder.poll_output()).map(|caused| match caused {
        CausedPacket::Packet(octets) => packet(octets),
        CausedPacket::Encapsulated { ends, packet, .. } => (find(ends).expect("a way"), packet),
    });
    first.into_iter().chain(caused).collect()
}

/// Receives a packet of a tunnel, as the station does.
fn receive_tunnelled_packet(
    forwarder: &mut Forwarder,
    end: TunnelEnd,
    (at, octets): &(usize, Vec<u8>),
) -> Result<Vec<u8>, TunnelDropReason> {
    let tunnel = tunnel_with_index(end, *at, true);
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(octets);
    let header = Header::parse(octets).expect("header");
    let extensions = carnet_wire::extension::ExtensionHeaders::parse(octets).expect("extensions");
    let numbered = header.next_header == protocol::DESTINATION_OPTIONS;
    let offset = if *at == 0 || numbered { extensions.upper_layer_offset } else { 0 };
    let ends = (tunnel.local, tunnel.remote);
    forwarder
        .decapsulate(ends, header.traffic_class, extensions.sequence, offset, &mut buffer)
        .map(|()| buffer.as_slice().to_vec())
        .map_err(|(reason, _)| reason)
}

fn udp_packet(source: &str, destination: &str, ports: (u16, u16), content: u32) -> PacketBuffer {
    let mut buffer = ipv6_packet(source, destination, 100);
    let octets = buffer.as_mut_slice();
    octets[6] = protocol::UDP;
    octets[40..42].copy_from_slice(&ports.0.to_be_bytes());
    octets[42..44].copy_from_slice(&ports.1.to_be_bytes());
    octets[48..52].copy_from_slice(&content.to_be_bytes());
    buffer
}

fn selector_of_destination_port(port: u16) -> Option<TrafficSelector> {
    let range = Some(ValueRange::single(port));
    Some(TrafficSelector::Ipv6(Ipv6Selector { destination_port: range, ..Ipv6Selector::default() }))
}

#[test]
fn ipv4_tunnel_keeps_packet_and_reports_tunnel_ends() {
    for (at, mtu) in [(1, 1472), (2, 1480)] {
        let mut forwarder = Forwarder::new(&mut Rng::new(1));
        let made = tunnel_with_index(TunnelEnd::MobileRouter, at, true);
        forwarder.set_tunnel(made.clone());
        for (length, may_fragment) in [(100, false), (mtu, false)] {
            let mut buffer = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, length);
            let before = buffer.as_slice().to_vec();
            let expected = ForwardingVerdict::Encapsulate {
                local: made.local,
                remote: made.remote,
                may_fragment,
                session: None,
            };
            assert_eq!(encapsulate(&mut forwarder, &mut buffer), expected);
            assert_eq!(buffer.as_slice(), before);
        }
        let mut large = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, mtu + 1);
        assert_eq!(
            encapsulate(&mut forwarder, &mut large),
            ForwardingVerdict::from(TunnelDropReason::TooBig)
        );
        assert!(next_caused_packet(&mut forwarder).is_some(), "Packet Too Big");
        // If the path MTU is smaller, routers may fragment the outer packets of inner packets up to 1280
        // octets.
        forwarder.set_tunnel(Tunnel { mtu: 1100, ..made });
        for (length, expected) in [(1100, false), (1101, true), (1280, true)] {
            let mut buffer = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, length);
            let verdict = encapsulate(&mut forwarder, &mut buffer);
            assert!(
                matches!(verdict, ForwardingVerdict::Encapsulate { may_fragment, .. }
if may_fragment == expected),
                "{length}: {verdict:?}"
            );
        }
    }
}

#[test]
fn ipv4_tunnel_makes_same_checks_and_copies_congestion_mark() {
    let [_, mut agent] = both_forwarders();
    let tunnel = tunnel_with_index(TunnelEnd::HomeAgent, 1, true);
    let ends = (tunnel.local, tunnel.remote);
    let mut take = |ends, class, source: &str| {
        let mut buffer = ipv6_packet(source, CORRESPONDENT_ADDRESS, 100);
        buffer.as_mut_slice()[1] |= 0x20;
        let result = agent.decapsulate(ends, class, None, 0, &mut buffer).map_err(|(reason, _)| reason);
        result.map(|()| Header::parse(buffer.as_slice()).expect("header").traffic_class)
    };
    assert_eq!(take(ends, 0, HOST_ADDRESS), Ok(2));
    assert_eq!(take(ends, 3, HOST_ADDRESS), Ok(3), "RFC 6040");
    assert_eq!(take(ends, 0, "2001:db8:b::5"), Err(TunnelDropReason::InnerSource));
    let stranger = (ends.0, "udp:192.0.2.10:4192".parse().expect("endpoint"));
    assert_eq!(
        take(stranger, 0, HOST_ADDRESS),
        Err(TunnelDropReason::OuterSource),
        "another port is another sender"
    );
}

#[test]
fn each_policy_uses_its_tunnel_in_both_directions() {
    let ends = [TunnelEnd::MobileRouter, TunnelEnd::HomeAgent];
    let mut forwarders = both_forwarders();
    for (forwarder, end) in forwarders.iter_mut().zip(ends) {
        forwarder.set_distribution(&distribution_rules(
            end,
            selector_of_destination_port(5000),
            FlowAction::Failover,
            &[2],
        ));
    }
    // The selector names a port of the host on board. The same port at the correspondent does not count.
    for (from, special, other) in [
        (
            0,
            udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, (5000, 9), 0),
            udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, (9, 5000), 0),
        ),
        (
            1,
            udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, (9, 5000), 0),
            udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, (5000, 9), 0),
        ),
    ] {
        for (mut buffer, expected) in [(special, 2), (other, 0)] {
            let before = buffer.as_slice().to_vec();
            let verdict = encapsulate(&mut forwarders[from], &mut buffer);
            let sent = sent_packets(&mut forwarders[from], verdict, &buffer);
            assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [expected]);
            assert_eq!(
                receive_tunnelled_packet(&mut forwarders[1 - from], ends[1 - from], &sent[0]),
                Ok(before)
            );
        }
    }
    // If the tunnel of this flow's own rule is missing, the flow uses the tunnel of the last rule, and no
    // packet is lost.
    forwarders[0].remove_tunnel(&tunnel_with_index(TunnelEnd::MobileRouter, 2, true));
    let mut buffer = udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, (5000, 9), 0);
    let verdict = encapsulate(&mut forwarders[0], &mut buffer);
    assert_eq!(sent_packets(&mut forwarders[0], verdict, &buffer)[0].0, 0);
}

#[test]
fn receiver_passes_only_the_first_copy_of_a_duplicated_packet() {
    for (from, source, destination) in
        [(0, HOST_ADDRESS, CORRESPONDENT_ADDRESS), (1, CORRESPONDENT_ADDRESS, HOST_ADDRESS)]
    {
        let ends = [TunnelEnd::MobileRouter, TunnelEnd::HomeAgent];
        let mut forwarders = both_forwarders();
        let all = distribution_rules(ends[from], None, FlowAction::Duplicate, &[0, 1, 2]);
        forwarders[from].set_distribution(&all);
        for round in 0..5 {
            let mut buffer = udp_packet(source, destination, (1, 2), 7);
            let before = buffer.as_slice().to_vec();
            assert_eq!(encapsulate(&mut forwarders[from], &mut buffer), ForwardingVerdict::Consumed);
            let sent = sent_packets(&mut forwarders[from], ForwardingVerdict::Consumed, &buffer);
            assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2]);
            let home = [parse_address(HOME_ADDRESS), parse_address(HOME_AGENT_ADDRESS)];
            for (at, packet) in &sent {
                let header = Header::parse(packet).expect("header");
                if *at > 0 {
                    assert_eq!((header.source, header.destination), (home[from], home[1 - from]));
                }
            }
            // A packet with the same content in a later round is a new packet, not a copy.
            for (turn, copy) in [round % 3, (round + 1) % 3, (round + 2) % 3].into_iter().enumerate() {
                let result = receive_tunnelled_packet(&mut forwarders[1 - from], ends[1 - from], &sent[copy]);
                match turn {
                    0 => assert_eq!(result.as_ref(), Ok(&before)),
                    _ => assert_eq!(result, Err(TunnelDropReason::Duplicate)),
                }
            }
        }
        let (sender, receiver) = (&forwarders[from].counters, &forwarders[1 - from].counters);
        assert_eq!(
            (sender.encapsulated_packets, sender.duplicated_packets, receiver.decapsulated_packets),
            (5, 10, 5)
        );
        // Each tunnel counts the copies that came through it, also those that arrived after another tunnel's
        // copy.
        for at in 0..3 {
            let tunnel = tunnel_with_index(ends[1 - from], at, true);
            assert_eq!(
                forwarders[1 - from].traffic_of_tunnel((tunnel.local, tunnel.remote)).packets_received,
                5
            );
        }
    }
}

/// Numbered packets without a duplicate rule use little memory, and the forwarder drops none of them for
/// their number.
#[test]
fn forged_sequence_numbers_use_little_memory() {
    for (before, remembered) in [(0, true), (MAX_RECEIVE_WINDOWS - 1, true), (MAX_RECEIVE_WINDOWS, false)] {
        let mut forwarders = both_forwarders();
        let all = |end| distribution_rules(end, None, FlowAction::Duplicate, &[0, 1, 2]);
        forwarders[0].set_distribution(&all(TunnelEnd::MobileRouter));
        forwarders[1].receive_window_count = before;
        for asked in [false, true] {
            let mut buffer = udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, (1, 2), 7);
            assert_eq!(encapsulate(&mut forwarders[0], &mut buffer), ForwardingVerdict::Consumed);
            let copies = sent_packets(&mut forwarders[0], ForwardingVerdict::Consumed, &buffer);
            let arrived =
                |copy| receive_tunnelled_packet(&mut forwarders[1], TunnelEnd::HomeAgent, copy).is_ok();
            let passed = copies.iter().map(arrived).filter(|passed| *passed).count();
            assert_eq!(passed, if remembered || asked { 1 } else { 3 });
            forwarders[1].set_distribution(&all(TunnelEnd::HomeAgent));
        }
        assert_eq!(forwarders[1].receive_window_count, before + 1);
        // When a binding is removed, its window is removed as well.
        forwarders[1].remove_distribution(&all(TunnelEnd::HomeAgent));
        (0..3).for_each(|at| forwarders[1].remove_tunnel(&tunnel_with_index(TunnelEnd::HomeAgent, at, true)));
        assert_eq!(forwarders[1].receive_window_count, before);
    }
}

#[test]
fn number_reduces_mtu_of_duplicated_packets() {
    let [mut router, _] = both_forwarders();
    router.set_distribution(&distribution_rules(
        TunnelEnd::MobileRouter,
        None,
        FlowAction::Duplicate,
        &[0, 1],
    ));
    // Length of the largest inner packet. UDP has room for 1472 octets; the IPv6 header takes 40 and the
    // option with the sequence number 8.
    let mut fits = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1424);
    assert_eq!(encapsulate(&mut router, &mut fits), ForwardingVerdict::Consumed);
    for (at, packet) in sent_packets(&mut router, ForwardingVerdict::Consumed, &fits) {
        let outer = if at == 0 { 0 } else { 28 };
        assert!(packet.len() + outer <= 1500, "{at}: {}", packet.len());
    }
    let mut large = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1425);
    assert_eq!(encapsulate(&mut router, &mut large), ForwardingVerdict::from(TunnelDropReason::TooBig));
    let answer = next_caused_packet(&mut router).expect("Packet Too Big");
    let (_, message) = Header::parse_packet(&answer).expect("packet");
    let (error, _) = icmpv6::parse_error(message).expect("error");
    assert_eq!(error, Icmpv6ErrorMessage::PacketTooBig { mtu: 1424 });
    // A packet of 1280 octets passes every tunnel, in fragments if necessary.
    for at in 0..2 {
        router.set_tunnel(Tunnel { mtu: 1240, ..tunnel_with_index(TunnelEnd::MobileRouter, at, true) });
    }
    let mut least = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1280);
    assert_eq!(encapsulate(&mut router, &mut least), ForwardingVerdict::Consumed);
    let outputs: Vec<CausedPacket> = std::iter::from_fn(|| router.poll_output()).collect();
    let pieces =
        outputs.iter().filter(|caused| matches!(caused, CausedPacket::Packet(p) if p.len() <= 1280)).count();
    let cut =
        outputs.iter().filter(|c| matches!(c, CausedPacket::Encapsulated { may_fragment: true, .. })).count();
    assert_eq!((pieces, cut, outputs.len()), (2, 1, 3));
}

#[test]
fn icmp_error_about_a_copy_is_accepted() {
    let [mut router, _] = both_forwarders();
    router.set_distribution(&distribution_rules(
        TunnelEnd::MobileRouter,
        None,
        FlowAction::Duplicate,
        &[0, 1],
    ));
    let mut buffer = ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1400);
    encapsulate(&mut router, &mut buffer);
    let (_, outer) = sent_packets(&mut router, ForwardingVerdict::Consumed, &buffer).remove(0);
    let local = parse_address("2001:db8:f1::10");
    let outcome = router.handle_icmp_error(
        Time::ZERO,
        ROUTER_ON_PATH,
        local,
        Icmpv6ErrorMessage::PacketTooBig { mtu: 1300 },
        &outer,
    );
    assert_eq!(outcome, IcmpErrorOutcome::PathMtu(tunnel_ends("2001:db8:f1::10", HOME_AGENT_ADDRESS), 1260));
}

proptest! {
#![proptest_config(ProptestConfig::with_cases(32))]

/// Between packets, tunnels appear and vanish and rules change. Each packet into a working tunnel arrives
/// exactly once, and a packet without a duplicate rule is sent once.
#[test]
fn changing_tunnels_and_rules_lose_and_duplicate_no_packet(
steps in prop::collection::vec((0u8..6, 0usize..3, any::<u16>()), 1..200),
) {
let (router, agent) = (TunnelEnd::MobileRouter, TunnelEnd::HomeAgent);
let mut forwarders = both_forwarders();
let [from, to] = &mut forwarders;
// The receiver always accepts packets from all tunnels; the sender adds and removes tunnels.
let mut there = [true; 3];
let mut content = 0;
for (step, at, port) in steps {
match step {
0 if there.iter().filter(|there| **there).count() > 1 => {
from.remove_tunnel(&tunnel_with_index(router, at, true));
there[at] = false;
}
1 => {
from.set_tunnel(tunnel_with_index(router, at, true));
there[at] = true;
}
2 => from.set_distribution(&distribution_rules(router, None, FlowAction::Duplicate, &[0, 1,
2])),
3 => {
let ports = selector_of_destination_port(port);
from.set_distribution(&distribution_rules(router, ports, FlowAction::Balance, &[0, 1,
2]));
}
4 => from.remove_distribution(&distribution_rules(router, None, FlowAction::Balance, &[])),
_ => {}
}
content += 1;
let mut buffer = udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, (port, 80), content);
let before = buffer.as_slice().to_vec();
let verdict = encapsulate(from, &mut buffer);
let sent = sent_packets(from, verdict, &buffer);
prop_assert!(!sent.is_empty(), "{verdict:?}");
prop_assert!(sent.iter().all(|(at, _)| there[*at]), "into a tunnel that is gone");
let arrived: Vec<_> = sent.iter()
.filter_map(|sent| receive_tunnelled_packet(to, agent, sent).ok()).collect();
prop_assert_eq!(arrived, vec![before]);
}
}
}
