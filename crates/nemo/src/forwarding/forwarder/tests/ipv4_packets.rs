//! IPv4 packets of the mobile network, in every kind of tunnel (RFC 5555 4.4.3, 4.5.1).

use std::net::Ipv4Addr;

use carnet_base::{Rng, mapped};
use carnet_wire::ipv4;
use proptest::prelude::*;

use super::*;

const HOST_ADDRESS: &str = "10.42.7.5";
const SERVER_ADDRESS: &str = "198.51.100.80";
const ECT_0: u8 = 0b10;
const ECN_CE: u8 = 0b11;

/// Kinds of tunnels: the router's end and the home agent's end.
const TUNNEL_ENDS: [(&str, &str); 3] = [
    ("2001:db8:f1::10", "2001:db8:1::1"),
    ("192.0.2.10", "203.0.113.1"),
    ("udp:192.0.2.10:4191", "udp:203.0.113.1:4191"),
];

fn ipv4_address(text: &str) -> Ipv4Addr {
    text.parse().expect("an IPv4 address")
}

fn inner_prefixes() -> Vec<Ipv6Net> {
    vec![
        "2001:db8:a::/64".parse().expect("prefix"),
        mapped::from_ipv4("10.42.7.0/24".parse().expect("prefix")),
    ]
}

/// Returns a router and its home agent with a tunnel of this kind.
fn forwarders_at_both_ends((local, remote): (&str, &str), mtu: u32) -> (Forwarder, Forwarder) {
    let (mut router, mut agent) = (Forwarder::new(&mut Rng::new(1)), Forwarder::new(&mut Rng::new(2)));
    let with = |tunnel| Tunnel { inner: inner_prefixes(), mtu, ..tunnel };
    router.set_tunnel(with(new_tunnel(TunnelEnd::MobileRouter, local, remote, true)));
    agent.set_tunnel(with(new_tunnel(TunnelEnd::HomeAgent, remote, local, true)));
    let home_address = parse_address("2001:db8:1::1234");
    for prefix in inner_prefixes() {
        router.add_own_mobile_networks([(prefix, home_address)]);
        agent.add_own_mobile_networks([(prefix, parse_address("::ffff:10.42.7.1"))]);
    }
    (router, agent)
}

/// Returns an IPv4 packet of `length` octets: UDP, with the DSCP of voice and ECT(0).
fn ipv4_packet(source: &str, destination: &str, length: usize, flags: [u8; 2]) -> Vec<u8> {
    let mut octets = vec![0x45, 0xb8 | ECT_0];
    octets.extend_from_slice(&(length as u16).to_be_bytes());
    octets.extend_from_slice(&[0x77, 0x07, flags[0], flags[1], 63, protocol::UDP, 0, 0]);
    octets.extend_from_slice(&ipv4_address(source).octets());
    octets.extend_from_slice(&ipv4_address(destination).octets());
    ipv4::set_checksum(&mut octets);
    octets.extend((20..length).map(|at| at as u8));
    octets
}

const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
const MAY_FRAGMENT: [u8; 2] = [0, 0];

/// A packet on the wire: the ends of a tunnel inside IPv4, the octets, and whether routers may cut it.
type WirePacket = (Option<TunnelEnds>, Vec<u8>, bool);

/// Sends a packet. Returns the packets on the wire.
fn send_packet(forwarder: &mut Forwarder, packet: &[u8]) -> Result<Vec<WirePacket>, ForwardingVerdict> {
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(packet);
    let (header, _) = inner_packet::parse(packet).expect("a packet");
    let mut sent = match forwarder.encapsulate(Time::ZERO, &header, &mut buffer) {
        ForwardingVerdict::Forward => vec![(None, buffer.as_slice().to_vec(), false)],
        ForwardingVerdict::Encapsulate { local, remote, may_fragment, .. } => {
            vec![(Some((local, remote)), buffer.as_slice().to_vec(), may_fragment)]
        }
        ForwardingVerdict::Consumed => Vec::new(),
        dropped => return Err(dropped),
    };
    while let Some(caused) = forwarder.poll_output() {
        sent.push(match caused {
            CausedPacket::Packet(packet) => (None, packet, false),
            CausedPacket::Encapsulated { ends, packet, may_fragment, .. } => {
                (Some(ends), packet, may_fragment)
            }
        });
    }
    Ok(sent)
}

