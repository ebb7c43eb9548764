//! The tunnel of each flow, and the flows that move when tunnels or weights change.

use carnet_base::Rng;
use carnet_mobility::flow::{Ipv6Selector, Range, TrafficSelector};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 5);
const OUTSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);

fn ends(bid: u16) -> Ends {
    let remote = format!("udp:192.0.2.{bid}:4191").parse().expect("endpoint");
    ("udp:198.51.100.1:4191".parse().expect("endpoint"), remote)
}

fn rule(selector: Option<TrafficSelector>, action: FlowAction, members: &[(u16, u16)]) -> DistributionRule {
    let member = |(bid, weight): &(u16, u16)| {
        let (local, remote) = ends(*bid);
        Member { bid: Some(*bid), local, remote, weight: *weight }
    };
    DistributionRule { selector, action, members: members.iter().map(member).collect() }
}

fn distributor(rules: Vec<DistributionRule>, before: Option<Distributor>) -> Distributor {
    let distribution =
        Distribution { end: TunnelEnd::HomeAgent, home_address: INSIDE, home_agent: OUTSIDE, rules };
    Distributor::new(&distribution, before, 7)
}

fn udp(port: u16, rest: &[u8]) -> Vec<u8> {
    let payload = [&port.to_be_bytes()[..], &[0x13, 0x88], &[0; 4], rest].concat();
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: payload.len() as u16,
        next_header: protocol::UDP,
        hop_limit: 64,
        source: OUTSIDE,
        destination: INSIDE,
    };
    [&header.emit()[..], &payload].concat()
}

fn choose(distributor: &mut Distributor, packet: &[u8], living: &[u16]) -> Choice {
    let header = Header::parse(packet).expect("header");
    distributor.choose(Time::ZERO, &header, packet, |wanted| living.iter().any(|bid| ends(*bid) == *wanted))
}

/// Returns the member that each of 4000 flows gets.
fn shares(distributor: &mut Distributor, living: &[u16]) -> Vec<u16> {
    let one = |port: u16| match choose(distributor, &udp(port, &[]), living) {
        Choice::One(chosen) => living.iter().copied().find(|bid| ends(*bid) == chosen).expect("a member"),
        other => panic!("{other:?}"),
    };
    (0..4000).map(one).collect()
}

fn balance(members: &[(u16, u16)], before: Option<Distributor>) -> Distributor {
    distributor(vec![rule(None, FlowAction::Balance, members)], before)
}

fn count(shares: &[u16], bid: u16) -> usize {
    shares.iter().filter(|share| **share == bid).count()
}

#[test]
fn distribution_gives_each_member_its_share_of_flows() {
    let shares = shares(&mut balance(&[(1, 50), (2, 20)], None), &[1, 2]);
    let first = count(&shares, 1) as f64 / 4000.0;
    assert!((first - 50.0 / 70.0).abs() < 0.03, "{first}");
}

#[test]
fn small_change_of_weights_moves_no_flow() {
    let mut one = balance(&[(1, 50), (2, 20), (3, 10)], None);
    let before = shares(&mut one, &[1, 2, 3]);
    // All weights are about twice as high as before, so the shares hardly change.
    let mut one = balance(&[(1, 110), (2, 40), (3, 19)], Some(one));
    assert_eq!(shares(&mut one, &[1, 2, 3]), before);
    // Many small changes in one direction add up to a large change, which moves flows.
    let mut moved = one;
    for weight in 19..=60 {
        moved = balance(&[(1, 100), (2, 40), (3, weight)], Some(moved));
    }
    let after = shares(&mut moved, &[1, 2, 3]);
    let share = count(&after, 3) as f64 / 4000.0;
    assert!((share - 60.0 / 200.0).abs() < 0.08, "{share}");
    // Flows only move to the member whose weight grew.
    let moves = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert!(moves.clone().all(|(_, after)| *after == 3) && moves.count() > 100);
}

#[test]
fn new_address_of_a_member_moves_no_flow() {
    let mut one = balance(&[(1, 50), (2, 20)], None);
    let before = shares(&mut one, &[1, 2]);
    let mut elsewhere = rule(None, FlowAction::Balance, &[(1, 50), (2, 20)]);
    let rebound = "udp:203.0.113.9:60000".parse().expect("endpoint");
    elsewhere.members[1].remote = rebound;
    let mut one = distributor(vec![elsewhere], Some(one));
    for (port, bid) in (0..4000).zip(before) {
        let packet = udp(port, &[]);
        let header = Header::parse(&packet).expect("header");
        let choice = one.choose(Time::ZERO, &header, &packet, |_| true);
        assert_eq!(choice, Choice::One(if bid == 1 { ends(1) } else { (ends(2).0, rebound) }));
    }
}

