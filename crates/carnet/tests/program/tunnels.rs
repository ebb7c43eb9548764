//! On every data path, each end checks the packets that leave a tunnel, and finds the MTU of a narrow path.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{Host, assert_same_state, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, parse_address,
};
use crate::traffic::{PacketSniffer, RawSender};

/// Returns an IPv6 packet.
fn ipv6_packet(source: &str, destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a small packet").to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], next_header, 64];
    packet.extend(parse_address(source).octets());
    packet.extend(parse_address(destination).octets());
    packet.extend(payload);
    packet
}

/// A UDP header without data and with checksum 0, which is invalid in IPv6; routers forward it anyway.
const TEST_DATAGRAM: [u8; 8] = [0x10, 0x92, 0x10, 0x92, 0, 8, 0, 0];

/// Counts the UDP packets from one address to another.
fn count_datagrams(packets: &[Vec<u8>], source: &str, destination: &str) -> usize {
    let ends = [parse_address(source).octets(), parse_address(destination).octets()].concat();
    packets.iter().filter(|p| p.get(6) == Some(&17) && p.get(8..40) == Some(&ends[..])).count()
}

#[test]
fn both_ends_of_a_tunnel_check_the_source_of_its_packets() {
    if !can_run_or_report() {
        return;
    }
    const STRANGER_ADDRESS: &str = "2001:db8:bad::5";
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let cannon = RawSender::new(&bed.core);
    let shoot = |outer: [&str; 2], inner: [&str; 2]| {
        let inner = ipv6_packet(inner[0], inner[1], 17, &TEST_DATAGRAM);
        assert!(cannon.send_packet(&ipv6_packet(outer[0], outer[1], 41, &inner), parse_address(outer[1]), 0));
    };

    // The home agent (RFC 6275 10.4.5, RFC 3963 9) accepts only packets whose outer source is the care-of
    // address. Their inner source must belong to the binding.
    let heard = PacketSniffer::start(&bed.core, &["ha"]);
    shoot([CARE_OF_ADDRESSES[0], HOME_AGENT_ADDRESS], [STRANGER_ADDRESS, CORRESPONDENT]);
    shoot([CARE_OF_ADDRESSES[1], HOME_AGENT_ADDRESS], [ON_BOARD_HOST, CORRESPONDENT]);
    shoot([CARE_OF_ADDRESSES[0], HOME_AGENT_ADDRESS], ["fe80::1", "ff02::1"]);
    // A node without a binding gets an ICMPv6 error, because a Binding Error answers only Home Address
    // options (RFC 6275 9.3.3).
    shoot([CORRESPONDENT, HOME_AGENT_ADDRESS], [HOME_ADDRESS, CORRESPONDENT]);
    shoot([CARE_OF_ADDRESSES[0], HOME_AGENT_ADDRESS], [HOME_ADDRESS, CORRESPONDENT]);
    wait_until("what is right passes", seconds(5), || {
        count_datagrams(&heard.seen_packets(), HOME_ADDRESS, CORRESPONDENT) > 0
    });
    let to_correspondent = |next_header: u8| {
        let ends =
            [parse_address(HOME_AGENT_ADDRESS).octets(), parse_address(CORRESPONDENT).octets()].concat();
        let heard = heard.seen_packets();
        heard.iter().filter(|p| p.get(6) == Some(&next_header) && p.get(8..40) == Some(&ends[..])).count()
    };
    wait_until("an ICMPv6 error", seconds(5), || to_correspondent(58) > 0);
    assert_eq!(to_correspondent(135), 0, "a Binding Error");
    let heard = heard.stop();
    assert_eq!(count_datagrams(&heard, HOME_ADDRESS, CORRESPONDENT), 1, "somebody else's tunnel");
    assert_eq!(count_datagrams(&heard, STRANGER_ADDRESS, CORRESPONDENT), 0, "a stranger in the tunnel");
    assert_eq!(count_datagrams(&heard, ON_BOARD_HOST, CORRESPONDENT), 0, "from another care-of address");

    // The mobile router accepts only packets from the home agent to a destination in the mobile network.
    let outside = PacketSniffer::start(&bed.core, &["wlan", "wwan"]);
    let inside = PacketSniffer::start(&bed.host, &["eth0"]);
    shoot([HOME_AGENT_ADDRESS, CARE_OF_ADDRESSES[0]], [STRANGER_ADDRESS, "2001:db8:c::99"]);
    shoot([STRANGER_ADDRESS, CARE_OF_ADDRESSES[0]], [STRANGER_ADDRESS, ON_BOARD_HOST]);
    // Reserved addresses are no valid sources. The prefixes of NAT64 are near these addresses but not
    // reserved.
    const RESERVED_ADDRESSES: [&str; 4] = ["::ffff:10.0.0.1", "::10.0.0.1", "::2", "64:ff9b:0:1::1"];
    const NAT64_ADDRESSES: [&str; 2] = ["64:ff9b::c000:201", "64:ff9b:1:2::1"];
    for source in RESERVED_ADDRESSES.into_iter().chain(NAT64_ADDRESSES) {
        shoot([HOME_AGENT_ADDRESS, CARE_OF_ADDRESSES[0]], [source, ON_BOARD_HOST]);
    }
    shoot([HOME_AGENT_ADDRESS, CARE_OF_ADDRESSES[0]], [CORRESPONDENT, ON_BOARD_HOST]);
    wait_until("what is right passes", seconds(5), || {
        count_datagrams(&inside.seen_packets(), CORRESPONDENT, ON_BOARD_HOST) > 0
    });
    let heard = inside.stop();
    assert_eq!(count_datagrams(&heard, STRANGER_ADDRESS, ON_BOARD_HOST), 0, "not from the home agent");
    for source in RESERVED_ADDRESSES {
        assert_eq!(count_datagrams(&heard, source, ON_BOARD_HOST), 0, "from {source}");
    }
    for source in NAT64_ADDRESSES {
        assert_eq!(count_datagrams(&heard, source, ON_BOARD_HOST), 1, "from {source}");
    }
    assert_eq!(
        count_datagrams(&outside.stop(), STRANGER_ADDRESS, "2001:db8:c::99"),
        0,
        "not to the mobile network"
    );

    // A host on board cannot pretend to be the home agent.
    let inside = PacketSniffer::start(&bed.host, &["eth0"]);
    let cannon = RawSender::new(&bed.host);
    bed.host.run_ip("-6 addr add 2001:db8:a::77/128 dev eth0");
    let inner = ipv6_packet(STRANGER_ADDRESS, ON_BOARD_HOST, 17, &TEST_DATAGRAM);
    cannon.send_packet(
        &ipv6_packet(HOME_AGENT_ADDRESS, CARE_OF_ADDRESSES[0], 41, &inner),
        parse_address(CARE_OF_ADDRESSES[0]),
        0,
    );
    wait_until("traffic still flows", seconds(5), || bed.host.can_ping(CORRESPONDENT));
    assert_eq!(count_datagrams(&inside.stop(), STRANGER_ADDRESS, ON_BOARD_HOST), 0, "a home agent on board");
    drop((agent, router));
}

