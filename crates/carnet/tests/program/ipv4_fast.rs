//! Tunnels inside IPv4 and UDP on the fast path. In some tests the other end uses the slow path, or a policy
//! balances over two uplinks.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bursts::{STREAM_LENGTH, exchange_tcp_streams, segment_counts, udp_burst_arrives};
use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::ipv4::{
    config_with_identifiers, dual_stack_testbed, first_tunnel, policy_config, put_uplink_behind_nat,
    remove_ipv6, start_with_changed_configs,
};
use crate::offloads::checksum_error_count;
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};

fn config_setter_for_path(path: &str) -> impl Fn(String) -> String {
    let section = format!("\n[dataplane]\npath = '{path}'\n");
    move |config| config + &section
}

/// Returns a testbed whose only uplink has only IPv4, behind a NAT if `udp`. `paths` are the data paths of
/// the home agent and of the router.
fn start_with_ipv4_tunnel(udp: bool, paths: [&str; 2]) -> (Testbed, Option<Host>, Station, Station) {
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let nat = udp.then(|| put_uplink_behind_nat(&bed, 0));
    bed.router.run_ip("link set wwan0 down");
    let (agent, router) =
        start_with_changed_configs(&bed, config_setter_for_path(paths[0]), config_setter_for_path(paths[1]));
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let encapsulation = if udp { "udp" } else { "ipv4" };
    for station in [&agent, &router] {
        wait_until("the tunnel is what it shall be", seconds(10), || {
            first_tunnel(station).0 == encapsulation
        });
    }
    (bed, nat, agent, router)
}

/// Returns the number of packets that took the slow path at either end.
fn slow_path_packets(bed: &Testbed) -> u64 {
    let of = |host| {
        let (out, back) = segment_counts(host);
        out + back
    };
    of(&bed.router) + of(&bed.agent)
}

fn check_bursts_arrive(udp: bool, off: &[&str]) {
    let (bed, _nat, agent, router) = start_with_ipv4_tunnel(udp, ["bpf", "bpf"]);
    for (host, interface) in [(&bed.router, "lan0"), (&bed.router, "wlan0"), (&bed.agent, "ha0")] {
        for feature in off {
            let output = host.run_program(&["ethtool", "-K", interface, feature, "off"]);
            assert!(output.status.success(), "ethtool (Debian package ethtool): {}", output_text(&output));
        }
    }
    assert_eq!(router.show_json("tunnels")[0]["path"], "bpf");
    assert_eq!(agent.show_json("tunnels")[0]["path"], "bpf");
    let count = |name: &str| router.counter(name) + agent.counter(name);
    let before = slow_path_packets(&bed);
    let (encapsulated, decapsulated) = (count("tunnel.encapsulated"), count("tunnel.decapsulated"));
    exchange_tcp_streams(&bed);
    let needed = 2 * (STREAM_LENGTH / 1460) as u64;
    let counted = (count("tunnel.encapsulated") - encapsulated, count("tunnel.decapsulated") - decapsulated);
    let by_slow = slow_path_packets(&bed) - before;
    println!("UDP {udp}: {counted:?} packets in and out of tunnels, {by_slow} of them by the slow path");
    assert!(counted.0 >= needed && counted.1 >= needed, "{counted:?}, expected {needed}");
    assert!(by_slow < needed / 4, "{by_slow} packets took the slow path");
    let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    udp_burst_arrives(&bed.host, inside, &bed.core, outside);
    udp_burst_arrives(&bed.core, outside, &bed.host, inside);
    for host in [&bed.host, &bed.core] {
        assert_eq!(checksum_error_count(host), 0);
    }
    for reason in ["failed", "malformed", "outer_source", "inner_source"] {
        assert_eq!(count(&format!("fast_path.left.{reason}")), 0, "{reason}");
    }
    // Each station reports the packet counts of each tunnel.
    for station in [&agent, &router] {
        let tunnel = &station.show_json("tunnels")[0];
        for name in ["packets_in", "packets_out"] {
            assert!(tunnel[name].as_u64().is_some_and(|number| number > needed / 4), "{tunnel}");
        }
    }
}

