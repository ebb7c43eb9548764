//! Tests the cached next hops of a home agent's bindings. They must be right for every packet that uses them,
//! and become invalid in time.

use super::bench::{Bench, Did, ip, on_every_bench};
use super::following::{is_sent, stay};
use super::packets::*;
use crate::fast_path::programs::Kind;

/// A second host of the mobile network, besides [`INSIDE`].
const OTHER: &str = "2001:db8:a::42";

/// Returns a packet of a new flow.
fn fresh(destination: &str) -> Vec<u8> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static PORT: AtomicU16 = AtomicU16::new(20000);
    let mut packet = udp(OUTSIDE, destination, 100);
    packet[40..42].copy_from_slice(&PORT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    packet
}

/// Returns whether the programs forward a new flow to a destination without asking the kernel. For this, the
/// test changes the kernel's routes without telling the programs.
fn is_remembered(bench: &mut Bench, destination: &str) -> bool {
    let rule = format!("pref 50 to {destination} lookup 76");
    ip("-6 route replace unreachable default table 76");
    ip(&format!("-6 rule add {rule}"));
    let did = bench.enters(&fresh(destination));
    ip(&format!("-6 rule del {rule}"));
    assert!(is_sent(&did) || did == Did::Left("route"), "{did:?}");
    is_sent(&did)
}

fn is_sent_to(bench: &mut Bench, destination: &str) -> bool {
    is_sent(&bench.enters(&fresh(destination)))
}

/// One packet fills the cache for all flows and hosts of a network, in both directions.
#[test]
fn a_way_is_that_of_all_flows_and_hosts() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        assert!(!is_remembered(bench, INSIDE));
        assert!(is_sent_to(bench, INSIDE));
        assert!(is_remembered(bench, INSIDE) && is_remembered(bench, OTHER));
        // The /64 of the home address contains other addresses that do not belong to the binding.
        let home = super::bench::HOME_ADDRESS;
        assert!(is_sent_to(bench, home) && is_remembered(bench, home));
        assert_eq!(bench.enters(&fresh("2001:db8:1::77")), Did::Left(""));
        // Packets from the home address must come from the binding's care-of address.
        let (from, to) = bench.arriving(0);
        for source in [INSIDE, OTHER, home] {
            for _ in 0..2 {
                assert!(is_sent(&bench.arrives(&within(from, to, &udp(source, OUTSIDE, 50)))));
                let spoofed = within("2001:db8:f1::11", to, &udp(source, OUTSIDE, 50));
                assert_eq!(bench.arrives(&spoofed), Did::Left("outer_source"));
            }
        }
        let stranger = within(from, to, &udp("2001:db8:1::77", OUTSIDE, 50));
        assert_eq!(bench.arrives(&stranger), Did::Left(""));
    });
}

/// A packet from a network caches only the network's binding. At the first packet to the network, the program
/// asks the kernel for the next hop.
#[test]
fn a_way_that_packets_came_by_is_asked_for_before_others_go_there() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        let (from, to) = bench.arriving(0);
        for _ in 0..2 {
            assert!(is_sent(&bench.arrives(&within(from, to, &udp(INSIDE, OUTSIDE, 50)))));
        }
        assert!(!is_remembered(bench, INSIDE));
        assert!(is_sent_to(bench, INSIDE) && is_remembered(bench, INSIDE));
    });
}

/// While a rule uses more than interface and destination, the programs ask the kernel for each flow.
#[test]
fn somebody_elses_rule_ends_ways() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        ip("-6 route add unreachable default table 77");
        for rule in
            ["ipproto udp dport 9", "from 2001:db8:c::9", "tos 0x10", "fwmark 7", "not to 2001:db8::/32"]
        {
            assert!(is_sent_to(bench, INSIDE) && is_remembered(bench, INSIDE), "before {rule}");
            ip(&format!("-6 rule add pref 60 {rule} lookup 77"));
            bench.forget();
            assert!(is_sent_to(bench, INSIDE), "{rule}");
            assert!(!is_remembered(bench, INSIDE), "{rule}");
            ip(&format!("-6 rule del pref 60 {rule} lookup 77"));
            bench.forget();
            assert!(!is_remembered(bench, INSIDE), "after {rule}");
        }
        // These rules match only packets from the tunnel device, or packets to another network.
        for rule in ["iif carnet0 from 2001:db8:a::9", "to 2001:db8:b::/64"] {
            ip(&format!("-6 rule add pref 60 {rule} lookup 77"));
            bench.forget();
            assert!(is_sent_to(bench, INSIDE) && is_remembered(bench, INSIDE), "{rule}");
            ip(&format!("-6 rule del pref 60 {rule} lookup 77"));
            bench.forget();
        }
    });
}

