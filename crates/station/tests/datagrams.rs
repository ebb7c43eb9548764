//! Two stations connected only by IPv4 with a NAT between them, and messages of attackers to their sockets.

mod common;

use std::time::Duration;

use carnet_base::{Endpoint, Interface, Rng, Time};
use carnet_nemo::forwarding::desired::{
    EntryChange, ForwardingEntry, Ipv4Route, Ipv4Rule, TABLE_MAIN, TABLE_UPLINK,
};
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_wire::ipv6::{Header, protocol};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    CORRESPONDENT_ADDRESS, HOST_ADDRESS, WALL_TIME, address, agent_config, data_packet_between, interface,
    router_config,
};

const HOME_AGENT_ENDPOINT: &str = "udp:198.51.100.2:4191";
const ROUTER_ENDPOINT: &str = "udp:10.0.0.10:4191";
/// Address and port that the router has behind the NAT.
const NAT_ENDPOINT: &str = "udp:192.0.2.77:40001";

fn parse_endpoint(text: &str) -> Endpoint {
    text.parse().expect("an endpoint")
}

/// The network with a NAT between home agent (station 0) and mobile router (station 1), and what the test
/// records.
#[derive(Default)]
struct NatNetwork {
    /// Packets that have come out of a tunnel, each with the index of its station.
    decapsulated_packets: Vec<(usize, Vec<u8>)>,
    /// All packets on the wire, each with the index of the receiving station.
    packets_on_wire: Vec<(usize, Vec<u8>)>,
    sockets: [Vec<String>; 2],
}

type NatWorld = common::world::TestNetwork<NatNetwork>;

impl NetworkBehaviour for NatNetwork {
    fn handle_output(world: &mut NatWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => {
                world.network_behaviour.decapsulated_packets.push((from, packet))
            }
            Output::Nemo(NemoOutput::Encapsulated { local, remote, packet, .. }) => {
                // The NAT rewrites the router's address, and accepts packets only for its own mapping.
                let there =
                    [(HOME_AGENT_ENDPOINT, NAT_ENDPOINT), (ROUTER_ENDPOINT, HOME_AGENT_ENDPOINT)][from];
                if (local, remote) == (parse_endpoint(there.0), parse_endpoint(there.1)) {
                    let to = 1 - from;
                    world.network_behaviour.packets_on_wire.push((to, packet.clone()));
                    let seen =
                        [(HOME_AGENT_ENDPOINT, NAT_ENDPOINT), (ROUTER_ENDPOINT, HOME_AGENT_ENDPOINT)][to];
                    world.send_now(to, datagram_input(seen, packet));
                }
            }
            Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry))) => {
                if let ForwardingEntry::Socket(socket) = &*entry {
                    world.network_behaviour.sockets[from].push(socket.local.to_string());
                }
            }
            _ => {}
        }
    }

    /// Ignore refusals: stations refuse the datagrams of attackers.
    fn handle_refusal(&mut self, _reason: &str) {}
}

impl NatWorld {
    fn registered_world() -> NatWorld {
        let mut agent = agent_config(&["2001:db8:a::/64"]);
        agent.home_agent.as_mut().expect("an agent").ipv4_address = "198.51.100.2".parse().ok();
        let mut router = router_config(&["2001:db8:a::/64"]);
        router.mobile_router.as_mut().expect("a router").router.home_agent_ipv4 = "198.51.100.2".parse().ok();
        let mut world = NatWorld::with_stations(
            [agent, router].map(|config| station_at_time_zero(config, 7)),
            NatNetwork::default(),
        );
        assert!(world.network_behaviour.packets_on_wire.is_empty());
        let ipv4 = |text: &str| -> std::net::Ipv4Addr { text.parse().expect("an address") };
        let uplink = Interface {
            addresses: Vec::new(),
            routers: Vec::new(),
            ipv4_addresses: vec![ipv4("10.0.0.10").into()],
            ipv4_routers: vec![ipv4("10.0.0.1").into()],
            ..interface("w0", "::", true)
        };
        world.pass_recorded_input(1, Input::Interface(uplink));
        world.run_for(Duration::from_secs(20));
        world
    }

    /// Passes an input to the station with index `to`, and delivers all resulting packets.
    fn feed_datagram(&mut self, to: usize, input: Input) {
        self.pass_input(to, input);
        self.run_until_quiet();
    }

    /// Returns the packets that have come out of a tunnel, without path MTU probes.
    fn arrived_data(&self) -> Vec<(usize, Vec<u8>)> {
        let data = self
            .network_behaviour
            .decapsulated_packets
            .iter()
            .filter(|(_, packet)| packet[6] == protocol::NO_NEXT_HEADER);
        data.cloned().collect()
    }
}