#[test]
fn tunnels_in_ipv4_take_the_fast_path() {
    if can_run_or_report() {
        check_bursts_arrive(false, &[]);
    }
}

#[test]
fn tunnels_in_udp_take_the_fast_path() {
    if can_run_or_report() {
        check_bursts_arrive(true, &[]);
    }
}

/// If an interface accepts no super packets or computes no checksums, the kernel segments and computes
/// checksums after the tunnel encapsulation.
#[test]
fn kernel_segments_gso_packets_after_ipv4_tunnel_encapsulation() {
    if !can_run_or_report() {
        return;
    }
    for udp in [false, true] {
        check_bursts_arrive(udp, &["tso", "gso", "tx-udp-segmentation", "tx"]);
    }
}

/// Two stations, one with and one without a fast path, exchange packets. Each accepts the checksums, bursts
/// and super packets of the other.
#[test]
fn a_station_with_a_fast_path_and_one_without_exchange_packets() {
    if !can_run_or_report() {
        return;
    }
    for udp in [false, true] {
        for paths in [["bpf", "tun"], ["tun", "bpf"]] {
            let (bed, _nat, _agent, _router) = start_with_ipv4_tunnel(udp, paths);
            exchange_tcp_streams(&bed);
            let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
            udp_burst_arrives(&bed.host, inside, &bed.core, outside);
            udp_burst_arrives(&bed.core, outside, &bed.host, inside);
            for host in [&bed.host, &bed.core] {
                assert_eq!(checksum_error_count(host), 0, "{paths:?}, UDP {udp}");
            }
        }
    }
}

/// A policy balances several flows over an uplink with IPv6 and an uplink with IPv4 behind a NAT.
#[test]
fn flows_balanced_over_ipv6_and_ipv4_uplinks_take_the_fast_path() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[1]);
    let _nat = put_uplink_behind_nat(&bed, 1);
    let balanced = policy_config("balance", "'wlan0', 'wwan0'").replace("ports = [4242]\n", "");
    let (agent, router) = start_with_changed_configs(&bed, config_setter_for_path("bpf"), |config| {
        config_setter_for_path("bpf")(config_with_identifiers(config)) + &balanced
    });
    wait_until("both are registered", seconds(15), || agent.bindings().len() == 2);
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    // Returns the packets that the router and the home agent have sent, by tunnel.
    let sent = || {
        [&router, &agent].map(|station| {
            let tunnels = station.show_json("tunnels");
            let of = |tunnel: &Value| {
                let end = format!("{} {}", tunnel["encapsulation"], tunnel["local"]);
                (end, tunnel["packets_out"].as_u64().expect("a number"))
            };
            tunnels.as_array().expect("an array").iter().map(of).collect::<BTreeMap<_, _>>()
        })
    };
    let (before, counts) = (slow_path_packets(&bed), sent());
    let sockets = 40;
    let echo = "import socket, sys
s = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in range(40)]
for _ in range(50):
    for each in s:
        each.sendto(b'x' * 100, (sys.argv[1], 9999))";
    let output = bed.host.run_program(&["python3", "-c", echo, CORRESPONDENT]);
    assert!(output.status.success());
    let packets = sockets * 50;
    let grown = || {
        let now = sent();
        let of = |(end, number): (&String, &u64)| number - counts[0].get(end).copied().unwrap_or(0);
        let mut grown: Vec<u64> = now[0].iter().map(of).collect();
        grown.sort_unstable_by(|a, b| b.cmp(a));
        grown
    };
    wait_until("they are counted", seconds(10), || grown().iter().sum::<u64>() >= packets);
    let by_slow = slow_path_packets(&bed) - before;
    let grown = grown();
    println!("{packets} packets: {grown:?} by tunnel, {by_slow} by the slow path");
    assert!(grown[1] > packets / 6, "{grown:?}");
    // The correspondent answers these packets with ICMPv6 errors, but its kernel sends only few of them.
    assert!(by_slow < packets / 4, "{by_slow}");
}
