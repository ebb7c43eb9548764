//! Hosts send bursts with TSO and UDP segmentation offload. The bursts pass both stations as few large
//! packets, and arrive unchanged, octet by octet.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, UdpGsoSegment};
use serde_json::Value;

use crate::hosts::{
    Host, assert_same_state, can_run_or_report, output_text, seconds, uninterrupted, wait_for, wait_until,
};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};

const TCP_PORT: u16 = 4343;
/// Octets of the stream in each direction.
pub const STREAM_LENGTH: usize = 12 << 20;

/// Returns the octet at position `at` of a stream that hardly repeats itself.
fn expected_octet(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

/// Returns a testbed in which every packet takes the TUN device.
fn start_on_slow_path() -> (Testbed, Station, Station) {
    let bed = Testbed::new();
    let tun = "\n[dataplane]\npath = 'tun'\n";
    let agent = Station::start(&bed.agent, &(bed.agent_config() + tun));
    let router = Station::start(&bed.router, &(bed.router_config() + tun));
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    (bed, agent, router)
}

/// Returns the number of packets that the kernel has written into the tunnel device, and the number that it
/// has read from the device.
pub fn segment_counts(host: &Host) -> (u64, u64) {
    let statistics: Value = serde_json::from_str(&host.run_ip("-s -j link show dev carnet0")).expect("JSON");
    let count = |way: &str| statistics[0]["stats64"][way]["packets"].as_u64().expect("a number");
    (count("tx"), count("rx"))
}

/// Sends the stream over a connection, and returns the octets received from the other end.
fn exchange_stream(mut connection: TcpStream, to_read: usize) -> Vec<u8> {
    let mut reader = connection.try_clone().expect("the connection again");
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&connection, Some(seconds(20))).expect("a timeout");
    }
    let reader = thread::spawn(move || {
        let mut heard = vec![0; to_read];
        reader.read_exact(&mut heard).expect("the whole stream");
        heard
    });
    let octets: Vec<u8> = (0..STREAM_LENGTH).map(expected_octet).collect();
    connection.write_all(&octets).expect("a connection");
    reader.join().expect("the reader")
}

/// Sends a stream in each direction between the host on board and the correspondent. Checks that both arrive
/// unchanged.
pub fn exchange_tcp_streams(bed: &Testbed) {
    let server = bed.core.run_in_namespace(|| {
        let listener = TcpListener::bind((parse_address(CORRESPONDENT), TCP_PORT)).expect("a listener");
        thread::spawn(move || exchange_stream(listener.accept().expect("a connection").0, STREAM_LENGTH))
    });
    let client = bed.host.run_in_namespace(|| {
        let connection = TcpStream::connect((parse_address(CORRESPONDENT), TCP_PORT)).expect("a connection");
        thread::spawn(move || exchange_stream(connection, STREAM_LENGTH))
    });
    let expected: Vec<u8> = (0..STREAM_LENGTH).map(expected_octet).collect();
    for side in [client, server] {
        let heard = side.join().expect("a side");
        let wrong = heard.iter().zip(&expected).position(|(a, b)| a != b);
        assert!(heard.len() == STREAM_LENGTH && wrong.is_none(), "{wrong:?}");
    }
}

#[test]
fn tunnel_forwards_tcp_gso_packets_unchanged() {
    if !can_run_or_report() {
        return;
    }
    let (bed, agent, router) = start_on_slow_path();
    let before = [segment_counts(&bed.router), segment_counts(&bed.agent)];
    let count = |name| router.counter(name) + agent.counter(name);
    let (encapsulated, decapsulated) = (count("tunnel.encapsulated"), count("tunnel.decapsulated"));
    exchange_tcp_streams(&bed);
    let segments = (count("tunnel.encapsulated") - encapsulated, count("tunnel.decapsulated") - decapsulated);
    let after = [segment_counts(&bed.router), segment_counts(&bed.agent)];
    let sum = |all: [(u64, u64); 2]| (all[0].0 + all[1].0, all[0].1 + all[1].1);
    let (read, written) = (sum(after).0 - sum(before).0, sum(after).1 - sum(before).1);
    println!(
        "two streams of {STREAM_LENGTH} octets: {segments:?} packets in and out of tunnels, {read} read, \
         {written} \
         written"
    );
    let needed = 2 * (STREAM_LENGTH / 1460) as u64;
    assert!(segments.0 >= needed && segments.1 >= needed, "{segments:?}");
    // Each station reads a burst from the device as one packet, so the number of reads is much smaller than
    // the number of segments.
    assert!(read < segments.0 + segments.1 - needed / 2, "{read} of {segments:?}");
    assert!(written < segments.0 + segments.1 - needed / 4, "{written} of {segments:?}");
    let errors = router.counter("tunnel.write_errors") + agent.counter("tunnel.write_errors");
    assert_eq!(errors, 0);
}

