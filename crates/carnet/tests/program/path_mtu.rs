//! A link with a small MTU in the middle of the path. The routers at its ends send Packet Too Big, or a
//! filter drops these messages.
//!
//! ```text
//!   correspondent --- far ==== 1400 ==== core --- wlan0 router lan0 --- host
//!                     far --- ha0 agent
//! ```
//!
//! The interfaces of hosts, router and home agent have an MTU of 1500 octets.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hosts::{Host, can_run_or_report, output_text, seconds, uninterrupted, wait_for, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::PacketSniffer;

const OUTSIDE_CORRESPONDENT: &str = "2001:db8:d::10";
const TRANSFER_LENGTH: usize = 4 << 20;
/// Octets of UDP payload that fill an Ethernet frame.
const DATAGRAM_LENGTH: usize = 1452;

struct NarrowNetwork {
    bed: Testbed,
    far_router: Host,
    correspondent: Host,
}

impl NarrowNetwork {
    fn new() -> NarrowNetwork {
        let bed = Testbed::new();
        let (far, correspondent) = (Host::new(), Host::new());
        far.write_sysctl("all/forwarding", "1");
        bed.core.run_ip("link del ha");
        bed.core.create_link("mid", &far, "mid");
        far.create_link("ha", &bed.agent, "ha0");
        far.create_link("lan", &correspondent, "eth0");
        for host in [&bed.core, &far] {
            host.run_ip("link set mid mtu 1400");
        }
        bed.core.run_ip_batch(
            "addr add 2001:db8:fe::1/64 dev mid
             route add default via 2001:db8:fe::2",
        );
        far.run_ip_batch(
            "addr add 2001:db8:fe::2/64 dev mid
             addr add 2001:db8:f0::1/64 dev ha
             addr add 2001:db8:d::1/64 dev lan
             route add 2001:db8:1::/64 via 2001:db8:f0::2
             route add 2001:db8:a::/64 via 2001:db8:f0::2
             route add default via 2001:db8:fe::1",
        );
        bed.agent.run_ip_batch(
            "addr add 2001:db8:f0::2/64 dev ha0
             route add default via 2001:db8:f0::1",
        );
        correspondent.run_ip_batch(
            "addr add 2001:db8:d::10/64 dev eth0
             route add default via 2001:db8:d::1",
        );
        bed.host.write_sysctl("eth0/accept_ra", "0");
        for host in [&bed.core, &far, &bed.agent, &correspondent] {
            host.wait_until_settled();
        }
        NarrowNetwork { bed, far_router: far, correspondent }
    }

    /// Makes both routers in the middle drop their Packet Too Big messages.
    fn drop_packet_too_big(&self) {
        for host in [&self.bed.core, &self.far_router] {
            for rule in [
                "add table ip6 silence",
                "add chain ip6 silence out { type filter hook output priority 0 ; }",
                "add rule ip6 silence out icmpv6 type packet-too-big drop",
            ] {
                let words: Vec<&str> = ["nft"].into_iter().chain(rule.split(' ')).collect();
                let output = host.run_program(&words);
                assert!(output.status.success(), "nft {rule}: {}", output_text(&output));
            }
        }
    }

    /// Returns the times to transfer some megabytes from the host inside to the correspondent, and back.
    fn transfer_both_ways(&self) -> [Duration; 2] {
        [
            transfer_octets(&self.bed.host, ON_BOARD_HOST, &self.correspondent, OUTSIDE_CORRESPONDENT),
            transfer_octets(&self.correspondent, OUTSIDE_CORRESPONDENT, &self.bed.host, ON_BOARD_HOST),
        ]
    }

    /// Waits until full datagrams arrive; their senders have learnt the path MTU and fragment them.
    fn check_datagrams_pass(&self) {
        for (from, to, destination) in [
            (&self.bed.host, &self.correspondent, OUTSIDE_CORRESPONDENT),
            (&self.correspondent, &self.bed.host, ON_BOARD_HOST),
        ] {
            let socket = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            let (sender, receiver) = (from.run_in_namespace(socket), to.run_in_namespace(socket));
            let port = receiver.local_addr().expect("bound").port();
            receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
            wait_for("a datagram of 1452 octets arrives", seconds(20), || {
                // After a Packet Too Big the kernel refuses one datagram, so an error here does not matter.
                let _ = sender.send_to(&[7; DATAGRAM_LENGTH], (parse_address(destination), port));
                let mut buffer = [0; 2000];
                let length = receiver.recv(&mut buffer).ok()?;
                assert_eq!(length, DATAGRAM_LENGTH);
                Some(())
            });
        }
    }
}

