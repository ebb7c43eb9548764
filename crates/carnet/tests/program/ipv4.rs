//! Networks that have only IPv4, with and without a NAT, several uplinks at once, and policies.
//!
//! The testbed's links have IPv4 beside IPv6, or instead of IPv6. The first uplink is in 192.0.2.0/24, the
//! second in 203.0.113.0/24. The home agent is 198.51.100.2 in 198.51.100.0/24.

use std::fs;
use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::station::{Station, run_carnet};
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, config_with_station_line,
    parse_address,
};
use crate::traffic::PacketSniffer;

/// First three octets of the core's network on each uplink.
const VISITED_NETWORKS: [&str; 2] = ["192.0.2", "203.0.113"];
const UPLINK_LINKS: [(&str, &str); 2] = [("wlan", "wlan0"), ("wwan", "wwan0")];

/// Returns the testbed with IPv4 on all outer links.
pub fn dual_stack_testbed() -> Testbed {
    let bed = Testbed::new();
    enable_forwarding(&bed.core);
    bed.core.run_ip("addr add 198.51.100.1/24 dev ha");
    bed.agent.run_ip("addr add 198.51.100.2/24 dev ha0");
    bed.agent.run_ip("route add default via 198.51.100.1");
    for number in 0..2 {
        let ((far, near), net) = (UPLINK_LINKS[number], VISITED_NETWORKS[number]);
        bed.core.run_ip(&format!("addr add {net}.1/24 dev {far}"));
        bed.router.run_ip(&format!("addr add {net}.10/24 dev {near}"));
        bed.router.run_ip(&format!("route add default via {net}.1 dev {near} metric {}", 100 * (number + 1)));
    }
    bed
}

/// Removes IPv6 from uplinks.
pub fn remove_ipv6(bed: &Testbed, uplinks: &[usize]) {
    for number in uplinks {
        let (far, near) = UPLINK_LINKS[*number];
        bed.router.run_ip(&format!("-6 addr flush dev {near} scope global"));
        bed.core.run_ip(&format!("-6 addr flush dev {far} scope global"));
        bed.router.run_ip(&format!("-6 route flush dev {near} default"));
    }
}

