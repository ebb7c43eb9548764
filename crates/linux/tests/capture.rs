//! Tests that packets that the kernel's own IPv6 would refuse arrive unchanged in the TUN device.
//!
//! The peer sends the messages of a home agent or a mobile router. The messages are a Binding Update with a
//! Home Address option, and a Binding Acknowledgement with a type 2 routing header. The peer also sends
//! tunnelled packets, complete or in fragments. Without carnet's rules the kernel answers them with ICMPv6
//! errors, as the first test verifies.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use carnet_linux::{Platform, TunDevice, TunnelReader};
use carnet_nemo::forwarding::desired::*;
use carnet_nemo::forwarding::packet::PacketBuffer;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const HOME_AGENT: &str = "2001:db8:f1::1";
const CARE_OF_ADDRESS: &str = "2001:db8:f1::10";

fn address_octets(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().unwrap().octets()
}

fn ipv6_packet(next_header: u8, source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(address_octets(source));
    packet.extend(address_octets(destination));
    packet.extend(payload);
    packet
}

/// Returns name and octets of each packet that the remote tunnel end (home agent or mobile router) sends.
fn packets_of_each_kind(source: &str, destination: &str) -> Vec<(&'static str, Vec<u8>)> {
    let home = address_octets("2001:db8:1::1234");
    let mobility = [59, 1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 1, 2];
    let routing = [&[135, 2, 2, 1, 0, 0, 0, 0][..], &home, &mobility].concat();
    let options = [&[135, 2, 1, 2, 0, 0, 0xc9, 16][..], &home, &mobility].concat();
    let inner = ipv6_packet(59, destination, source, b"12345678");
    let (first, last) = inner.split_at(40);
    let fragments =
        [[&[41, 0, 0, 1, 0, 0, 0, 9][..], first].concat(), [&[41, 0, 0, 40, 0, 0, 0, 9][..], last].concat()];
    vec![
        ("type 2 routing header", ipv6_packet(43, source, destination, &routing)),
        ("home address option", ipv6_packet(60, source, destination, &options)),
        ("tunnelled packet", ipv6_packet(41, source, destination, &inner)),
        ("mobility header", ipv6_packet(135, source, destination, &mobility)),
        ("first fragment", ipv6_packet(44, source, destination, &fragments[0])),
        ("last fragment", ipv6_packet(44, source, destination, &fragments[1])),
    ]
}

/// Lets the peer send `packets` and listen for ICMPv6 errors. Returns their types and codes.
fn send_and_read_errors(peer: &PeerNamespace, packets: Vec<Vec<u8>>) -> Vec<(u8, u8)> {
    peer.run_in_namespace(move || {
        let errors = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        errors.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(255))).unwrap();
        raw.set_header_included_v6(true).unwrap();
        for packet in &packets {
            let destination: [u8; 16] = packet[24..40].try_into().unwrap();
            let address = SocketAddrV6::new(destination.into(), 0, 0, 0);
            raw.send_to(packet, &SockAddr::from(address)).unwrap();
        }
        let mut found = Vec::new();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 2000];
        while let Ok(length) = errors.recv(&mut buffer) {
            assert!(length >= 2);
            // SAFETY: the kernel has just written at least these two octets.
            let [kind, code] = unsafe { [buffer[0].assume_init(), buffer[1].assume_init()] };
            if (1..=4).contains(&kind) {
                found.push((kind, code));
            }
        }
        found
    })
}

async fn read_all_packets(tunnel: &TunDevice) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut buffer = PacketBuffer::new();
    let mut reader = TunnelReader::new(tunnel.clone());
    while tokio::time::timeout(Duration::from_millis(200), tunnel.readable(None)).await.is_ok() {
        while let Ok(()) = reader.try_read(&mut buffer) {
            packets.push(buffer.as_slice().to_vec());
        }
    }
    packets
}

/// Sets up the link of a mobile router: `v0` has the care-of address, the peer has the home agent's address.
fn create_mobile_router_link() -> PeerNamespace {
    let peer = PeerNamespace::new();
    run_ip("link set lo up");
    peer.create_link("v0", "p0");
    add_address("v0", &format!("{CARE_OF_ADDRESS}/64"));
    peer.run_in_namespace(|| add_address("p0", &format!("{HOME_AGENT}/64")));
    set_sysctl("all/forwarding", "1");
    peer
}

fn capture_tunnel_packets(platform: &mut Platform) {
    platform.apply_change(&set_entry(route_entry(TABLE_CAPTURE, "::/0", 1024, TUNNEL_DEVICE))).unwrap();
    for protocol in [41, 135, 44] {
        platform
            .apply_change(&set_entry(capture_rule("v0", &format!("{HOME_AGENT}/128"), protocol)))
            .unwrap();
    }
}

#[test]
fn kernel_without_carnet_refuses_tunnelled_packets() {
    in_new_namespace(|_| async {
        let peer = create_mobile_router_link();
        let errors = send_and_read_errors(
            &peer,
            packets_of_each_kind(HOME_AGENT, CARE_OF_ADDRESS).into_iter().map(|(_, p)| p).collect(),
        );
        assert!(errors.contains(&(4, 0)) && errors.contains(&(4, 2)) || errors.len() >= 3, "{errors:?}");
    });
}

