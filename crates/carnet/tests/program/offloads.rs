//! Large packets on the fast paths: super packets of TCP and UDP pass both stations in one piece. If an
//! interface does not accept super packets, the kernel segments them, with correct checksums.

use carnet_wire::checksum;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};

use crate::bursts::{STREAM_LENGTH, exchange_tcp_streams, segment_counts, udp_burst_arrives};
use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::PacketSniffer;

/// Returns a testbed in which most packets take a fast path. The interfaces of both stations have the
/// features in `off` turned off.
fn start_on_path_with_offloads_off(path: &str, off: &[&str]) -> (Testbed, Station, Station) {
    let bed = Testbed::new();
    let set = |host: &Host, interface: &str, feature: &str, value: &str| {
        let output = host.run_program(&["ethtool", "-K", interface, feature, value]);
        assert!(output.status.success(), "ethtool (Debian package ethtool): {}", output_text(&output));
    };
    for (host, interface) in [(&bed.router, "lan0"), (&bed.router, "wlan0"), (&bed.agent, "ha0")] {
        off.iter().for_each(|feature| set(host, interface, feature, "off"));
    }
    if path == "xdp" {
        for (host, interface) in
            [(&bed.host, "eth0"), (&bed.core, "ha"), (&bed.core, "wlan"), (&bed.core, "wwan")]
        {
            // With GRO, a virtual interface accepts packets that an XDP program of its peer redirects.
            set(host, interface, "gro", "on");
            // On a cable, packets have complete checksums. The test turns checksum offload off, because a
            // redirected frame cannot carry the mark of a partial checksum.
            set(host, interface, "tx", "off");
        }
    }
    let path = format!("\n[dataplane]\npath = '{path}'\n");
    let agent = Station::start(&bed.agent, &(bed.agent_config() + &path));
    let router = Station::start(&bed.router, &(bed.router_config() + &path));
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    (bed, agent, router)
}

/// Returns the number of packets that a host has received with a wrong checksum.
pub fn checksum_error_count(host: &Host) -> u64 {
    let tcp = host.run_program(&["cat", "/proc/net/snmp"]);
    let tcp = String::from_utf8_lossy(&tcp.stdout).into_owned();
    let mut lines = tcp.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == "InCsumErrors").expect("a counter");
    let tcp: u64 = values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number");
    let udp = host.run_program(&["cat", "/proc/net/snmp6"]);
    let udp = String::from_utf8_lossy(&udp.stdout).into_owned();
    let udp = udp.lines().find(|line| line.starts_with("Udp6InCsumErrors")).expect("a counter");
    tcp + udp.split_whitespace().nth(1).and_then(|value| value.parse::<u64>().ok()).expect("a number")
}

/// Returns whether the TCP or UDP checksum of a packet is right.
fn has_intact_checksum(packet: &[u8]) -> bool {
    let (header, payload) = Header::parse_packet(packet).expect("a packet");
    match header.next_header {
        protocol::TCP | protocol::UDP => {
            checksum::upper_layer_checksum(header.source, header.destination, header.next_header, payload)
                == 0
        }
        _ => true,
    }
}

/// Sends streams and bursts in both directions, while the stations' interfaces have the features in `off`
/// turned off.
fn check_bursts_arrive(path: &str, off: &[&str]) {
    let (bed, agent, router) = start_on_path_with_offloads_off(path, off);
    let sniffers =
        [PacketSniffer::start(&bed.host, &["eth0"]), PacketSniffer::start(&bed.core, &["ha", "wlan"])];
    let count = |name: &str| router.counter(name) + agent.counter(name);
    let (encapsulated, decapsulated) = (count("tunnel.encapsulated"), count("tunnel.decapsulated"));
    let slow = || {
        let both = [segment_counts(&bed.router), segment_counts(&bed.agent)];
        both[0].0 + both[1].0
    };
    let before = slow();
    exchange_tcp_streams(&bed);
    let needed = 2 * (STREAM_LENGTH / 1460) as u64;
    let counted = (count("tunnel.encapsulated") - encapsulated, count("tunnel.decapsulated") - decapsulated);
    println!(
        "{path}, without {off:?}: {counted:?} packets in and out of tunnels, {} of them by the slow path",
        slow() - before
    );
    // The counter counts a super packet as the number of its segments.
    assert!(counted.0 >= needed && counted.1 >= needed, "{counted:?}, expected {needed}");
    assert!(counted.0 < 2 * needed && counted.1 < 2 * needed, "{counted:?}, expected {needed}");
    assert!(slow() - before < needed / 4, "{} packets took the slow path", slow() - before);

    let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    let able = udp_burst_arrives(&bed.host, inside, &bed.core, outside)
        && udp_burst_arrives(&bed.core, outside, &bed.host, inside);
    assert!(able, "UDP_SEGMENT");
    for host in [&bed.host, &bed.core] {
        assert_eq!(checksum_error_count(host), 0);
    }
    for sniffer in sniffers {
        let heard = sniffer.stop();
        assert!(heard.len() > 100, "{}", heard.len());
        for packet in heard {
            if off.contains(&"gso") {
                assert!(packet.len() <= 1500, "{} octets: {:02x?}", packet.len(), &packet[..60]);
            }
            let header = Header::parse(&packet).expect("a header");
            // Compare checksums only if checksum offload is off. Otherwise they are partial here, and the
            // next interface completes them.
            let inner = header.next_header == protocol::IPV6;
            if off.contains(&"tx") {
                assert!(
                    has_intact_checksum(if inner { &packet[HEADER_LEN..] } else { &packet }),
                    "{packet:02x?}"
                );
            }
        }
    }
    for reason in ["failed", "malformed"] {
        assert_eq!(count(&format!("fast_path.left.{reason}")), 0, "{reason}");
    }
}

#[test]
fn fast_path_forwards_gso_packets_without_segmentation() {
    if can_run_or_report() {
        check_bursts_arrive("bpf", &[]);
    }
}

#[test]
fn kernel_segments_gso_packets_after_tunnel_encapsulation() {
    if can_run_or_report() {
        check_bursts_arrive("bpf", &["tso", "gso", "tx-udp-segmentation"]);
    }
}

#[test]
fn kernel_segments_and_checksums_gso_packets_after_tunnel_encapsulation() {
    if can_run_or_report() {
        check_bursts_arrive("bpf", &["tso", "gso", "tx-udp-segmentation", "tx"]);
    }
}

#[test]
fn xdp_forwards_packets_of_hosts_with_offloads() {
    if can_run_or_report() {
        check_bursts_arrive("xdp", &[]);
    }
}
