//! Fifty mobile routers with traffic in both directions leave a home agent for maintenance, on a virtual home
//! link, over a slow network. Every packet arrives, once.

mod common;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::agents::{AgentAddress, AgentsConfig};
use carnet_mobility::home_agent::{AuthorizedNode, DrainPhase, OtherAgents, Peer};
use carnet_station::io::{Command, Event, Input, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::ipv6::{Header, protocol};
use common::{AGENT, CORRESPONDENT, WALL, address, agent_config, data, interface, per_agent, router_config};

const OTHER: &str = "2001:db8:1::2";
const ROUTERS: usize = 50;
/// One-way delay between any two nodes of the network.
const DELAY: Duration = Duration::from_millis(20);
/// Interval of the packets in each stream.
const INTERVAL: Duration = Duration::from_millis(20);

fn home(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, n as u16)
}

fn care_of(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 0x100 + n as u16)
}

fn prefix(n: usize) -> String {
    format!("2001:db8:a{n:02}::/64")
}

fn host(n: usize) -> Ipv6Addr {
    address(&prefix(n).replace("/64", "5"))
}

fn agent_of(own: &str, other: &str) -> StationConfig {
    let mut config = agent_config(&[]);
    if let Some(agent) = &mut config.home_agent {
        agent.address = address(own);
        let peer = Peer { address: address(other), preference: 0 };
        agent.others = OtherAgents { peers: vec![peer], ..OtherAgents::default() };
        let authentication = agent.nodes[0].authentication.clone();
        let node = |n| AuthorizedNode {
            nat: true,
            care_of_test: false,
            home_address: home(n),
            prefixes: [prefix(n).parse().expect("a prefix")].into(),
            authentication: authentication.clone(),
        };
        agent.nodes = (0..ROUTERS).map(node).collect();
    }
    config
}

fn router_of(n: usize) -> StationConfig {
    let mut config = router_config(&[&prefix(n)]);
    if let Some(router) = &mut config.mobile_router {
        router.router.home_address = home(n);
        let agents = [AGENT, OTHER].map(|agent| AgentAddress { address: address(agent), ipv4_address: None });
        router.agents = AgentsConfig { agents: agents.to_vec(), ..AgentsConfig::default() };
    }
    config
}

/// Receiver of an input: a home agent or a router, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Agent(usize),
    Router(usize),
}

/// A packet under way: time of arrival, sequence, receiver, and octets.
type Flight = (Time, u64, Who, Vec<u8>);

struct World {
    now: Time,
    agents: Vec<Station>,
    routers: Vec<Station>,
    wire: BinaryHeap<Reverse<Flight>>,
    sent: u64,
    /// Number of times that each packet of the streams has arrived.
    arrived: BTreeMap<u32, u32>,
    events: Vec<Event>,
}

/// Returns a packet of a stream; its data contain its number.
fn numbered(source: Ipv6Addr, destination: Ipv6Addr, number: u32) -> Vec<u8> {
    let mut packet = data(&source.to_string(), &destination.to_string());
    packet[40..44].copy_from_slice(&number.to_be_bytes());
    packet
}

impl World {
    fn new() -> World {
        let station = |config| {
            Station::new(per_agent(config), PersistentState::default(), Rng::new(7), Time::ZERO, WALL)
        };
        let mut world = World {
            now: Time::ZERO,
            agents: vec![station(agent_of(AGENT, OTHER)), station(agent_of(OTHER, AGENT))],
            routers: (0..ROUTERS).map(|n| station(router_of(n))).collect(),
            wire: BinaryHeap::new(),
            sent: 0,
            arrived: BTreeMap::new(),
            events: Vec::new(),
        };
        for agent in 0..2 {
            world.collect(Who::Agent(agent));
        }
        for n in 0..ROUTERS {
            world.collect(Who::Router(n));
            world.tell(Who::Router(n), Input::Interface(interface("w0", &care_of(n).to_string(), true)));
        }
        world
    }

    fn station(&mut self, who: Who) -> &mut Station {
        match who {
            Who::Agent(agent) => &mut self.agents[agent],
            Who::Router(router) => &mut self.routers[router],
        }
    }

    fn tell(&mut self, who: Who, input: Input) {
        let now = self.now;
        self.station(who).handle_input(now, WALL, input).expect("accepted");
        self.collect(who);
    }

