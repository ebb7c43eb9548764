//! A home agent's station with several care-of addresses of one node, some of them IPv4. The tests check the
//! data path's entries, the paths of packets, and the home agent's status (RFC 5648, RFC 5555, RFC 6089, RFC
//! 5847).

mod common;

use carnet_base::{Endpoint, Rng, Time};
use carnet_mobility::Authentication;
use carnet_mobility::flow::{FlowAction, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_nemo::forwarding::desired::{FlowDistribution, ForwardingEntry};
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::flow_identification::emit_sub_options;
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, HOST_ADDRESS,
    SECOND_CARE_OF_ADDRESS, WALL_TIME, address, agent_config,
};

const AGENT_ENDPOINT: &str = "udp:10.0.0.1:4191";
const NAT_ENDPOINT: &str = "udp:198.51.100.9:40123";
const NEW_NAT_ENDPOINT: &str = "udp:198.51.100.9:51000";

fn parse_endpoint(text: &str) -> Endpoint {
    text.parse().expect("an end of a tunnel")
}

fn config() -> StationConfig {
    let mut config = agent_config(&["2001:db8:a::/64"]);
    if let Some(agent) = &mut config.home_agent {
        agent.ipv4_address = Some(std::net::Ipv4Addr::new(10, 0, 0, 1));
    }
    for node in config.home_agent.iter_mut().flat_map(|agent| &mut agent.nodes) {
        node.authentication = Authentication::None;
    }
    config
}

fn start_station(state: PersistentState) -> Station {
    let mut station = Station::new(config(), state, Rng::new(7), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    station
}

fn identifier_option(bid: u16, care_of_address: &str) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority: 10 * bid as u8,
        care_of_address: Some(care_of_address.parse().expect("an address")),
    }
}

/// Returns a Binding Update with a lifetime of 60 seconds and these options.
fn binding_update(sequence: u16, source: &str, options: &[MobilityOption<'_>]) -> Vec<u8> {
    let flags = BindingUpdateFlags::from_bits(0xc400);
    let builder = MobilityHeaderBuilder::binding_update(sequence, flags, 15);
    let builder = options.iter().fold(builder, |builder, option| builder.option(option));
    ControlPacket {
        source: address(source),
        destination: address(AGENT_ADDRESS),
        hop_limit: 64,
        home_address: (source != HOME_ADDRESS).then(|| address(HOME_ADDRESS)),
        routing_home_address: None,
        mobility_header: &mut builder.finish(),
    }
    .emit()
}

fn feed_input(station: &mut Station, input: Input) -> Vec<Output> {
    station.handle_input(Time::ZERO, WALL_TIME, input).expect("accepted");
    std::iter::from_fn(|| station.poll_output()).collect()
}

fn receive_over_ipv6(station: &mut Station, packet: Vec<u8>) -> Vec<Output> {
    feed_input(station, Input::Packet(packet))
}

fn receive_inside_udp(station: &mut Station, remote: &str, packet: Vec<u8>) -> Vec<Output> {
    feed_input(
        station,
        Input::Datagram {
            local: parse_endpoint(AGENT_ENDPOINT),
            remote: parse_endpoint(remote),
            traffic_class: 0,
            packet,
        },
    )
}

/// Returns the packets that the station sends inside IPv4, each with source and destination.
fn encapsulated_packets(outputs: &[Output]) -> Vec<(Endpoint, Endpoint, Vec<u8>)> {
    let packet = |output: &Output| match output {
        Output::Nemo(NemoOutput::Encapsulated { local, remote, packet, .. }) => {
            Some((*local, *remote, packet.clone()))
        }
        _ => None,
    };
    outputs.iter().filter_map(packet).collect()
}

/// Returns a UDP packet.
fn udp_packet(source: &str, destination: &str, port: u16) -> Vec<u8> {
    let mut datagram = [40_000_u16, port, 60, 0].map(u16::to_be_bytes).concat();
    datagram.resize(60, 0x55);
    carnet_virtual::packet(address(source), address(destination), protocol::UDP, &datagram)
}

/// Returns the care-of address of the tunnel that a packet for the host took.
fn tunnel_of_packet(station: &mut Station, port: u16) -> Option<Endpoint> {
    let outputs = receive_over_ipv6(station, udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, port));
    if let Some((_, remote, _)) = encapsulated_packets(&outputs).pop() {
        return Some(remote);
    }
    outputs.iter().find_map(|output| match output {
        Output::Nemo(NemoOutput::Packet(packet)) => {
            let header = Header::parse(packet).expect("IPv6");
            (header.source == address(AGENT_ADDRESS)).then_some(header.destination.into())
        }
        _ => None,
    })
}

