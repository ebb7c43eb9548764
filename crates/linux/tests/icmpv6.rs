//! Tests that the platform receives and sends ICMPv6 on links.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_linux::{Platform, PlatformEvent};
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::io::LinkMessage;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const DEFENDED_ADDRESS: &str = "2001:db8:1::1234";

fn mac_address_of(interface: &str) -> [u8; 6] {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"));
    // /sys still belongs to the namespace from before `unshare`, so read the address by `ip`.
    let text = run_ip_json(&format!("link show {interface}"))
        .first()
        .map(|link| link["address"].as_str().unwrap().to_owned())
        .unwrap_or_else(|| text.unwrap());
    let octets: Vec<u8> = text.trim().split(':').map(|o| u8::from_str_radix(o, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

fn received_messages(events: &[PlatformEvent]) -> Vec<&LinkMessage> {
    let messages = events.iter().filter_map(|event| match event {
        PlatformEvent::Icmpv6(message) => Some(message),
        _ => None,
    });
    messages.collect()
}

/// Lets the peer send a frame to this receiver with an ICMPv6 message.
fn send_frame(peer: &PeerNamespace, receiver: [u8; 6], payload_length: u8, message: &'static [u8]) {
    send_vlan_tagged(peer, receiver, &[], payload_length, message);
}

/// Lets the peer send a frame with a VLAN tag (IEEE 802.1Q 9.6) and an ICMPv6 message.
fn send_vlan_tagged(
    peer: &PeerNamespace,
    receiver: [u8; 6],
    tag: &'static [u8],
    payload_length: u8,
    message: &'static [u8],
) {
    let mut frame = [&receiver[..], &[2, 0, 0, 0, 0, 1], tag, &[0x86, 0xdd]].concat();
    frame.extend([0x60, 0, 0, 0, 0, payload_length, 58, 255]);
    frame.extend([0; 32]);
    frame.extend(message);
    send_octets(peer, frame);
}

/// Lets the peer send an ICMPv6 message of type `kind` to [`DEFENDED_ADDRESS`] after a routing header of type
/// `routing_type` (RFC 6275 6.4).
fn send_with_routing_header(peer: &PeerNamespace, receiver: [u8; 6], routing_type: u8, kind: u8) {
    let home_address: Ipv6Addr = DEFENDED_ADDRESS.parse().unwrap();
    let mut frame = [&receiver[..], &[2, 0, 0, 0, 0, 1, 0x86, 0xdd]].concat();
    frame.extend([0x60, 0, 0, 0, 0, 32, 43, 64]);
    frame.extend([0; 32]);
    frame.extend([58, 2, routing_type, 1, 0, 0, 0, 0]);
    frame.extend(home_address.octets());
    frame.extend([kind, 0, 0, 0, 0, 0, 0, 1]);
    send_octets(peer, frame);
}

fn send_octets(peer: &PeerNamespace, frame: Vec<u8>) {
    peer.run_in_namespace(move || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
        let device = nix::net::if_::if_nametoindex("p0").unwrap();
        let mut address = [0u8; 20];
        address[..2].copy_from_slice(&17u16.to_ne_bytes());
        address[4..8].copy_from_slice(&device.to_ne_bytes());
        // SAFETY: the address is a sockaddr_ll of 20 octets, and the frame is readable for its length.
        let sent = unsafe {
            libc::sendto(
                std::os::fd::AsRawFd::as_raw_fd(&socket),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                address.as_ptr().cast(),
                20,
            )
        };
        assert_eq!(sent, frame.len() as isize);
    });
}

/// Makes the peer send a packet to [`DEFENDED_ADDRESS`], for which it has to resolve the link-layer address.
fn send_neighbour_solicitation(peer: &PeerNamespace) {
    peer.run_in_namespace(|| {
        let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
        socket.send_to(b"?", format!("[{DEFENDED_ADDRESS}]:9")).unwrap();
    });
}

fn create_home_link() -> PeerNamespace {
    let peer = PeerNamespace::new();
    peer.create_link("h0", "p0");
    add_address("h0", "2001:db8:1::fe/64");
    peer.run_in_namespace(|| add_address("p0", "2001:db8:1::2/64"));
    peer
}

async fn next_solicitation(platform: &mut Platform, peer: &PeerNamespace) -> LinkMessage {
    send_neighbour_solicitation(peer);
    let target = DEFENDED_ADDRESS.parse::<Ipv6Addr>().unwrap().octets();
    let is_it = |m: &LinkMessage| m.message[0] == 135 && m.message.get(8..24) == Some(&target[..]);
    let events = events_until(platform, |seen| received_messages(seen).into_iter().any(is_it)).await;
    received_messages(&events).into_iter().find(|m| is_it(m)).unwrap().clone()
}

#[test]
fn home_agent_answers_solicitations_for_absent_node() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", true);
        let question = next_solicitation(&mut platform, &peer).await;
        let peer_mac = peer.run_in_namespace(|| mac_address_of("p0"));
        assert_eq!(question.interface, "h0");
        assert_eq!(question.source, "2001:db8:1::2".parse::<Ipv6Addr>().unwrap());
        assert_eq!(question.destination, "ff02::1:ff00:1234".parse::<Ipv6Addr>().unwrap());
        assert_eq!((question.hop_limit, question.peer), (255, Some(peer_mac)));

        let own_mac = mac_address_of("h0");
        let target = DEFENDED_ADDRESS.parse::<Ipv6Addr>().unwrap();
        let advertisement = |flags: u8| {
            let mut message = vec![136, 0, 0xba, 0xad, flags, 0, 0, 0];
            message.extend(target.octets());
            message.extend([2, 1]);
            message.extend(own_mac);
            message
        };
        let mut answer = LinkMessage {
            interface: "h0".into(),
            source: target,
            destination: question.source,
            hop_limit: 255,
            peer: Some(peer_mac),
            message: advertisement(0x60),
        };
        platform.send_icmpv6(&answer).unwrap();
        let neighbour = || {
            peer.run_in_namespace(|| run_ip(&format!("-6 neigh show {DEFENDED_ADDRESS} dev p0")))
                .split_whitespace()
                .skip_while(|word| *word != "lladdr")
                .nth(1)
                .map(str::to_owned)
        };
        events_until(&mut platform, |_| neighbour().is_some()).await;
        let text = own_mac.map(|o| format!("{o:02x}")).join(":");
        assert_eq!(neighbour(), Some(text));

        // The advertisement goes to all nodes. A receiver that has the address in its cache takes the new
        // link-layer address.
        answer.destination = "ff02::1".parse().unwrap();
        answer.peer = None;
        answer.message = advertisement(0x20);
        answer.message[31] ^= 1;
        let frames = peer.run_in_namespace(|| {
            // The socket receives frames of all protocols (ETH_P_ALL).
            let all = Protocol::from(libc::ETH_P_ALL.to_be() >> 16);
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        });
        platform.send_icmpv6(&answer).unwrap();
        let receiver = peer.run_in_namespace(move || {
            loop {
                let mut frame = [0; 200];
                let length = std::io::Read::read(&mut &frames, &mut frame).unwrap();
                // The message follows the Ethernet and IPv6 headers; 136 is the type of a Neighbor
                // Advertisement.
                if length > 54 && frame[20] == 58 && frame[54] == 136 && frame[38..40] == [0xff, 2] {
                    return <[u8; 6]>::try_from(&frame[..6]).unwrap();
                }
            }
        });
        assert_eq!(receiver, [0x33, 0x33, 0, 0, 0, 1]);
        let changed = { own_mac.iter().enumerate().map(|(i, o)| format!("{:02x}", o ^ u8::from(i == 5))) };
        let changed = changed.collect::<Vec<_>>().join(":");
        events_until(&mut platform, |_| neighbour().as_ref() == Some(&changed)).await;

        let counters = platform.counters();
        assert_eq!((counters.icmpv6_sent, counters.icmpv6_malformed), (2, 0));
        assert!(counters.icmpv6_received >= 1);
    });
}