/// Returns whether a host gets answers to large pings, in fragments if necessary.
fn can_ping_with_large_packets(from: &Host, to: &str) -> bool {
    let words = ["ping", "-6", "-c", "3", "-i", "0.2", "-W", "2", "-s", "1400", to];
    from.run_program(&words).status.success()
}

#[test]
fn large_packets_pass_narrow_links_at_both_tunnel_ends() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    // The link is so narrow that outer packets with 1280 octets inside must be fragmented (RFC 2473 7.1 (b)).
    for (host, link) in [(&bed.core, "wlan"), (&bed.router, "wlan0")] {
        host.run_ip(&format!("link set {link} mtu 1300"));
    }
    wait_until("large packets to the host inside", seconds(20), || {
        can_ping_with_large_packets(&bed.core, ON_BOARD_HOST)
    });
    wait_until("large packets from it", seconds(20), || {
        can_ping_with_large_packets(&bed.host, CORRESPONDENT)
    });
    for (host, link, mtu) in [
        (&bed.core, "wlan", 1500),
        (&bed.router, "wlan0", 1500),
        (&bed.core, "ha", 1300),
        (&bed.agent, "ha0", 1300),
    ] {
        host.run_ip(&format!("link set {link} mtu {mtu}"));
    }
    wait_until("large packets from it, elsewhere", seconds(20), || {
        can_ping_with_large_packets(&bed.host, CORRESPONDENT)
    });
    wait_until("large packets to it, elsewhere", seconds(20), || {
        can_ping_with_large_packets(&bed.core, ON_BOARD_HOST)
    });
}