fn enable_forwarding(host: &Host) {
    host.run_in_namespace(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a switch"));
}

pub fn load_nft_rules(host: &Host, rules: &[&str]) {
    for rule in rules {
        let words: Vec<&str> = ["nft"].into_iter().chain(rule.split(' ')).collect();
        let output = host.run_program(&words);
        assert!(output.status.success(), "nft {rule}: {}", output_text(&output));
    }
}

/// Adds a NAT between an uplink and the core. Behind it the router has the address 10.0.0.10.
pub fn put_uplink_behind_nat(bed: &Testbed, number: usize) -> Host {
    let ((far, near), net) = (UPLINK_LINKS[number], VISITED_NETWORKS[number]);
    let nat = Host::new();
    enable_forwarding(&nat);
    bed.core.run_ip(&format!("link del {far}"));
    bed.core.create_link(far, &nat, "out");
    nat.create_link("in", &bed.router, near);
    bed.core.run_ip(&format!("addr add {net}.1/24 dev {far}"));
    nat.run_ip(&format!("addr add {net}.77/24 dev out"));
    nat.run_ip(&format!("route add default via {net}.1"));
    nat.run_ip("addr add 10.0.0.1/24 dev in");
    bed.router.run_ip(&format!("addr add 10.0.0.10/24 dev {near}"));
    bed.router.run_ip(&format!("route add default via 10.0.0.1 dev {near} metric {}", 100 * (number + 1)));
    load_nft_rules(
        &nat,
        &[
            "add table ip nat",
            "add chain ip nat post { type nat hook postrouting priority 100 ; }",
            "add rule ip nat post oifname out masquerade random",
        ],
    );
    nat
}

fn start_with_changed_router_config(bed: &Testbed, adapt: impl Fn(String) -> String) -> (Station, Station) {
    start_with_changed_configs(bed, |config| config, adapt)
}

/// Starts the home agent and the mobile router. `of_agent` and `of_router` change their configs first.
pub fn start_with_changed_configs(
    bed: &Testbed,
    of_agent: impl Fn(String) -> String,
    of_router: impl Fn(String) -> String,
) -> (Station, Station) {
    let address = format!("address = '{HOME_AGENT_ADDRESS}'\n");
    let config = bed.agent_config().replace(&address, &format!("{address}ipv4_address = '198.51.100.2'\n"));
    let agent = Station::start(&bed.agent, &of_agent(config));
    let router = Station::start(&bed.router, &of_router(router_config_with_ipv4_agent(bed)));
    router.wait_until_registered();
    (agent, router)
}

/// Returns the config of a mobile router with its home agent's IPv4 address.
fn router_config_with_ipv4_agent(bed: &Testbed) -> String {
    let home_agent = format!("home_agent = '{HOME_AGENT_ADDRESS}'\n");
    bed.router_config().replace(&home_agent, &format!("{home_agent}home_agent_ipv4 = '198.51.100.2'\n"))
}

/// Adds a Binding Identifier for each uplink to a router's config.
pub fn config_with_identifiers(config: String) -> String {
    config
        .replace("priority = 10\n", "priority = 10\nbid = 1\n")
        .replace("priority = 20\n", "priority = 20\nbid = 2\n")
}

/// Returns the transmitting tunnels of a station: encapsulation, remote end, and the port of the remote end.
fn tunnels_of(station: &Station) -> Vec<(String, String, Option<u64>)> {
    let tunnels = station.show_json("tunnels");
    let of = |tunnel: &Value| {
        let text = |name: &str| tunnel[name].as_str().unwrap_or_default().to_owned();
        (text("encapsulation"), text("remote"), tunnel["remote_port"].as_u64())
    };
    tunnels.as_array().expect("an array").iter().map(of).collect()
}

pub fn first_tunnel(station: &Station) -> (String, String, Option<u64>) {
    tunnels_of(station).into_iter().next().unwrap_or_default()
}

/// Checks that datagrams of every size pass in both directions with all their octets.
fn check_packet_sizes_pass(bed: &Testbed) {
    for (from, to, destination) in
        [(&bed.host, &bed.core, CORRESPONDENT), (&bed.core, &bed.host, ON_BOARD_HOST)]
    {
        let socket = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
        let (sender, receiver) = (from.run_in_namespace(socket), to.run_in_namespace(socket));
        let port = receiver.local_addr().expect("bound").port();
        receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        for length in [1, 100, 1232, 1400, 1452] {
            wait_until(&format!("a datagram of {length} octets arrives"), seconds(20), || {
                // After a Packet Too Big the kernel refuses one datagram, so ignore this error.
                let _ = sender.send_to(&vec![7; length], (parse_address(destination), port));
                receiver.recv(&mut [0; 2000]).is_ok_and(|found| found == length)
            });
        }
    }
}

#[test]
fn ipv4_uplink_alone_connects_the_mobile_network() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    // Some distributions set the reverse path filter to 1. If carnet did not change this setting, the second
    // uplink would receive nothing.
    bed.router
        .run_in_namespace(|| fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("a switch"));
    let recording = bed.scratch.path_of("router.jsonl");
    let record = format!("record = '{}'", recording.display());
    // A recording does not contain packets of a fast path, so the recorded station uses the slow path.
    let (mut agent, mut router) = start_with_changed_router_config(&bed, |config| {
        config_with_station_line(&config, &record) + "\n[dataplane]\npath = 'tun'\n"
    });
    let echo = bed.start_echo(100);
    echo.wait_for_further_answers();
    // There is a path without NAT, so the tunnel is IPv6 in IPv4 without UDP.
    assert_eq!(first_tunnel(&router), ("ipv4".into(), "198.51.100.2".into(), None));
    assert_eq!(first_tunnel(&agent), ("ipv4".into(), "192.0.2.10".into(), None));
    check_packet_sizes_pass(&bed);
    // The router moves to the second uplink and back.
    for uplink in ["wwan0", "wlan0"] {
        let output = router.run_command(&["handover", uplink]);
        assert!(output.status.success(), "{}", output_text(&output));
        let net = if uplink == "wwan0" { "203.0.113.10" } else { "192.0.2.10" };
        wait_until("the agent knows", seconds(10), || first_tunnel(&agent).1 == net);
        echo.wait_for_further_answers();
    }
    let report = echo.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    router.terminate();
    agent.terminate();

    // The recording has the packets that the sockets received. The replay must return the packets that the
    // sockets sent.
    let (config, recording) =
        (router.config_file.to_str().expect("a path"), recording.to_str().expect("a path"));
    let replayed = run_carnet(&["replay", "--config", config, recording]);
    assert!(replayed.status.success(), "{}", output_text(&replayed));
    let count = |what: &str| {
        let outputs = String::from_utf8_lossy(&replayed.stdout).into_owned();
        outputs.lines().filter(|line| line.contains(&format!("\"output\":{{\"{what}\":"))).count() as u64
    };
    assert!(
        count("encapsulated") >= report.sent_packets,
        "{} of {}",
        count("encapsulated"),
        report.sent_packets
    );
    assert!(count("packet") >= report.sent_packets, "{} of {}", count("packet"), report.sent_packets);
}