#[test]
fn listener_receives_requested_types_and_no_own_messages() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", true);
        events_during(&mut platform, Duration::from_millis(100)).await;
        peer.run_in_namespace(|| {
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
            let to: std::net::SocketAddrV6 = "[2001:db8:1::fe]:0".parse().unwrap();
            for kind in 0..=255u8 {
                let mut message = [0; 48];
                message[0] = kind;
                socket.send_to(&message, &SockAddr::from(to)).unwrap();
            }
            // The first octet of this UDP datagram is the number of an ICMPv6 type, but the datagram is not
            // ICMPv6.
            let udp = std::net::UdpSocket::bind("[::]:34048").unwrap();
            udp.send_to(&[1; 48], "[2001:db8:1::fe]:9").unwrap();
        });
        // The station does not receive this machine's own solicitations and errors.
        let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
        socket.send_to(b"?", "[2001:db8:1::77]:9").unwrap();
        let events = events_during(&mut platform, Duration::from_millis(300)).await;
        let kinds: std::collections::BTreeSet<u8> = received_messages(&events)
            .iter()
            .filter(|m| m.source == "2001:db8:1::2".parse::<Ipv6Addr>().unwrap())
            .map(|m| m.message[0])
            .collect();
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 133, 134, 135, 136, 145]);
        let own = "2001:db8:1::fe".parse::<Ipv6Addr>().unwrap();
        assert!(
            received_messages(&events).iter().all(|m| m.source != own && !m.source.is_loopback()),
            "{events:#?}"
        );
    });
}

