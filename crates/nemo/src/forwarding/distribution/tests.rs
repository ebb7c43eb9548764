//! The tunnel of each flow, and the flows that move when tunnels or weights change.

use carnet_base::Rng;
use carnet_mobility::flow::{Ipv6Selector, TrafficSelector, ValueRange};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const HOST_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 5);
const CORRESPONDENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);

fn tunnel_ends_for_bid(bid: u16) -> TunnelEnds {
    let remote = format!("udp:192.0.2.{bid}:4191").parse().expect("endpoint");
    ("udp:198.51.100.1:4191".parse().expect("endpoint"), remote)
}

fn distribution_rule(
    selector: Option<TrafficSelector>,
    action: FlowAction,
    members: &[(u16, u16)],
) -> DistributionRule {
    let member = |(bid, weight): &(u16, u16)| {
        let (local, remote) = tunnel_ends_for_bid(*bid);
        DistributionMember { bid: Some(*bid), local, remote, weight: *weight }
    };
    DistributionRule { selector, action, members: members.iter().map(member).collect() }
}

fn new_distributor(rules: Vec<DistributionRule>, before: Option<FlowDistributor>) -> FlowDistributor {
    let distribution = FlowDistribution {
        end: TunnelEnd::HomeAgent,
        home_address: HOST_ADDRESS,
        home_agent: CORRESPONDENT_ADDRESS,
        rules,
    };
    FlowDistributor::new(&distribution, before, 7)
}

fn udp_packet(port: u16, rest: &[u8]) -> Vec<u8> {
    let payload = [&port.to_be_bytes()[..], &[0x13, 0x88], &[0; 4], rest].concat();
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: payload.len() as u16,
        next_header: protocol::UDP,
        hop_limit: 64,
        source: CORRESPONDENT_ADDRESS,
        destination: HOST_ADDRESS,
    };
    [&header.emit()[..], &payload].concat()
}

fn choose_tunnels(distributor: &mut FlowDistributor, packet: &[u8], living: &[u16]) -> TunnelChoice {
    let header = Header::parse(packet).expect("header");
    distributor.choose_tunnels(Time::ZERO, &header, packet, |wanted| {
        living.iter().any(|bid| tunnel_ends_for_bid(*bid) == *wanted)
    })
}

/// Returns the member that each of 4000 flows gets.
fn chosen_member_of_each_flow(distributor: &mut FlowDistributor, living: &[u16]) -> Vec<u16> {
    let one = |port: u16| match choose_tunnels(distributor, &udp_packet(port, &[]), living) {
        TunnelChoice::One(chosen) => {
            living.iter().copied().find(|bid| tunnel_ends_for_bid(*bid) == chosen).expect("a member")
        }
        other => panic!("{other:?}"),
    };
    (0..4000).map(one).collect()
}

fn balancing_distributor(members: &[(u16, u16)], before: Option<FlowDistributor>) -> FlowDistributor {
    new_distributor(vec![distribution_rule(None, FlowAction::Balance, members)], before)
}

fn count_flows_of(shares: &[u16], bid: u16) -> usize {
    shares.iter().filter(|share| **share == bid).count()
}

#[test]
fn distribution_gives_each_member_its_share_of_flows() {
    let shares = chosen_member_of_each_flow(&mut balancing_distributor(&[(1, 50), (2, 20)], None), &[1, 2]);
    let first = count_flows_of(&shares, 1) as f64 / 4000.0;
    assert!((first - 50.0 / 70.0).abs() < 0.03, "{first}");
}

#[test]
fn small_change_of_weights_moves_no_flow() {
    let mut one = balancing_distributor(&[(1, 50), (2, 20), (3, 10)], None);
    let before = chosen_member_of_each_flow(&mut one, &[1, 2, 3]);
    // The new weights are all about twice the old ones, so the shares hardly change.
    let mut one = balancing_distributor(&[(1, 110), (2, 40), (3, 19)], Some(one));
    assert_eq!(chosen_member_of_each_flow(&mut one, &[1, 2, 3]), before);
    // Many small changes in one direction add up to a large change, which moves flows.
    let mut moved = one;
    for weight in 19..=60 {
        moved = balancing_distributor(&[(1, 100), (2, 40), (3, weight)], Some(moved));
    }
    let after = chosen_member_of_each_flow(&mut moved, &[1, 2, 3]);
    let share = count_flows_of(&after, 3) as f64 / 4000.0;
    assert!((share - 60.0 / 200.0).abs() < 0.08, "{share}");
    // Flows only move to the member whose weight grew.
    let moves = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert!(moves.clone().all(|(_, after)| *after == 3) && moves.count() > 100);
}