#[test]
fn tunnel_behind_nat_uses_udp() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let nat = put_uplink_behind_nat(&bed, 0);
    bed.router.run_ip("link set wwan0 down");
    let (agent, router) = start_with_changed_router_config(&bed, |config| config);
    let echo = bed.start_echo(100);
    echo.wait_for_further_answers();
    assert_eq!(first_tunnel(&router), ("udp".into(), "198.51.100.2".into(), Some(4191)));
    let (encapsulation, remote, port) = first_tunnel(&agent);
    assert_eq!((encapsulation.as_str(), remote.as_str()), ("udp", "192.0.2.77"));
    assert!(port.is_some_and(|port| port != 4191), "the NAT's port: {port:?}");
    check_packet_sizes_pass(&bed);
    assert_eq!(echo.stop().lost_packets, 0);
    assert_eq!(agent.counter("tunnel.dropped.inner_source"), 0);
    // A packet to the UDP port that matches no binding must increase this counter.
    let before = agent.counter("tunnel.dropped.outer_source");
    bed.core.run_in_namespace(|| {
        let stranger = UdpSocket::bind("198.51.100.1:0").expect("a socket");
        let inner = [&[0x60, 0, 0, 0, 0, 8, 59, 64][..], &[0x20, 1, 0xd, 0xb8, 0, 0xa], &[0; 10]].concat();
        let inner = [&inner[..], &parse_address(CORRESPONDENT).octets(), &[0; 8]].concat();
        stranger.send_to(&inner, "198.51.100.2:4191").expect("sent");
    });
    wait_until("a stranger's packet is dropped", seconds(5), || {
        agent.counter("tunnel.dropped.outer_source") > before
    });
    drop(nat);
}

#[test]
fn path_mtu_of_udp_tunnel_is_found() {
    if !can_run_or_report() {
        return;
    }
    check_narrow_udp_tunnel(1400);
}

/// A packet of 1280 octets does not fit the path, so the outer packets are fragmented.
#[test]
fn udp_tunnel_carries_ipv6_over_path_below_1280_octets() {
    if !can_run_or_report() {
        return;
    }
    check_narrow_udp_tunnel(1280);
}

fn check_narrow_udp_tunnel(limit: u64) {
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let nat = put_uplink_behind_nat(&bed, 0);
    bed.router.run_ip("link set wwan0 down");
    // The narrow link is behind the NAT, where neither end of the tunnel sees it.
    for (host, interface) in [(&nat, "out"), (&bed.core, "wlan")] {
        host.run_ip(&format!("link set {interface} mtu {limit}"));
    }
    let (agent, router) = start_with_changed_router_config(&bed, |config| config);
    let echo = bed.start_echo(50);
    echo.wait_for_further_answers();
    let mtu = |station: &Station| station.show_json("tunnels")[0]["mtu"].as_u64();
    wait_until("both ends have found the path MTU", seconds(20), || {
        (mtu(&agent), mtu(&router)) == (Some(limit - 28), Some(limit - 28))
    });
    check_packet_sizes_pass(&bed);
    assert_eq!(echo.stop().lost_packets, 0);
}

