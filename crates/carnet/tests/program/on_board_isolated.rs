//! An isolated interface on board: its hosts and the hosts of other interfaces do not reach each other. This
//! must hold on each data path, and after carnet was killed. All hosts reach the Internet.

use std::net::Ipv6Addr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::{PacketSniffer, RawSender};

/// IPv6 address of the host on `lan1`. The two IPv4 addresses are those of this host and of the host on
/// `lan0`.
const ISOLATED_HOST: &str = "2001:db8:b::10";
const ISOLATED_HOST_IPV4: &str = "10.42.8.10";
const ON_BOARD_HOST_IPV4: &str = "10.42.4.10";

/// Config lines with the networks on board, for both stations.
const NETWORKS_CONFIG: &str = "prefixes = ['2001:db8:a::/64', '2001:db8:b::/64']\n\
                        ipv4_prefixes = ['10.42.4.0/24', '10.42.8.0/24']\n";

fn two_interfaces_config(bed: &Testbed, isolated: bool, path: &str) -> String {
    let router = bed.router_config().replace("lan = ['lan0']\n", "");
    let router = router.replace("prefixes = ['2001:db8:a::/64']\n", NETWORKS_CONFIG);
    let table = |interface: &str, prefixes: &str| {
        format!(
            "[[mobile_router.lan]]\ninterface = '{interface}'\nprefixes = [{prefixes}]\n\
             dhcp_enabled = false\n"
        )
    };
    let first = table("lan0", "'2001:db8:a::/64', '10.42.4.0/24'");
    let second = table("lan1", "'2001:db8:b::/64', '10.42.8.0/24'");
    format!("{router}{first}{second}isolated = {isolated}\n[dataplane]\npath = '{path}'\n")
}

/// Returns which of four pings between the two hosts get an answer.
fn ping_results(bed: &Testbed, other: &Host) -> [bool; 4] {
    [
        bed.host.can_ping(ISOLATED_HOST),
        bed.host.can_ping_ipv4(ISOLATED_HOST_IPV4),
        other.can_ping(ON_BOARD_HOST),
        other.can_ping_ipv4(ON_BOARD_HOST_IPV4),
    ]
}

/// Sends a hundred UDP packets in each direction. Fails if a packet arrives.
fn assert_hosts_are_apart(bed: &Testbed, other: &Host, when: &str) {
    assert_eq!(ping_results(bed, other), [false; 4], "{when}");
    let ends =
        [(&bed.host, ON_BOARD_HOST, other, ISOLATED_HOST), (other, ISOLATED_HOST, &bed.host, ON_BOARD_HOST)];
    for (from, source, to, destination) in ends {
        let (source, destination) = (parse_address(source), parse_address(destination));
        let sniffer = PacketSniffer::start(to, &["eth0"]);
        let cannon = RawSender::new(from);
        let udp = [&[0x11, 0x11, 0x22, 0x22, 0, 12, 1, 1], &b"lan!"[..]].concat();
        let head = [&[0x60, 0, 0, 0, 0, 12, 17, 64], &source.octets()[..], &destination.octets()].concat();
        for _ in 0..100 {
            assert!(cannon.send_packet(&[&head[..], &udp].concat(), destination, 0));
        }
        std::thread::sleep(seconds(1));
        let heard = sniffer.stop();
        let passed = heard.iter().filter(|packet| packet.get(8..16) == Some(&source.octets()[..8]));
        assert_eq!(passed.count(), 0, "{when}: packets from {source} arrive");
    }
}