fn datagram_input((local, remote): (&str, &str), packet: Vec<u8>) -> Input {
    Input::Datagram { local: parse_endpoint(local), remote: parse_endpoint(remote), traffic_class: 0, packet }
}

#[test]
fn tunnelled_packets_pass_nat_in_both_directions() {
    let mut world = NatWorld::registered_world();
    assert_eq!(world.network_behaviour.sockets[0], ["198.51.100.2", HOME_AGENT_ENDPOINT]);
    assert_eq!(world.network_behaviour.sockets[1], ["10.0.0.10", ROUTER_ENDPOINT]);
    let tunnels = world.stations[0].nemo().tunnel_status();
    assert_eq!(
        tunnels.iter().map(|((_, remote), t)| (*remote, t.mtu)).collect::<Vec<_>>(),
        [(parse_endpoint(NAT_ENDPOINT), 1472)]
    );
    for (from, source, destination) in
        [(1, HOST_ADDRESS, CORRESPONDENT_ADDRESS), (0, CORRESPONDENT_ADDRESS, HOST_ADDRESS)]
    {
        let packet = data_packet_between(source, destination);
        world.network_behaviour.decapsulated_packets.clear();
        world.feed_datagram(from, Input::Packet(packet.clone()));
        assert_eq!(world.arrived_data(), [(1 - from, packet)]);
    }
}

/// Returns the IPv4 routes and rules of a router after its interfaces have had these states, one after the
/// other.
fn ipv4_tables(seen: &[(&str, &[&str], &[&str])]) -> (Vec<Ipv4Route>, Vec<Ipv4Rule>) {
    let mut config = router_config(&["2001:db8:a::/64"]);
    config.mobile_router.as_mut().expect("a router").router.home_agent_ipv4 = "198.51.100.2".parse().ok();
    let mut station = station_at_time_zero(config, 7);
    while station.poll_output().is_some() {}
    let mut wanted: Vec<std::sync::Arc<ForwardingEntry>> = Vec::new();
    for (name, addresses, routers) in seen {
        let gateway = |text: &&str| text.parse::<std::net::Ipv4Addr>().expect("an address").into();
        let uplink = Interface {
            addresses: Vec::new(),
            routers: Vec::new(),
            ipv4_addresses: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
            ipv4_routers: routers.iter().map(gateway).collect(),
            ..interface(name, "::", true)
        };
        let _ = station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(uplink));
        while let Some(output) = station.poll_output() {
            let (Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry)))
            | Output::Nemo(NemoOutput::Forwarding(EntryChange::Remove(entry)))) = &output
            else {
                continue;
            };
            wanted.retain(|known| known.key() != entry.key());
            if matches!(&output, Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(_)))) {
                wanted.push(entry.clone());
            }
        }
    }
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    for entry in &wanted {
        match &**entry {
            ForwardingEntry::Ipv4Route(route) => routes.push((**route).clone()),
            ForwardingEntry::Ipv4Rule(rule) => rules.push((**rule).clone()),
            _ => {}
        }
    }
    routes.sort_by_key(|route| (route.table, route.destination));
    rules.sort();
    (routes, rules)
}

fn describe_tables((routes, rules): (Vec<Ipv4Route>, Vec<Ipv4Rule>)) -> Vec<String> {
    let routes = routes.into_iter().map(|Ipv4Route { table, destination, interface, gateway }| {
        let via = gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        format!("{}: {destination}{via} dev {interface}", table - TABLE_UPLINK)
    });
    let rules =
        rules.into_iter().map(|Ipv4Rule { priority, from, output_interface, table, without_default }| {
            assert_eq!(without_default, table == TABLE_MAIN);
            let table =
                table.checked_sub(TABLE_UPLINK).map_or("main".to_owned(), |number| number.to_string());
            format!("{priority}: from {from} oif {output_interface} lookup {table}")
        });
    routes.chain(rules).collect()
}

/// Each uplink has an IPv4 table of its own, because two modems of the same model may have the same address
/// and the same gateway.
#[test]
fn uplinks_with_equal_ipv4_networks_have_separate_routing_tables() {
    let same: (&[&str], &[&str]) = (&["192.168.8.100/24"], &["192.168.8.1"]);
    let expected = [
        "0: 0.0.0.0/0 via 192.168.8.1 dev w0",
        "1: 0.0.0.0/0 via 192.168.8.1 dev w1",
        "129: from 192.168.8.100 oif w0 lookup main",
        "129: from 192.168.8.100 oif w1 lookup main",
        "130: from 192.168.8.100 oif w0 lookup 0",
        "130: from 192.168.8.100 oif w1 lookup 1",
    ];
    assert_eq!(describe_tables(ipv4_tables(&[("w0", same.0, same.1), ("w1", same.0, same.1)])), expected);
}

