//! Tests of packets that pass through one forwarder or two.

use carnet_wire::fragment::FragmentHeader;

use super::*;

mod ipv4_packets;
mod several_tunnels;

/// Address of a router on the path between the ends of the tunnel.
const ROUTER_ON_PATH: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf7, 0, 0, 0, 0, 1);

fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("address")
}

fn new_tunnel(end: TunnelEnd, local: &str, remote: &str, transmit: bool) -> Tunnel {
    Tunnel {
        end,
        home_address: parse_address("2001:db8:1::1234"),
        bid: None,
        local: local.parse().expect("endpoint"),
        remote: remote.parse().expect("endpoint"),
        inner: vec!["2001:db8:a::/64".parse().expect("prefix")],
        transmit,
        mtu: 1460,
        session: None,
    }
}

fn ipv6_packet(source: &str, destination: &str, length: usize) -> PacketBuffer {
    let header = Header {
        traffic_class: 0,
        flow_label: 5,
        payload_length: u16::try_from(length - HEADER_LEN).expect("fits"),
        next_header: protocol::NO_NEXT_HEADER,
        hop_limit: 63,
        source: parse_address(source),
        destination: parse_address(destination),
    };
    let mut buffer = PacketBuffer::new();
    let mut octets = header.emit().to_vec();
    octets.resize(length, 0xaa);
    buffer.copy_from(&octets);
    buffer
}

/// Returns the packet that the forwarder has written to the tunnel device because of the last handled packet.
/// `None` if it has written none.
fn next_caused_packet(forwarder: &mut Forwarder) -> Option<Vec<u8>> {
    match forwarder.poll_output()? {
        CausedPacket::Packet(packet) => Some(packet),
        other => panic!("{other:?}"),
    }
}

fn tunnel_ends(local: &str, remote: &str) -> TunnelEnds {
    (local.parse().expect("endpoint"), remote.parse().expect("endpoint"))
}

fn encapsulate(forwarder: &mut Forwarder, buffer: &mut PacketBuffer) -> ForwardingVerdict {
    let header = Header::parse(buffer.as_slice()).expect("header");
    forwarder.encapsulate(Time::ZERO, &header, buffer)
}

fn decapsulate(forwarder: &mut Forwarder, buffer: &mut PacketBuffer) -> Result<(), TunnelDropReason> {
    let header = Header::parse(buffer.as_slice()).expect("header");
    let ends = (header.destination.into(), header.source.into());
    forwarder.decapsulate(ends, header.traffic_class, None, HEADER_LEN, buffer).map_err(|(reason, _)| reason)
}

fn forwarder_pair() -> (Forwarder, Forwarder) {
    let (mut router, mut agent) = (Forwarder::new(&mut Rng::new(1)), Forwarder::new(&mut Rng::new(1)));
    router.set_tunnel(new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
    agent.set_tunnel(new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true));
    (router, agent)
}

#[test]
fn both_tunnel_ends_drop_packets_with_reserved_inner_addresses() {
    let reserved = ["::", "::1", "::2", "::192.0.2.1", "::ffff:192.0.2.1", "64:ff9b:0:1::1", "ff::1"];
    let genuine = ["64:ff9b::c000:201", "64:ff9b:1:2::1", "100::1", "2001:db8:9::1"];
    // One packet with a reserved source enters the vehicle, another with a reserved destination leaves it.
    let into_vehicle = |source: &str| {
        let (mut router, _) = forwarder_pair();
        let mut buffer = ipv6_packet(source, "2001:db8:a::5", 100);
        let outer = Header {
            source: parse_address("2001:db8:1::1"),
            destination: parse_address("2001:db8:f1::10"),
            payload_length: 100,
            ..Header::parse(buffer.as_slice()).expect("header")
        };
        assert!(buffer.prepend(&outer.emit()));
        decapsulate(&mut router, &mut buffer)
    };
    let out_of_vehicle = |destination: &str| {
        let (mut router, _) = forwarder_pair();
        encapsulate(&mut router, &mut ipv6_packet("2001:db8:a::5", destination, 100))
    };
    for text in reserved {
        assert_eq!(into_vehicle(text), Err(TunnelDropReason::Scope), "{text}");
        assert_eq!(out_of_vehicle(text), ForwardingVerdict::from(TunnelDropReason::Scope), "{text}");
    }
    for text in genuine {
        assert_eq!(into_vehicle(text), Ok(()), "{text}");
        assert_eq!(out_of_vehicle(text), ForwardingVerdict::Forward, "{text}");
    }
}