/// Sends packets from the host on `lan1` with the other host's address as the source, then answers from
/// outside. Fails if an answer passes the router's inbound filter to the other host.
fn assert_address_is_not_usable(bed: &Testbed, other: &Host, when: &str) {
    let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    let packet = |from: Ipv6Addr, to: Ipv6Addr, ports: [u16; 2]| {
        let head = [&[0x60, 0, 0, 0, 0, 12, 17, 64], &from.octets()[..], &to.octets()].concat();
        // Connection tracking ignores a packet with a wrong checksum. The checksum of UDP covers the length
        // twice.
        let words = [&head[8..], b"door"].concat();
        let words = words.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = words.chain(ports.map(u32::from)).sum::<u32>() + 17 + 12 + 12;
        let checksum = !(sum.wrapping_shr(16) + (sum & 0xffff)) as u16;
        let udp = [ports[0], ports[1], 12, checksum].map(u16::to_be_bytes).concat();
        [&head[..], &udp, b"door"].concat()
    };
    let sniffer = PacketSniffer::start(&bed.host, &["eth0"]);
    let (forged, answer) = (packet(inside, outside, [7777, 9999]), packet(outside, inside, [9999, 7777]));
    let (from_other, from_outside) = (RawSender::new(other), RawSender::new(&bed.core));
    for _ in 0..20 {
        assert!(from_other.send_packet(&forged, outside, 0));
        std::thread::sleep(Duration::from_millis(20));
        assert!(from_outside.send_packet(&answer, inside, 0));
    }
    std::thread::sleep(seconds(1));
    let source = outside.octets();
    let passed = sniffer.stop().into_iter().filter(|packet| packet.get(8..24) == Some(&source[..]));
    assert_eq!(passed.count(), 0, "{when}: answers to forged packets arrive");
}

fn check_isolation_on(path: &str) {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let other = Host::new();
    bed.router.create_link("lan1", &other, "eth0");
    other.run_ip_batch("addr add 2001:db8:b::10/64 dev eth0\nroute add default via 2001:db8:b::1 metric 10");
    for (host, net, own) in
        [(&bed.host, "10.42.4", ON_BOARD_HOST_IPV4), (&other, "10.42.8", ISOLATED_HOST_IPV4)]
    {
        host.run_ip(&format!("-4 addr add {own}/24 dev eth0"));
        host.run_ip(&format!("-4 route add default via {net}.1"));
    }
    other.wait_until_settled();
    let agent = bed.agent_config().replace("prefixes = ['2001:db8:a::/64']\n", NETWORKS_CONFIG);
    let _agent = Station::start(&bed.agent, &agent);
    let mut router = Station::start(&bed.router, &two_interfaces_config(&bed, false, path));
    router.wait_until_registered();
    router.wait_for_fast_path();
    let all_reach_the_internet = |when: &str| {
        for host in [&bed.host, &other] {
            wait_until(&format!("the Internet {when}"), seconds(20), || host.can_ping(CORRESPONDENT));
        }
    };
    all_reach_the_internet("at first");
    // Control: without isolation the hosts reach each other.
    wait_until("the hosts reach each other", seconds(20), || ping_results(&bed, &other) == [true; 4]);
    assert_address_is_not_usable(&bed, &other, "without isolation");

    router.reload(&two_interfaces_config(&bed, true, path));
    let lan = router.show_json("lan");
    assert_eq!((&lan[0]["isolated"], &lan[1]["isolated"]), (&false.into(), &true.into()), "{lan}");
    assert_hosts_are_apart(&bed, &other, "after a reload");
    all_reach_the_internet("while isolated");
    assert_address_is_not_usable(&bed, &other, "while isolated");

    router.end_by_signal(Signal::SIGKILL);
    assert_hosts_are_apart(&bed, &other, "while carnet is dead");
    let router = Station::start(&bed.router, &two_interfaces_config(&bed, true, path));
    assert_hosts_are_apart(&bed, &other, "after a restart");
    router.wait_until_registered();
    router.wait_for_fast_path();
    all_reach_the_internet("after a restart");
    assert_hosts_are_apart(&bed, &other, "after the registration");

    router.reload(&two_interfaces_config(&bed, false, path));
    wait_until("the hosts reach each other again", seconds(20), || ping_results(&bed, &other) == [true; 4]);
}

#[test]
fn slow_path_forwards_no_packet_between_isolated_interface_and_others() {
    check_isolation_on("tun");
}

#[test]
fn bpf_programs_forward_no_packet_between_isolated_interface_and_others() {
    check_isolation_on("bpf");
}