/// Routers answer a mobile router's Echo Requests from their link-local addresses, which are in `fe80::/10`.
#[test]
fn listener_receives_echo_replies_from_link_local_addresses() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", false);
        events_during(&mut platform, Duration::from_millis(100)).await;
        let receiver = mac_address_of("h0");
        for source in ["fe7f::1", "fe80::1", "febf::1", "fec0::1", "2001:db8:1::2"] {
            let source: Ipv6Addr = source.parse().unwrap();
            let mut frame = [&receiver[..], &[2, 0, 0, 0, 0, 1, 0x86, 0xdd]].concat();
            frame.extend([0x60, 0, 0, 0, 0, 8, 58, 64]);
            frame.extend(source.octets());
            frame.extend([0; 16]);
            frame.extend([129, 0, 0, 0, 0, 0, 0, 1]);
            send_octets(&peer, frame);
        }
        let events = events_during(&mut platform, Duration::from_millis(300)).await;
        let replies = received_messages(&events).into_iter().filter(|message| message.message[0] == 129);
        let sources: Vec<String> = replies.map(|message| message.source.to_string()).collect();
        assert_eq!(sources, ["fe80::1", "febf::1"]);
    });
}

/// RFC 6275 9.3.2: a home agent's answers to a mobile router have a type 2 routing header. The platform
/// receives two kinds of them: Echo Replies and answers to mobile prefix discovery.
#[test]
fn echo_reply_with_type_2_routing_header_is_received() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", false);
        events_during(&mut platform, Duration::from_millis(100)).await;
        let receiver = mac_address_of("h0");
        for kind in 0..=255 {
            send_with_routing_header(&peer, receiver, 2, kind);
            send_with_routing_header(&peer, receiver, 0, kind);
        }
        let of_the_home_address =
            |message: &&&LinkMessage| message.destination.to_string() == DEFENDED_ADDRESS;
        let events = events_during(&mut platform, Duration::from_millis(300)).await;
        let heard = received_messages(&events);
        let kinds: Vec<u8> = heard.iter().filter(of_the_home_address).map(|m| m.message[0]).collect();
        assert_eq!(kinds, [129, 147]);
    });
}