/// Packets from a direct route must come from the other router's networks and go to this router's networks.
/// Packets to the other router's networks use the direct route while it exists, then the tunnel to the home
/// agent.
#[test]
fn direct_route_carries_only_packets_between_its_two_mobile_networks() {
    let (mut router, _) = forwarder_pair();
    router.add_own_mobile_networks([(
        "2001:db8:a::/64".parse().expect("prefix"),
        parse_address("2001:db8:1::1234"),
    )]);
    let direct = |transmit| Tunnel {
        home_address: parse_address("2001:db8:2::5678"),
        inner: vec!["2001:db8:b::/64".parse().expect("prefix")],
        ..new_tunnel(TunnelEnd::Direct, "2001:db8:f1::10", "2001:db8:f2::20", transmit)
    };
    let mut outer = |transmit| {
        router.set_tunnel(direct(transmit));
        let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:b::7", 100);
        assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Forward);
        Header::parse(buffer.as_slice()).expect("header").destination
    };
    assert_eq!(outer(true), parse_address("2001:db8:f2::20"));
    assert_eq!(outer(false), parse_address("2001:db8:1::1"));
    let mut came = |remote: &str, source: &str, destination: &str| {
        let mut other = Forwarder::new(&mut Rng::new(1));
        let mut out = new_tunnel(TunnelEnd::HomeAgent, remote, "2001:db8:f1::10", true);
        out.inner = vec![Ipv6Net::default()];
        other.set_tunnel(out);
        let mut buffer = ipv6_packet(source, destination, 100);
        assert_eq!(encapsulate(&mut other, &mut buffer), ForwardingVerdict::Forward);
        decapsulate(&mut router, &mut buffer)
    };
    assert_eq!(came("2001:db8:f2::20", "2001:db8:b::7", "2001:db8:a::5"), Ok(()));
    for (remote, source, destination, reason) in [
        ("2001:db8:f2::21", "2001:db8:b::7", "2001:db8:a::5", TunnelDropReason::OuterSource),
        ("2001:db8:f2::20", "2001:db8:c::7", "2001:db8:a::5", TunnelDropReason::InnerSource),
        ("2001:db8:f2::20", "2001:db8:a::7", "2001:db8:a::5", TunnelDropReason::InnerSource),
        ("2001:db8:f2::20", "2001:db8:b::7", "2001:db8:99::1", TunnelDropReason::InnerDestination),
        ("2001:db8:f2::20", "2001:db8:b::7", "2001:db8:b::8", TunnelDropReason::InnerDestination),
    ] {
        assert_eq!(came(remote, source, destination), Err(reason), "{remote} {source} {destination}");
    }
}

/// Any ICMPv6 error about a direct route ends it. The host gets no error, because its next packet uses the
/// tunnel to the home agent.
#[test]
fn error_about_direct_route_ends_it_and_is_not_passed_to_host() {
    let (mut router, _) = forwarder_pair();
    let direct = new_tunnel(TunnelEnd::Direct, "2001:db8:f1::10", "2001:db8:f2::20", true);
    let inner = vec!["2001:db8:b::/64".parse().expect("prefix")];
    router.set_tunnel(Tunnel { home_address: parse_address("2001:db8:2::5678"), inner, ..direct });
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:b::7", 100);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Forward);
    let local = parse_address("2001:db8:f1::10");
    let broken = IcmpErrorOutcome::Broken(tunnel_ends("2001:db8:f1::10", "2001:db8:f2::20"));
    for error in [
        Icmpv6ErrorMessage::DestinationUnreachable { code: 0 },
        Icmpv6ErrorMessage::TimeExceeded { code: 0 },
        Icmpv6ErrorMessage::ParameterProblem { code: 1, pointer: 6 },
    ] {
        assert_eq!(
            router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, error, buffer.as_slice()),
            broken
        );
        assert_eq!(next_caused_packet(&mut router), None);
    }
    // The error quotes a packet with another flow label, which this router has not sent.
    buffer.as_mut_slice()[3] ^= 1;
    let unreachable = Icmpv6ErrorMessage::DestinationUnreachable { code: 0 };
    assert_eq!(
        router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, unreachable, buffer.as_slice()),
        IcmpErrorOutcome::Handled
    );
    // After 1000 errors without proof, the router ignores even an error that quotes the right label.
    for _ in 0..1000 {
        router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, unreachable, buffer.as_slice());
    }
    buffer.as_mut_slice()[3] ^= 1;
    let mut told = |at| {
        router.handle_icmp_error(Time::from_secs(at), ROUTER_ON_PATH, local, unreachable, buffer.as_slice())
    };
    assert_eq!((told(0), told(60)), (IcmpErrorOutcome::Handled, broken));
}

