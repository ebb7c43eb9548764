//! Tests the cached next hops of a home agent's bindings. A cached next hop must be right for every packet
//! that uses it, and must become invalid when routes, rules, neighbours or bindings change.

use super::bench::{ProgramOutcome, TestBench, run_ip, run_on_every_bench};
use super::packets::*;
use super::routing_changes::{is_frame_sent, pin_to_one_processor};
use crate::fast_path::bpf_programs::AttachmentKind;

/// A second host of the mobile network, besides `HOST_ADDRESS`.
const SECOND_HOST_ADDRESS: &str = "2001:db8:a::42";

/// Returns a packet of a new flow.
fn packet_of_new_flow(destination: &str) -> Vec<u8> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT_PORT: AtomicU16 = AtomicU16::new(20000);
    let mut packet = udp_packet(CORRESPONDENT_ADDRESS, destination, 100);
    packet[40..42].copy_from_slice(&NEXT_PORT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    packet
}

/// Returns whether the programs forward a new flow to this destination by a cached next hop. To find out, the
/// test changes the kernel's routes and leaves the programs' cache unchanged.
fn is_next_hop_cached(bench: &mut TestBench, destination: &str) -> bool {
    let rule = format!("pref 50 to {destination} lookup 76");
    run_ip("-6 route replace unreachable default table 76");
    run_ip(&format!("-6 rule add {rule}"));
    let did = bench.run_on_packet_into_tunnel(&packet_of_new_flow(destination));
    run_ip(&format!("-6 rule del {rule}"));
    assert!(is_frame_sent(&did) || did == ProgramOutcome::Left("route"), "{did:?}");
    is_frame_sent(&did)
}

fn sends_to_destination(bench: &mut TestBench, destination: &str) -> bool {
    is_frame_sent(&bench.run_on_packet_into_tunnel(&packet_of_new_flow(destination)))
}

/// A cached next hop serves all flows and hosts of a mobile network, in both directions. One packet creates
/// it.
#[test]
fn cached_next_hop_serves_all_flows_and_hosts_of_network() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        assert!(!is_next_hop_cached(bench, HOST_ADDRESS));
        assert!(sends_to_destination(bench, HOST_ADDRESS));
        assert!(is_next_hop_cached(bench, HOST_ADDRESS) && is_next_hop_cached(bench, SECOND_HOST_ADDRESS));
        // A packet to another address in the /64 of the home address does not belong to the binding.
        let home = super::bench::HOME_ADDRESS;
        assert!(sends_to_destination(bench, home) && is_next_hop_cached(bench, home));
        assert_eq!(
            bench.run_on_packet_into_tunnel(&packet_of_new_flow("2001:db8:1::77")),
            ProgramOutcome::Left("")
        );
        // The home agent accepts packets from a home address only through the tunnel of its care-of address.
        let (from, to) = bench.arriving_outer_addresses(0);
        for source in [HOST_ADDRESS, SECOND_HOST_ADDRESS, home] {
            for _ in 0..2 {
                assert!(is_frame_sent(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(
                    from,
                    to,
                    &udp_packet(source, CORRESPONDENT_ADDRESS, 50)
                ))));
                let spoofed = encapsulated_in_ipv6(
                    "2001:db8:f1::11",
                    to,
                    &udp_packet(source, CORRESPONDENT_ADDRESS, 50),
                );
                assert_eq!(bench.run_on_packet_out_of_tunnel(&spoofed), ProgramOutcome::Left("outer_source"));
            }
        }
        let stranger =
            encapsulated_in_ipv6(from, to, &udp_packet("2001:db8:1::77", CORRESPONDENT_ADDRESS, 50));
        assert_eq!(bench.run_on_packet_out_of_tunnel(&stranger), ProgramOutcome::Left(""));
    });
}

/// A packet from a mobile network makes the program cache only the network's binding. For the first packet to
/// the mobile network, the program asks the kernel for the next hop.
#[test]
fn program_looks_up_next_hop_before_first_packet_to_network() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        let (from, to) = bench.arriving_outer_addresses(0);
        for _ in 0..2 {
            assert!(is_frame_sent(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(
                from,
                to,
                &udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)
            ))));
        }
        assert!(!is_next_hop_cached(bench, HOST_ADDRESS));
        assert!(sends_to_destination(bench, HOST_ADDRESS) && is_next_hop_cached(bench, HOST_ADDRESS));
    });
}