/// Sends bursts of 20 datagrams of 1000 octets, of which the last is shorter. The next burst follows when the
/// previous one has arrived. Returns whether all arrive.
pub fn udp_burst_arrives(from: &Host, source: Ipv6Addr, to: &Host, destination: Ipv6Addr) -> bool {
    const DATAGRAM_SIZE: usize = 1000;
    const BURST_LENGTH: usize = 20 * DATAGRAM_SIZE - 300;
    let receiver = to.run_in_namespace(move || {
        let socket = UdpSocket::bind((destination, TCP_PORT)).expect("a socket");
        setsockopt(&socket, RcvBuf, &(1 << 20)).expect("a buffer");
        socket.set_read_timeout(Some(seconds(10))).expect("a timeout");
        socket
    });
    let sender = from.run_in_namespace(move || UdpSocket::bind((source, 0)).expect("a socket"));
    if let Err(error) = setsockopt(&sender, UdpGsoSegment, &(DATAGRAM_SIZE as i32)) {
        println!("\nSKIPPED: no UDP_SEGMENT ({error})");
        return false;
    }
    let in_one = Cell::new(true);
    for round in 0..50 {
        let burst: Vec<u8> = (round * BURST_LENGTH..(round + 1) * BURST_LENGTH).map(expected_octet).collect();
        let each = || {
            burst
                .chunks(DATAGRAM_SIZE)
                .map(|datagram| sender.send_to(datagram, (destination, TCP_PORT)))
                .sum::<io::Result<_>>()
        };
        let send = || if in_one.get() { sender.send_to(&burst, (destination, TCP_PORT)) } else { each() };
        let send = || match send() {
            // Before Linux 6.11, an interface without checksum offload refuses bursts of UDP.
            Err(error) if in_one.get() && error.raw_os_error() == Some(Errno::EIO as i32) => {
                setsockopt(&sender, UdpGsoSegment, &0).expect("no more bursts");
                in_one.set(false);
                None
            }
            sent => sent.ok(),
        };
        assert_eq!(wait_for("the burst is sent", seconds(5), send), BURST_LENGTH);
        let mut buffer = [0; 2000];
        for datagram in burst.chunks(DATAGRAM_SIZE) {
            let length = uninterrupted(|| receiver.recv(&mut buffer)).expect("a datagram");
            assert!(buffer[..length] == *datagram, "round {round}: {length} octets");
        }
    }
    true
}

#[test]
fn tunnel_delivers_udp_gso_bursts_as_single_datagrams() {
    if !can_run_or_report() {
        return;
    }
    let (bed, agent, router) = start_on_slow_path();
    let before = segment_counts(&bed.router).0;
    // Packets before the registration do not count. Packets of the kernels themselves on the tunnel devices
    // (Router Solicitations, multicast listener reports) never count.
    let of = |station: &Station| {
        // Read this counter before the sum that contains it, because both grow between the two reads.
        let scope = station.counter("tunnel.dropped.scope");
        station.sum_of_counters("tunnel.dropped") - scope
    };
    let dropped = || of(&router) + of(&agent);
    let dropped_before = dropped();
    let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    if !udp_burst_arrives(&bed.host, inside, &bed.core, outside)
        || !udp_burst_arrives(&bed.core, outside, &bed.host, inside)
    {
        return;
    }
    println!("router: {} pieces read for 2000 datagrams", segment_counts(&bed.router).0 - before);
    assert!(router.counter("tunnel.encapsulated") >= 1000 && agent.counter("tunnel.encapsulated") >= 1000);
    assert_eq!(router.counter("tunnel.write_errors") + agent.counter("tunnel.write_errors"), 0);
    assert_eq!(dropped(), dropped_before, "{} {}", router.show_json("counters"), agent.show_json("counters"));
}

/// The kernel merges single packets that arrive at a network card (GRO), so that the station reads few large
/// packets. After the test the interfaces have their original settings.
#[test]
fn kernel_merges_single_datagrams_of_a_flow() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let before = [&bed.agent, &bed.router].map(Host::kernel_state);
    let tun = "\n[dataplane]\npath = 'tun'\n";
    let mut agent = Station::start(&bed.agent, &(bed.agent_config() + tun));
    let mut router = Station::start(&bed.router, &(bed.router_config() + tun));
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    // The kernel splits bursts into packets before they reach the cable.
    for (host, interface) in [(&bed.host, "eth0"), (&bed.core, "ha")] {
        let output = host.run_program(&["ethtool", "-K", interface, "tx-udp-segmentation", "off"]);
        assert!(output.status.success(), "ethtool (Debian package ethtool): {}", output_text(&output));
    }
    let read = [segment_counts(&bed.router).0, segment_counts(&bed.agent).0];
    let (inside, outside) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    let [up, down] =
        [(&bed.host, inside, &bed.core, outside), (&bed.core, outside, &bed.host, inside)].map(|way| {
            let (from, source, to, destination) = way;
            udp_burst_arrives(from, source, to, destination)
        });
    if !(up && down) {
        return;
    }
    // At each station 1000 datagrams leave a tunnel and 1000 enter a tunnel. Each is a packet of its own.
    let read = [segment_counts(&bed.router).0 - read[0], segment_counts(&bed.agent).0 - read[1]];
    println!("router and agent: {read:?} pieces read for 2000 datagrams each");
    assert!(read.iter().all(|pieces| (1000..1500).contains(pieces)), "{read:?}");
    router.terminate();
    agent.terminate();
    assert_same_state(&before[0], &bed.agent.kernel_state(), "the home agent's host");
    assert_same_state(&before[1], &bed.router.kernel_state(), "the router's host");
}