    fn collect(&mut self, who: Who) {
        while let Some(output) = self.station(who).poll_output() {
            match output {
                Output::Packet(packet) => self.forward(who, packet),
                Output::Event(event) => self.events.push(event),
                _ => {}
            }
        }
    }

    fn send(&mut self, to: Who, packet: Vec<u8>) {
        self.sent += 1;
        self.wire.push(Reverse((self.now + DELAY, self.sent, to, packet)));
    }

    fn forward(&mut self, from: Who, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("a packet");
        let to = header.destination;
        let behind = (0..ROUTERS).find(|&n| to == home(n) || to == host(n));
        if let Some(agent) = [AGENT, OTHER].iter().position(|agent| to == address(agent)) {
            self.send(Who::Agent(agent), packet);
        } else if let Some(n) = (0..ROUTERS).find(|&n| to == care_of(n)) {
            self.send(Who::Router(n), packet);
        } else if let (Who::Agent(_), Some(_)) = (from, behind) {
            // The home agent's kernel routes the packet into the tunnel device.
            self.tell(from, Input::Packet(packet));
        } else if to == address(CORRESPONDENT) || behind.is_some_and(|n| from == Who::Router(n)) {
            if header.next_header != protocol::NO_NEXT_HEADER {
                return; // A probe of the path MTU, which is for the kernel.
            }
            let number = packet.get(40..44).and_then(|octets| octets.first_chunk::<4>());
            *self.arrived.entry(u32::from_be_bytes(*number.expect("a number"))).or_default() += 1;
        }
    }

    /// Lets time pass until `end`.
    fn until(&mut self, end: Time) {
        loop {
            let timers = self.agents.iter().chain(&self.routers).filter_map(Station::poll_timeout);
            let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = timers.chain(arrival).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let due = |station: &Station| station.poll_timeout().is_some_and(|at| at <= next);
            let agents = (0..2).filter(|&n| due(&self.agents[n])).map(Who::Agent);
            let routers = (0..ROUTERS).filter(|&n| due(&self.routers[n])).map(Who::Router);
            for who in agents.chain(routers).collect::<Vec<Who>>() {
                self.tell(who, Input::Timeout);
            }
            while self.wire.peek().is_some_and(|Reverse((at, ..))| *at <= self.now)
                && let Some(Reverse((_, _, to, packet))) = self.wire.pop()
            {
                self.tell(to, Input::Packet(packet));
            }
        }
        self.now = end;
    }

    fn registered_at(&self, agent: usize) -> usize {
        self.agents[agent].home_agent().expect("a home agent").bindings().iter().count()
    }
}

#[test]
fn fifty_routers_under_traffic_leave_without_losing_a_packet() {
    let mut world = World::new();
    world.until(Time::from_secs(2));
    assert_eq!((world.registered_at(0), world.registered_at(1)), (ROUTERS, 0));
    let mut number = 0;
    let mut phase = DrainPhase::Running;
    for step in 0..250_u32 {
        if step == 50 {
            let order = Command::Drain { to: Vec::new(), within_s: 60 };
            world.tell(Who::Agent(0), Input::Command(order));
        }
        for n in 0..ROUTERS {
            world.tell(Who::Router(n), Input::Packet(numbered(host(n), address(CORRESPONDENT), number)));
            // Packets of correspondents always go to the old home agent, because the Internet does not know
            // that the routers have moved.
            world.send(Who::Agent(0), numbered(address(CORRESPONDENT), host(n), number + 1));
            number += 2;
        }
        let next = world.now + INTERVAL;
        world.until(next);
        if let Some(drain) = world.agents[0].home_agent().and_then(|agent| agent.drain()) {
            phase = drain.phase;
        }
    }
    world.until(world.now + Duration::from_secs(1));
    assert_eq!(phase, DrainPhase::Done, "within four seconds");
    assert_eq!((world.registered_at(0), world.registered_at(1)), (0, ROUTERS));
    let lost = (0..number).filter(|number| !world.arrived.contains_key(number)).count();
    let twice = world.arrived.values().filter(|count| **count > 1).count();
    assert_eq!((lost, twice), (0, 0), "of {number}");
    let relayed = world.agents[1].forwarder().counters().relayed;
    assert!(relayed > u64::from(number) / 4, "{relayed} of {number} came by way of the old one");
}
