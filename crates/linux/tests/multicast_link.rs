//! Tests multicast of the mobile network. A peer's kernel sends and listens, and `/proc` and `ip` show the
//! joined groups.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use carnet_linux::multicast_link::{MulticastEvent, MulticastLinks};
use carnet_wire::checksum;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mld::{GroupRecordType, MldMessage};
use common::{PeerNamespace, add_address, in_new_namespace, run_ip, wait_until_link_is_up};

const MULTICAST_GROUP: &str = "ff1e::42";

fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// Receives packets until they satisfy `enough`, and returns them.
async fn receive_until(links: &mut MulticastLinks, enough: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let wait = async {
        while !enough(&packets) {
            if links.readable().await.expect("news") == MulticastEvent::Frames {
                links.try_receive(|lan| {
                    assert_eq!(lan.interface, "lan0");
                    packets.push(lan.packet.to_vec());
                });
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("packets in time");
    packets
}

/// Processes the kernel's events until none arrives for a moment.
async fn wait_until_idle(links: &mut MulticastLinks) {
    while tokio::time::timeout(Duration::from_millis(200), links.readable()).await.is_ok() {
        links.try_receive(|_| {});
    }
}

/// Returns the lines of this namespace's `/proc/net/mcfilter6` about the group: source, include count,
/// exclude count.
fn joined_groups() -> Vec<(Ipv6Addr, u32, u32)> {
    let text = std::fs::read_to_string("/proc/thread-self/net/mcfilter6").unwrap();
    let hex = |word: &str| Ipv6Addr::from(u128::from_str_radix(word, 16).unwrap());
    let words = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let about = words.filter(|words| words[1] == "gn0" && hex(words[2]) == parse_address(MULTICAST_GROUP));
    about.map(|words| (hex(words[3]), words[4].parse().unwrap(), words[5].parse().unwrap())).collect()
}

#[test]
fn multicast_packets_and_reports_of_host_arrive_with_checksum() {
    in_new_namespace(async |_| {
        let peer = PeerNamespace::new();
        peer.create_link("lan0", "i0");
        add_address("lan0", "2001:db8:a::1/64");
        wait_until_link_is_up("lan0");
        peer.run_in_namespace(|| add_address("i0", "2001:db8:a::64/64"));
        let mut links = MulticastLinks::open(&["lan0".into()], "gn0").unwrap();
        let told = tokio::time::timeout(Duration::from_secs(30), links.readable()).await.unwrap().unwrap();
        let MulticastEvent::Addresses { interface, addresses } = told else { panic!("{told:?}") };
        assert_eq!(interface, "lan0");
        assert!(addresses.contains(&(parse_address("2001:db8:a::1"), 64)), "{addresses:?}");
        wait_until_idle(&mut links).await;
        assert!(run_ip("-d link show dev lan0").contains("allmulti 1"));

        let index: u32 = peer.run_in_namespace(|| nix::net::if_::if_nametoindex("i0").unwrap());
        let socket = peer.run_in_namespace(move || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
            socket.join_multicast_v6(&parse_address(MULTICAST_GROUP), index).unwrap();
            socket
                .send_to(b"hello", SocketAddrV6::new(parse_address(MULTICAST_GROUP), 4000, 0, index))
                .unwrap();
            socket
        });
        let is_data = |packet: &Vec<u8>| packet.get(6) == Some(&protocol::UDP);
        let records = |packet: &[u8]| match MldMessage::parse_packet(packet) {
            Some(Ok((_, MldMessage::Report(records)))) => {
                records.iter().map(|record| (record.record_type, record.group)).collect()
            }
            _ => Vec::new(),
        };
        let joins = (Some(GroupRecordType::ToExclude), parse_address(MULTICAST_GROUP));
        let packets = receive_until(&mut links, |packets| {
            packets.iter().any(is_data) && packets.iter().any(|packet| records(packet).contains(&joins))
        })
        .await;
        let data = packets.iter().find(|packet| is_data(packet)).unwrap();
        let (header, message) = Header::parse_packet(data).unwrap();
        assert_eq!(message[8..], *b"hello");
        assert_eq!(
            checksum::upper_layer_checksum(header.source, header.destination, protocol::UDP, message),
            0
        );
        // The links get no events about the frames that they send.
        links.write("lan0", [0x33, 0x33, 0, 0, 0, 0x42], data);
        let counters = links.counters();
        assert_eq!((counters.sent_frames, counters.write_errors, counters.malformed_frames), (1, 0, 0));
        drop(socket);
        drop(links);
        assert!(run_ip("-d link show dev lan0").contains("allmulti 0"));
    });
}

#[test]
fn group_membership_is_restored_on_recreated_interface() {
    in_new_namespace(async |_| {
        run_ip("link add gn0 type veth peer name gn1");
        run_ip("link set gn0 up");
        let mut links = MulticastLinks::open(&["lan0".into()], "gn0").unwrap();
        wait_until_idle(&mut links).await;
        let (a, b) = (parse_address("2001:db8::a"), parse_address("2001:db8::b"));
        links.subscribe(parse_address(MULTICAST_GROUP), false, vec![a, b]);
        assert_eq!(joined_groups(), [(a, 1, 0), (b, 1, 0)]);
        links.subscribe(parse_address(MULTICAST_GROUP), true, vec![b]);
        assert_eq!(joined_groups(), [(b, 0, 1)]);
        links.subscribe(parse_address(MULTICAST_GROUP), true, vec![]);
        assert_eq!(joined_groups(), []);
        assert!(run_ip("-6 maddr show dev gn0").contains(MULTICAST_GROUP));

        links.subscribe(parse_address(MULTICAST_GROUP), true, vec![a]);
        run_ip("link del gn0");
        wait_until_idle(&mut links).await;
        run_ip("link add gn0 type veth peer name gn1");
        run_ip("link set gn0 up");
        wait_until_idle(&mut links).await;
        assert_eq!(joined_groups(), [(a, 0, 1)]);
        links.subscribe(parse_address(MULTICAST_GROUP), false, vec![]);
        assert!(!run_ip("-6 maddr show dev gn0").contains(MULTICAST_GROUP));
    });
}
