//! Tests that control messages of one sender arrive in the order in which the sender sent them. The order
//! must also hold when the sender becomes known or unknown, and its messages move to another queue of the TUN
//! device.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carnet_linux::{DeviceQueue, Platform, PlatformConfig, TunnelReader};
use carnet_nemo::forwarding::desired::*;
use carnet_nemo::forwarding::packet::PacketBuffer;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const HOME_AGENT: &str = "2001:db8:1::1";
const CARE_OF_ADDRESS: &str = "2001:db8:f1::10";
const UPLINK_ADDRESS: &str = "2001:db8:f1::1";

fn address_octets(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().unwrap().octets()
}

/// Returns a message with a Mobility Header that contains a number.
fn numbered_control_message(number: u32) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 135, 64];
    packet.extend(address_octets(CARE_OF_ADDRESS));
    packet.extend(address_octets(HOME_AGENT));
    packet.extend([59, 0, 99, 0]);
    packet.extend(number.to_be_bytes());
    packet
}

#[test]
fn control_messages_stay_in_order_when_sender_changes_queue() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("v0", "p0");
        add_address("v0", &format!("{UPLINK_ADDRESS}/64"));
        peer.run_in_namespace(|| {
            add_address("p0", &format!("{CARE_OF_ADDRESS}/64"));
            run_ip(&format!("-6 route add {HOME_AGENT} via {UPLINK_ADDRESS}"));
        });
        set_sysctl("all/forwarding", "1");
        let config = PlatformConfig { max_known_senders: 1, ..scratch.platform_config() };
        let mut platform = Platform::open(config).unwrap();
        platform
            .apply_change(&set_entry(route_entry(
                TABLE_MAIN,
                &format!("{HOME_AGENT}/128"),
                64,
                TUNNEL_DEVICE,
            )))
            .unwrap();
        let tunnel = ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end: TunnelEnd::HomeAgent,
            home_address: "2001:db8:1::1234".parse().unwrap(),
            bid: None,
            local: HOME_AGENT.parse::<Ipv6Addr>().unwrap().into(),
            remote: CARE_OF_ADDRESS.parse::<Ipv6Addr>().unwrap().into(),
            inner: Vec::new(),
            transmit: true,
            mtu: 1400,
            session: None,
        }));

        let io = platform.tunnel_device();
        let mut reader = TunnelReader::new(io.clone());
        let mut buffer = PacketBuffer::new();
        let (mut sent, mut expected) = (0, 0);
        // The queue of the latest message, and how often that queue has changed.
        let (mut place, mut changes) = (DeviceQueue::OtherSenders, 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        for round in 0_u32.. {
            // In the first rounds more messages arrive than the test reads. In later rounds the test reads
            // all messages before it sends the next one.
            let is_crowd = round % 60 < 15;
            let count = if is_crowd { 20 } else { u32::from(round % 60 == 59) };
            let (first, last) = (sent, sent + count);
            peer.run_in_namespace(move || {
                let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(255))).unwrap();
                raw.set_header_included_v6(true).unwrap();
                let to = SockAddr::from(SocketAddrV6::new(HOME_AGENT.parse().unwrap(), 0, 0, 0));
                for number in first..last {
                    raw.send_to(&numbered_control_message(number), &to).unwrap();
                }
            });
            sent = last;
            match round % 120 {
                5 => platform.apply_change(&set_entry(tunnel.clone())).unwrap(),
                65 => platform.apply_change(&remove_entry(tunnel.clone())).unwrap(),
                _ => {}
            }
            // Read the queue of known senders before that of unknown senders, as the station does, or after
            // it.
            let mut queues = [DeviceQueue::Known, DeviceQueue::OtherSenders];
            if round % 2 == 1 {
                queues.reverse();
            }
            let _ = tokio::time::timeout(Duration::from_millis(25), io.readable(None)).await;
            // Let the runtime poll the kernel, so that it knows which queue has packets.
            tokio::task::yield_now().await;
            for queue in queues {
                let mut left = if is_crowd { 7 } else { u32::MAX };
                while left > 0 && reader.try_read_from(queue, &mut buffer).is_ok() {
                    left -= 1;
                    let number = u32::from_be_bytes(*buffer.as_slice().last_chunk().unwrap());
                    assert_eq!(number, expected, "round {round}, from {queue:?}");
                    expected += 1;
                    changes += u32::from(queue != place);
                    place = queue;
                }
            }
            reader.move_known_senders();
            // The sender has changed its queue twice in each direction.
            if changes >= 4 && expected == sent {
                break;
            }
            assert!(Instant::now() < deadline, "{changes} changes, {expected} of {sent}");
        }
    });
}

#[test]
fn only_home_agent_with_nodes_has_several_tun_queues() {
    for senders in [0, 1] {
        in_new_namespace(move |scratch| async move {
            let config = PlatformConfig { max_known_senders: senders, ..scratch.platform_config() };
            let _platform = Platform::open(config).unwrap();
            let shown = run_ip(&format!("-d link show {TUNNEL_DEVICE}"));
            assert_eq!(shown.contains("multi_queue numqueues 3"), senders > 0, "{shown}");
        });
    }
}
