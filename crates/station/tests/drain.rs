//! Fifty mobile routers with traffic in both directions leave a home agent before its maintenance. The home
//! link is virtual, and the network is slow. Every packet arrives exactly once.

mod common;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::agents::{HomeAgentAddress, HomeAgentSelectionConfig};
use carnet_mobility::home_agent::{AuthorizedNode, OtherAgents, PeerHomeAgent};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_station::{Station, StationConfig};
use carnet_wire::ipv6::{Header, protocol};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, address, agent_config, data_packet_between, interface, per_agent,
    router_config,
};

const OTHER_HOME_AGENT_ADDRESS: &str = "2001:db8:1::2";
const ROUTER_COUNT: usize = 50;
/// One-way delay between any two nodes of the network.
const ONE_WAY_DELAY: Duration = Duration::from_millis(20);
/// Interval of the packets in each stream.
const STREAM_INTERVAL: Duration = Duration::from_millis(20);

fn home_address_of(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, n as u16)
}

fn care_of_address_of(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 0x100 + n as u16)
}

fn prefix(n: usize) -> String {
    format!("2001:db8:a{n:02}::/64")
}

fn host_address_of(n: usize) -> Ipv6Addr {
    address(&prefix(n).replace("/64", "5"))
}

fn agent_config_for(own: &str, other: &str) -> StationConfig {
    let mut config = agent_config(&[]);
    if let Some(agent) = &mut config.home_agent {
        agent.address = address(own);
        let peer = PeerHomeAgent { address: address(other), preference: 0 };
        agent.other_agents = OtherAgents { peers: vec![peer], ..OtherAgents::default() };
        let authentication = agent.nodes[0].authentication.clone();
        let node = |n| AuthorizedNode {
            nat: true,
            care_of_test: false,
            home_address: home_address_of(n),
            prefixes: [prefix(n).parse().expect("a prefix")].into(),
            authentication: authentication.clone(),
        };
        agent.nodes = (0..ROUTER_COUNT).map(node).collect();
    }
    config
}

fn router_config_for(n: usize) -> StationConfig {
    let mut config = router_config(&[&prefix(n)]);
    if let Some(router) = &mut config.mobile_router {
        router.router.home_address = home_address_of(n);
        let agents = [AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS]
            .map(|agent| HomeAgentAddress { address: address(agent), ipv4_address: None });
        router.agents =
            HomeAgentSelectionConfig { agents: agents.to_vec(), ..HomeAgentSelectionConfig::default() };
    }
    config
}

/// The first stations are the home agents; router `n` is station `FIRST_ROUTER_INDEX + n`.
const FIRST_ROUTER_INDEX: usize = 2;

/// The slow network, and what the test records.
#[derive(Default)]
struct SlowInternet {
    /// Number of arrivals of each packet of the streams, by the packet's number.
    arrivals_by_number: BTreeMap<u32, u32>,
    events: Vec<Event>,
}

type SlowWorld = common::world::TestNetwork<SlowInternet>;

/// Returns a packet of a test stream, whose payload contains the packet's number.
fn numbered_packet(source: Ipv6Addr, destination: Ipv6Addr, number: u32) -> Input {
    let mut packet = data_packet_between(&source.to_string(), &destination.to_string());
    packet[40..44].copy_from_slice(&number.to_be_bytes());
    Input::Packet(packet)
}

impl NetworkBehaviour for SlowInternet {
    fn handle_output(world: &mut SlowWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => world.forward_packet(from, packet),
            Output::Nemo(NemoOutput::Event(event)) => world.network_behaviour.events.push(event),
            _ => {}
        }
    }
}