#[test]
fn new_address_of_a_member_moves_no_flow() {
    let mut one = balancing_distributor(&[(1, 50), (2, 20)], None);
    let before = chosen_member_of_each_flow(&mut one, &[1, 2]);
    let mut elsewhere = distribution_rule(None, FlowAction::Balance, &[(1, 50), (2, 20)]);
    let rebound = "udp:203.0.113.9:60000".parse().expect("endpoint");
    elsewhere.members[1].remote = rebound;
    let mut one = new_distributor(vec![elsewhere], Some(one));
    for (port, bid) in (0..4000).zip(before) {
        let packet = udp_packet(port, &[]);
        let header = Header::parse(&packet).expect("header");
        let choice = one.choose_tunnels(Time::ZERO, &header, &packet, |_| true);
        assert_eq!(
            choice,
            TunnelChoice::One(if bid == 1 {
                tunnel_ends_for_bid(1)
            } else {
                (tunnel_ends_for_bid(2).0, rebound)
            })
        );
    }
}

#[test]
fn failover_rule_uses_first_working_tunnel_then_next_rule() {
    let port = |port| {
        Some(TrafficSelector::Ipv6(Ipv6Selector {
            source_port: Some(ValueRange::single(port)),
            ..Default::default()
        }))
    };
    let mut one = new_distributor(
        vec![
            distribution_rule(port(9), FlowAction::Failover, &[(3, 1)]),
            distribution_rule(port(10), FlowAction::Duplicate, &[(1, 1), (2, 1)]),
            distribution_rule(None, FlowAction::Failover, &[(2, 1), (1, 1)]),
        ],
        None,
    );
    let mut choose = |from, living: &[u16]| choose_tunnels(&mut one, &udp_packet(from, &[]), living);
    assert_eq!(choose(9, &[1, 2, 3]), TunnelChoice::One(tunnel_ends_for_bid(3)));
    assert_eq!(choose(9, &[1, 2]), TunnelChoice::One(tunnel_ends_for_bid(2)), "nothing of its own is left");
    assert_eq!(
        choose(10, &[1, 2, 3]),
        TunnelChoice::All(vec![tunnel_ends_for_bid(1), tunnel_ends_for_bid(2)])
    );
    assert_eq!(choose(10, &[1, 3]), TunnelChoice::All(vec![tunnel_ends_for_bid(1)]), "numbered all the same");
    assert_eq!(choose(11, &[1, 2]), TunnelChoice::One(tunnel_ends_for_bid(2)));
    assert_eq!(choose(11, &[1]), TunnelChoice::One(tunnel_ends_for_bid(1)));
    assert_eq!(choose(11, &[]), TunnelChoice::None);
}

#[test]
fn later_fragments_use_the_tunnel_of_the_first() {
    let mut one = balancing_distributor(&[(1, 1), (2, 1), (3, 1), (4, 1)], None);
    let living = [1, 2, 3, 4];
    for (port, identification) in (0..300).zip(0u32..) {
        let whole = udp_packet(port, &[7; 2000]);
        let expected = choose_tunnels(&mut one, &whole, &living);
        let pieces = crate::forwarding::fragments::cut_into_fragments(&whole, 1280, identification);
        assert!(pieces.len() > 1);
        for piece in pieces {
            assert_eq!(choose_tunnels(&mut one, &piece, &living), expected, "port {port}");
        }
    }
    assert!(
        one.fragment_arrival_order.len() <= MAX_FRAGMENTED_PACKETS
            && one.fragmented_flows.len() <= MAX_FRAGMENTED_PACKETS
    );
    // A later fragment whose first fragment has not arrived goes into a tunnel as well, by the fields that it
    // contains. The stored ports of a first fragment expire.
    let whole = udp_packet(1, &[7; 2000]);
    let pieces = crate::forwarding::fragments::cut_into_fragments(&whole, 1280, 1 << 20);
    assert!(matches!(choose_tunnels(&mut one, &pieces[1], &living), TunnelChoice::One(_)));
    let header = Header::parse(&pieces[0]).expect("header");
    one.choose_tunnels(Time::from_secs(100), &header, &pieces[0], |_| true);
    assert_eq!(one.fragmented_flows.len(), 1);
}

#[test]
fn malformed_packets_still_get_a_tunnel() {
    let mut one = balancing_distributor(&[(1, 1), (2, 1)], None);
    let mut rng = Rng::new(1);
    for length in 40..200 {
        for _ in 0..50 {
            let mut packet = udp_packet(9, &[0; 200]);
            packet[6] = rng.random_u64() as u8;
            packet[40..].iter_mut().for_each(|octet| *octet = rng.random_u64() as u8);
            packet.truncate(length);
            assert!(matches!(choose_tunnels(&mut one, &packet, &[1, 2]), TunnelChoice::One(_)));
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
        let mut one = balancing_distributor(&members, None);
        let before = chosen_member_of_each_flow(&mut one, &all);
        // First the tunnel of a member fails. Then the config removes the member from the rules.
        for leave_out in [false, true] {
            if leave_out {
                let left: Vec<(u16, u16)> = members.iter().copied().filter(|(bid, _)| *bid != dead).collect();
                one = balancing_distributor(&left, Some(one));
            }
            let after = chosen_member_of_each_flow(&mut one, &living);
            for (before, after) in before.iter().zip(after) {
                prop_assert!(*before == dead || *before == after);
            }
        }
        one = balancing_distributor(&members, Some(one));
        prop_assert_eq!(chosen_member_of_each_flow(&mut one, &all), before);
    }
}
