//! Routes of mobile nodes and home networks in the kernel, as a station passes them to the platform.

mod common;

use std::net::Ipv6Addr;

use carnet_base::{Rng, Time};
use carnet_mobility::Authentication;
use carnet_mobility::home_agent::AuthorizedNode;
use carnet_mobility::mobile_router::{RegistrationMode, UplinkConfig};
use carnet_nemo::forwarding::desired::{
    EntryChange, ForwardingEntry, Route, RouteAction, TABLE_MAIN, TABLE_TUNNEL, TABLE_UPLINK, TUNNEL_DEVICE,
    priority,
};
use carnet_station::io::{Event, Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder};
use common::{
    AGENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, WALL_TIME, address, agent_config, interface,
    router_config,
};

/// Entries that a station desires in the kernel now, collected from its changes.
#[derive(Default)]
struct DesiredEntries(Vec<ForwardingEntry>);

impl DesiredEntries {
    fn collect_changes(&mut self, station: &mut Station) -> Vec<Output> {
        let mut others = Vec::new();
        while let Some(output) = station.poll_output() {
            match output {
                Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry))) => {
                    self.0.retain(|old| old.key() != entry.key());
                    self.0.push(ForwardingEntry::clone(&entry));
                }
                Output::Nemo(NemoOutput::Forwarding(EntryChange::Remove(entry))) => {
                    self.0.retain(|old| old.key() != entry.key())
                }
                other => others.push(other),
            }
        }
        others
    }

    fn routes_to(&self, table: u32, destination: &str) -> Vec<&Route> {
        let wanted = |route: &&Route| route.table == table && route.destination.to_string() == destination;
        let routes = self.0.iter().filter_map(|entry| match entry {
            ForwardingEntry::Route(route) => Some(route),
            _ => None,
        });
        routes.filter(wanted).collect()
    }

    /// Returns the tables that rules select for the machine's own packets without a chosen source address.
    fn tables_of_node(&self) -> Vec<u32> {
        let rules = self.0.iter().filter_map(|entry| match entry {
            ForwardingEntry::Rule(rule) if rule.priority == priority::FROM_HOME_ADDRESS => {
                assert_eq!((rule.input_interface.as_deref(), rule.from, rule.to), (Some("lo"), None, None));
                Some(rule.table)
            }
            _ => None,
        });
        rules.collect()
    }

    /// Returns the interfaces that have the mobile node's home address.
    fn interfaces_with_home_address(&self) -> Vec<&str> {
        let addresses = self.0.iter().filter_map(|entry| match entry {
            ForwardingEntry::Address(own) if own.address == address(HOME_ADDRESS) => {
                Some(own.interface.as_str())
            }
            _ => None,
        });
        addresses.collect()
    }
}

fn node_config() -> StationConfig {
    let mut config = router_config(&[]);
    if let Some(settings) = &mut config.mobile_router {
        settings.router.mode = RegistrationMode::Host;
        settings.router.authentication = carnet_mobility::Authentication::None;
        settings.lan.clear();
    }
    config
}

fn start_station(config: StationConfig) -> (Station, DesiredEntries) {
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    let mut wanted = DesiredEntries::default();
    wanted.collect_changes(&mut station);
    (station, wanted)
}

/// RFC 6275 11.3.1: a packet without a chosen source has the home address, regardless of the uplink's
/// address.
#[test]
fn mobile_node_sends_from_home_address_into_tunnel() {
    let (mut station, mut wanted) = start_station(node_config());
    station
        .handle_input(Time::ZERO, WALL_TIME, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)))
        .expect("accepted");
    wanted.collect_changes(&mut station);
    assert_eq!(wanted.tables_of_node(), [TABLE_TUNNEL]);
    assert_eq!(wanted.interfaces_with_home_address(), [TUNNEL_DEVICE]);
    let into_tunnel = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None };
    let routes = wanted.routes_to(TABLE_TUNNEL, "::/0");
    let first = routes.iter().find(|route| *route.action == into_tunnel).expect("a route into the tunnel");
    assert_eq!(first.source.as_deref(), Some(&address(HOME_ADDRESS)));
    // Packets of a program that binds to a care-of address leave by the uplink of that address. The routes of
    // this uplink set no other source address.
    assert!(wanted.routes_to(TABLE_UPLINK, "::/0").iter().all(|route| route.source.is_none()));
}

