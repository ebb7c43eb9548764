//! Tests virtual interfaces for IPv6 over GeoNetworking, by the output of `ip` and the kernel's own traffic.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use carnet_linux::Error;
use carnet_linux::virtual_link::{AcceptedAdvertisements, VirtualLinkConfig, VirtualLinkEvent, VirtualLinks};
use carnet_wire::{icmpv6, nd};
use common::{in_new_namespace, read_sysctl, run_ip, wait_until_address_is_usable};

const MAC_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
const LINK_LOCAL_ADDRESS: &str = "fe80::ff:fe00:a";

fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn virtual_link_config() -> VirtualLinkConfig {
    VirtualLinkConfig {
        link_id: 7,
        name: "gn0".into(),
        address: MAC_ADDRESS,
        link_local_address: parse_address(LINK_LOCAL_ADDRESS),
        mtu: 1398,
        accepted_advertisements: AcceptedAdvertisements::Ignored,
    }
}

/// Waits for the addresses of the interface and returns them.
async fn addresses_of_link(links: &mut VirtualLinks) -> Vec<(Ipv6Addr, u8)> {
    let wait = async {
        loop {
            match links.readable().await.expect("news") {
                VirtualLinkEvent::Addresses { link: 7, addresses } => return addresses,
                _ => links.try_receive(|_| {}),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("addresses in time")
}

/// Returns `count` packets from the host to this UDP port, each with the link-layer addresses of its frame.
async fn receive_datagrams(
    links: &mut VirtualLinks,
    port: u16,
    count: usize,
) -> Vec<([u8; 6], [u8; 6], Vec<u8>)> {
    let mut found = Vec::new();
    let wait = async {
        while found.len() < count {
            if links.readable().await.expect("news") != VirtualLinkEvent::Frames {
                continue;
            }
            links.try_receive(|frame| {
                let is_it = frame.payload.get(6) == Some(&17)
                    && frame.payload.get(42..44) == Some(&port.to_be_bytes()[..]);
                if is_it {
                    assert_eq!((frame.link_id, frame.ether_type), (7, 0x86dd));
                    found.push((frame.destination, frame.source, frame.payload.to_vec()));
                }
            });
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("datagrams in time");
    found
}

#[test]
fn virtual_interface_is_configured_and_removed_at_end() {
    in_new_namespace(async |_| {
        let mut links = VirtualLinks::open().unwrap();
        links.set_link(virtual_link_config()).unwrap();
        let shown = run_ip("-d link show dev gn0");
        assert!(shown.contains("02:00:00:00:00:0a") && shown.contains("mtu 1398"), "{shown}");
        assert_eq!(addresses_of_link(&mut links).await, [(parse_address(LINK_LOCAL_ADDRESS), 64)]);
        let shown = run_ip("-6 addr show dev gn0");
        assert!(!shown.contains("tentative") && shown.matches("inet6").count() == 1, "{shown}");
        // The station gets the operator's address, but not an address that is still tentative.
        run_ip("-6 addr add 2001:db8::1/64 dev gn0 nodad");
        assert_eq!(
            addresses_of_link(&mut links).await,
            [(parse_address("2001:db8::1"), 64), (parse_address(LINK_LOCAL_ADDRESS), 64)]
        );

        links.remove_link(7);
        // Try repeatedly. A child process of another test has a copy of the device's descriptor until it
        // executes its program.
        for _ in 0..1000 {
            if !run_ip("link show").contains("gn0") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("gn0 stays");
    });
}

#[test]
fn virtual_interface_follows_station_address_and_keeps_operator_addresses() {
    in_new_namespace(async |_| {
        let mut links = VirtualLinks::open().unwrap();
        links.set_link(virtual_link_config()).unwrap();
        run_ip("-6 addr add 2001:db8::1/64 dev gn0 nodad");
        let other = VirtualLinkConfig {
            address: [0x02, 0, 0, 0, 0, 0x0b],
            link_local_address: parse_address("fe80::ff:fe00:b"),
            mtu: 1312,
            ..virtual_link_config()
        };
        links.set_link(other).unwrap();
        let shown = run_ip("link show dev gn0");
        assert!(shown.contains("02:00:00:00:00:0b") && shown.contains("mtu 1312"), "{shown}");
        assert_eq!(
            addresses_of_link(&mut links).await,
            [(parse_address("2001:db8::1"), 64), (parse_address("fe80::ff:fe00:b"), 64)]
        );
    });
}

#[test]
fn virtual_interface_segments_bursts_and_keeps_checksums_valid() {
    in_new_namespace(async |_| {
        let mut links = VirtualLinks::open().unwrap();
        links.set_link(virtual_link_config()).unwrap();
        run_ip("-6 neigh add fe80::ff:fe00:b lladdr 02:00:00:00:00:0b dev gn0");
        let index = run_ip("-o link show dev gn0").split(':').next().unwrap().trim().parse().unwrap();
        let socket = UdpSocket::bind((parse_address(LINK_LOCAL_ADDRESS), 0)).unwrap_or_else(|_| {
            let scoped = std::net::SocketAddrV6::new(parse_address(LINK_LOCAL_ADDRESS), 0, 0, index);
            UdpSocket::bind(scoped).unwrap()
        });
        let peer = std::net::SocketAddrV6::new(parse_address("fe80::ff:fe00:b"), 4000, 0, index);
        socket.send_to(b"hello", peer).unwrap();
        let (destination, source, packet) = receive_datagrams(&mut links, 4000, 1).await.remove(0);
        assert_eq!((destination, source), ([2, 0, 0, 0, 0, 0xb], MAC_ADDRESS));
        let (header, payload) = carnet_wire::ipv6::Header::parse_packet(&packet).unwrap();
        let sum = carnet_wire::checksum::upper_layer_checksum(header.source, header.destination, 17, payload);
        assert_eq!((sum & 0xfffe, payload.get(8..)), (0, Some(&b"hello"[..])), "the checksum is right");

        // The reader cuts a burst of datagrams into packets.
        let burst = vec![7; 3000];
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
        socket.send_to(&burst, peer).unwrap();
        for (_, _, packet) in receive_datagrams(&mut links, 4000, 3).await {
            assert_eq!(packet.len(), 40 + 8 + 1000);
        }

        // Wait until packets to the address arrive: a busy kernel reports a new address a moment before it is
        // usable.
        wait_until_address_is_usable("gn0", LINK_LOCAL_ADDRESS);
        let port = socket.local_addr().unwrap().port();
        let mut answer = packet.clone();
        answer[8..24].copy_from_slice(&header.destination.octets());
        answer[24..40].copy_from_slice(&header.source.octets());
        answer[40..44].copy_from_slice(&[&4000_u16.to_be_bytes()[..], &port.to_be_bytes()].concat());
        links.write(7, MAC_ADDRESS, [2, 0, 0, 0, 0, 0xb], &answer);
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut octets = [0; 64];
        let (length, from) = socket.recv_from(&mut octets).unwrap();
        assert_eq!((&octets[..length], from.port()), (&b"hello"[..], 4000));
        assert_eq!((links.counters().sent_frames, links.counters().write_errors), (1, 0));
    });
}

#[test]
fn used_interface_name_is_refused_and_deleted_interface_recreated() {
    in_new_namespace(async |_| {
        let mut links = VirtualLinks::open().unwrap();
        run_ip("link add gn0 type veth peer name other");
        let error = links.set_link(virtual_link_config()).unwrap_err();
        assert!(matches!(&error, Error::Busy { device } if device == "gn0"), "{error}");
        run_ip("link del gn0");
        links.set_link(virtual_link_config()).unwrap();
        assert_eq!(addresses_of_link(&mut links).await.len(), 1);
        run_ip("link del gn0");
        assert_eq!(addresses_of_link(&mut links).await, [(parse_address(LINK_LOCAL_ADDRESS), 64)]);
        assert!(run_ip("link show dev gn0").contains("02:00:00:00:00:0a"));
    });
}

/// Sends the host a Router Advertisement of a router with a prefix.
fn send_router_advertisement(links: &mut VirtualLinks) {
    let options = [nd::NdOption::PrefixInformation(nd::PrefixInformation {
        prefix: parse_address("2001:db8:e::"),
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        router_address: false,
        valid_lifetime: 300,
        preferred_lifetime: 300,
    })];
    let message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
        router_lifetime: 600,
        options: &options,
        ..nd::RouterAdvertisementRepr::default()
    });
    let packet = icmpv6::emit_packet(parse_address("fe80::ff:fe00:b"), nd::ALL_NODES, nd::HOP_LIMIT, message);
    links.write(7, [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xb], &packet);
}

/// Returns whether the kernel has made an address, and whether it has made a default route, from an
/// advertisement.
async fn has_address_and_default_route(
    links: &mut VirtualLinks,
    advertisements: AcceptedAdvertisements,
) -> (bool, bool) {
    links
        .set_link(VirtualLinkConfig { accepted_advertisements: advertisements, ..virtual_link_config() })
        .unwrap();
    send_router_advertisement(links);
    let is_there = |what: &str, expected: &str| run_ip(what).contains(expected);
    let made = || {
        (
            is_there("-6 addr show dev gn0", "2001:db8:e:"),
            is_there("-6 route show default dev gn0", "via fe80::ff:fe00:b"),
        )
    };
    // The kernel handles the advertisement at once, or after a moment.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if advertisements != AcceptedAdvertisements::Ignored && made().0 {
            break;
        }
    }
    made()
}

#[test]
fn station_on_learned_link_is_no_default_router() {
    in_new_namespace(async |_| {
        let mut links = VirtualLinks::open().unwrap();
        assert_eq!(
            has_address_and_default_route(&mut links, AcceptedAdvertisements::Ignored).await,
            (false, false)
        );
        assert_eq!(
            has_address_and_default_route(&mut links, AcceptedAdvertisements::Addresses).await,
            (true, false)
        );
        // The interface becomes an uplink, and later ceases to be an uplink.
        assert_eq!(
            has_address_and_default_route(&mut links, AcceptedAdvertisements::All).await,
            (true, true)
        );
        links.set_link(virtual_link_config()).unwrap();
        assert_eq!(
            (read_sysctl("gn0/accept_ra"), read_sysctl("gn0/accept_ra_defrtr")),
            ("0".into(), "0".into())
        );
    });
}