#[test]
fn a_tunnel_is_shown_with_its_path_and_its_packets_are_counted() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let counted = |station: &Station, remote: &str| {
        let tunnels = station.show_json("tunnels");
        let tunnels = tunnels.as_array().expect("tunnels");
        let of = |tunnel: &Value| {
            ["packets_in", "octets_in", "packets_out", "octets_out"]
                .map(|key| tunnel[key].as_u64().expect("a number"))
        };
        tunnels.iter().find(|tunnel| tunnel["remote"] == remote).map(of).expect("the tunnel")
    };
    for station in [&agent, &router] {
        let tunnels = station.show_json("tunnels");
        assert_eq!(tunnels[0]["path"], station.show_json("status")["dataplane"], "{tunnels}");
        let remote = tunnels[0]["remote"].as_str().expect("an address");
        let of_tunnel = counted(station, remote);
        let before = [station.counter("tunnel.encapsulated"), station.counter("tunnel.decapsulated")];
        let output = bed.host.run_program(&["ping", "-6", "-c", "20", "-i", "0.05", CORRESPONDENT]);
        assert!(output.status.success());
        let after = [station.counter("tunnel.encapsulated"), station.counter("tunnel.decapsulated")];
        for (before, after) in before.into_iter().zip(after) {
            assert!((20..40).contains(&(after - before)), "{before} {after}");
        }
        let more: Vec<u64> = counted(station, remote).iter().zip(of_tunnel).map(|(a, b)| a - b).collect();
        for (packets, octets) in [(more[0], more[1]), (more[2], more[3])] {
            // The tunnel has carried 20 echoes of 104 octets, and perhaps a probe of the path MTU.
            assert!((20..40).contains(&packets) && octets >= 20 * 104, "{more:?}");
        }
    }
    // A handover does not reset the counters.
    let before = router.counter("tunnel.encapsulated");
    assert!(router.run_command(&["handover", "wwan0"]).status.success());
    wait_until("the other uplink", seconds(10), || agent.bindings()[0].1 == CARE_OF_ADDRESSES[1]);
    std::thread::sleep(seconds(6));
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    assert!(router.counter("tunnel.encapsulated") > before);
    // The new tunnel counts only its own packets.
    let output = bed.host.run_program(&["ping", "-6", "-c", "20", "-i", "0.05", CORRESPONDENT]);
    assert!(output.status.success());
    let [packets_in, _, packets_out, _] = counted(&agent, CARE_OF_ADDRESSES[1]);
    assert!((20..40).contains(&packets_in) && (20..40).contains(&packets_out), "{packets_in} {packets_out}");
}

#[test]
fn a_handover_while_both_uplinks_work_loses_no_packet() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    let traffic = bed.start_echo(100);
    traffic.wait_for_further_answers();
    for uplink in ["wwan0", "wlan0", "wwan0"] {
        assert!(router.run_command(&["handover", uplink]).status.success());
        let care_of_address = CARE_OF_ADDRESSES[usize::from(uplink == "wwan0")];
        wait_until("the handover", seconds(10), || agent.bindings()[0].1 == care_of_address);
        // Both ends accept packets on the old path for five seconds, so the test waits for six.
        std::thread::sleep(seconds(6));
    }
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    println!("three handovers: {} of {} packets lost", report.lost_packets, report.sent_packets);
}

