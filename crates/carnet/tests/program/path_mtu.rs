//! A narrow link in the middle of the path. The routers at its ends send Packet Too Big, or a filter drops
//! these messages.
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

use crate::hosts::{Host, possible, said, seconds, uninterrupted, wait_for, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF, HOME_AGENT, INSIDE, Testbed, address};
use crate::traffic::Sniffer;

const OUTSIDE: &str = "2001:db8:d::10";
const OCTETS: usize = 4 << 20;
/// Octets of UDP payload that fill an Ethernet frame.
const DATAGRAM: usize = 1452;

struct Narrow {
    bed: Testbed,
    far: Host,
    correspondent: Host,
}

impl Narrow {
    fn new() -> Narrow {
        let bed = Testbed::new();
        let (far, correspondent) = (Host::new(), Host::new());
        far.set("all/forwarding", "1");
        bed.core.ip("link del ha");
        bed.core.link("mid", &far, "mid");
        far.link("ha", &bed.agent, "ha0");
        far.link("lan", &correspondent, "eth0");
        for host in [&bed.core, &far] {
            host.ip("link set mid mtu 1400");
        }
        bed.core.batch(
            "addr add 2001:db8:fe::1/64 dev mid
             route add default via 2001:db8:fe::2",
        );
        far.batch(
            "addr add 2001:db8:fe::2/64 dev mid
             addr add 2001:db8:f0::1/64 dev ha
             addr add 2001:db8:d::1/64 dev lan
             route add 2001:db8:1::/64 via 2001:db8:f0::2
             route add 2001:db8:a::/64 via 2001:db8:f0::2
             route add default via 2001:db8:fe::1",
        );
        bed.agent.batch(
            "addr add 2001:db8:f0::2/64 dev ha0
             route add default via 2001:db8:f0::1",
        );
        correspondent.batch(
            "addr add 2001:db8:d::10/64 dev eth0
             route add default via 2001:db8:d::1",
        );
        bed.host.set("eth0/accept_ra", "0");
        for host in [&bed.core, &far, &bed.agent, &correspondent] {
            host.settle();
        }
        Narrow { bed, far, correspondent }
    }

    /// Drops the Packet Too Big messages of both routers in the middle.
    fn filter(&self) {
        for host in [&self.bed.core, &self.far] {
            for rule in [
                "add table ip6 silence",
                "add chain ip6 silence out { type filter hook output priority 0 ; }",
                "add rule ip6 silence out icmpv6 type packet-too-big drop",
            ] {
                let words: Vec<&str> = ["nft"].into_iter().chain(rule.split(' ')).collect();
                let output = host.output(&words);
                assert!(output.status.success(), "nft {rule}: {}", said(&output));
            }
        }
    }

    /// Returns the times to transfer some megabytes from the host inside to the correspondent, and back.
    fn transfers(&self) -> [Duration; 2] {
        [
            transfer(&self.bed.host, INSIDE, &self.correspondent, OUTSIDE),
            transfer(&self.correspondent, OUTSIDE, &self.bed.host, INSIDE),
        ]
    }

    /// Waits until full datagrams arrive; their senders have learnt the path MTU and fragment them.
    fn datagrams_pass(&self) {
        for (from, to, destination) in
            [(&self.bed.host, &self.correspondent, OUTSIDE), (&self.correspondent, &self.bed.host, INSIDE)]
        {
            let socket = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            let (sender, receiver) = (from.run(socket), to.run(socket));
            let port = receiver.local_addr().expect("bound").port();
            receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
            wait_for("a datagram of 1452 octets arrives", seconds(20), || {
                // After a Packet Too Big the kernel refuses one datagram, so an error here does not matter.
                let _ = sender.send_to(&[7; DATAGRAM], (address(destination), port));
                let mut buffer = [0; 2000];
                let length = receiver.recv(&mut buffer).ok()?;
                assert_eq!(length, DATAGRAM);
                Some(())
            });
        }
    }
}