/// An error from the home agent's own address shows that the home agent accepts no tunnelled packets, because
/// it has lost the binding. Errors from other sources, with other codes or with quotations of foreign packets
/// do not show a lost binding.
#[test]
fn icmp_error_from_home_agent_about_own_packet_is_a_refusal() {
    let (mut router, _) = forwarder_pair();
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 100);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Forward);
    let (local, agent) = (parse_address("2001:db8:f1::10"), parse_address("2001:db8:1::1"));
    let refused = IcmpErrorOutcome::Refused(tunnel_ends("2001:db8:f1::10", "2001:db8:1::1"));
    let no_tunnel = Icmpv6ErrorMessage::DestinationUnreachable { code: 4 };
    let no_protocol = Icmpv6ErrorMessage::ParameterProblem { code: 1, pointer: 6 };
    for error in [no_tunnel, no_protocol] {
        assert_eq!(router.handle_icmp_error(Time::ZERO, agent, local, error, buffer.as_slice()), refused);
        let elsewhere = router.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, error, buffer.as_slice());
        assert_eq!(elsewhere, IcmpErrorOutcome::Handled);
    }
    for error in
        [Icmpv6ErrorMessage::DestinationUnreachable { code: 1 }, Icmpv6ErrorMessage::TimeExceeded { code: 0 }]
    {
        let other = router.handle_icmp_error(Time::ZERO, agent, local, error, buffer.as_slice());
        assert_eq!(other, IcmpErrorOutcome::Handled);
    }
    buffer.as_mut_slice()[3] ^= 1;
    let forged = router.handle_icmp_error(Time::ZERO, agent, local, no_tunnel, buffer.as_slice());
    assert_eq!(forged, IcmpErrorOutcome::Handled);
}

#[test]
fn packet_through_tunnel_comes_out_unchanged_in_both_directions() {
    let (mut router, mut agent) = forwarder_pair();
    for (from, to, source, destination) in
        [(0, 1, "2001:db8:a::5", "2001:db8:99::1"), (1, 0, "2001:db8:99::1", "2001:db8:a::5")]
    {
        let ends = [&mut router, &mut agent];
        let mut buffer = ipv6_packet(source, destination, 100);
        let before = buffer.as_slice().to_vec();
        assert_eq!(encapsulate(ends[from], &mut buffer), ForwardingVerdict::Forward);
        let outer = Header::parse(buffer.as_slice()).expect("outer");
        assert_eq!((outer.next_header, outer.hop_limit), (protocol::IPV6, 65));
        assert_ne!(outer.flow_label, 0);
        assert_eq!(decapsulate(ends[to], &mut buffer), Ok(()));
        assert_eq!(buffer.as_slice(), before);
    }
    assert_eq!((router.counters.encapsulated_packets, router.counters.decapsulated_packets), (1, 1));
}

#[test]
fn forwarder_checks_inner_source_of_reverse_tunnel() {
    let (_, mut agent) = forwarder_pair();
    let mut forge = |outer_source: &str, inner_source: &str| {
        let mut other = Forwarder::new(&mut Rng::new(1));
        let mut forged = new_tunnel(TunnelEnd::MobileRouter, outer_source, "2001:db8:1::1", true);
        forged.inner = vec!["::/0".parse().expect("prefix")];
        other.set_tunnel(forged);
        let mut buffer = ipv6_packet(inner_source, "2001:db8:99::1", 100);
        assert_eq!(encapsulate(&mut other, &mut buffer), ForwardingVerdict::Forward);
        decapsulate(&mut agent, &mut buffer)
    };
    assert_eq!(forge("2001:db8:f1::10", "2001:db8:a::5"), Ok(()));
    assert_eq!(forge("2001:db8:f1::11", "2001:db8:a::5"), Err(TunnelDropReason::OuterSource));
    assert_eq!(forge("2001:db8:f1::10", "2001:db8:b::5"), Err(TunnelDropReason::InnerSource));
}