/// Receives a packet from the wire; returns the inner packet.
fn receive_packet(
    forwarder: &mut Forwarder,
    (between, packet, _): &WirePacket,
    ecn: Option<u8>,
) -> Result<Vec<u8>, TunnelDropReason> {
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(packet);
    let (ends, traffic_class, offset) = match between {
        Some((local, remote)) => ((*remote, *local), packet[1], 0),
        None => {
            let outer = Header::parse(packet).expect("an outer header");
            assert_eq!(outer.next_header, protocol::IPV4);
            ((outer.destination.into(), outer.source.into()), outer.traffic_class, HEADER_LEN)
        }
    };
    let traffic_class = ecn.map_or(traffic_class, |ecn| traffic_class & !ECN_CE | ecn);
    let result = forwarder.decapsulate(ends, traffic_class, None, offset, &mut buffer);
    result.map(|()| buffer.as_slice().to_vec()).map_err(|(reason, _)| reason)
}

fn only_element<T: Clone>(list: &[T]) -> T {
    assert_eq!(list.len(), 1);
    list[0].clone()
}

#[test]
fn ipv4_packet_passes_every_kind_of_tunnel_in_both_directions_unchanged() {
    for tunnel in TUNNEL_ENDS {
        let (mut router, mut agent) = forwarders_at_both_ends(tunnel, 1400);
        let out = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 1400, DONT_FRAGMENT);
        let wire = only_element(&send_packet(&mut router, &out).expect("sent"));
        if wire.0.is_none() {
            let outer = Header::parse(&wire.1).expect("an outer header");
            // RFC 6040 4.1, RFC 2983: DSCP and ECN are copied.
            assert_eq!((outer.traffic_class, outer.hop_limit), (0xb8 | ECT_0, TUNNEL_HOP_LIMIT));
            assert!(outer.flow_label > 0);
        }
        assert_eq!(receive_packet(&mut agent, &wire, None), Ok(out), "{tunnel:?}");
        let back = ipv4_packet(SERVER_ADDRESS, HOST_ADDRESS, 1400, DONT_FRAGMENT);
        let wire = only_element(&send_packet(&mut agent, &back).expect("sent"));
        assert_eq!(receive_packet(&mut router, &wire, None), Ok(back), "{tunnel:?}");
        assert_eq!((router.counters().encapsulated_packets, router.counters().decapsulated_packets), (1, 1));
    }
}

#[test]
fn ipv4_packet_with_foreign_address_is_dropped_at_both_ends() {
    for tunnel in TUNNEL_ENDS {
        let (mut router, mut agent) = forwarders_at_both_ends(tunnel, 1400);
        let mut wire = only_element(
            &send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 100, DONT_FRAGMENT))
                .expect("sent"),
        );
        let at = wire.1.len() - 100;
        let mut spoof = |forwarder: &mut Forwarder, source: &str, destination: &str| {
            wire.1.truncate(at);
            wire.1.extend_from_slice(&ipv4_packet(source, destination, 100, DONT_FRAGMENT));
            receive_packet(forwarder, &wire, None)
        };
        // The home agent accepts only sources of the mobile network (RFC 3963 9).
        for source in ["10.42.8.5", "10.42.6.255", "198.51.100.1"] {
            assert_eq!(
                spoof(&mut agent, source, SERVER_ADDRESS),
                Err(TunnelDropReason::InnerSource),
                "{source}"
            );
        }
        for reserved in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1"] {
            assert_eq!(
                spoof(&mut agent, reserved, SERVER_ADDRESS),
                Err(TunnelDropReason::Scope),
                "{reserved}"
            );
            assert_eq!(spoof(&mut agent, HOST_ADDRESS, reserved), Err(TunnelDropReason::Scope), "{reserved}");
        }
        let mut wire = only_element(
            &send_packet(&mut agent, &ipv4_packet(SERVER_ADDRESS, HOST_ADDRESS, 100, DONT_FRAGMENT))
                .expect("sent"),
        );
        let mut spoof = |source: &str, destination: &str| {
            wire.1.truncate(at);
            wire.1.extend_from_slice(&ipv4_packet(source, destination, 100, DONT_FRAGMENT));
            receive_packet(&mut router, &wire, None)
        };
        assert_eq!(spoof(HOST_ADDRESS, "10.42.7.9"), Err(TunnelDropReason::InnerSource));
        assert_eq!(spoof(SERVER_ADDRESS, "10.42.8.5"), Err(TunnelDropReason::InnerDestination));
        assert!(spoof(SERVER_ADDRESS, HOST_ADDRESS).is_ok());
        // A host on board with another source address, multicast and broadcast: nothing enters the tunnel.
        for (source, destination) in
            [("10.42.8.5", SERVER_ADDRESS), (HOST_ADDRESS, "224.0.0.251"), (HOST_ADDRESS, "255.255.255.255")]
        {
            assert!(
                send_packet(&mut router, &ipv4_packet(source, destination, 100, DONT_FRAGMENT)).is_err(),
                "{source}"
            );
        }
    }
}