fn describe_tunnels(station: &Station) -> Vec<(Option<u16>, Endpoint, bool)> {
    let tunnel = |entry: &ForwardingEntry| match entry {
        ForwardingEntry::Tunnel(tunnel) => Some((tunnel.bid, tunnel.remote, tunnel.transmit)),
        _ => None,
    };
    let mut tunnels: Vec<_> = station.nemo().desired_entries().filter_map(tunnel).collect();
    tunnels.sort();
    tunnels
}

fn distribution_of(station: &Station) -> Option<&FlowDistribution> {
    station.nemo().desired_entries().find_map(|entry| match entry {
        ForwardingEntry::Distribution(distribution) => Some(&**distribution),
        _ => None,
    })
}

/// Returns a home agent with binding 1 inside UDP and bindings 2 and 3 over IPv6. The next sequence number is
/// 4.
fn agent_with_three_bindings() -> Station {
    let mut station = start_station(PersistentState::default());
    receive_inside_udp(
        &mut station,
        NAT_ENDPOINT,
        binding_update(1, HOME_ADDRESS, &[identifier_option(1, "192.0.2.77")]),
    );
    receive_over_ipv6(
        &mut station,
        binding_update(2, FIRST_CARE_OF_ADDRESS, &[identifier_option(2, FIRST_CARE_OF_ADDRESS)]),
    );
    receive_over_ipv6(
        &mut station,
        binding_update(3, SECOND_CARE_OF_ADDRESS, &[identifier_option(3, SECOND_CARE_OF_ADDRESS)]),
    );
    assert_eq!(station.nemo().home_agent_status().map(|agent| agent.bindings), Some(3));
    station
}

/// Each binding has a tunnel, and all packets go through the tunnel of the preferred binding. The station
/// need not distribute packets, so a fast path can forward them.
#[test]
fn every_binding_has_a_tunnel_and_the_best_carries_the_packets() {
    let mut station = agent_with_three_bindings();
    assert_eq!(
        describe_tunnels(&station),
        [
            (Some(1), parse_endpoint(NAT_ENDPOINT), true),
            (Some(2), parse_endpoint(FIRST_CARE_OF_ADDRESS), false),
            (Some(3), parse_endpoint(SECOND_CARE_OF_ADDRESS), false)
        ]
    );
    assert_eq!(distribution_of(&station), None);
    assert_eq!(tunnel_of_packet(&mut station, 5000), Some(parse_endpoint(NAT_ENDPOINT)));
    // The home agent accepts tunnelled packets from both care-of addresses.
    for source in [FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS] {
        let inner = udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1);
        let outer = carnet_virtual::packet(address(source), address(AGENT_ADDRESS), protocol::IPV6, &inner);
        let outputs = receive_over_ipv6(&mut station, outer);
        assert!(matches!(
            outputs.last(),
            Some(Output::Nemo(NemoOutput::Packet(packet))) if packet[8..] == inner[8..]
        ));
    }
    let outputs =
        receive_inside_udp(&mut station, NAT_ENDPOINT, udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1));
    assert!(matches!(outputs.last(), Some(Output::Nemo(NemoOutput::Packet(_)))));
    // When the preferred binding ends, packets go through the tunnel of the next one.
    let end_of = MobilityOption::BindingIdentifier {
        bid: 1,
        status: 0,
        home: false,
        priority: 10,
        care_of_address: None,
    };
    let flags = BindingUpdateFlags::from_bits(0xc400);
    let mut header = MobilityHeaderBuilder::binding_update(4, flags, 0).option(&end_of).finish();
    let packet = ControlPacket {
        source: address(FIRST_CARE_OF_ADDRESS),
        destination: address(AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(address(HOME_ADDRESS)),
        routing_home_address: None,
        mobility_header: &mut header,
    };
    receive_over_ipv6(&mut station, packet.emit());
    assert_eq!(tunnel_of_packet(&mut station, 5000), Some(parse_endpoint(FIRST_CARE_OF_ADDRESS)));
    assert_eq!(
        describe_tunnels(&station),
        [
            (None, parse_endpoint(NAT_ENDPOINT), false),
            (Some(2), parse_endpoint(FIRST_CARE_OF_ADDRESS), true),
            (Some(3), parse_endpoint(SECOND_CARE_OF_ADDRESS), false)
        ],
        "what is on its way is still let in"
    );
}