#[test]
fn handover_replaces_tunnel_in_one_step_and_accepts_old_path() {
    let (_, mut agent) = forwarder_pair();
    agent.set_tunnel(new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f2::10", true));
    agent.set_tunnel(new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", false));
    let mut buffer = ipv6_packet("2001:db8:99::1", "2001:db8:a::5", 100);
    assert_eq!(encapsulate(&mut agent, &mut buffer), ForwardingVerdict::Forward);
    let outer = Header::parse(buffer.as_slice()).expect("outer");
    assert_eq!(outer.destination, parse_address("2001:db8:f2::10"));

    let mut late = Forwarder::new(&mut Rng::new(1));
    late.set_tunnel(new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 100);
    encapsulate(&mut late, &mut buffer);
    assert_eq!(decapsulate(&mut agent, &mut buffer), Ok(()));

    agent.remove_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", false));
    let mut buffer = ipv6_packet("2001:db8:99::1", "2001:db8:a::5", 100);
    assert_eq!(encapsulate(&mut agent, &mut buffer), ForwardingVerdict::Forward, "the new path stays");
}

#[test]
fn unregistered_router_answers_hosts_with_icmp_errors() {
    let (mut router, _) = forwarder_pair();
    router.remove_tunnel(&new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
    router.add_own_mobile_networks([(
        "2001:db8:a::/64".parse().expect("prefix"),
        parse_address("2001:db8:1::1234"),
    )]);
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 100);
    assert_eq!(
        encapsulate(&mut router, &mut buffer),
        ForwardingVerdict::from(TunnelDropReason::NotRegistered)
    );
    let answer = next_caused_packet(&mut router).expect("an answer");
    let (header, message) = Header::parse_packet(&answer).expect("packet");
    assert_eq!(header.destination, parse_address("2001:db8:a::5"));
    let (error, _) = icmpv6::parse_error(message).expect("error");
    assert_eq!(error, Icmpv6ErrorMessage::DestinationUnreachable { code: 3 });
    let mut stranger = ipv6_packet("2001:db8:77::5", "2001:db8:99::1", 100);
    assert_eq!(encapsulate(&mut router, &mut stranger), ForwardingVerdict::from(TunnelDropReason::NoTunnel));
    assert_eq!(router.poll_output(), None);
}

#[test]
fn forwarder_answers_large_packets_with_packet_too_big() {
    let (mut router, _) = forwarder_pair();
    let too_big = |forwarder: &mut Forwarder| {
        let answer = next_caused_packet(forwarder)?;
        let (_, message) = Header::parse_packet(&answer).ok()?;
        match icmpv6::parse_error(message).ok()?.0 {
            Icmpv6ErrorMessage::PacketTooBig { mtu } => Some(mtu),
            _ => None,
        }
    };
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 1460);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Forward);
    let outer = buffer.as_slice().to_vec();
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 1461);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::from(TunnelDropReason::TooBig));
    assert_eq!(too_big(&mut router), Some(1460));

    // A router on the path forwards at most 1300 octets. The inner source receives an MTU of 1280, because
    // 1260 would be below the minimum. When the tunnel has that MTU, packets up to 1280 pass in fragments.
    let local = parse_address("2001:db8:f1::10");
    let ends = tunnel_ends("2001:db8:f1::10", "2001:db8:1::1");
    let outcome = router.handle_icmp_error(
        Time::ZERO,
        ROUTER_ON_PATH,
        local,
        Icmpv6ErrorMessage::PacketTooBig { mtu: 1300 },
        &outer,
    );
    assert_eq!(outcome, IcmpErrorOutcome::PathMtu(ends, 1260));
    assert_eq!(too_big(&mut router), Some(1280));
    router.set_tunnel(Tunnel {
        mtu: 1260,
        ..new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true)
    });
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 1280);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Consumed);
    let pieces: Vec<Vec<u8>> = std::iter::from_fn(|| next_caused_packet(&mut router)).collect();
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|p| p.len() <= 1300));
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 1281);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::from(TunnelDropReason::TooBig));
}