/// Checks that the packets arrive unchanged, except for the hop limit that the kernel's forwarding
/// decrements.
fn assert_received_unchanged(sent: &[(&str, Vec<u8>)], received: &[Vec<u8>]) {
    let mut received = received.iter();
    for (name, packet) in sent {
        let mut expected = packet.clone();
        expected[7] -= 1;
        assert_eq!(received.next(), Some(&expected), "{name}");
    }
    assert_eq!(received.next(), None);
}

#[test]
fn mobile_router_receives_tunnelled_packets_at_care_of_address() {
    in_new_namespace(|scratch| async move {
        let peer = create_mobile_router_link();
        let mut platform = scratch.open_platform();
        let tunnel = platform.tunnel_device();
        capture_tunnel_packets(&mut platform);
        let sent = packets_of_each_kind(HOME_AGENT, CARE_OF_ADDRESS);
        let errors = send_and_read_errors(&peer, sent.iter().map(|(_, p)| p.clone()).collect());
        assert_eq!(errors, []);
        assert_received_unchanged(&sent, &read_all_packets(&tunnel).await);

        // The kernel handles all other packets as before, such as an Echo Request from the home agent, and
        // tunnelled packets of other nodes.
        peer.run_in_namespace(|| add_address("p0", "2001:db8:f1::2/64"));
        let echo =
            peer.run_in_namespace(|| run_command(&format!("ping -c1 -W2 -I {HOME_AGENT} {CARE_OF_ADDRESS}")));
        assert!(echo.contains("1 received"), "{echo}");
        assert_ne!(
            send_and_read_errors(
                &peer,
                packets_of_each_kind("2001:db8:f1::2", CARE_OF_ADDRESS).into_iter().map(|(_, p)| p).collect()
            ),
            []
        );
        assert_eq!(read_all_packets(&tunnel).await, Vec::<Vec<u8>>::new());

        // The kernel routes a packet that carnet writes through the uplink to the peer.
        let echo_request = {
            let mut message = vec![128, 0, 0, 0, 0x12, 0x34, 0, 1];
            let sum: u32 = [address_octets(CARE_OF_ADDRESS), address_octets(HOME_AGENT)]
                .concat()
                .chunks(2)
                .chain(message.chunks(2))
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum::<u32>()
                + 58
                + 8;
            let folded = (sum & 0xffff) + (sum >> 16);
            message[2..4].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
            ipv6_packet(58, CARE_OF_ADDRESS, HOME_AGENT, &message)
        };
        let received = || {
            peer.run_in_namespace(|| {
                let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
                let line = text.lines().find(|line| line.starts_with("Icmp6InEchos")).unwrap();
                line.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
            })
        };
        let before = received();
        assert_eq!(tunnel.try_write(&echo_request).unwrap(), echo_request.len());
        let begin = std::time::Instant::now();
        while received() == before && begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(received(), before + 1);
    });
}

#[test]
fn home_agent_receives_tunnelled_packets_at_its_address() {
    in_new_namespace(|scratch| async move {
        let home_agent = "2001:db8:1::1";
        let peer = create_mobile_router_link();
        peer.run_in_namespace(move || run_ip(&format!("-6 route add {home_agent} via {CARE_OF_ADDRESS}")));
        let mut platform = scratch.open_platform();
        let tunnel = platform.tunnel_device();
        platform
            .apply_change(&set_entry(route_entry(
                TABLE_MAIN,
                &format!("{home_agent}/128"),
                64,
                TUNNEL_DEVICE,
            )))
            .unwrap();
        let sent = packets_of_each_kind(HOME_AGENT, home_agent);
        let errors = send_and_read_errors(&peer, sent.iter().map(|(_, p)| p.clone()).collect());
        assert_eq!(errors, []);
        assert_received_unchanged(&sent, &read_all_packets(&tunnel).await);
        assert_eq!(policy_rules().len(), 2, "no rule is needed for it");
    });
}

#[test]
fn kernel_sends_no_packet_of_its_own_into_tun_device() {
    in_new_namespace(|scratch| async move {
        set_sysctl("default/disable_ipv6", "1");
        let silent = async |platform: &Platform| {
            let tunnel = platform.tunnel_device();
            let seen = tokio::time::timeout(Duration::from_millis(1200), tunnel.readable(None)).await;
            assert!(seen.is_err(), "{:?}", read_all_packets(&tunnel).await);
        };
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        silent(&platform).await;
        platform.close().unwrap();
        // The machine is a router before carnet starts.
        set_sysctl("all/forwarding", "1");
        let mut platform = scratch.open_platform();
        silent(&platform).await;
        platform
            .apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:1::1/128", 64, TUNNEL_DEVICE)))
            .unwrap();
        assert_eq!(run_ip_json("-6 route show 2001:db8:1::1").len(), 1);
    });
}

#[test]
fn tun_device_returns_whole_packets() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        let tunnel = platform.tunnel_device();
        platform
            .apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:1::1/128", 64, TUNNEL_DEVICE)))
            .unwrap();
        add_address("lo", "2001:db8:2::1/128");
        let socket = std::net::UdpSocket::bind("[2001:db8:2::1]:0").unwrap();
        socket.send_to(&[7; 500], "[2001:db8:1::1]:9").unwrap();
        socket.send_to(&[8; 5], "[2001:db8:1::1]:9").unwrap();
        tunnel.readable(None).await.unwrap();
        let mut reader = TunnelReader::new(tunnel.clone());
        let mut buffer = PacketBuffer::new();
        for length in [548, 53] {
            reader.try_read(&mut buffer).unwrap();
            assert_eq!(buffer.as_slice().len(), length);
        }
        assert_eq!(reader.try_read(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
}