/// Returns the acknowledgement of a de-registration from the home address.
fn acknowledgement_of(update: &[u8]) -> Vec<u8> {
    let sequence = u16::from_be_bytes([update[46], update[47]]);
    let mut message = MobilityHeaderBuilder::binding_acknowledgement(0, false, false, sequence, 0).finish();
    carnet_wire::mobility::set_checksum(&mut message, address(AGENT_ADDRESS), address(HOME_ADDRESS));
    carnet_virtual::packet(address(AGENT_ADDRESS), address(HOME_ADDRESS), protocol::MOBILITY, &message)
}

/// RFC 6275 11.5.5: at home the source is the home address as well, without a tunnel. The kernel does not
/// choose an address that the uplink has on the home link.
#[test]
fn mobile_node_at_home_sends_by_home_link() {
    let (mut station, mut wanted) = start_station(node_config());
    let home = interface("w0", "2001:db8:1::99", true);
    station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(home)).expect("accepted");
    let said = wanted.collect_changes(&mut station);
    assert_eq!(wanted.tables_of_node(), [TABLE_TUNNEL], "not before the answer");
    let update = said.iter().find_map(|output| match output {
        Output::Nemo(NemoOutput::Packet(packet)) => Some(packet),
        _ => None,
    });
    let answer = acknowledgement_of(update.expect("a de-registration"));
    station.handle_input(Time::ZERO, WALL_TIME, Input::Packet(answer)).expect("accepted");
    wanted.collect_changes(&mut station);
    assert_eq!(wanted.tables_of_node(), [TABLE_UPLINK]);
    let mut on = wanted.interfaces_with_home_address();
    on.sort_unstable();
    assert_eq!(on, [TUNNEL_DEVICE, "w0"]);
    for destination in ["2001:db8:1::/64", "::/0"] {
        let routes = wanted.routes_to(TABLE_UPLINK, destination);
        assert!(
            !routes.is_empty()
                && routes.iter().all(|route| route.source.as_deref() == Some(&address(HOME_ADDRESS)))
        );
    }
}

/// Returns the first packet among outputs.
fn first_packet(outputs: &[Output]) -> &[u8] {
    let mut packets = outputs.iter().filter_map(|output| match output {
        Output::Nemo(NemoOutput::Packet(packet)) => Some(packet.as_slice()),
        _ => None,
    });
    packets.next().expect("a packet")
}

/// RFC 6275 11.5.5: a host on the visited link may have forged the advertisement of the home prefix. Until
/// the home agent acknowledges the return, the tunnel's packets leave by the node's own router.
#[test]
fn tunnel_keeps_its_own_next_hop_until_return_home_is_acknowledged() {
    const FORGER_ADDRESS: &str = "fe80::66";
    let (mut station, mut wanted) = start_station(node_config());
    let mut link = interface("w0", FIRST_CARE_OF_ADDRESS, true);
    let own_router = link.routers[0].gateway;
    station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(link.clone())).expect("accepted");
    let said = wanted.collect_changes(&mut station);
    // The Mobility Header is behind a Home Address option of 24 octets.
    let update = first_packet(&said);
    let sequence = u16::from_be_bytes([update[70], update[71]]);
    let mut message = MobilityHeaderBuilder::binding_acknowledgement(0, false, false, sequence, 15).finish();
    let answer = ControlPacket {
        source: address(AGENT_ADDRESS),
        destination: address(FIRST_CARE_OF_ADDRESS),
        hop_limit: 64,
        home_address: None,
        routing_home_address: Some(address(HOME_ADDRESS)),
        mobility_header: &mut message,
    };
    station.handle_input(Time::ZERO, WALL_TIME, Input::Packet(answer.emit())).expect("accepted");
    wanted.collect_changes(&mut station);
    link.addresses.extend(interface("w0", "2001:db8:1::99", true).addresses);
    link.routers.insert(0, address(FORGER_ADDRESS).into());
    station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(link)).expect("accepted");
    let said = wanted.collect_changes(&mut station);
    let tables = |wanted: &DesiredEntries| -> Vec<u32> {
        let rules = wanted.0.iter().filter_map(|entry| match entry {
            ForwardingEntry::Rule(rule) if rule.priority == priority::FROM_CARE_OF_ADDRESS => {
                Some(rule.table)
            }
            _ => None,
        });
        rules.collect()
    };
    let gateways = |wanted: &DesiredEntries, table: u32| -> Vec<Option<Ipv6Addr>> {
        let routes = wanted.routes_to(table, "::/0").into_iter().filter_map(|route| match &*route.action {
            RouteAction::Forward { gateway, .. } => Some(*gateway),
            _ => None,
        });
        routes.collect()
    };
    assert_eq!(gateways(&wanted, TABLE_UPLINK), [Some(address(FORGER_ADDRESS))]);
    let led = tables(&wanted);
    assert!(!led.is_empty() && led.iter().all(|table| *table != TABLE_UPLINK), "{led:?}");
    assert!(led.iter().all(|table| gateways(&wanted, *table) == [Some(own_router)]));
    let answer = acknowledgement_of(first_packet(&said));
    station.handle_input(Time::ZERO, WALL_TIME, Input::Packet(answer)).expect("accepted");
    wanted.collect_changes(&mut station);
    assert!(tables(&wanted).is_empty());
}