/// If another program has a routing rule about more than interface and destination, the BPF programs ask the
/// kernel for the route of each flow.
#[test]
fn foreign_rule_with_other_fields_disables_cached_next_hops() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        run_ip("-6 route add unreachable default table 77");
        for rule in
            ["ipproto udp dport 9", "from 2001:db8:c::9", "tos 0x10", "fwmark 7", "not to 2001:db8::/32"]
        {
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && is_next_hop_cached(bench, HOST_ADDRESS),
                "before {rule}"
            );
            run_ip(&format!("-6 rule add pref 60 {rule} lookup 77"));
            bench.invalidate_lookups();
            assert!(sends_to_destination(bench, HOST_ADDRESS), "{rule}");
            assert!(!is_next_hop_cached(bench, HOST_ADDRESS), "{rule}");
            run_ip(&format!("-6 rule del pref 60 {rule} lookup 77"));
            bench.invalidate_lookups();
            assert!(!is_next_hop_cached(bench, HOST_ADDRESS), "after {rule}");
        }
        // The tested packets match neither rule: these rules are about packets from the TUN device, and about
        // packets to another network.
        for rule in ["iif carnet0 from 2001:db8:a::9", "to 2001:db8:b::/64"] {
            run_ip(&format!("-6 rule add pref 60 {rule} lookup 77"));
            bench.invalidate_lookups();
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && is_next_hop_cached(bench, HOST_ADDRESS),
                "{rule}"
            );
            run_ip(&format!("-6 rule del pref 60 {rule} lookup 77"));
            bench.invalidate_lookups();
        }
    });
}

/// The kernel applies a rule about inner sources to each packet that leaves the tunnel, because the sources
/// of packets differ.
#[test]
fn rule_about_inner_sources_is_obeyed() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        let (from, to) = bench.arriving_outer_addresses(0);
        run_ip("-6 route add unreachable default table 77");
        for _ in 0..2 {
            assert!(is_frame_sent(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(
                from,
                to,
                &udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)
            ))));
            assert!(is_frame_sent(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(
                from,
                to,
                &udp_packet(SECOND_HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)
            ))));
            run_ip(&format!("-6 rule add pref 60 iif carnet0 from {SECOND_HOST_ADDRESS} lookup 77"));
            bench.invalidate_lookups();
            for _ in 0..2 {
                assert!(is_frame_sent(&bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(
                    from,
                    to,
                    &udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50)
                ))));
                let packet = encapsulated_in_ipv6(
                    from,
                    to,
                    &udp_packet(SECOND_HOST_ADDRESS, CORRESPONDENT_ADDRESS, 50),
                );
                assert_eq!(bench.run_on_packet_out_of_tunnel(&packet), ProgramOutcome::Left("route"));
            }
            run_ip(&format!("-6 rule del pref 60 iif carnet0 from {SECOND_HOST_ADDRESS} lookup 77"));
            bench.invalidate_lookups();
        }
    });
}

/// Tests two routes of another program: a longer route inside a binding's prefix, and a route of equal length
/// with a better metric.
#[test]
fn foreign_route_inside_prefix_is_obeyed() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        for (route, leads_away) in [
            ("unreachable 2001:db8:a::42/128", true),
            ("2001:db8:a::40/122 via 2001:db8:f0::1 dev ha0", true),
            ("2001:db8:a::/64 via 2001:db8:f0::1 dev ha0 metric 1", true),
            ("2001:db8:a::/65 dev carnet0", false),
        ] {
            let all = route.contains("/64");
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && sends_to_destination(bench, SECOND_HOST_ADDRESS),
                "before {route}"
            );
            run_ip(&format!("-6 route add {route}"));
            bench.invalidate_lookups();
            for _ in 0..2 {
                assert_eq!(sends_to_destination(bench, HOST_ADDRESS), !all, "{route}");
                assert_eq!(sends_to_destination(bench, SECOND_HOST_ADDRESS), !leads_away, "{route}");
            }
            // If the new route does not contain the destination, the program still caches a next hop for the
            // destination.
            assert_eq!(is_next_hop_cached(bench, HOST_ADDRESS), !all, "{route}");
            run_ip(&format!("-6 route del {route}"));
            bench.invalidate_lookups();
            for host in [HOST_ADDRESS, SECOND_HOST_ADDRESS] {
                assert!(
                    sends_to_destination(bench, host) && is_next_hop_cached(bench, host),
                    "after {route}"
                );
            }
        }
    });
}

/// Tests routes with several next hops, among which flows are distributed, and routes for certain sources.
#[test]
fn multipath_routes_disable_cached_next_hops() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        run_ip("-6 neigh add 2001:db8:f0::9 lladdr 02:00:00:00:04:09 dev ha0");
        for route in [
            "2001:db8:f1::/64 nexthop via 2001:db8:f0::1 dev ha0 nexthop via 2001:db8:f0::9 dev ha0",
            "2001:db8:f1::/64 from 2001:db8:1::/64 via 2001:db8:f0::9 dev ha0",
        ] {
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && is_next_hop_cached(bench, HOST_ADDRESS),
                "before {route}"
            );
            run_ip(&format!("-6 route add {route}"));
            bench.invalidate_lookups();
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && !is_next_hop_cached(bench, HOST_ADDRESS),
                "{route}"
            );
            run_ip(&format!("-6 route del {route}"));
            bench.invalidate_lookups();
            assert!(
                sends_to_destination(bench, HOST_ADDRESS) && is_next_hop_cached(bench, HOST_ADDRESS),
                "after {route}"
            );
        }
    });
}

