//! Two stations that have only IPv4 between them, a NAT on the way, and what strangers send to their sockets.

mod common;

use carnet_base::{Endpoint, Interface, Rng, Time};
use carnet_station::forwarding::desired::{Change, Entry};
use carnet_station::io::{Input, Output};
use carnet_station::{PersistentState, Station};
use carnet_wire::ipv6::{Header, protocol};
use common::{CORRESPONDENT, HOST, WALL, address, agent_config, data, interface, router_config};

const AGENT: &str = "udp:198.51.100.2:4191";
const ROUTER: &str = "udp:10.0.0.10:4191";
/// Address and port of the router behind the NAT.
const MAPPED: &str = "udp:192.0.2.77:40001";

fn end(text: &str) -> Endpoint {
    text.parse().expect("an endpoint")
}

struct World {
    now: Time,
    /// Home agent, mobile router.
    stations: [Station; 2],
    /// Packets out of tunnels, each with its station.
    arrived: Vec<(usize, Vec<u8>)>,
    /// Everything that was on the wire, and to which station.
    wire: Vec<(usize, Vec<u8>)>,
    sockets: [Vec<String>; 2],
}

impl World {
    fn registered() -> World {
        let mut agent = agent_config(&["2001:db8:a::/64"]);
        agent.home_agent.as_mut().expect("an agent").ipv4_address = "198.51.100.2".parse().ok();
        let mut router = router_config(&["2001:db8:a::/64"]);
        router.mobile_router.as_mut().expect("a router").router.home_agent_ipv4 = "198.51.100.2".parse().ok();
        let stations = [agent, router]
            .map(|config| Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL));
        let mut world = World {
            now: Time::ZERO,
            stations,
            arrived: Vec::new(),
            wire: Vec::new(),
            sockets: [Vec::new(), Vec::new()],
        };
        for to in 0..2 {
            assert!(world.drain(to).is_empty());
        }
        let ipv4 = |text: &str| -> std::net::Ipv4Addr { text.parse().expect("an address") };
        let uplink = Interface {
            addresses: Vec::new(),
            routers: Vec::new(),
            ipv4_addresses: vec![ipv4("10.0.0.10").into()],
            ipv4_routers: vec![ipv4("10.0.0.1").into()],
            ..interface("w0", "::", true)
        };
        world.give(1, Input::Interface(uplink));
        world.run(50);
        world
    }

    /// Hands a station something, and on whatever follows.
    fn give(&mut self, to: usize, input: Input) {
        let mut inputs = vec![(to, input)];
        while let Some((to, input)) = inputs.pop() {
            let _ = self.stations[to].handle_input(self.now, WALL, input);
            for packet in self.drain(to) {
                let seen = [(ROUTER, AGENT), (AGENT, MAPPED)][to];
                inputs.insert(0, (1 - to, datagram(seen, packet)));
            }
        }
    }

    /// Takes a station's outputs; what goes through the NAT comes back.
    fn drain(&mut self, to: usize) -> Vec<Vec<u8>> {
        let mut through = Vec::new();
        while let Some(output) = self.stations[to].poll_output() {
            match output {
                Output::Packet(packet) => self.arrived.push((to, packet)),
                Output::Encapsulated { local, remote, packet, .. } => {
                    // The router's end is another outside, and only its own mapping leads in.
                    let there = [(AGENT, MAPPED), (ROUTER, AGENT)][to];
                    if (local, remote) == (end(there.0), end(there.1)) {
                        self.wire.push((1 - to, packet.clone()));
                        through.push(packet);
                    }
                }
                Output::Forwarding(Change::Set(entry)) => {
                    if let Entry::Socket(socket) = &*entry {
                        self.sockets[to].push(socket.local.to_string());
                    }
                }
                _ => {}
            }
        }
        through
    }

    /// Returns the packets out of tunnels that are not path MTU probes.
    fn data(&self) -> Vec<(usize, Vec<u8>)> {
        self.arrived.iter().filter(|(_, packet)| packet[6] == protocol::NO_NEXT_HEADER).cloned().collect()
    }

    /// Lets timers run out.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let next = self.stations.iter().filter_map(Station::poll_timeout).min();
            let Some(next) = next.filter(|next| *next < Time::from_secs(20)) else { return };
            self.now = self.now.max(next);
            for to in 0..2 {
                if self.stations[to].poll_timeout().is_some_and(|due| due <= self.now) {
                    self.give(to, Input::Timeout);
                }
            }
        }
    }
}

fn datagram((local, remote): (&str, &str), packet: Vec<u8>) -> Input {
    Input::Datagram { local: end(local), remote: end(remote), traffic_class: 0, packet }
}

#[test]
fn packets_pass_a_nat_in_both_directions() {
    let mut world = World::registered();
    assert_eq!(world.sockets[0], ["198.51.100.2", AGENT]);
    assert_eq!(world.sockets[1], ["10.0.0.10", ROUTER]);
    let tunnels = world.stations[0].tunnel_status();
    assert_eq!(tunnels.iter().map(|t| (t.remote, t.mtu)).collect::<Vec<_>>(), [(end(MAPPED), 1472)]);
    for (from, source, destination) in [(1, HOST, CORRESPONDENT), (0, CORRESPONDENT, HOST)] {
        let packet = data(source, destination);
        world.arrived.clear();
        world.give(from, Input::Packet(packet.clone()));
        assert_eq!(world.data(), [(1 - from, packet)]);
    }
}

#[test]
fn strangers_get_nothing_through_and_break_nothing() {
    let mut world = World::registered();
    for (from, source, destination) in [(1, HOST, CORRESPONDENT), (0, CORRESPONDENT, HOST)] {
        world.give(from, Input::Packet(data(source, destination)));
    }
    world.arrived.clear();
    let seen = world.wire.clone();
    assert!(seen.len() >= 4, "a registration and two packets");
    let mut rng = Rng::new(1);
    for round in 0..20_000 {
        let (to, packet) = &seen[rng.below(seen.len() as u64) as usize];
        let mut packet = packet.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(packet.len() as u64) as usize;
            packet[at] = rng.u64() as u8;
        }
        if rng.below(4) == 0 {
            packet.truncate(rng.below(packet.len() as u64 + 1) as usize);
        }
        let ends = [(AGENT, "udp:192.0.2.77:40002"), (ROUTER, "udp:203.0.113.5:4191")][*to];
        let before = world.arrived.len();
        let is_stranger = round % 2 == 0;
        let ends = if is_stranger { ends } else { [(AGENT, MAPPED), (ROUTER, AGENT)][*to] };
        world.give(*to, datagram(ends, packet));
        let passed = world.arrived.split_off(before);
        // From the right end a packet is judged by what is inside.
        for (at, packet) in passed {
            let header = Header::parse(&packet).expect("an IPv6 packet");
            let inside = |address: std::net::Ipv6Addr| address.segments()[..4] == [0x2001, 0xdb8, 0xa, 0];
            let may_pass = match at {
                0 => inside(header.source) || header.source == address(common::HOME),
                _ => inside(header.destination) || header.destination == address(common::HOME),
            };
            let own = header.source == address(common::AGENT);
            assert!(own || (!is_stranger && may_pass), "{at}: {packet:02x?}");
        }
    }
    // And all is as before.
    let packet = data(HOST, CORRESPONDENT);
    world.arrived.clear();
    world.give(1, Input::Packet(packet.clone()));
    assert_eq!(world.data(), [(0, packet)]);
}