impl SlowWorld {
    fn new() -> SlowWorld {
        let agents = [
            agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS),
            agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS),
        ];
        let configs = agents.into_iter().chain((0..ROUTER_COUNT).map(router_config_for));
        let stations: Vec<Station> =
            configs.map(|config| station_at_time_zero(per_agent(config), 7)).collect();
        let mut world = SlowWorld::with_stations(stations, SlowInternet::default());
        for n in 0..ROUTER_COUNT {
            world.pass_recorded_input(
                FIRST_ROUTER_INDEX + n,
                Input::Interface(interface("w0", &care_of_address_of(n).to_string(), true)),
            );
        }
        world
    }

    fn forward_packet(&mut self, from: usize, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("a packet");
        let to = header.destination;
        let behind = (0..ROUTER_COUNT).find(|&n| to == home_address_of(n) || to == host_address_of(n));
        if let Some(agent) =
            [AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS].iter().position(|agent| to == address(agent))
        {
            self.send_after(ONE_WAY_DELAY, agent, Input::Packet(packet));
        } else if let Some(n) = (0..ROUTER_COUNT).find(|&n| to == care_of_address_of(n)) {
            self.send_after(ONE_WAY_DELAY, FIRST_ROUTER_INDEX + n, Input::Packet(packet));
        } else if from < FIRST_ROUTER_INDEX && behind.is_some() {
            // The home agent's kernel routes the packet into the tunnel device.
            self.send_now(from, Input::Packet(packet));
        } else if to == address(CORRESPONDENT_ADDRESS)
            || behind.is_some_and(|n| from == FIRST_ROUTER_INDEX + n)
        {
            if header.next_header != protocol::NO_NEXT_HEADER {
                return; // A probe of the path MTU, which is for the kernel.
            }
            let number = packet.get(40..44).and_then(|octets| octets.first_chunk::<4>());
            *self
                .network_behaviour
                .arrivals_by_number
                .entry(u32::from_be_bytes(*number.expect("a number")))
                .or_default() += 1;
        }
    }

    fn count_registrations_at(&self, agent: usize) -> usize {
        self.stations[agent].home_agent().expect("a home agent").bindings().iter().count()
    }
}

#[test]
fn fifty_routers_under_traffic_leave_without_losing_a_packet() {
    let mut world = SlowWorld::new();
    world.run_until(Time::from_secs(2));
    assert_eq!((world.count_registrations_at(0), world.count_registrations_at(1)), (ROUTER_COUNT, 0));
    let mut number = 0;
    let mut state = String::new();
    for step in 0..250_u32 {
        if step == 50 {
            let order = Command::Drain { to: Vec::new(), within_s: 60 };
            world.pass_recorded_input(0, Input::Command(order));
        }
        for n in 0..ROUTER_COUNT {
            world.pass_input(
                FIRST_ROUTER_INDEX + n,
                numbered_packet(host_address_of(n), address(CORRESPONDENT_ADDRESS), number),
            );
            // The Internet always routes packets of correspondents to the drained home agent, although the
            // routers have registered at the other home agent.
            world.send_after(
                ONE_WAY_DELAY,
                0,
                numbered_packet(address(CORRESPONDENT_ADDRESS), host_address_of(n), number + 1),
            );
            number += 2;
        }
        let next = world.now + STREAM_INTERVAL;
        world.run_until(next);
        if let Some(drain) = world.stations[0].home_agent().and_then(|agent| agent.drain()) {
            state = drain.state;
        }
    }
    world.run_until(world.now + Duration::from_secs(1));
    assert_eq!(state, "done", "within four seconds");
    assert_eq!((world.count_registrations_at(0), world.count_registrations_at(1)), (0, ROUTER_COUNT));
    let lost =
        (0..number).filter(|number| !world.network_behaviour.arrivals_by_number.contains_key(number)).count();
    let twice = world.network_behaviour.arrivals_by_number.values().filter(|count| **count > 1).count();
    assert_eq!((lost, twice), (0, 0), "of {number}");
    let relayed = world.stations[1].nemo().slow_path_forwarder().counters().relayed_packets;
    assert!(relayed > u64::from(number) / 4, "{relayed} of {number} came by way of the old one");
}
