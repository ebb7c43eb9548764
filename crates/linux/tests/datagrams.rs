//! Tests the sockets for IPv6 inside IPv4 and UDP: packets that they send, and packets that they receive.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use carnet_linux::{DatagramReader, DatagramSockets, DatagramWriter, PacketTooBigReport, ReceivedDatagram};
use carnet_nemo::forwarding::desired::{ForwardingEntry, TunnelSocket};
use carnet_station::io::Endpoint;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::{Domain, Protocol, Type};
use std::io::IoSlice;
use std::os::fd::AsRawFd;

const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

fn parse_endpoint(text: &str) -> Endpoint {
    text.parse().unwrap()
}

fn socket_entry(local: &str, interface: Option<&str>) -> ForwardingEntry {
    ForwardingEntry::Socket(TunnelSocket {
        local: parse_endpoint(local),
        interface: interface.map(str::to_owned),
    })
}

/// Returns octets that begin like an IPv6 packet of this traffic class.
fn numbered_packet(length: usize, traffic_class: u8, mark: u8) -> Vec<u8> {
    let mut packet = vec![mark; length];
    packet[0] = 6 << 4 | traffic_class >> 4;
    packet[1] = traffic_class << 4;
    packet
}

/// Links 192.0.2.1 on `v0` with 192.0.2.2 on the peer's `p0`.
fn create_linked_peer() -> PeerNamespace {
    let peer = PeerNamespace::new();
    peer.create_link("v0", "p0");
    run_ip("addr add 192.0.2.1/24 dev v0");
    peer.run_in_namespace(|| run_ip("addr add 192.0.2.2/24 dev p0"));
    peer
}

/// Reads `count` packets from the sockets.
async fn read_datagrams(io: &DatagramSockets, count: usize) -> Vec<(ReceivedDatagram, Vec<u8>)> {
    let mut reader = DatagramReader::new(io.clone());
    let mut buffer = vec![0; 65_535];
    let mut packets = Vec::new();
    while packets.len() < count {
        tokio::time::timeout(RECEIVE_TIMEOUT, io.readable()).await.expect("packets").unwrap();
        while let Ok(received) = reader.try_read(&mut buffer) {
            packets.push((received, buffer[..received.length].to_vec()));
        }
    }
    packets
}

/// Returns a UDP socket of the peer that waits for packets.
fn open_peer_socket(peer: &PeerNamespace) -> UdpSocket {
    peer.run_in_namespace(|| {
        let there = UdpSocket::bind("192.0.2.2:5000").unwrap();
        there.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
        there
    })
}

#[test]
fn udp_tunnel_carries_bursts_in_both_directions() {
    in_new_namespace(|scratch| async move {
        let peer = create_linked_peer();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(socket_entry("udp:192.0.2.1:4191", Some("v0")))).unwrap();
        let io = platform.datagram_sockets();
        let there = open_peer_socket(&peer);
        let mut writer = DatagramWriter::new(io.clone());
        let mut sent = Vec::new();
        // Send packets of one length and a shorter last one, then packets with another traffic class, then a
        // longer packet after a shorter one.
        for (at, (length, class)) in
            [(1200, 0), (1200, 0), (1200, 0), (700, 0), (1200, 0xb8), (1200, 0xb8), (300, 2), (301, 2)]
                .into_iter()
                .cycle()
                .take(40)
                .enumerate()
        {
            let packet = numbered_packet(length, class, at as u8);
            writer.write(
                parse_endpoint("udp:192.0.2.1:4191"),
                parse_endpoint("udp:192.0.2.2:5000"),
                false,
                &packet,
            );
            sent.push(packet);
        }
        writer.flush();
        assert_eq!(writer.write_error_count(), 0);
        let mut buffer = vec![0; 2000];
        for packet in &sent {
            let (length, from) = there.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from), (&packet[..], "192.0.2.1:4191".parse().unwrap()));
        }

        // A burst with a traffic class arrives; its last packet is shorter.
        let burst: Vec<u8> =
            (0..20).flat_map(|at| numbered_packet(if at < 19 { 1000 } else { 400 }, 0, at)).collect();
        let to = SockaddrStorage::from("192.0.2.1:4191".parse::<SocketAddr>().unwrap());
        let control = [ControlMessage::UdpGsoSegments(&1000), ControlMessage::Ipv4Tos(&0xbb)];
        sendmsg(there.as_raw_fd(), &[IoSlice::new(&burst)], &control, MsgFlags::empty(), Some(&to)).unwrap();
        let packets = read_datagrams(&io, 20).await;
        for (at, (received, octets)) in packets.iter().enumerate() {
            assert_eq!(octets, &numbered_packet(if at < 19 { 1000 } else { 400 }, 0, at as u8));
            let (local, remote) =
                (parse_endpoint("udp:192.0.2.1:4191"), parse_endpoint("udp:192.0.2.2:5000"));
            assert_eq!(
                *received,
                ReceivedDatagram { length: octets.len(), local, remote, traffic_class: 0xbb }
            );
        }
        // The socket is closed when its entry is removed.
        platform.apply_change(&remove_entry(socket_entry("udp:192.0.2.1:4191", Some("v0")))).unwrap();
        writer.write(
            parse_endpoint("udp:192.0.2.1:4191"),
            parse_endpoint("udp:192.0.2.2:5000"),
            false,
            &numbered_packet(100, 0, 0),
        );
        writer.flush();
        assert_eq!(writer.write_error_count(), 1);
    });
}