#[test]
fn packet_with_wrong_length_is_counted() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", false);
        send_frame(&peer, mac_address_of("h0"), 64, &[135, 0, 0, 0]);
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while platform.counters().icmpv6_malformed == 0 {
            assert!(std::time::Instant::now() < deadline);
            events_during(&mut platform, Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn burst_of_malformed_packets_does_not_stop_reception() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let mut platform = scratch.open_platform_watching("h0", false);
        // Wait for these events, which are the kernel's last ones about the new link.
        let settled = |seen: &[PlatformEvent]| {
            latest_interface_state(seen, "h0")
                .is_some_and(|i| i.addresses.len() == 2 && i.addresses.iter().all(|a| !a.tentative))
        };
        events_until(&mut platform, settled).await;
        events_during(&mut platform, Duration::from_millis(300)).await;
        // No task reads meanwhile, so all messages wait in the socket, and no later message wakes the
        // station.
        let receiver = mac_address_of("h0");
        for _ in 0..130 {
            send_frame(&peer, receiver, 1, &[135]);
        }
        send_frame(&peer, receiver, 8, &[136, 0, 0, 0, 0, 0, 0, 1]);
        let start = std::time::Instant::now();
        let heard_it = async {
            loop {
                if let PlatformEvent::Icmpv6(message) = platform.next_event().await.unwrap()
                    && message.message == [136, 0, 0, 0, 0, 0, 0, 1]
                {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(3), heard_it).await.expect("deaf");
        // The message has woken the station, because the timer would have woken it later.
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(platform.counters().icmpv6_malformed, 130);
    });
}

#[test]
fn icmpv6_in_frames_for_other_machines_is_ignored() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        run_ip("link set h0 promisc on");
        let mut platform = scratch.open_platform_watching("h0", true);
        send_frame(&peer, [2, 0, 0, 0, 0, 9], 8, &[136, 0, 0, 0, 0, 0, 0, 9]);
        // The peer sends frames of a VLAN in which this machine is not, and frames that have only a priority
        // tag.
        send_vlan_tagged(&peer, mac_address_of("h0"), &[0x81, 0, 0, 5], 8, &[136, 0, 0, 0, 0, 0, 0, 5]);
        send_vlan_tagged(&peer, mac_address_of("h0"), &[0x81, 0, 0xe0, 0], 8, &[136, 0, 0, 0, 0, 0, 0, 2]);
        send_frame(&peer, mac_address_of("h0"), 8, &[136, 0, 0, 0, 0, 0, 0, 1]);
        // The kernel also sends solicitations with this source, for duplicate address detection.
        let from_there = |seen: &[PlatformEvent]| -> Vec<u8> {
            received_messages(seen)
                .iter()
                .filter(|m| m.source.is_unspecified() && m.message.first() == Some(&136))
                .map(|m| *m.message.last().unwrap())
                .collect()
        };
        let events = events_until(&mut platform, |seen| from_there(seen).contains(&1)).await;
        assert_eq!(from_there(&events), [2, 1]);
    });
}

#[test]
fn icmpv6_listener_survives_loss_of_interface() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform_watching("h0", true);
        events_during(&mut platform, Duration::from_millis(20)).await;
        for round in 0..3 {
            let peer = create_home_link();
            next_solicitation(&mut platform, &peer).await;
            // A packet socket returns an error when its interface goes down.
            run_ip("link set h0 down");
            events_during(&mut platform, Duration::from_millis(50)).await;
            run_ip("link set h0 up");
            peer.run_in_namespace(|| run_ip("-6 neigh flush dev p0"));
            next_solicitation(&mut platform, &peer).await;
            run_ip("link del h0");
            if round > 0 {
                let gone = PlatformEvent::InterfaceGone { name: "h0".into() };
                events_until(&mut platform, |seen| seen.contains(&gone)).await;
                let message = LinkMessage {
                    interface: "h0".into(),
                    source: Ipv6Addr::LOCALHOST,
                    destination: "ff02::1".parse().unwrap(),
                    hop_limit: 255,
                    peer: None,
                    message: vec![136, 0, 0, 0],
                };
                let error = platform.send_icmpv6(&message).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "cannot send an ICMPv6 message to ff02::1 on h0: No such device (os error 19)"
                );
            }
        }
    });
}