/// A mobile router has no route that selects the home address: the kernel's source address selection applies
/// to its own packets unchanged.
#[test]
fn mobile_router_gets_no_route_of_a_mobile_node() {
    let (mut station, mut wanted) = start_station(router_config(&["2001:db8:a::/64"]));
    station
        .handle_input(Time::ZERO, WALL_TIME, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)))
        .expect("accepted");
    wanted.collect_changes(&mut station);
    assert!(wanted.tables_of_node().is_empty());
    assert!(wanted.routes_to(TABLE_TUNNEL, "::/0").iter().all(|route| route.source.is_none()));
}

/// Returns the routes that the home agent desires for a prefix of a mobile router without a binding.
fn routes_without_binding(home_prefix: &str, home_address: &str, prefix: &str) -> Vec<RouteAction> {
    let mut config = agent_config(&[prefix]);
    if let Some(agent) = &mut config.home_agent {
        agent.home_prefix = home_prefix.parse().expect("a prefix");
        agent.home_link = Some("h0".into());
        agent.nodes[0].home_address = address(home_address);
    }
    let (_, wanted) = start_station(config);
    wanted.routes_to(TABLE_MAIN, prefix).into_iter().map(|route| (*route.action).clone()).collect()
}

/// RFC 4887 6.2: a mobile router without a registration counts as at home. A router whose home address is
/// outside the home link's prefix cannot be on the home link (5.3).
#[test]
fn mobile_networks_at_home_are_routed_to_their_routers() {
    let by = |gateway: &str| {
        let gateway: Option<Ipv6Addr> = Some(address(gateway));
        vec![RouteAction::Forward { interface: "h0".into(), gateway }]
    };
    let aggregate = "2001:db8:1::/48";
    assert_eq!(
        routes_without_binding(aggregate, "2001:db8:1::a1", "2001:db8:1:a::/64"),
        by("2001:db8:1::a1")
    );
    assert_eq!(
        routes_without_binding(aggregate, "2001:db8:1:a::1", "2001:db8:1:a::/64"),
        by("2001:db8:1:a::1")
    );
    assert_eq!(
        routes_without_binding("2001:db8:1::/64", "2001:db8:1::a1", "2001:db8:1:a::/64"),
        by("2001:db8:1::a1")
    );
    let beside = routes_without_binding("2001:db8:1::/64", "2001:db8:1:a::1", "2001:db8:1:a::/64");
    assert_eq!(beside, [RouteAction::Unreachable]);
}