#[test]
fn router_registers_two_ipv4_uplinks_together() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[1]);
    let (agent, router) = start_with_changed_router_config(&bed, config_with_identifiers);
    wait_until("both are registered", seconds(10), || agent.bindings().len() == 2);
    let echo = bed.start_echo(200);
    echo.wait_for_further_answers();
    assert_eq!(first_tunnel(&router).0, "ipv6");
    // The preferred uplink loses its carrier. The second uplink is registered already.
    bed.core.run_ip("link set wlan down");
    wait_until("the other carries the packets", seconds(10), || first_tunnel(&router).0 == "ipv4");
    echo.wait_for_further_answers();
    let report = echo.stop();
    assert!(
        report.longest_silence < Duration::from_millis(300) + 2 * report.longest_send_stall,
        "{report:?}"
    );
}

/// Two modems of one model: each is a NAT, and both give the router the same address.
#[test]
fn two_uplinks_with_equal_private_address_both_work() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "tun"] {
        let bed = dual_stack_testbed();
        remove_ipv6(&bed, &[0, 1]);
        let _nats = [put_uplink_behind_nat(&bed, 0), put_uplink_behind_nat(&bed, 1)];
        let section = format!("\n[dataplane]\npath = '{path}'\n");
        let (agent, router) = start_with_changed_configs(
            &bed,
            |config| config + &section,
            |config| config_with_identifiers(config) + &section,
        );
        wait_until("both are registered", seconds(15), || agent.bindings().len() == 2);
        let mut ends: Vec<String> =
            tunnels_of(&agent).into_iter().map(|(kind, end, _)| format!("{kind} {end}")).collect();
        ends.sort();
        ends.dedup();
        assert_eq!(ends, ["udp 192.0.2.77", "udp 203.0.113.77"]);
        let echo = bed.start_echo(200);
        echo.wait_for_further_answers();
        // Each uplink must carry the traffic alone. The first uplink returns before the second one fails.
        for (far, net) in [("wlan", "203.0.113.77"), ("wwan", "192.0.2.77")] {
            bed.core.run_ip(&format!("link set {far} down"));
            wait_until("the other carries the packets", seconds(20), || {
                echo.wait_for_further_answers();
                first_tunnel(&agent).1 == net
            });
            bed.core.run_ip(&format!("link set {far} up"));
            wait_until("both are registered again", seconds(30), || agent.bindings().len() == 2);
        }
        echo.wait_for_further_answers();
        echo.stop();
        for station in [&agent, &router] {
            assert_eq!(station.counter("tunnel.dropped.inner_source"), 0);
        }
    }
}

/// ConnMan 1.41 (`src/connection.c`) gives each service a route to its gateway, but only one service the IPv4
/// default route. When that service loses its carrier, ConnMan moves the default route to the other service.
/// When the preferred service returns, the default route stays where it is.
#[test]
fn returning_preferred_uplink_without_default_route_is_used_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let (gateway_of, near) =
        (|number: usize| format!("{}.1", VISITED_NETWORKS[number]), |number: usize| UPLINK_LINKS[number].1);
    let gain = |number: usize| {
        bed.router.run_ip(&format!("addr replace {}.10/24 dev {}", VISITED_NETWORKS[number], near(number)));
        bed.router.run_ip(&format!("route replace {} dev {} scope link", gateway_of(number), near(number)));
    };
    let give_default = |number| {
        bed.router.run_ip(&format!("route add default via {} dev {}", gateway_of(number), near(number)))
    };
    for number in 0..2 {
        bed.router.run_ip(&format!("route del default dev {}", near(number)));
        gain(number);
    }
    give_default(0);
    let before = bed.router.kernel_state();
    let (_agent, mut router) = {
        let (agent, router) = start_with_changed_router_config(&bed, config_with_identifiers);
        wait_until("both are registered", seconds(20), || agent.bindings().len() == 2);
        let echo = bed.start_echo(100);
        echo.wait_for_further_answers();
        assert_eq!(first_tunnel(&agent).1, "192.0.2.10");
        // ConnMan's preferred service loses its carrier.
        bed.core.run_ip("link set wlan down");
        wait_until("the other carries the packets", seconds(20), || first_tunnel(&agent).1 == "203.0.113.10");
        bed.router.run_ip("route del default dev wlan0");
        bed.router.run_ip("addr flush dev wlan0");
        give_default(1);
        echo.wait_for_further_answers();
        // The preferred service returns, without the default route.
        bed.core.run_ip("link set wlan up");
        gain(0);
        wait_until("the preferred uplink carries the packets again", seconds(20), || {
            first_tunnel(&agent).1 == "192.0.2.10"
        });
        echo.wait_for_further_answers();
        let report = echo.stop();
        assert!(
            report.longest_silence < Duration::from_millis(500) + 2 * report.longest_send_stall,
            "{report:?}"
        );
        (agent, router)
    };
    let default = bed.router.run_ip("-4 route show default");
    assert_eq!(default.trim_end(), "default via 203.0.113.1 dev wwan0", "ConnMan's routes are ConnMan's");
    // After the stations have ended, carnet must have left no entry on the host.
    bed.router.run_ip("route del default");
    give_default(0);
    router.terminate();
    let ipv4 = |text: &str| {
        text.split_once("== IPv4").and_then(|(_, rest)| rest.split_once("== link")).map(|it| it.0.to_owned())
    };
    assert_eq!(ipv4(&bed.router.kernel_state()), ipv4(&before));
}