/// The programs look up a neighbour's new link-layer address once; then all cached next hops use it.
#[test]
fn changed_link_layer_address_updates_cached_next_hops() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() || bench.kind == AttachmentKind::Tc {
            return;
        }
        pin_to_one_processor();
        let home = super::bench::HOME_ADDRESS;
        assert!(sends_to_destination(bench, HOST_ADDRESS) && sends_to_destination(bench, home));
        run_ip("-6 neigh replace 2001:db8:f0::1 lladdr 02:00:00:00:04:77 dev ha0");
        bench.programs.invalidate_flow_lookups().unwrap();
        let goes_to = |bench: &mut TestBench, host: &str| match bench
            .run_on_packet_into_tunnel(&packet_of_new_flow(host))
        {
            ProgramOutcome::Sent(frame) => frame[5],
            ProgramOutcome::Left(why) => panic!("left to the slow path: {why}"),
        };
        assert!(!is_next_hop_cached(bench, HOST_ADDRESS));
        assert_eq!(goes_to(bench, HOST_ADDRESS), 0x77);
        assert!(is_next_hop_cached(bench, home));
        assert_eq!(goes_to(bench, home), 0x77);
        run_ip("-6 neigh del 2001:db8:f0::1 dev ha0");
        bench.programs.invalidate_flow_lookups().unwrap();
        for host in [HOST_ADDRESS, home, SECOND_HOST_ADDRESS] {
            assert_eq!(
                bench.run_on_packet_into_tunnel(&packet_of_new_flow(host)),
                ProgramOutcome::Left("neighbour")
            );
        }
    });
}

/// Tests a handover of a binding, directly followed by a new binding whose longer prefix lies inside a prefix
/// of the first.
#[test]
fn changed_bindings_invalidate_cached_next_hops() {
    run_on_every_bench(|bench| {
        if bench.routing_knowledge.is_none() {
            return;
        }
        pin_to_one_processor();
        assert!(
            sends_to_destination(bench, HOST_ADDRESS) && sends_to_destination(bench, SECOND_HOST_ADDRESS)
        );
        let mut other = bench.ipv6_tunnel_over_uplink(1, true);
        other.home_address = parse_address("2001:db8:1::4321");
        other.inner = vec!["2001:db8:a::42/128".parse().unwrap()];
        bench.set_tunnel(other.clone());
        let goes_to = |bench: &mut TestBench, host: &str| match bench
            .run_on_packet_into_tunnel(&packet_of_new_flow(host))
        {
            ProgramOutcome::Sent(frame) => frame[38..54].to_vec(),
            ProgramOutcome::Left(why) => panic!("left to the slow path: {why}"),
        };
        let [first, second] =
            super::bench::CARE_OF_ADDRESSES.map(|text| parse_address(text).octets().to_vec());
        for _ in 0..2 {
            assert_eq!(
                (goes_to(bench, HOST_ADDRESS), goes_to(bench, SECOND_HOST_ADDRESS)),
                (first.clone(), second.clone())
            );
        }
        bench.remove_tunnel(&other);
        for _ in 0..2 {
            assert_eq!(
                (goes_to(bench, HOST_ADDRESS), goes_to(bench, SECOND_HOST_ADDRESS)),
                (first.clone(), first.clone())
            );
        }
        // A binding with other prefixes and another version number does not invalidate cached lookups of the
        // first binding.
        other.inner = vec!["2001:db8:b::/64".parse().unwrap()];
        for _ in 0..2 {
            bench.set_tunnel(other.clone());
            bench.run_on_packet_into_tunnel(&packet_of_new_flow(super::bench::HOME_ADDRESS));
            assert!(is_next_hop_cached(bench, HOST_ADDRESS));
            bench.remove_tunnel(&other);
            bench.run_on_packet_into_tunnel(&packet_of_new_flow(super::bench::HOME_ADDRESS));
            assert!(is_next_hop_cached(bench, HOST_ADDRESS));
        }
        // One of two further bindings has the same version number as the first binding. When this binding
        // changes, the programs look up the first binding once more.
        let mut third = other.clone();
        third.home_address = parse_address("2001:db8:1::4322");
        third.inner = vec!["2001:db8:c::/64".parse().unwrap()];
        let knows_again = |bench: &mut TestBench| {
            assert!(!is_next_hop_cached(bench, HOST_ADDRESS));
            assert_eq!(
                (goes_to(bench, HOST_ADDRESS), goes_to(bench, SECOND_HOST_ADDRESS)),
                (first.clone(), first.clone())
            );
            assert!(is_next_hop_cached(bench, HOST_ADDRESS));
        };
        bench.set_tunnel(other.clone());
        bench.set_tunnel(third.clone());
        knows_again(bench);
        bench.remove_tunnel(&third);
        bench.remove_tunnel(&other);
        knows_again(bench);
        // The mobile router moves to the tunnel over its other care-of address.
        let old = bench.ipv6_tunnel_over_uplink(0, false);
        bench.set_tunnel(old);
        let new = bench.ipv6_tunnel_over_uplink(1, true);
        bench.set_tunnel(new);
        for _ in 0..2 {
            assert_eq!(
                (goes_to(bench, HOST_ADDRESS), goes_to(bench, SECOND_HOST_ADDRESS)),
                (second.clone(), second.clone())
            );
        }
    });
}