/// RFC 6040 figure 4.
#[test]
fn decapsulation_copies_congestion_mark_into_the_ipv4_header() {
    for tunnel in TUNNEL_ENDS {
        let (mut router, mut agent) = forwarders_at_both_ends(tunnel, 1400);
        let wire = only_element(
            &send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 100, DONT_FRAGMENT))
                .expect("sent"),
        );
        let marked = receive_packet(&mut agent, &wire, Some(ECN_CE)).expect("received");
        let header = ipv4::Header::parse(&marked).expect("a header");
        assert_eq!(header.traffic_class, 0xb8 | ECN_CE);
        assert_eq!(carnet_wire::checksum::ones_complement_sum(&marked[..20]), 0xffff, "the checksum follows");
        let mut not_ect = wire.clone();
        let at = not_ect.1.len() - 100;
        ipv4::set_traffic_class(&mut not_ect.1[at..], 0xb8);
        assert_eq!(receive_packet(&mut agent, &not_ect, Some(ECN_CE)), Err(TunnelDropReason::Congestion));
    }
}

/// RFC 2473 7.2 (a), RFC 1191 4.
#[test]
fn ipv4_packet_with_df_above_the_mtu_is_answered_with_the_mtu() {
    for tunnel in TUNNEL_ENDS {
        let (mut router, mut agent) = forwarders_at_both_ends(tunnel, 1320);
        for (forwarder, source, destination, speaker) in [
            (&mut router, HOST_ADDRESS, SERVER_ADDRESS, "192.0.0.8"),
            (&mut agent, SERVER_ADDRESS, HOST_ADDRESS, "10.42.7.1"),
        ] {
            let packet = ipv4_packet(source, destination, 1321, DONT_FRAGMENT);
            assert_eq!(
                send_packet(forwarder, &packet),
                Err(ForwardingVerdict::from(TunnelDropReason::TooBig))
            );
            let answer = next_caused_packet(forwarder).expect("an ICMP error");
            let (header, _) = ipv4::Header::parse_packet(&answer).expect("a packet");
            assert_eq!((header.source, header.destination), (ipv4_address(speaker), ipv4_address(source)));
            assert_eq!(answer[20..22], [3, 4]);
            assert_eq!(answer[26..28], 1320u16.to_be_bytes());
            assert_eq!(
                send_packet(forwarder, &ipv4_packet(source, destination, 1320, DONT_FRAGMENT))
                    .expect("fits")
                    .len(),
                1
            );
            // The forwarder sends no error about an error, and no error about a packet whose sender cannot be
            // answered.
            let mut error = answer.clone();
            error.resize(1321, 0);
            error[2..4].copy_from_slice(&1321u16.to_be_bytes());
            error[6] = 0x40;
            error[12..16].copy_from_slice(&ipv4_address(source).octets());
            error[16..20].copy_from_slice(&ipv4_address(destination).octets());
            assert!(send_packet(forwarder, &error).is_err() && next_caused_packet(forwarder).is_none());
        }
    }
}

/// A packet of up to 576 octets always passes, in outer fragments if necessary.
#[test]
fn small_ipv4_packet_with_df_passes_a_tunnel_of_any_mtu() {
    let (mut router, _) = forwarders_at_both_ends(TUNNEL_ENDS[1], 500);
    let sent = send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 576, DONT_FRAGMENT))
        .expect("sent");
    assert!(only_element(&sent).2, "routers may cut the outer packet");
    assert!(
        send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 577, DONT_FRAGMENT)).is_err()
    );
    let answer = next_caused_packet(&mut router).expect("an ICMP error");
    assert_eq!(answer[26..28], 576u16.to_be_bytes());
}

proptest! {
#[test]
fn ipv4_packet_without_df_is_cut_to_the_mtu_and_can_be_joined(
length in 1300usize..9000, mtu in 600u32..1500, kind in 0usize..3,
) {
let (mut router, mut agent) = forwarders_at_both_ends(TUNNEL_ENDS[kind], mtu);
let whole = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, length, MAY_FRAGMENT);
let mut payload = Vec::new();
for wire in send_packet(&mut router, &whole).expect("sent") {
let piece = receive_packet(&mut agent, &wire, None).expect("received");
prop_assert!(piece.len() <= mtu as usize && !wire.2);
let header = ipv4::Header::parse(&piece).expect("a header");
prop_assert_eq!(usize::from(header.fragment_offset), payload.len());
payload.extend_from_slice(&piece[20..]);
prop_assert_eq!(header.more_fragments, payload.len() < length - 20);
// Later fragments have no ports, and pass the same checks.
let back = ipv4_packet(SERVER_ADDRESS, HOST_ADDRESS, 100, [0x20, 0x10]);
prop_assert_eq!(send_packet(&mut agent, &back).expect("sent").len(), 1);
}
prop_assert_eq!(payload, &whole[20..]);
}
}