#[test]
fn all_multicast_flag_is_needed_for_foreign_groups() {
    in_new_namespace(|scratch| async move {
        let peer = create_home_link();
        let promiscuity = || run_ip_json("link show h0")[0]["flags"].to_string().contains("ALLMULTI");
        let platform = scratch.open_platform_watching("h0", false);
        assert!(!promiscuity() && run_ip_json("link show h0")[0]["allmulti"] != 1);
        platform.close().unwrap();
        let mut platform = scratch.open_platform_watching("h0", true);
        assert_eq!(run_ip_json("link show h0")[0]["allmulti"], 1);
        next_solicitation(&mut platform, &peer).await;
        platform.close().unwrap();
        // Check repeatedly. A child process that another test starts at this moment has a copy of the socket
        // until it executes its program.
        for _ in 0..100 {
            if run_ip_json("link show h0")[0]["allmulti"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the flag stays set");
    });
}

#[test]
fn icmpv6_listener_works_on_link_without_addresses() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform_watching("lo", false);
        let message = LinkMessage {
            interface: "lo".into(),
            source: "::1".parse().unwrap(),
            destination: "::1".parse().unwrap(),
            hop_limit: 7,
            peer: None,
            message: [&[1, 3, 0, 0, 0, 0, 0, 0][..], &[0x60; 40]].concat(),
        };
        platform.send_icmpv6(&message).unwrap();
        let events = events_until(&mut platform, |seen| !received_messages(seen).is_empty()).await;
        let [echo] = received_messages(&events)[..] else { panic!("{events:#?}") };
        assert_eq!(
            (echo.hop_limit, echo.source, &echo.message[4..]),
            (7, message.source, &message.message[4..])
        );

        // A tunnel interface has no link-layer addresses. Without a program that reads the device, the kernel
        // only counts packets.
        run_ip("tuntap add mode tun name t0");
        run_ip("link set t0 up");
        let sent = |platform: &mut Platform| {
            platform.send_icmpv6(&LinkMessage { interface: "t0".into(), ..message.clone() })
        };
        events_until(&mut platform, |seen| latest_interface_state(seen, "t0").is_some()).await;
        // A TUN device that no program reads is up but not running, and the kernel returns an error.
        let error = sent(&mut platform).err().and_then(|e| e.raw_os_error());
        assert!(matches!(error, None | Some(libc::ENETDOWN)), "{error:?}");
        // carnet's own TUN device is running, because this process reads it.
        let tunnel = platform.tunnel_device();
        let mut reader = carnet_linux::TunnelReader::new(tunnel.clone());
        let mut buffer = PacketBuffer::new();
        while reader.try_read(&mut buffer).is_ok() {}
        platform.send_icmpv6(&LinkMessage { interface: "carnet0".into(), ..message.clone() }).unwrap();
        tunnel.readable(None).await.unwrap();
        reader.try_read(&mut buffer).unwrap();
        assert_eq!(buffer.as_slice().len(), 40 + message.message.len());
        assert_eq!(buffer.as_slice()[40 + 4..], message.message[4..]);

        let ether = LinkMessage { interface: "v0".into(), ..message };
        run_ip("link add v0 type veth peer name v1");
        run_ip("link set v0 up");
        events_until(&mut platform, |seen| latest_interface_state(seen, "v0").is_some()).await;
        assert_eq!(
            platform.send_icmpv6(&ether).unwrap_err().to_string(),
            "ICMPv6 message to ::1 on v0: expected the link-layer address of a unicast receiver, found none"
        );
    });
}