#[test]
fn shared_care_of_address_serves_remaining_bindings() {
    let (_, mut agent) = forwarder_pair();
    let mut second = new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true);
    second.home_address = parse_address("2001:db8:1::5678");
    second.inner = vec!["2001:db8:b::/64".parse().expect("prefix")];
    agent.set_tunnel(second.clone());
    let passes = |agent: &mut Forwarder, destination: &str| {
        let mut buffer = ipv6_packet("2001:db8:99::1", destination, 100);
        encapsulate(agent, &mut buffer) == ForwardingVerdict::Forward
    };
    assert!(passes(&mut agent, "2001:db8:a::5") && passes(&mut agent, "2001:db8:b::5"));
    agent.remove_tunnel(&second);
    assert!(passes(&mut agent, "2001:db8:a::5") && !passes(&mut agent, "2001:db8:b::5"));
}

#[test]
fn prefix_that_changes_its_home_address_stays_reachable_in_the_tunnel() {
    let (_, mut agent) = forwarder_pair();
    let old = new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true);
    let new = Tunnel { home_address: parse_address("2001:db8:1::5678"), ..old.clone() };
    let reach = |agent: &mut Forwarder| {
        encapsulate(agent, &mut ipv6_packet("2001:db8:99::1", "2001:db8:a::5", 100))
            == ForwardingVerdict::Forward
    };
    // The station sets the new tunnel first; then it replaces or removes the old tunnel.
    agent.set_tunnel(new.clone());
    agent.set_tunnel(Tunnel { inner: Vec::new(), ..old.clone() });
    assert!(reach(&mut agent));
    agent.set_tunnel(old.clone());
    agent.remove_tunnel(&new);
    assert!(reach(&mut agent));
    agent.remove_tunnel(&old);
    assert!(!reach(&mut agent));
}

#[test]
fn packet_too_big_is_accepted_only_about_own_packets() {
    let (mut router, _) = forwarder_pair();
    let local = parse_address("2001:db8:f1::10");
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 1460);
    encapsulate(&mut router, &mut buffer);
    let outer = buffer.as_slice().to_vec();
    let mut tell = |invoking: &[u8], mtu| {
        router.handle_icmp_error(
            Time::ZERO,
            ROUTER_ON_PATH,
            local,
            Icmpv6ErrorMessage::PacketTooBig { mtu },
            invoking,
        )
    };
    let learnt = IcmpErrorOutcome::PathMtu(tunnel_ends("2001:db8:f1::10", "2001:db8:1::1"), 1260);
    // RFC 8201 4: the forwarder ignores an MTU below the minimum.
    assert_eq!(tell(&outer, 1279), IcmpErrorOutcome::Handled);
    let mut label = outer.clone();
    label[3] ^= 1;
    assert_eq!(tell(&label, 1300), IcmpErrorOutcome::Handled);
    let mut inner = outer.clone();
    inner[48..64].copy_from_slice(&parse_address("2001:db8:bad::1").octets());
    assert_eq!(tell(&inner, 1300), IcmpErrorOutcome::Handled);
    let fragment_header = FragmentHeader {
        next_header: protocol::IPV6,
        offset: 1232,
        more_fragments: false,
        identification: 77,
    };
    let mut fragment = outer[..HEADER_LEN].to_vec();
    fragment[6] = protocol::FRAGMENT;
    fragment.extend_from_slice(&fragment_header.emit());
    assert_eq!(tell(&fragment, 1300), IcmpErrorOutcome::Handled, "nothing was cut under this number");
    assert_eq!(tell(&outer, 1300), learnt);
    for guess in 0..10_000_u32 {
        label[1..4].copy_from_slice(&guess.to_be_bytes()[1..]);
        tell(&label, 1300);
    }
    assert_eq!(tell(&outer, 1300), IcmpErrorOutcome::Handled, "somebody is guessing");
    let later = Time::ZERO + FORGERY_ERROR_INTERVAL;
    let message = Icmpv6ErrorMessage::PacketTooBig { mtu: 1300 };
    assert_eq!(router.handle_icmp_error(later, ROUTER_ON_PATH, local, message, &outer), learnt);
}