/// RFC 6089 5.3.6: the packets of a flow take the binding of the flow, and all other packets take the best
/// binding. The test also removes the flow binding.
#[test]
fn flow_uses_the_binding_of_its_policy() {
    let mut station = agent_with_three_bindings();
    let selector = TrafficSelector::Ipv6(Ipv6Selector {
        next_header: Some(ValueRange::single(17)),
        destination_port: Some(ValueRange::single(5000)),
        ..Ipv6Selector::default()
    });
    let octets = emit_sub_options(Some(&selector), &[3]);
    let flow = MobilityOption::FlowIdentification { fid: 4, priority: 1, status: 0, sub_options: &octets };
    receive_over_ipv6(
        &mut station,
        binding_update(4, FIRST_CARE_OF_ADDRESS, &[identifier_option(2, FIRST_CARE_OF_ADDRESS), flow]),
    );
    assert_eq!(tunnel_of_packet(&mut station, 5000), Some(parse_endpoint(SECOND_CARE_OF_ADDRESS)));
    assert_eq!(tunnel_of_packet(&mut station, 5001), Some(parse_endpoint(NAT_ENDPOINT)));
    let rules = &distribution_of(&station).expect("a distribution").rules;
    assert_eq!(rules.len(), 2);
    assert_eq!((rules[0].action, rules[0].members[0].bid), (FlowAction::Failover, Some(3)));
    receive_over_ipv6(
        &mut station,
        binding_update(5, FIRST_CARE_OF_ADDRESS, &[identifier_option(2, FIRST_CARE_OF_ADDRESS)]),
    );
    assert_eq!(tunnel_of_packet(&mut station, 5000), Some(parse_endpoint(NAT_ENDPOINT)));
    assert_eq!(distribution_of(&station), None);
}

/// A NAT loses its mapping. Data packets from the new address cause a Binding Error to that address. A
/// Binding Update from the new address moves the tunnel.
#[test]
fn changed_nat_mapping_moves_the_tunnel() {
    let mut station = agent_with_three_bindings();
    let before = describe_tunnels(&station);
    let outputs = receive_inside_udp(
        &mut station,
        NEW_NAT_ENDPOINT,
        udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1),
    );
    assert_eq!(describe_tunnels(&station), before);
    let said = encapsulated_packets(&outputs);
    assert_eq!(said.len(), 1, "{outputs:?}");
    assert_eq!((said[0].0, said[0].1), (parse_endpoint(AGENT_ENDPOINT), parse_endpoint(NEW_NAT_ENDPOINT)));
    assert!(
        !outputs.iter().any(|output| matches!(output, Output::Nemo(NemoOutput::Packet(_)))),
        "nothing passes"
    );
    let outputs = receive_inside_udp(
        &mut station,
        NEW_NAT_ENDPOINT,
        binding_update(4, HOME_ADDRESS, &[identifier_option(1, "192.0.2.77")]),
    );
    let acknowledgement = &encapsulated_packets(&outputs)[0];
    assert_eq!(
        (acknowledgement.1, acknowledgement.2[6]),
        (parse_endpoint(NEW_NAT_ENDPOINT), protocol::MOBILITY)
    );
    assert_eq!(tunnel_of_packet(&mut station, 5000), Some(parse_endpoint(NEW_NAT_ENDPOINT)));
    let outputs =
        receive_inside_udp(&mut station, NAT_ENDPOINT, udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1));
    assert!(
        matches!(outputs.last(), Some(Output::Nemo(NemoOutput::Packet(_)))),
        "what was on its way is let in"
    );
}