#[test]
fn failover_rule_uses_first_working_tunnel_then_next_rule() {
    let port = |port| {
        Some(TrafficSelector::Ipv6(Ipv6Selector {
            source_port: Some(Range::single(port)),
            ..Default::default()
        }))
    };
    let mut one = distributor(
        vec![
            rule(port(9), FlowAction::Failover, &[(3, 1)]),
            rule(port(10), FlowAction::Duplicate, &[(1, 1), (2, 1)]),
            rule(None, FlowAction::Failover, &[(2, 1), (1, 1)]),
        ],
        None,
    );
    let mut choose = |from, living: &[u16]| choose(&mut one, &udp(from, &[]), living);
    assert_eq!(choose(9, &[1, 2, 3]), Choice::One(ends(3)));
    assert_eq!(choose(9, &[1, 2]), Choice::One(ends(2)), "nothing of its own is left");
    assert_eq!(choose(10, &[1, 2, 3]), Choice::All(vec![ends(1), ends(2)]));
    assert_eq!(choose(10, &[1, 3]), Choice::All(vec![ends(1)]), "numbered all the same");
    assert_eq!(choose(11, &[1, 2]), Choice::One(ends(2)));
    assert_eq!(choose(11, &[1]), Choice::One(ends(1)));
    assert_eq!(choose(11, &[]), Choice::None);
}

#[test]
fn later_fragments_use_the_tunnel_of_the_first() {
    let mut one = balance(&[(1, 1), (2, 1), (3, 1), (4, 1)], None);
    let living = [1, 2, 3, 4];
    for (port, identification) in (0..300).zip(0u32..) {
        let whole = udp(port, &[7; 2000]);
        let expected = choose(&mut one, &whole, &living);
        let pieces = crate::forwarding::fragments::fragment(&whole, 1280, identification);
        assert!(pieces.len() > 1);
        for piece in pieces {
            assert_eq!(choose(&mut one, &piece, &living), expected, "port {port}");
        }
    }
    assert!(one.order.len() <= FRAGMENTED_MAX && one.fragmented.len() <= FRAGMENTED_MAX);
    // A later fragment whose first fragment has not arrived goes into a tunnel as well. The stored ports of
    // an old first fragment expire.
    let whole = udp(1, &[7; 2000]);
    let pieces = crate::forwarding::fragments::fragment(&whole, 1280, 1 << 20);
    assert!(matches!(choose(&mut one, &pieces[1], &living), Choice::One(_)));
    let header = Header::parse(&pieces[0]).expect("header");
    one.choose(Time::from_secs(100), &header, &pieces[0], |_| true);
    assert_eq!(one.fragmented.len(), 1);
}

#[test]
fn malformed_packets_still_get_a_tunnel() {
    let mut one = balance(&[(1, 1), (2, 1)], None);
    let mut rng = Rng::new(1);
    for length in 40..200 {
        for _ in 0..50 {
            let mut packet = udp(9, &[0; 200]);
            packet[6] = rng.u64() as u8;
            packet[40..].iter_mut().for_each(|octet| *octet = rng.u64() as u8);
            packet.truncate(length);
            assert!(matches!(choose(&mut one, &packet, &[1, 2]), Choice::One(_)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// When a member fails, only its flows change to other members. When it works again, the same flows
    /// return.
    #[test]
    fn failed_member_moves_only_its_own_flows(
        weights in prop::collection::vec(1u16..1000, 2..6), dead in any::<prop::sample::Index>(),
    ) {
        let members: Vec<(u16, u16)> = (1..).zip(weights).collect();
        let all: Vec<u16> = members.iter().map(|(bid, _)| *bid).collect();
        let dead = all[dead.index(all.len())];
        let living: Vec<u16> = all.iter().copied().filter(|bid| *bid != dead).collect();
        let mut one = balance(&members, None);
        let before = shares(&mut one, &all);
        // The tunnel first fails, and then leaves the rules.
        for leave_out in [false, true] {
            if leave_out {
                let left: Vec<(u16, u16)> = members.iter().copied().filter(|(bid, _)| *bid != dead).collect();
                one = balance(&left, Some(one));
            }
            let after = shares(&mut one, &living);
            for (before, after) in before.iter().zip(after) {
                prop_assert!(*before == dead || *before == after);
            }
        }
        one = balance(&members, Some(one));
        prop_assert_eq!(shares(&mut one, &all), before);
    }
}