#[test]
fn ipv4_table_follows_the_lease_of_its_uplink_and_is_removed_with_it() {
    let leased: (&str, &[&str], &[&str]) = ("w0", &["10.2.0.185/24"], &["10.2.0.1"]);
    let renewed: (&str, &[&str], &[&str]) = ("w0", &["10.2.1.7/24"], &["10.2.1.1"]);
    let words = |name: &str, route: &str, address: &str, table: &str| {
        let rule = |number, table: &str| format!("{number}: from {address} oif {name} lookup {table}");
        vec![format!("{table}: 0.0.0.0/0{route} dev {name}"), rule(129, "main"), rule(130, table)]
    };
    assert_eq!(
        describe_tables(ipv4_tables(&[leased, renewed])),
        words("w0", " via 10.2.1.1", "10.2.1.7", "0")
    );
    assert_eq!(describe_tables(ipv4_tables(&[leased, ("w0", &[], &[])])), Vec::<String>::new());
    // One modem has a /32 address and a route without a gateway, another has a gateway outside its prefix.
    let modem: (&str, &[&str], &[&str]) = ("w1", &["10.64.0.9/32"], &["0.0.0.0"]);
    assert_eq!(describe_tables(ipv4_tables(&[modem])), words("w1", "", "10.64.0.9", "1"));
    let with_gateway: (&str, &[&str], &[&str]) = ("w1", &["10.64.0.9/32"], &["10.64.0.10"]);
    assert_eq!(
        describe_tables(ipv4_tables(&[with_gateway])),
        words("w1", " via 10.64.0.10", "10.64.0.9", "1")
    );
}

#[test]
fn tunnel_packets_of_unknown_senders_are_dropped() {
    let mut world = NatWorld::registered_world();
    for (from, source, destination) in
        [(1, HOST_ADDRESS, CORRESPONDENT_ADDRESS), (0, CORRESPONDENT_ADDRESS, HOST_ADDRESS)]
    {
        world.feed_datagram(from, Input::Packet(data_packet_between(source, destination)));
    }
    world.network_behaviour.decapsulated_packets.clear();
    let seen = world.network_behaviour.packets_on_wire.clone();
    assert!(seen.len() >= 4, "a registration and two packets");
    let mut rng = Rng::new(1);
    for round in 0..20_000 {
        let (to, packet) = &seen[rng.number_below(seen.len() as u64) as usize];
        let mut packet = packet.clone();
        for _ in 0..rng.number_below(4) {
            let at = rng.number_below(packet.len() as u64) as usize;
            packet[at] = rng.random_u64() as u8;
        }
        if rng.number_below(4) == 0 {
            packet.truncate(rng.number_below(packet.len() as u64 + 1) as usize);
        }
        let ends =
            [(HOME_AGENT_ENDPOINT, "udp:192.0.2.77:40002"), (ROUTER_ENDPOINT, "udp:203.0.113.5:4191")][*to];
        let before = world.network_behaviour.decapsulated_packets.len();
        let is_stranger = round % 2 == 0;
        let ends = if is_stranger {
            ends
        } else {
            [(HOME_AGENT_ENDPOINT, NAT_ENDPOINT), (ROUTER_ENDPOINT, HOME_AGENT_ENDPOINT)][*to]
        };
        world.feed_datagram(*to, datagram_input(ends, packet));
        let passed = world.network_behaviour.decapsulated_packets.split_off(before);
        // The outer addresses of these packets are right, so their inner addresses decide whether the station
        // accepts or drops them.
        for (at, packet) in passed {
            let header = Header::parse(&packet).expect("an IPv6 packet");
            let inside = |address: std::net::Ipv6Addr| address.segments()[..4] == [0x2001, 0xdb8, 0xa, 0];
            let may_pass = match at {
                0 => inside(header.source) || header.source == address(common::HOME_ADDRESS),
                _ => inside(header.destination) || header.destination == address(common::HOME_ADDRESS),
            };
            let own = header.source == address(common::AGENT_ADDRESS);
            assert!(own || (!is_stranger && may_pass), "{at}: {packet:02x?}");
        }
    }
    // After the attackers' messages the station still forwards as before.
    let packet = data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS);
    world.network_behaviour.decapsulated_packets.clear();
    world.feed_datagram(1, Input::Packet(packet.clone()));
    assert_eq!(world.arrived_data(), [(0, packet)]);
}