#[test]
fn forwarder_ignores_packet_too_big_that_quotes_only_a_fragment_number() {
    let (_, mut agent) = forwarder_pair();
    let local = parse_address("2001:db8:1::1");
    // The home agent's own answer is fragmented inside the tunnel, so the host sees the fragment
    // identification.
    let answer = ipv6_packet("2001:db8:1::1", "2001:db8:a::5", 2000);
    agent.send_in_fragments(tunnel_ends("2001:db8:1::1", "2001:db8:f1::10"), 1460, answer.as_slice());
    let seen = next_caused_packet(&mut agent).expect("a fragment");
    let number = FragmentHeader::parse(&seen[2 * HEADER_LEN..]).expect("a fragment").identification;
    for identification in (number.wrapping_sub(50)..=number).chain([0, 1]) {
        let forged = FragmentHeader {
            next_header: protocol::IPV6,
            offset: 1232,
            more_fragments: false,
            identification,
        };
        let mut quoted = seen[..HEADER_LEN].to_vec();
        quoted[6] = protocol::FRAGMENT;
        quoted.extend_from_slice(&forged.emit());
        let message = Icmpv6ErrorMessage::PacketTooBig { mtu: 1280 };
        let outcome = agent.handle_icmp_error(Time::ZERO, ROUTER_ON_PATH, local, message, &quoted);
        assert_eq!(outcome, IcmpErrorOutcome::Handled, "{identification}");
    }
}

#[test]
fn both_tunnel_ends_lower_mss_in_both_directions() {
    const HOST_ADDRESS: &str = "2001:db8:a::5";
    const CORRESPONDENT_ADDRESS: &str = "2001:db8:99::1";
    for (router_mtu, agent_mtu, expected) in [(1460, 1460, 1400), (1360, 1460, 1300), (1460, 1360, 1300)] {
        for outwards in [true, false] {
            let (mut router, mut agent) = forwarder_pair();
            let near = new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true);
            let far = new_tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true);
            router.set_tunnel(Tunnel { mtu: router_mtu, ..near });
            agent.set_tunnel(Tunnel { mtu: agent_mtu, ..far });
            let (from, to, mut syn) = if outwards {
                (&mut router, &mut agent, ipv6_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 64))
            } else {
                (&mut agent, &mut router, ipv6_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, 64))
            };
            let octets = syn.as_mut_slice();
            octets[6] = protocol::TCP;
            octets[52] = 6 << 4;
            octets[53] = 0x02;
            octets[60..64].copy_from_slice(&[2, 4, 0x05, 0xa0]);
            assert_eq!(encapsulate(from, &mut syn), ForwardingVerdict::Forward);
            assert_eq!(decapsulate(to, &mut syn), Ok(()));
            let mss = u16::from_be_bytes(syn.as_slice()[62..64].try_into().expect("two octets"));
            assert_eq!(mss, expected, "outwards: {outwards}");
        }
    }
}

#[test]
fn forwarder_reports_first_packet_of_a_watched_tunnel() {
    let (mut router, _) = forwarder_pair();
    let ends = tunnel_ends("2001:db8:f1::10", "2001:db8:1::1");
    let send = |router: &mut Forwarder| {
        encapsulate(router, &mut ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 100));
        router.poll_used_tunnel()
    };
    assert_eq!(send(&mut router), None);
    router.watch_for_next_packet(ends);
    assert_eq!((send(&mut router), send(&mut router)), (Some(ends), None));
}

#[test]
fn own_outer_fragment_is_not_encapsulated_again() {
    let (mut router, _) = forwarder_pair();
    let path = &router.paths_by_ends[&tunnel_ends("2001:db8:f1::10", "2001:db8:1::1")];
    let tunnel = path.tunnels_of_bindings.as_slice()[0].clone();
    router.tunnel_by_source_prefix.insert(
        "2001:db8:f1::/64".parse().expect("prefix"),
        tunnel_table::PrefixTunnel { tunnel, has_flow_distribution: false },
    );
    let mut buffer = ipv6_packet("2001:db8:f1::10", "2001:db8:99::1", 1280);
    buffer.as_mut_slice()[6] = protocol::FRAGMENT;
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::from(TunnelDropReason::Nesting));
}