/// RFC 5847: the home agent answers a Heartbeat on the path on which it came.
#[test]
fn heartbeats_are_answered_over_each_path() {
    let mut station = agent_with_three_bindings();
    let request = |source: &str| {
        ControlPacket {
            source: address(source),
            destination: address(AGENT_ADDRESS),
            hop_limit: 64,
            home_address: None,
            routing_home_address: None,
            mobility_header: &mut MobilityHeaderBuilder::heartbeat_request(9).finish(),
        }
        .emit()
    };
    let outputs = receive_over_ipv6(&mut station, request(FIRST_CARE_OF_ADDRESS));
    let [Output::Nemo(NemoOutput::Packet(packet))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(packet[24..40], address(FIRST_CARE_OF_ADDRESS).octets());
    let outputs = receive_inside_udp(&mut station, NAT_ENDPOINT, request(HOME_ADDRESS));
    assert_eq!(encapsulated_packets(&outputs)[0].1, parse_endpoint(NAT_ENDPOINT));
    let counters = station.counters();
    assert!(counters.contains(&("mobility.received.heartbeat".into(), 2)));
}

/// Status and stored state contain every binding with its identifier. After a restart, the home agent
/// restores bindings, tunnels and the restart counter. The restart counter changes only at a start without
/// stored state.
#[test]
fn status_and_stored_state_contain_every_binding() {
    let mut station = agent_with_three_bindings();
    let shown: Vec<_> =
        station.nemo().binding_status(Time::ZERO).iter().map(|b| (b.bid, b.care_of_address)).collect();
    let at = |text| Some(parse_endpoint(text).address());
    assert_eq!(
        shown,
        [
            (Some(1), at(NAT_ENDPOINT)),
            (Some(2), at(FIRST_CARE_OF_ADDRESS)),
            (Some(3), at(SECOND_CARE_OF_ADDRESS))
        ]
    );
    let state = station.nemo().persistent_state(Time::ZERO, WALL_TIME);
    assert_eq!(state.restart_counter, Some(1_800_000_000), "the date, without memory");
    let text = serde_json::to_string(&state).expect("JSON");
    let state: PersistentState = serde_json::from_str(&text).expect("the same");
    let state = PersistentState { restart_counter: Some(41), ..state };
    let mut again = start_station(state);
    assert_eq!(describe_tunnels(&again), describe_tunnels(&station));
    assert_eq!(again.nemo().persistent_state(Time::ZERO, WALL_TIME).restart_counter, Some(41));
    assert_eq!(tunnel_of_packet(&mut again, 5000), tunnel_of_packet(&mut station, 5000));
    // State file of an older version, which had one binding for each node.
    let old = r#"{"home_agent":[{"home_address":"2001:db8:1::1234","sequence":7,"timestamp":null,
        "registration":{"care_of_address":"2001:db8:f1::10","mobile_router":true,"link_local":false,
        "prefixes":["2001:db8:a::/64"],"lifetime_s":60,"expires":1800000030000000000,
        "previous":["2001:db8:f2::10",1800000002000000000]}}],"mobile_router":null}"#;
    let station = start_station(serde_json::from_str(old).expect("an old file"));
    assert_eq!(
        describe_tunnels(&station),
        [
            (None, parse_endpoint(FIRST_CARE_OF_ADDRESS), true),
            (None, parse_endpoint(SECOND_CARE_OF_ADDRESS), false)
        ]
    );
}

const SECOND_HOME_ADDRESS: &str = "2001:db8:1::5678";