/// RFC 4887 5.1: packets for unused parts of the aggregate end at the home agent.
#[test]
fn unused_part_of_extended_home_network_is_unreachable() {
    let mut config = agent_config(&["2001:db8:1:a::/64"]);
    if let Some(agent) = &mut config.home_agent {
        agent.home_network = Some("2001:db8:1::/48".parse().expect("a prefix"));
    }
    let (_, wanted) = start_station(config);
    let routes = wanted.routes_to(TABLE_MAIN, "2001:db8:1::/48");
    assert!(matches!(
        routes.as_slice(),
        [route] if *route.action == RouteAction::Unreachable && route.metric > 1 << 30
    ));
}

/// RFC 6275 9.3.1 and 9.3.3: the home agent answers a Home Address option without a binding by a Binding
/// Error. It answers a tunnelled packet of a node without a binding by an ICMPv6 error (RFC 4443 3.1 code 4),
/// up to a rate limit. It does not answer a tunnelled packet of an unknown source.
#[test]
fn home_agent_reports_missing_binding_by_icmpv6_error_or_binding_error() {
    let mut agent = Station::new(
        agent_config(&["2001:db8:a::/64"]),
        PersistentState::default(),
        Rng::new(1),
        Time::ZERO,
        WALL_TIME,
    );
    while agent.poll_output().is_some() {}
    let packet = |source: &str, destination: &str, next_header: u8, payload: &[u8]| {
        let header = Header {
            traffic_class: 0,
            flow_label: 0x1234,
            payload_length: u16::try_from(payload.len()).expect("a short payload"),
            next_header,
            hop_limit: 64,
            source: address(source),
            destination: address(destination),
        };
        [&header.emit()[..], payload].concat()
    };
    let mut answers = |question: &[u8]| {
        agent.handle_input(Time::ZERO, WALL_TIME, Input::Packet(question.to_vec())).expect("accepted");
        let outputs = std::iter::from_fn(|| agent.poll_output());
        let packets = outputs.filter_map(|output| match output {
            Output::Nemo(NemoOutput::Packet(packet)) => Some(packet),
            _ => None,
        });
        packets.collect::<Vec<_>>()
    };
    let tunnelled = |inner_source: &str, length: usize| {
        let inner = packet(inner_source, "2001:db8:99::1", protocol::UDP, &vec![0; length]);
        packet(FIRST_CARE_OF_ADDRESS, AGENT_ADDRESS, protocol::IPV6, &inner)
    };
    for (inner_source, length) in [(HOME_ADDRESS, 8), ("2001:db8:a::5", 1400)] {
        let question = tunnelled(inner_source, length);
        let found = answers(&question);
        assert_eq!(found.len(), 1);
        let header = Header::parse(&found[0]).expect("a packet");
        assert_eq!(
            (header.source, header.destination),
            (address(AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS))
        );
        assert_eq!((header.next_header, &found[0][40..42]), (protocol::ICMPV6, &[1, 4][..]));
        // RFC 4443 2.4 (c): the error has at most 1280 octets, and quotes enough of the packet for its sender
        // to recognise it.
        assert!(found[0].len() <= 1280 && found[0][48..128] == question[..80]);
    }
    assert!(answers(&tunnelled("2001:db8:bad::1", 8)).is_empty());
    let many: usize = (0..1000).map(|_| answers(&tunnelled(HOME_ADDRESS, 8)).len()).sum();
    assert!((10..=50).contains(&many), "{many}");

    let options =
        carnet_wire::extension::emit_home_address_options_header(protocol::UDP, address(HOME_ADDRESS));
    let found = answers(&packet(
        FIRST_CARE_OF_ADDRESS,
        AGENT_ADDRESS,
        protocol::DESTINATION_OPTIONS,
        &[&options[..], &[0; 8]].concat(),
    ));
    let header = Header::parse(&found[0]).expect("a packet");
    assert_eq!(
        (header.destination, header.next_header),
        (address(FIRST_CARE_OF_ADDRESS), protocol::MOBILITY)
    );
    assert_eq!(found[0][42..45], [7, found[0][43], found[0][44]][..]);
}