/// The kernel applies a rule about inner sources to each packet that leaves the tunnel, because the sources
/// of packets differ.
#[test]
fn a_rule_about_sources_inside_holds() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        let (from, to) = bench.arriving(0);
        ip("-6 route add unreachable default table 77");
        for _ in 0..2 {
            assert!(is_sent(&bench.arrives(&within(from, to, &udp(INSIDE, OUTSIDE, 50)))));
            assert!(is_sent(&bench.arrives(&within(from, to, &udp(OTHER, OUTSIDE, 50)))));
            ip(&format!("-6 rule add pref 60 iif carnet0 from {OTHER} lookup 77"));
            bench.forget();
            for _ in 0..2 {
                assert!(is_sent(&bench.arrives(&within(from, to, &udp(INSIDE, OUTSIDE, 50)))));
                let packet = within(from, to, &udp(OTHER, OUTSIDE, 50));
                assert_eq!(bench.arrives(&packet), Did::Left("route"));
            }
            ip(&format!("-6 rule del pref 60 iif carnet0 from {OTHER} lookup 77"));
            bench.forget();
        }
    });
}

/// Tests a longer route inside a binding's prefix, and a route of equal length with a better metric.
#[test]
fn somebody_elses_route_inside_a_prefix_holds() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        for (route, leads_away) in [
            ("unreachable 2001:db8:a::42/128", true),
            ("2001:db8:a::40/122 via 2001:db8:f0::1 dev ha0", true),
            ("2001:db8:a::/64 via 2001:db8:f0::1 dev ha0 metric 1", true),
            ("2001:db8:a::/65 dev carnet0", false),
        ] {
            let all = route.contains("/64");
            assert!(is_sent_to(bench, INSIDE) && is_sent_to(bench, OTHER), "before {route}");
            ip(&format!("-6 route add {route}"));
            bench.forget();
            for _ in 0..2 {
                assert_eq!(is_sent_to(bench, INSIDE), !all, "{route}");
                assert_eq!(is_sent_to(bench, OTHER), !leads_away, "{route}");
            }
            // An address that the new route does not lead away still gets a cached next hop.
            assert_eq!(is_remembered(bench, INSIDE), !all, "{route}");
            ip(&format!("-6 route del {route}"));
            bench.forget();
            for host in [INSIDE, OTHER] {
                assert!(is_sent_to(bench, host) && is_remembered(bench, host), "after {route}");
            }
        }
    });
}

/// Tests routes with several next hops, among which flows are distributed, and routes for certain sources.
#[test]
fn forks_end_ways() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        ip("-6 neigh add 2001:db8:f0::9 lladdr 02:00:00:00:04:09 dev ha0");
        for route in [
            "2001:db8:f1::/64 nexthop via 2001:db8:f0::1 dev ha0 nexthop via 2001:db8:f0::9 dev ha0",
            "2001:db8:f1::/64 from 2001:db8:1::/64 via 2001:db8:f0::9 dev ha0",
        ] {
            assert!(is_sent_to(bench, INSIDE) && is_remembered(bench, INSIDE), "before {route}");
            ip(&format!("-6 route add {route}"));
            bench.forget();
            assert!(is_sent_to(bench, INSIDE) && !is_remembered(bench, INSIDE), "{route}");
            ip(&format!("-6 route del {route}"));
            bench.forget();
            assert!(is_sent_to(bench, INSIDE) && is_remembered(bench, INSIDE), "after {route}");
        }
    });
}