/// Returns a home agent with two nodes; the prefix of the second node is `2001:db8:b::/64`.
fn start_station_for_two_nodes() -> Station {
    let mut config = config();
    if let Some(agent) = &mut config.home_agent {
        let prefixes = ["2001:db8:b::/64"].iter().map(|prefix| prefix.parse().expect("a prefix"));
        agent.nodes.push(carnet_mobility::home_agent::AuthorizedNode {
            home_address: address(SECOND_HOME_ADDRESS),
            prefixes: prefixes.collect(),
            ..agent.nodes[0].clone()
        });
    }
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    station
}

/// Returns a Binding Update of this node with these care-of addresses, and one flow binding that copies
/// packets to all of them.
fn update_with_care_of_addresses(sequence: u16, home_address: &str, care_of_addresses: &[String]) -> Vec<u8> {
    let bids: Vec<u16> = (1..).take(care_of_addresses.len()).collect();
    let selector = TrafficSelector::Ipv6(Ipv6Selector::default());
    let octets = emit_sub_options(Some(&selector), &bids);
    let flow = MobilityOption::FlowIdentification { fid: 1, priority: 1, status: 0, sub_options: &octets };
    let builder = MobilityHeaderBuilder::binding_update(sequence, BindingUpdateFlags::from_bits(0xc400), 15);
    let bindings = bids.iter().zip(care_of_addresses);
    let builder = bindings.fold(builder, |builder, (id, care_of_address)| {
        builder.option(&identifier_option(*id, care_of_address))
    });
    ControlPacket {
        source: address(&care_of_addresses[0]),
        destination: address(AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(address(home_address)),
        routing_home_address: None,
        mobility_header: &mut builder.option(&flow).finish(),
    }
    .emit()
}

/// Returns number and octets of all packets that the station sends because of one received packet. If such a
/// packet goes to a network of the station's own nodes, the test passes it to the station again.
fn count_outputs_for(station: &mut Station, now: Time, packet: Vec<u8>) -> (usize, usize) {
    let mut waiting = vec![packet];
    let (mut packets, mut octets) = (0, 0);
    while let Some(packet) = waiting.pop() {
        station.handle_input(now, WALL_TIME, Input::Packet(packet)).expect("accepted");
        for output in std::iter::from_fn(|| station.poll_output()).collect::<Vec<_>>() {
            let packet = match output {
                Output::Nemo(NemoOutput::Packet(packet))
                | Output::Nemo(NemoOutput::Encapsulated { packet, .. }) => packet,
                _ => continue,
            };
            let to = packet.get(24..32).expect("an IPv6 header");
            if [[0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0], [0x20, 1, 0xd, 0xb8, 0, 0xb, 0, 0]]
                .iter()
                .any(|own| to == own)
            {
                waiting.push(packet);
            } else {
                packets += 1;
                octets += packet.len();
            }
        }
    }
    (packets, octets)
}

#[test]
fn home_agent_sends_at_most_four_copies_and_no_copy_of_a_copy() {
    let mut station = start_station_for_two_nodes();
    let at_victim: Vec<String> = (1..=16).map(|n| format!("2001:db8:f1::{n:x}")).collect();
    receive_over_ipv6(&mut station, update_with_care_of_addresses(1, HOME_ADDRESS, &at_victim));
    // The care-of addresses of the second node are in the first node's network.
    let in_the_first: Vec<String> = (1..=16).map(|n| format!("2001:db8:a::{n:x}")).collect();
    receive_over_ipv6(&mut station, update_with_care_of_addresses(1, SECOND_HOME_ADDRESS, &in_the_first));
    assert_eq!(station.nemo().home_agent_status().map(|agent| agent.bindings), Some(32));
    let later = Time::from_secs(1);
    station.handle_input(later, WALL_TIME, Input::Timeout).expect("accepted");
    while station.poll_output().is_some() {}
    for (to, most) in [("2001:db8:a::5", 4), ("2001:db8:b::5", 4)] {
        let (packets, _) =
            count_outputs_for(&mut station, later, udp_packet(CORRESPONDENT_ADDRESS, to, 5000));
        assert!((1..=most).contains(&packets), "{packets} packets for one to {to}");
    }
    let counted = |station: &Station, name: &str| {
        station.counters().into_iter().find(|(known, _)| known == name).map(|(_, count)| count)
    };
    assert_eq!(counted(&station, "tunnel.duplicated"), Some(6));
    assert_eq!(counted(&station, "tunnel.not_duplicated"), Some(4));
    // The home agent limits how many copies it sends during a flood.
    let flood: usize = (0..10_000)
        .map(|_| {
            count_outputs_for(&mut station, later, udp_packet(CORRESPONDENT_ADDRESS, "2001:db8:a::5", 5000)).0
        })
        .sum();
    assert!(flood <= 10_000 + 2_000, "{flood} packets for 10,000");
}

/// For random registrations, one received packet causes at most four sent packets. The home agent also limits
/// its own messages to each router.
#[test]
fn received_packet_causes_at_most_four_over_random_registrations() {
    let mut rng = Rng::new(21);
    let mut station = start_station_for_two_nodes();
    let mut now = Time::ZERO;
    let places = ["2001:db8:f1::", "2001:db8:a::", "2001:db8:b::", "2001:db8:f2::"];
    let mut own = 0;
    for round in 0..3_000_u16 {
        let place = places[rng.number_below(4) as usize];
        let count = rng.number_below(16) + 1;
        let care_of_addresses: Vec<String> =
            (0..count).map(|_| format!("{place}{:x}", rng.number_below(99) + 1)).collect();
        let home_address = if rng.is_true_with_probability(0.5) { HOME_ADDRESS } else { SECOND_HOME_ADDRESS };
        let mut packet = update_with_care_of_addresses(round, home_address, &care_of_addresses);
        if rng.is_true_with_probability(0.3) {
            let at = rng.number_below(packet.len() as u64 - 64) as usize + 64;
            packet[at] ^= 1 << rng.number_below(8);
            // The test corrects the checksum, as if the sender had signed this message (RFC 6275 6.1.1, with
            // the home address).
            packet[68..70].copy_from_slice(&[0, 0]);
            let checksum = upper_layer_checksum(
                address(home_address),
                address(AGENT_ADDRESS),
                protocol::MOBILITY,
                &packet[64..],
            );
            packet[68..70].copy_from_slice(&checksum.to_be_bytes());
        }
        station.handle_input(now, WALL_TIME, Input::Packet(packet)).expect("accepted");
        own += std::iter::from_fn(|| station.poll_output())
            .filter(|output| {
                matches!(
                    output,
                    Output::Nemo(NemoOutput::Packet(_)) | Output::Nemo(NemoOutput::Encapsulated { .. })
                )
            })
            .count();
        let to = ["2001:db8:a::5", "2001:db8:b::5"][rng.number_below(2) as usize];
        let (packets, octets) =
            count_outputs_for(&mut station, now, udp_packet(CORRESPONDENT_ADDRESS, to, 5000));
        assert!(packets <= 4, "{packets} packets for one");
        assert!(octets <= 4 * (100 + 6 * 56), "{octets} octets for 100");
        if rng.is_true_with_probability(0.3) {
            now += std::time::Duration::from_millis(rng.number_below(2000));
            station.handle_input(now, WALL_TIME, Input::Timeout).expect("accepted");
            own += std::iter::from_fn(|| station.poll_output())
                .filter(|output| {
                    matches!(
                        output,
                        Output::Nemo(NemoOutput::Packet(_)) | Output::Nemo(NemoOutput::Encapsulated { .. })
                    )
                })
                .count();
        }
    }
    // The budget permits one acknowledgement for each update, and the probes of two rate limits: each 64 at
    // once and 10 a second.
    let budget = 3_000 + 2 * (64 + 17 + 10 * now.saturating_since(Time::ZERO).as_secs() as usize);
    assert!(own <= budget, "{own} packets of its own, {budget} expected at most");
}