fn transfer_octets(from: &Host, source: &'static str, to: &Host, destination: &'static str) -> Duration {
    let listener =
        to.run_in_namespace(move || TcpListener::bind((parse_address(destination), 0)).expect("a listener"));
    let port = listener.local_addr().expect("bound").port();
    let start = Instant::now();
    let receiver = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().expect("a connection");
        assert_eq!(peer.ip(), parse_address(source));
        stream.set_read_timeout(Some(seconds(30))).expect("a timeout");
        let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
        loop {
            match uninterrupted(|| stream.read(&mut buffer)).expect("data within 30 seconds") {
                0 => return count,
                length => count += length,
            }
        }
    });
    let mut stream = from.run_in_namespace(move || {
        TcpStream::connect_timeout(&(parse_address(destination), port).into(), seconds(10))
            .expect("a connection")
    });
    stream.set_write_timeout(Some(seconds(30))).expect("a timeout");
    let data = vec![0x5a; 1 << 16];
    for _ in 0..TRANSFER_LENGTH / data.len() {
        stream.write_all(&data).expect("progress within 30 seconds");
    }
    drop(stream);
    assert_eq!(receiver.join().expect("the receiver"), TRANSFER_LENGTH);
    start.elapsed()
}

/// Returns the MTU of a station's transmitting tunnel.
fn path_mtu(station: &Station) -> u64 {
    let tunnels = station.show_json("tunnels");
    let of = |tunnel: &Value| tunnel["mtu"].as_u64().expect("a number");
    tunnels.as_array().and_then(|tunnels| tunnels.first()).map_or(0, of)
}

fn wait_for_path_mtu(agent: &Station, router: &Station, limit: Duration) {
    wait_until("both ends have found the path MTU", limit, || {
        (path_mtu(agent), path_mtu(router)) == (1360, 1360)
    });
}

#[test]
fn path_mtu_follows_packet_too_big() {
    if !can_run_or_report() {
        return;
    }
    let narrow = NarrowNetwork::new();
    let (agent, router) = narrow.bed.start_stations();
    let first = narrow.transfer_both_ways();
    wait_for_path_mtu(&agent, &router, seconds(10));
    narrow.check_datagrams_pass();
    let settled = narrow.transfer_both_ways();
    println!("4 MB each way: {first:?} at first, {settled:?} when the MTU is known");
}

#[test]
fn path_mtu_of_silent_link_is_found_by_probing() {
    if !can_run_or_report() {
        return;
    }
    let narrow = NarrowNetwork::new();
    // For comparison, measure with the narrow link's MTU on every interface.
    for (host, interface) in [
        (&narrow.bed.router, "wlan0"),
        (&narrow.bed.core, "wlan"),
        (&narrow.bed.agent, "ha0"),
        (&narrow.far_router, "ha"),
    ] {
        host.run_ip(&format!("link set {interface} mtu 1400"));
    }
    let (mut agent, mut router) = narrow.bed.start_stations();
    wait_for_path_mtu(&agent, &router, seconds(20));
    let plain = narrow.transfer_both_ways();
    router.terminate();
    agent.terminate();
    drop((router, agent, narrow));

    let narrow = NarrowNetwork::new();
    narrow.drop_packet_too_big();
    let (agent, router) = narrow.bed.start_stations();
    let start = Instant::now();
    let first = narrow.transfer_both_ways();
    wait_for_path_mtu(&agent, &router, seconds(20));
    let discovery = start.elapsed();
    let settled = narrow.transfer_both_ways();
    narrow.check_datagrams_pass();
    println!(
        "4 MB each way: {plain:?} without a narrow link, {first:?} at first, {settled:?} when the MTU is \
         known"
    );
    println!("the MTU was known after at most {discovery:?}, transfers included");
    for (took, plain) in first.into_iter().chain(settled).zip(plain.into_iter().chain(plain)) {
        assert!(took < 4 * plain + seconds(8), "{took:?} instead of {plain:?}");
    }
    let probes = |station: &Station| station.counter("tunnel.probes");
    assert!(probes(&router) + probes(&agent) < 150, "{} {}", probes(&router), probes(&agent));
    assert_eq!(router.counter("tunnel.dropped.outer_source"), 0);
}

#[test]
fn router_advertisements_on_board_have_the_path_mtu() {
    if !can_run_or_report() {
        return;
    }
    let narrow = NarrowNetwork::new();
    narrow.drop_packet_too_big();
    narrow.bed.host.write_sysctl("eth0/accept_ra", "1");
    let (_agent, _router) = narrow.bed.start_stations();
    wait_until("the host has heard of an MTU of 1360", seconds(20), || {
        narrow.bed.host.read_sysctl("eth0/mtu") == "1360"
    });
}

#[test]
fn outer_hop_limit_is_64() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start_stations();
    let sniffer = PacketSniffer::start(&bed.core, &["wlan", "ha"]);
    assert!(bed.host.can_ping(crate::testbed::CORRESPONDENT));
    let heard = sniffer.stop();
    for source in [CARE_OF_ADDRESSES[0], HOME_AGENT_ADDRESS] {
        let source = parse_address(source).octets();
        let outer: Vec<u8> =
            heard.iter().filter(|p| p[6] == 41 && p[8..24] == source).map(|packet| packet[7]).collect();
        assert!(!outer.is_empty() && outer.iter().all(|hop_limit| *hop_limit == 64), "{outer:?}");
    }
}