#[test]
fn encapsulation_loop_ends_by_hop_limit_or_nesting() {
    let (mut router, _) = forwarder_pair();
    let mut nested = new_tunnel(TunnelEnd::MobileRouter, "2001:db8:a::9", "2001:db8:1::1", true);
    nested.home_address = parse_address("2001:db8:1::1235");
    nested.inner = vec!["2001:db8:b::/64".parse().expect("prefix")];
    router.set_tunnel(nested);
    let mut buffer = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", 100);
    let mut rounds = 0;
    loop {
        let header = Header::parse(buffer.as_slice()).expect("header");
        // The kernel routes the outer packet back into the tunnel device, so each round nests it deeper.
        let header = Header { source: parse_address("2001:db8:a::5"), ..header };
        if router.encapsulate(Time::ZERO, &header, &mut buffer) != ForwardingVerdict::Forward {
            break;
        }
        rounds += 1;
        let copy = buffer.as_slice().to_vec();
        buffer.copy_from(&copy);
    }
    assert!(rounds <= encapsulation_limit::MAX_NESTED_TUNNELS, "{rounds}");
}

/// RFC 2473 4.1.1: each added header has the limit minus 1. At 0 the sender gets an error that points at the
/// option.
#[test]
fn forwarder_obeys_tunnel_encapsulation_limit() {
    let (mut router, mut agent) = forwarder_pair();
    let limited = |limit: u8, length: usize| {
        let mut octets = ipv6_packet("2001:db8:a::5", "2001:db8:99::1", length).as_slice().to_vec();
        octets[6] = protocol::DESTINATION_OPTIONS;
        octets[40..48]
            .copy_from_slice(&emit_encapsulation_limit_options_header(protocol::NO_NEXT_HEADER, limit));
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(&octets);
        buffer
    };
    let mut buffer = limited(2, 100);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::Forward);
    let outer = Header::parse(buffer.as_slice()).expect("header");
    assert_eq!((outer.next_header, usize::from(outer.payload_length)), (protocol::DESTINATION_OPTIONS, 108));
    let extensions = carnet_wire::extension::ExtensionHeaders::parse(buffer.as_slice()).expect("extensions");
    assert_eq!((extensions.tunnel_encapsulation_limit, extensions.upper_layer_offset), (Some(1), 48));
    let ends = (outer.destination.into(), outer.source.into());
    agent.decapsulate(ends, 0, None, extensions.upper_layer_offset, &mut buffer).expect("comes out");
    assert_eq!(buffer.as_slice(), limited(2, 100).as_slice());

    let mut buffer = limited(0, 100);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::from(TunnelDropReason::Nesting));
    let error = next_caused_packet(&mut router).expect("an error");
    let (said, _) = icmpv6::parse_error(&error[HEADER_LEN..]).expect("parses");
    assert_eq!(said, Icmpv6ErrorMessage::ParameterProblem { code: 0, pointer: 44 });

    // The Tunnel Encapsulation Limit option takes 8 octets of the tunnel's MTU.
    let mut buffer = limited(1, 1460);
    assert_eq!(encapsulate(&mut router, &mut buffer), ForwardingVerdict::from(TunnelDropReason::TooBig));
    let error = next_caused_packet(&mut router).expect("an error");
    let (said, _) = icmpv6::parse_error(&error[HEADER_LEN..]).expect("parses");
    assert_eq!(said, Icmpv6ErrorMessage::PacketTooBig { mtu: 1452 });
}

#[test]
fn forwarder_merges_ecn_marks() {
    let class = |outer, inner| decapsulated_traffic_class(outer, inner);
    assert_eq!(class(0b11, 0b1010_1010), Some(0b1010_1011));
    assert_eq!(class(0b11, 0b00), None);
    assert_eq!(class(0b00, 0b10), Some(0b10));
    assert_eq!(class(0b01, 0b10), Some(0b01));
    assert_eq!(class(0b10, 0b00), Some(0b00));
}