/// Returns a policy for the packets of the echo traffic.
pub fn policy_config(action: &str, uplinks: &str) -> String {
    format!(
        "\n[[mobile_router.policy]]\nname = 'probe'\nprotocol = 'udp'\nports = [4242]\naction = '{action}'\n\
         uplinks = [{uplinks}]\n"
    )
}

#[test]
fn duplicated_traffic_loses_no_packet_when_uplink_fails() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    // One uplink has IPv6; the other has only IPv4, behind a NAT.
    remove_ipv6(&bed, &[1]);
    let _nat = put_uplink_behind_nat(&bed, 1);
    let (mut agent, mut router) = start_with_changed_router_config(&bed, |config| {
        config_with_identifiers(config) + &policy_config("duplicate", "'wlan0', 'wwan0'")
    });
    let ready = |count: u64| {
        wait_until("both are registered", seconds(15), || agent.bindings().len() == 2);
        for station in [&agent, &router] {
            let before = station.counter("tunnel.duplicated");
            wait_until("copies go out", seconds(15), || {
                station.counter("tunnel.duplicated") > before + count
            });
        }
    };
    let echo = bed.start_echo(500);
    ready(20);
    // The uplink loses its carrier, and then gets the carrier back.
    bed.core.run_ip("link set wlan down");
    std::thread::sleep(seconds(1));
    bed.core.run_ip("link set wlan up");
    ready(20);
    // The second uplink drops all packets in both directions, without any sign.
    load_nft_rules(
        &bed.core,
        &[
            "add table ip hole",
            "add chain ip hole in { type filter hook prerouting priority 0 ; }",
            "add rule ip hole in iifname wwan drop",
            "add chain ip hole out { type filter hook postrouting priority 0 ; }",
            "add rule ip hole out oifname wwan drop",
        ],
    );
    std::thread::sleep(seconds(3));
    load_nft_rules(&bed.core, &["delete table ip hole"]);
    ready(20);
    let report = echo.stop();
    assert_eq!((report.lost_packets, report.sent_packets > 1000), (0, true), "{report:?}");
    for station in [&agent, &router] {
        assert!(station.counter("tunnel.dropped.duplicate") > 100, "copies are sorted out");
        assert_eq!(station.counter("tunnel.late"), 0);
    }
    router.terminate();
    agent.terminate();
}