#[test]
fn protocol_41_tunnel_carries_packets_in_both_directions() {
    in_new_namespace(|scratch| async move {
        let peer = create_linked_peer();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(socket_entry("192.0.2.1", None))).unwrap();
        let io = platform.datagram_sockets();
        let there = peer.run_in_namespace(|| {
            let there = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(41))).unwrap();
            there.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
            there.set_tos_v4(0x2d).unwrap();
            UdpSocket::from(there)
        });
        let mut writer = DatagramWriter::new(io.clone());
        writer.write(
            parse_endpoint("192.0.2.1"),
            parse_endpoint("192.0.2.2"),
            false,
            &numbered_packet(1400, 0xb9, 7),
        );
        writer.write(
            parse_endpoint("192.0.2.1"),
            parse_endpoint("192.0.2.2"),
            true,
            &numbered_packet(1600, 0, 8),
        );
        writer.flush();
        assert_eq!(writer.write_error_count(), 0);
        let mut buffer = vec![0; 2000];
        let length = there.recv(&mut buffer).unwrap();
        let (header, inner) = buffer[..length].split_at(20);
        assert_eq!(inner, numbered_packet(1400, 0xb9, 7));
        // Compares TOS, DF, TTL and protocol.
        assert_eq!((header[1], header[6] & 0x40, header[8], header[9]), (0xb9, 0x40, 64, 41));
        let length = there.recv(&mut buffer).unwrap();
        assert_eq!(
            (buffer[6] & 0x40, &buffer[20..length]),
            (0, &numbered_packet(1600, 0, 8)[..]),
            "cut, and put together"
        );

        there.send_to(&numbered_packet(900, 0, 9), "192.0.2.1:0").unwrap();
        let packets = read_datagrams(&io, 1).await;
        let (local, remote) = (parse_endpoint("192.0.2.1"), parse_endpoint("192.0.2.2"));
        assert_eq!(
            packets,
            [(
                ReceivedDatagram { length: 900, local, remote, traffic_class: 0x2d },
                numbered_packet(900, 0, 9)
            )]
        );
    });
}