/// If a neighbour gets another link-layer address, one lookup in the kernel updates all cached next hops.
#[test]
fn a_neighbour_that_moves() {
    on_every_bench(|bench| {
        if bench.routing.is_none() || bench.kind == Kind::Tc {
            return;
        }
        stay();
        let home = super::bench::HOME_ADDRESS;
        assert!(is_sent_to(bench, INSIDE) && is_sent_to(bench, home));
        ip("-6 neigh replace 2001:db8:f0::1 lladdr 02:00:00:00:04:77 dev ha0");
        bench.programs.forget_flows().unwrap();
        let goes_to = |bench: &mut Bench, host: &str| match bench.enters(&fresh(host)) {
            Did::Sent(frame) => frame[5],
            Did::Left(why) => panic!("left to the slow path: {why}"),
        };
        assert!(!is_remembered(bench, INSIDE));
        assert_eq!(goes_to(bench, INSIDE), 0x77);
        assert!(is_remembered(bench, home));
        assert_eq!(goes_to(bench, home), 0x77);
        ip("-6 neigh del 2001:db8:f0::1 dev ha0");
        bench.programs.forget_flows().unwrap();
        for host in [INSIDE, home, OTHER] {
            assert_eq!(bench.enters(&fresh(host)), Did::Left("neighbour"));
        }
    });
}

/// Tests a handover of one binding, and at once a new binding whose longer prefix lies inside a prefix of the
/// first.
#[test]
fn changes_of_bindings_end_ways() {
    on_every_bench(|bench| {
        if bench.routing.is_none() {
            return;
        }
        stay();
        assert!(is_sent_to(bench, INSIDE) && is_sent_to(bench, OTHER));
        let mut other = bench.tunnel(1, true);
        other.home_address = address("2001:db8:1::4321");
        other.inner = vec!["2001:db8:a::42/128".parse().unwrap()];
        bench.set(other.clone());
        let goes_to = |bench: &mut Bench, host: &str| match bench.enters(&fresh(host)) {
            Did::Sent(frame) => frame[38..54].to_vec(),
            Did::Left(why) => panic!("left to the slow path: {why}"),
        };
        let [first, second] = super::bench::CARE_OF.map(|text| address(text).octets().to_vec());
        for _ in 0..2 {
            assert_eq!((goes_to(bench, INSIDE), goes_to(bench, OTHER)), (first.clone(), second.clone()));
        }
        bench.remove(&other);
        for _ in 0..2 {
            assert_eq!((goes_to(bench, INSIDE), goes_to(bench, OTHER)), (first.clone(), first.clone()));
        }
        // Adding and removing an unrelated binding invalidates no cached lookups of the first binding.
        other.inner = vec!["2001:db8:b::/64".parse().unwrap()];
        for _ in 0..2 {
            bench.set(other.clone());
            bench.enters(&fresh(super::bench::HOME_ADDRESS));
            assert!(is_remembered(bench, INSIDE));
            bench.remove(&other);
            bench.enters(&fresh(super::bench::HOME_ADDRESS));
            assert!(is_remembered(bench, INSIDE));
        }
        // One of two further bindings shares the version number of the first binding. When it changes, the
        // programs look up the first binding's next hop once more.
        let mut third = other.clone();
        third.home_address = address("2001:db8:1::4322");
        third.inner = vec!["2001:db8:c::/64".parse().unwrap()];
        let knows_again = |bench: &mut Bench| {
            assert!(!is_remembered(bench, INSIDE));
            assert_eq!((goes_to(bench, INSIDE), goes_to(bench, OTHER)), (first.clone(), first.clone()));
            assert!(is_remembered(bench, INSIDE));
        };
        bench.set(other.clone());
        bench.set(third.clone());
        knows_again(bench);
        bench.remove(&third);
        bench.remove(&other);
        knows_again(bench);
        // The mobile router moves to the tunnel over its other care-of address.
        let old = bench.tunnel(0, false);
        bench.set(old);
        let new = bench.tunnel(1, true);
        bench.set(new);
        for _ in 0..2 {
            assert_eq!((goes_to(bench, INSIDE), goes_to(bench, OTHER)), (second.clone(), second.clone()));
        }
    });
}