#[test]
fn a_policy_directs_only_the_packets_that_it_selects() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    let (agent, router) = start_with_changed_router_config(&bed, |config| {
        config_with_identifiers(config) + &policy_config("failover", "'wwan0', 'wlan0'")
    });
    wait_until("both are registered", seconds(10), || agent.bindings().len() == 2);
    let echo = bed.start_echo(100);
    echo.wait_for_further_answers();
    let sniffer = PacketSniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
    assert!(bed.host.can_ping(CORRESPONDENT));
    echo.wait_for_further_answers();
    let heard = sniffer.stop();
    // Counts packets with the care-of address as outer source or destination that contain UDP or an echo.
    let count = |care_of: &str, at: usize, protocol: u8| {
        let care_of = parse_address(care_of).octets();
        let inside = |packet: &&Vec<u8>| {
            packet.len() >= 88 && packet[6] == 41 && packet[at..at + 16] == care_of && packet[46] == protocol
        };
        // Ignore the signalling between the two stations.
        let mobile = |packet: &&Vec<u8>| {
            [&packet[48..56], &packet[64..72]].contains(&&parse_address(ON_BOARD_HOST).octets()[..8])
        };
        heard.iter().filter(inside).filter(mobile).count()
    };
    for at in [8, 24] {
        assert!(
            count(CARE_OF_ADDRESSES[1], at, 17) > 0 && count(CARE_OF_ADDRESSES[0], at, 17) == 0,
            "UDP, {at}"
        );
        assert!(
            count(CARE_OF_ADDRESSES[0], at, 58) > 0 && count(CARE_OF_ADDRESSES[1], at, 58) == 0,
            "ICMPv6, {at}"
        );
    }
    // The uplink that the policy selects goes down. The policy's packets then take the uplink of all other
    // packets.
    bed.core.run_ip("link set wwan down");
    wait_until("the router knows", seconds(10), || {
        let uplinks = router.show_json("uplinks");
        let down = |uplink: &Value| uplink["state"].as_str().is_some_and(|state| state.starts_with("down"));
        uplinks.as_array().expect("an array").iter().filter(|uplink| down(uplink)).count() == 1
    });
    echo.wait_for_further_answers();
    assert_eq!(router.counter("tunnel.duplicated"), 0);
    echo.stop();
}

/// A router without a state directory is killed and started several times. An attacker who has recorded the
/// first Binding Update replays it, octet for octet, from another socket. The binding must keep its care-of
/// address (RFC 6275 15.3).
#[test]
fn a_replayed_binding_update_from_before_a_restart_changes_no_binding() {
    const SERVER_PORT: u16 = 4191;
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let directory = format!("state_dir = '{}'", bed.scratch.path_of("state").display());
    let sniffer = PacketSniffer::start_for(&bed.core, &["wlan"], 4);
    let (agent, mut router) = start_with_changed_configs(
        &bed,
        |config| config_with_station_line(&config, &directory),
        |config| config,
    );
    // Returns the payload of the first captured UDP datagram to the home agent with a Binding Update
    // (Mobility Header type 5) inside IPv6; `None` for other packets.
    let payload = |packet: &Vec<u8>| -> Option<Vec<u8>> {
        let udp = packet.get(20..).filter(|_| packet[0] == 0x45 && packet[9] == 17)?;
        let (to, inner) = (u16::from_be_bytes([udp[2], udp[3]]), udp.get(8..)?);
        (to == SERVER_PORT && inner.get(6) == Some(&135) && inner.get(42) == Some(&5)).then(|| inner.to_vec())
    };
    let recorded = sniffer.stop().iter().find_map(payload).expect("a Binding Update in UDP");
    let sequence = || {
        let bindings = agent.show_json("bindings");
        let text = |name: &str| bindings[0][name].as_str().unwrap_or_default().to_owned();
        let number = bindings[0]["sequence"].as_u64().and_then(|number| u16::try_from(number).ok());
        (text("care_of_address"), bindings[0]["udp_port"].as_u64(), number)
    };
    let (care_of_address, _, first) = sequence();
    let first = first.expect("a number");
    let stranger = bed.core.run_in_namespace(|| UdpSocket::bind("198.51.100.1:5555").expect("a socket"));
    let refusals =
        || agent.counter("mobility.dropped.sequence") + agent.counter("mobility.dropped.rate_limited");
    for start in 1..=6 {
        router.end_by_signal(Signal::SIGKILL);
        router = Station::start(&bed.router, &router_config_with_ipv4_agent(&bed));
        router.wait_until_registered();
        let known = refusals();
        wait_until("the home agent refuses the recording", seconds(20), || {
            stranger.send_to(&recorded, ("198.51.100.2", SERVER_PORT)).expect("it is sent");
            refusals() > known
        });
        let (there, port, last) = sequence();
        assert!((&there, port == Some(5555)) == (&care_of_address, false), "start {start}: {there} {port:?}");
        // Sequence numbers of a router without stored state advance with the minutes of the clock, and with
        // each update.
        let used = last.expect("a number").wrapping_sub(first);
        assert!(used < 1000, "start {start}: {used} numbers");
    }
}