fn transfer(from: &Host, source: &'static str, to: &Host, destination: &'static str) -> Duration {
    let listener = to.run(move || TcpListener::bind((address(destination), 0)).expect("a listener"));
    let port = listener.local_addr().expect("bound").port();
    let start = Instant::now();
    let receiver = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().expect("a connection");
        assert_eq!(peer.ip(), address(source));
        stream.set_read_timeout(Some(seconds(30))).expect("a timeout");
        let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
        loop {
            match uninterrupted(|| stream.read(&mut buffer)).expect("data within 30 seconds") {
                0 => return count,
                length => count += length,
            }
        }
    });
    let mut stream = from.run(move || {
        TcpStream::connect_timeout(&(address(destination), port).into(), seconds(10)).expect("a connection")
    });
    stream.set_write_timeout(Some(seconds(30))).expect("a timeout");
    let data = vec![0x5a; 1 << 16];
    for _ in 0..OCTETS / data.len() {
        stream.write_all(&data).expect("progress within 30 seconds");
    }
    drop(stream);
    assert_eq!(receiver.join().expect("the receiver"), OCTETS);
    start.elapsed()
}

/// Returns the MTU of a station's transmitting tunnel.
fn mtu(station: &Station) -> u64 {
    let tunnels = station.show("tunnels");
    let of = |tunnel: &Value| tunnel["mtu"].as_u64().expect("a number");
    tunnels.as_array().and_then(|tunnels| tunnels.first()).map_or(0, of)
}

fn found(agent: &Station, router: &Station, limit: Duration) {
    wait_until("both ends have found the path MTU", limit, || (mtu(agent), mtu(router)) == (1360, 1360));
}

#[test]
fn path_mtu_follows_packet_too_big() {
    if !possible() {
        return;
    }
    let narrow = Narrow::new();
    let (agent, router) = narrow.bed.start();
    let first = narrow.transfers();
    found(&agent, &router, seconds(10));
    narrow.datagrams_pass();
    let settled = narrow.transfers();
    println!("4 MB each way: {first:?} at first, {settled:?} when the MTU is known");
}

#[test]
fn path_mtu_of_silent_link_is_found_by_probing() {
    if !possible() {
        return;
    }
    let narrow = Narrow::new();
    // For comparison, every interface gets the MTU of the narrow link.
    for (host, interface) in [
        (&narrow.bed.router, "wlan0"),
        (&narrow.bed.core, "wlan"),
        (&narrow.bed.agent, "ha0"),
        (&narrow.far, "ha"),
    ] {
        host.ip(&format!("link set {interface} mtu 1400"));
    }
    let (mut agent, mut router) = narrow.bed.start();
    found(&agent, &router, seconds(20));
    let plain = narrow.transfers();
    router.terminate();
    agent.terminate();
    drop((router, agent, narrow));

    let narrow = Narrow::new();
    narrow.filter();
    let (agent, router) = narrow.bed.start();
    let start = Instant::now();
    let first = narrow.transfers();
    found(&agent, &router, seconds(20));
    let discovery = start.elapsed();
    let settled = narrow.transfers();
    narrow.datagrams_pass();
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
    if !possible() {
        return;
    }
    let narrow = Narrow::new();
    narrow.filter();
    narrow.bed.host.set("eth0/accept_ra", "1");
    let (_agent, _router) = narrow.bed.start();
    wait_until("the host has heard of an MTU of 1360", seconds(20), || {
        narrow.bed.host.get("eth0/mtu") == "1360"
    });
}

#[test]
fn outer_hop_limit_is_64() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start();
    let sniffer = Sniffer::start(&bed.core, &["wlan", "ha"]);
    assert!(bed.host.pings(crate::testbed::CORRESPONDENT));
    let heard = sniffer.stop();
    for source in [CARE_OF[0], HOME_AGENT] {
        let source = address(source).octets();
        let outer: Vec<u8> =
            heard.iter().filter(|p| p[6] == 41 && p[8..24] == source).map(|packet| packet[7]).collect();
        assert!(!outer.is_empty() && outer.iter().all(|hop_limit| *hop_limit == 64), "{outer:?}");
    }
}