#[test]
fn tcp_segment_size_is_lowered_to_the_tunnel_in_ipv4() {
    let (mut router, _) = forwarders_at_both_ends(TUNNEL_ENDS[0], 1400);
    let mut syn = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 44, DONT_FRAGMENT);
    syn[9] = protocol::TCP;
    ipv4::set_checksum(&mut syn);
    syn[20..]
        .copy_from_slice(&[0, 80, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 4, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4]);
    let wire = only_element(&send_packet(&mut router, &syn).expect("sent"));
    assert_eq!(wire.1[wire.1.len() - 2..], (1400u16 - 40).to_be_bytes());
}

#[test]
fn router_answers_ipv4_host_without_tunnel_with_icmp_host_unreachable() {
    let mut router = Forwarder::new(&mut Rng::new(1));
    router.add_own_mobile_networks([(inner_prefixes()[1], parse_address("2001:db8:1::1234"))]);
    let dropped = send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 100, DONT_FRAGMENT));
    assert_eq!(dropped, Err(ForwardingVerdict::from(TunnelDropReason::NotRegistered)));
    let answer = next_caused_packet(&mut router).expect("an ICMP error");
    assert_eq!(answer[20..22], [3, 1], "host unreachable");
    assert_eq!(ipv4::Header::parse(&answer).expect("a header").destination, ipv4_address(HOST_ADDRESS));
}

/// An ICMPv6 error about an outer packet counts only if it quotes the right flow label, also for IPv4 inside.
#[test]
fn packet_too_big_is_translated_for_ipv4_host_as_fragmentation_needed() {
    let (mut router, _) = forwarders_at_both_ends(TUNNEL_ENDS[0], 1460);
    let outer = only_element(
        &send_packet(&mut router, &ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 1400, DONT_FRAGMENT))
            .expect("sent"),
    )
    .1;
    let local = parse_address(TUNNEL_ENDS[0].0);
    let too_big = Icmpv6ErrorMessage::PacketTooBig { mtu: 1400 };
    let quoted = &outer[..600];
    let outcome = router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, too_big, quoted);
    assert_eq!(outcome, IcmpErrorOutcome::PathMtu(tunnel_ends(TUNNEL_ENDS[0].0, TUNNEL_ENDS[0].1), 1360));
    let answer = next_caused_packet(&mut router).expect("an ICMP error");
    assert_eq!((&answer[20..22], &answer[26..28]), (&[3, 4][..], &1360u16.to_be_bytes()[..]));
    let mut forged = quoted.to_vec();
    forged[3] ^= 1;
    assert_eq!(
        router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, too_big, &forged),
        IcmpErrorOutcome::Handled
    );
    assert!(next_caused_packet(&mut router).is_none());
}

/// Packets for a home agent's node that has moved to another home agent take that home agent's tunnel.
#[test]
fn relayed_ipv4_packet_loses_a_hop_between_home_agents() {
    let (mut agent, mut first) = (Forwarder::new(&mut Rng::new(1)), Forwarder::new(&mut Rng::new(2)));
    let (here, peer, third) = ("2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3");
    let with = |tunnel| Tunnel { inner: inner_prefixes(), mtu: 1400, ..tunnel };
    first.set_tunnel(with(new_tunnel(TunnelEnd::HomeAgent, peer, here, true)));
    agent.set_tunnel(with(new_tunnel(TunnelEnd::HomeAgent, here, third, true)));
    let wire = only_element(
        &send_packet(&mut first, &ipv4_packet(SERVER_ADDRESS, HOST_ADDRESS, 100, DONT_FRAGMENT))
            .expect("sent"),
    )
    .1;
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(&wire);
    let between = tunnel_ends(here, peer);
    let verdict = agent.relay_packet(Time::ZERO, between, 0, HEADER_LEN, &mut buffer, |_| true);
    assert_eq!(verdict, ForwardingVerdict::Forward);
    let inner = &buffer.as_slice()[HEADER_LEN..];
    let header = ipv4::Header::parse(inner).expect("a header");
    assert_eq!(header.ttl, 62);
    assert_eq!(carnet_wire::checksum::ones_complement_sum(&inner[..20]), 0xffff);
}

/// Loops through several tunnels end, also if IPv4 and IPv6 headers alternate.
#[test]
fn nested_headers_of_both_families_are_counted() {
    let mut packet = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 40, DONT_FRAGMENT);
    for _ in 0..3 {
        let mut outer = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 20 + packet.len(), DONT_FRAGMENT);
        outer.truncate(20);
        outer[9] = protocol::IPV4;
        packet = [outer, packet].concat();
    }
    assert!(!is_nested_too_deep(&packet));
    for _ in 0..3 {
        let mut outer = ipv4_packet(HOST_ADDRESS, SERVER_ADDRESS, 20 + packet.len(), DONT_FRAGMENT);
        outer.truncate(20);
        outer[9] = protocol::IPV4;
        packet = [outer, packet].concat();
    }
    assert!(is_nested_too_deep(&packet));
}