/// After a reload of the config, the station reports the home addresses that the new config adds, removes and
/// changes. It also reports which bindings the reload ends.
#[test]
fn reloaded_config_reports_its_changes() {
    let told = |station: &mut Station, config: &StationConfig| {
        station.reconfigure(Time::ZERO, WALL_TIME, config.clone());
        let outputs = std::iter::from_fn(|| station.poll_output());
        let events = outputs.filter_map(|output| match output {
            Output::Nemo(NemoOutput::Event(
                event @ (Event::Reloaded { .. } | Event::BindingRemoved { .. }),
            )) => Some(event),
            _ => None,
        });
        events.collect::<Vec<_>>()
    };
    let changes = |added: &[&str], removed: &[&str], changed: &[&str]| {
        let [added, removed, changed] =
            [added, removed, changed].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Event::Reloaded { added, removed, changed }
    };
    let node = |home_address: &str| AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: address(home_address),
        prefixes: [].into(),
        authentication: Authentication::None,
    };
    let with = |nodes: &[AuthorizedNode]| {
        let mut config = agent_config(&["2001:db8:a::/64"]);
        config.home_agent.as_mut().expect("a home agent").nodes = nodes.to_vec();
        config
    };
    let (first, second, third) = (node("2001:db8:1::a"), node("2001:db8:1::b"), node("2001:db8:1::c"));
    let mut agent = Station::new(
        with(&[first.clone(), second.clone()]),
        PersistentState::default(),
        Rng::new(1),
        Time::ZERO,
        WALL_TIME,
    );
    while agent.poll_output().is_some() {}
    let flags = BindingUpdateFlags { acknowledge: true, home_registration: true, ..Default::default() };
    let mut update = MobilityHeaderBuilder::binding_update(1, flags, 15).finish();
    let packet = ControlPacket {
        source: address(FIRST_CARE_OF_ADDRESS),
        home_address: Some(address("2001:db8:1::b")),
        ..ControlPacket::without_home_address(
            address(FIRST_CARE_OF_ADDRESS),
            address(AGENT_ADDRESS),
            64,
            &mut update,
        )
    };
    agent.handle_input(Time::ZERO, WALL_TIME, Input::Packet(packet.emit())).expect("accepted");
    while agent.poll_output().is_some() {}
    assert!(agent.home_agent().expect("a home agent").bindings().is_bound(address("2001:db8:1::b")));

    assert_eq!(told(&mut agent, &with(&[second.clone(), first.clone()])), []);
    let behind_no_nat = AuthorizedNode { nat: false, ..first };
    let of = |name: &str| format!("home_agent.mobile_router 2001:db8:1::{name}");
    assert_eq!(
        told(&mut agent, &with(&[behind_no_nat.clone(), second, third.clone()])),
        [changes(&[&of("c")], &[], &[&of("a")])]
    );
    let reason = "the new config does not have its node".to_owned();
    assert_eq!(
        told(&mut agent, &with(&[behind_no_nat, third])),
        [
            changes(&[], &[&of("b")], &[]),
            Event::BindingRemoved { home_address: address("2001:db8:1::b"), bid: None, reason }
        ]
    );
    let many: Vec<_> = (0..100).map(|number| node(&format!("2001:db8:1::d:{number:x}"))).collect();
    match &told(&mut agent, &with(&many))[..] {
        [Event::Reloaded { added, removed, .. }] => {
            assert_eq!((added.len(), added[64].as_str(), removed.len()), (65, "36 more", 2));
        }
        other => panic!("{other:?}"),
    }

    let config = router_config(&["2001:db8:a::/64"]);
    let mut router =
        Station::new(config.clone(), PersistentState::default(), Rng::new(1), Time::ZERO, WALL_TIME);
    while router.poll_output().is_some() {}
    let mut other = config;
    let settings = &mut other.mobile_router.as_mut().expect("a mobile router").router;
    settings.uplinks[0].priority += 1;
    settings.uplinks.pop();
    settings.uplinks.push(UplinkConfig { interface: "w7".into(), ..UplinkConfig::default() });
    assert_eq!(
        told(&mut router, &other),
        [changes(&["mobile_router.uplink w7"], &["mobile_router.uplink w1"], &["mobile_router.uplink w0"])]
    );
}