#[test]
fn icmp_fragmentation_needed_is_reported() {
    in_new_namespace(|scratch| async move {
        let peer = create_linked_peer();
        run_ip("route add 198.51.100.0/24 via 192.0.2.2");
        peer.run_in_namespace(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            run_ip("link add d0 mtu 1300 type veth peer name d1");
            run_ip("link set d1 up");
            run_ip("link set d0 up");
            run_ip("addr add 198.51.100.1/24 dev d0");
        });
        let mut platform = scratch.open_platform();
        for (local, remote) in
            [("udp:192.0.2.1:4191", "udp:198.51.100.9:4191"), ("192.0.2.1", "198.51.100.9")]
        {
            platform.apply_change(&set_entry(socket_entry(local, None))).unwrap();
            let io = platform.datagram_sockets();
            let (mut writer, mut reader) = (DatagramWriter::new(io.clone()), DatagramReader::new(io.clone()));
            let deadline = Instant::now() + RECEIVE_TIMEOUT;
            let told = loop {
                assert!(
                    Instant::now() < deadline,
                    "nothing is told of {local}, {} errors",
                    writer.write_error_count()
                );
                writer.write(
                    parse_endpoint(local),
                    parse_endpoint(remote),
                    false,
                    &numbered_packet(1400, 0, 1),
                );
                writer.flush();
                let _ = tokio::time::timeout(Duration::from_millis(5), io.readable()).await;
                assert!(reader.try_read(&mut [0; 2000]).is_err());
                if let Some(told) = io.poll_too_big_report() {
                    break told;
                }
            };
            assert_eq!(
                told,
                PacketTooBigReport {
                    local: parse_endpoint(local),
                    remote: parse_endpoint(remote),
                    mtu: 1300
                }
            );
            assert_eq!(writer.write_error_count(), 0, "the error of one packet costs no other");
            // A packet that may be fragmented still passes.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(reader.try_read(&mut [0; 2000]).is_err());
            writer.write(parse_endpoint(local), parse_endpoint(remote), true, &numbered_packet(100, 0, 1));
            while io.poll_too_big_report().is_some() {}
            for _ in 0..5 {
                writer.write(
                    parse_endpoint(local),
                    parse_endpoint(remote),
                    true,
                    &numbered_packet(1280, 0, 1),
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!((writer.write_error_count(), io.poll_too_big_report()), (0, None));
        }
    });
}

#[test]
fn tunnel_socket_sends_by_its_own_uplink() {
    in_new_namespace(|scratch| async move {
        let (first, second) = (create_linked_peer(), PeerNamespace::new());
        second.create_link("v1", "p0");
        run_ip("addr add 203.0.113.1/24 dev v1");
        run_ip("route add default via 192.0.2.2 dev v0 metric 100");
        run_ip("route add default via 203.0.113.2 dev v1 metric 200");
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(socket_entry("udp:192.0.2.1:4191", Some("v0")))).unwrap();
        platform.apply_change(&set_entry(socket_entry("udp:203.0.113.1:4191", Some("v1")))).unwrap();
        let listen = |peer: &PeerNamespace, gateway: &'static str| {
            peer.run_in_namespace(move || {
                if gateway.starts_with("203") {
                    run_ip(&format!("addr add {gateway}/24 dev p0"));
                }
                run_ip("addr add 198.51.100.1/32 dev lo");
                let there = UdpSocket::bind("198.51.100.1:4191").unwrap();
                there.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
                there
            })
        };
        let there = [listen(&first, "192.0.2.2"), listen(&second, "203.0.113.2")];
        let io = platform.datagram_sockets();
        let mut writer = DatagramWriter::new(io.clone());
        for local in ["udp:192.0.2.1:4191", "udp:203.0.113.1:4191"] {
            writer.write(
                parse_endpoint(local),
                parse_endpoint("udp:198.51.100.1:4191"),
                false,
                &numbered_packet(100, 0, 1),
            );
        }
        writer.flush();
        let mut buffer = [0; 200];
        for (there, from) in there.iter().zip(["192.0.2.1:4191", "203.0.113.1:4191"]) {
            assert_eq!(there.recv_from(&mut buffer).unwrap(), (100, from.parse().unwrap()));
        }
        // The link is deleted, and appears again with another index.
        run_ip("link del v1");
        second.create_link("v1", "p0");
        second.run_in_namespace(|| run_ip("addr add 203.0.113.2/24 dev p0"));
        run_ip("addr add 203.0.113.1/24 dev v1");
        run_ip("route add default via 203.0.113.2 dev v1 metric 200");
        let deadline = Instant::now() + RECEIVE_TIMEOUT;
        loop {
            events_during(&mut platform, Duration::from_millis(20)).await;
            writer.write(
                parse_endpoint("udp:203.0.113.1:4191"),
                parse_endpoint("udp:198.51.100.1:4191"),
                false,
                &numbered_packet(100, 0, 1),
            );
            writer.flush();
            there[1].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            if there[1].recv_from(&mut buffer).is_ok() {
                break;
            }
            assert!(Instant::now() < deadline, "the socket is not opened anew");
        }
    });
}

/// The test sends more forged ICMP messages than carnet reads at once. The socket still sends and receives
/// all packets.
#[test]
fn icmp_errors_lose_no_tunnel_packet() {
    in_new_namespace(|scratch| async move {
        let peer = create_linked_peer();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(socket_entry("udp:192.0.2.1:4191", Some("v0")))).unwrap();
        let io = platform.datagram_sockets();
        let there = open_peer_socket(&peer);
        let (here, remote) = (parse_endpoint("udp:192.0.2.1:4191"), parse_endpoint("udp:192.0.2.2:5000"));
        let mut writer = DatagramWriter::new(io.clone());
        // The ICMP message is "port unreachable" and quotes a UDP packet of this socket: IPv4 header, ports,
        // length, no checksum.
        let quoted = [
            &[0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2][..],
            &[0x10, 0x5f, 0x13, 0x88, 0, 108, 0, 0],
        ]
        .concat();
        let mut message = [&[3, 3, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
        let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        peer.run_in_namespace(move || {
            let stranger = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
            let to = "192.0.2.1:0".parse::<SocketAddr>().unwrap();
            for _ in 0..500 {
                stranger.send_to(&message, &to.into()).unwrap();
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut buffer = vec![0; 2000];
        for mark in 0..20 {
            writer.write(here, remote, false, &numbered_packet(300, 0, mark));
            writer.flush();
            assert_eq!(writer.write_error_count(), 0, "packet {mark}");
            let (length, _) = there.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..length], numbered_packet(300, 0, mark));
        }
        // The socket still receives packets.
        there.send_to(&numbered_packet(200, 0, 9), "192.0.2.1:4191").unwrap();
        assert_eq!(read_datagrams(&io, 1).await[0].0.length, 200);
    });
}