/// The home agent uses the old path until the router has answered at the new care-of address. It does not
/// test an address again that was in use a short time ago.
#[test]
fn handover_with_care_of_address_test_loses_no_packet_on_tun_or_bpf() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = Testbed::new();
        let with_path = |config: String| format!("{config}\n[dataplane]\npath = '{path}'\n");
        let agent = Station::start(&bed.agent, &with_path(bed.agent_config()));
        // A firewall on the router that drops Echo Requests must not affect packets of the mobile network.
        bed.router.run_program(&["nft", "add table ip6 strict"]);
        let chain = "add chain ip6 strict in { type filter hook input priority 0 ; }";
        let rule = "add rule ip6 strict in icmpv6 type echo-request drop";
        for command in [chain, rule] {
            assert!(bed.router.run_program(&["nft", command]).status.success(), "{command}");
        }
        let router = Station::start(&bed.router, &with_path(bed.router_config()));
        router.wait_until_registered();
        let traffic = bed.start_echo(100);
        traffic.wait_for_further_answers();
        let tests =
            || ["mobility.care_of_tests", "mobility.care_of_tests_passed"].map(|it| agent.counter(it));
        assert_eq!(tests()[1], 1);
        for (uplink, passed) in [("wwan0", 2), ("wlan0", 2), ("wwan0", 2)] {
            assert!(router.run_command(&["handover", uplink]).status.success());
            let care_of_address = CARE_OF_ADDRESSES[usize::from(uplink == "wwan0")];
            wait_until("the handover", seconds(10), || {
                let binding = &agent.show_json("bindings")[0];
                binding["care_of_address"] == care_of_address && binding["state"] == "registered"
            });
            assert_eq!(tests()[1], passed, "{path}, {uplink}");
            std::thread::sleep(seconds(2));
        }
        let report = traffic.stop();
        assert_eq!(report.lost_packets, 0, "{path}: {report:?}");
        println!("{path}: {} packets, none lost; {} Echo Requests", report.sent_packets, tests()[0]);
    }
}

#[test]
fn carnet_restores_its_own_entries_and_keeps_foreign_ones() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    // The operator has a tunnel device, if the kernel supports it, and a rule with a priority that carnet
    // also uses.
    let tunnel = "ip link add cn0 type ip6tnl mode ip6ip6 local 2001:db8:f0::2 remote 2001:db8:f0::77";
    let words: Vec<&str> = tunnel.split_whitespace().collect();
    let has_tunnel = bed.agent.run_program(&words).status.success();
    if has_tunnel {
        bed.agent.run_ip("link set cn0 up");
    }
    bed.agent.run_ip("-6 rule add pref 95 from 2001:db8:dead::/64 lookup main");
    let before = bed.agent.kernel_state();
    let (mut agent, _router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    if agent.show_json("status")["dataplane"] == "kernel" {
        bed.agent.run_ip("link del cn1");
        wait_until("the device is there again", seconds(10), || {
            bed.agent.run_ip("link show type ip6tnl").contains("cn1") && bed.host.can_ping(CORRESPONDENT)
        });
        bed.agent.run_ip("-6 rule del pref 92");
        wait_until("the rule is there again", seconds(10), || bed.agent.run_ip("-6 rule").contains("92:"));
        assert!(agent.counter("platform.restored") > 0);
    }
    agent.end_by_signal(Signal::SIGKILL);
    let mut agent = Station::start(&bed.agent, &bed.agent_config());
    wait_until("traffic flows again", seconds(20), || bed.host.can_ping(CORRESPONDENT));
    agent.terminate();
    assert_same_state(&before, &bed.agent.kernel_state(), "after a crash and an end");
    println!(
        "an operator's own tunnel device: {}",
        if has_tunnel { "there, and untouched" } else { "none here" }
    );
}
